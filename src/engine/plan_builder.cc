#include "engine/plan_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/reference_step.h"
#include "mil/program.h"

namespace milwright::engine {
namespace {

// Float constants up to this size are held as fp32, which every step reads fastest.
constexpr int64_t kMaxConvertedBytes = 1 << 20;

int64_t ElementBytesOf(DataType type) { return std::max(1, BitWidth(type) / 8); }

// Enough for kernels that read whole vectors.
constexpr int64_t kPadding = 64;

const LoweringEntry* FindLowering(std::string_view kind) {
  for (const auto entries : {ElementwiseLowerings(), MovementLowerings(), ProductLowerings(), ReductionLowerings(),
                             AttentionLowerings(), FusedLowerings()}) {
    const auto it = std::ranges::find(entries, kind, &LoweringEntry::kind);
    if (it != entries.end()) return &*it;
  }
  return nullptr;
}

}  // namespace

DataType HeldType(DataType declared) { return declared == DataType::kFp16 ? DataType::kFp32 : declared; }

PlanBuilder::PlanBuilder(std::unique_ptr<const Graph> graph, WeightStore& weights, int threads)
    : plan_(std::make_unique<Plan>()), graph_(*graph), weights_(weights), threads_(threads) {
  plan_->graph = std::move(graph);
}

Result<std::unique_ptr<Plan>> PlanBuilder::Build() {
  plan_->states = graph_.states;
  plan_->operations = graph_.operations;
  for (const auto& node : graph_.nodes) {
    for (const Node::Parameter& parameter : node->parameters) {
      for (const GraphValue* value : parameter.arguments) use_positions_[value].push_back(node->position);
    }
  }
  for (const GraphValue* output : graph_.outputs) {
    use_positions_[output].push_back(std::numeric_limits<size_t>::max());
  }
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    GraphValue* input = graph_.inputs[i];
    const DataType dtype = input->dtype();
    const View view{NewRoot({.memory = Memory::kInput, .index = static_cast<int32_t>(i)}), 0, dtype, input->shape(),
                    DenseStrides(input->shape())};
    Bind(input, view);
  }
  for (size_t i = 0; i < graph_.states.size(); ++i) {
    state_roots_.push_back(NewRoot({.memory = Memory::kState, .index = static_cast<int32_t>(i)}));
  }
  for (const auto& node : graph_.nodes) {
    const Status status = Lower(*node);
    if (!status.ok()) return status.WithContext(OperationPath(*node->op));
  }
  MW_RETURN_IF_ERROR(FinishOutputs());
  plan_->arena_bytes = PlaceRoots(plan_->roots) + kPadding;
  for (const PlannedStep& step : plan_->steps) {
    plan_->scratch_bytes = std::max(plan_->scratch_bytes, static_cast<int64_t>(step.step->ScratchBytes()));
  }
  return std::move(plan_);
}

Status PlanBuilder::Lower(const Node& node) {
  if (const LoweringEntry* entry = FindLowering(node.kind); entry != nullptr) {
    MW_ASSIGN_OR_RETURN(const bool done, entry->lower(*this, node));
    if (done) return Status::Ok();
  }
  return LowerReference(node);
}

Status PlanBuilder::LowerReference(const Node& node) {
  if (node.definition == nullptr || node.definition->evaluate == nullptr) {
    return {ErrorCode::kInternal, fmt::format("nothing runs '{}'", node.kind)};
  }
  std::vector<View> used;
  std::vector<ReferenceArgument> arguments;
  for (const Node::Parameter& parameter : node.parameters) {
    for (GraphValue* value : parameter.arguments) {
      ReferenceArgument argument{parameter.name, &value->type, value->known, {}};
      if (value->known == nullptr) {
        MW_ASSIGN_OR_RETURN(argument.view, ViewOf(value));
        used.push_back(argument.view);
      }
      arguments.push_back(argument);
    }
  }
  std::vector<View> results;
  for (GraphValue* output : node.outputs) results.push_back(Allocate(output));
  used.insert(used.end(), results.begin(), results.end());
  StepInfo info;
  info.reference = true;
  Emit(MakeReferenceStep(node, std::move(arguments), results), node, used, std::move(info));
  return Status::Ok();
}

Result<View> PlanBuilder::ViewOf(GraphValue* value) {
  if (const auto it = views_.find(value); it != views_.end()) return it->second;
  if (value->known == nullptr && value->weight == nullptr) {
    return Status(ErrorCode::kInternal, fmt::format("the value '{}' is not made yet", value->name));
  }
  MW_ASSIGN_OR_RETURN(const Literal content, weights_.Content(*value));
  const Tensor& tensor = content.tensor;
  if (IsSubByte(tensor.dtype()) || tensor.dtype() == DataType::kString ||
      tensor.rank() > static_cast<int64_t>(kMaxAxes)) {
    return Status(ErrorCode::kPrecondition, fmt::format("the constant '{}' is {}, which no step reads", value->name,
                                                        TypeToString(tensor.type())));
  }
  View view;
  if (IsFloat(tensor.dtype()) && tensor.dtype() != DataType::kFp32 &&
      (static_cast<int64_t>(tensor.bytes().size()) <= kMaxConvertedBytes || tensor.dtype() != DataType::kFp16)) {
    const std::vector<float> floats = tensor.ToFloats();
    MW_ASSIGN_OR_RETURN(view, Constant(DataType::kFp32, tensor.shape(), std::as_bytes(std::span(floats))));
  } else if (value->known != nullptr && value->known->blob.has_value()) {
    MW_ASSIGN_OR_RETURN(const std::byte* place, weights_.Place(tensor.bytes()));
    view = View{NewRoot({.memory = Memory::kFixed, .fixed = place}), 0, tensor.dtype(), tensor.shape(),
                DenseStrides(tensor.shape())};
  } else {
    MW_ASSIGN_OR_RETURN(view, Constant(tensor.dtype(), tensor.shape(), tensor.bytes()));
  }
  views_[value] = view;
  return view;
}

Result<View> PlanBuilder::FloatsOf(GraphValue* value) {
  MW_ASSIGN_OR_RETURN(const View view, ViewOf(value));
  if (view.dtype == DataType::kFp32) return view;
  // What nobody writes is converted once.
  const Memory memory = plan_->roots[static_cast<size_t>(view.root)].memory;
  const bool constant = memory == Memory::kInput || memory == Memory::kFixed;
  if (const auto it = floats_.find(value); constant && it != floats_.end()) return it->second;
  View floats = AllocateTemporary(DataType::kFp32, view.shape);
  Node copy;
  copy.kind = "convert";
  copy.op = value->producer != nullptr ? value->producer->op : graph_.nodes.front()->op;
  copy.operations = 0;
  Emit(MakeCopy(view, floats), copy, {view, floats});
  if (constant) floats_[value] = floats;
  return floats;
}

View PlanBuilder::Allocate(GraphValue* value, const Shape* strides) {
  View view = AllocateAs(value, HeldType(value->dtype()));
  if (strides != nullptr) {
    view.strides = *strides;
    views_[value] = view;
  }
  return view;
}

View PlanBuilder::AllocateAs(GraphValue* value, DataType dtype) {
  View view = AllocateTemporary(dtype, value->shape());
  Bind(value, view);
  return view;
}

View PlanBuilder::AllocateTemporary(DataType dtype, const Shape& shape) {
  View view{-1, 0, dtype, shape, DenseStrides(shape)};
  view.root = NewRoot({.memory = Memory::kArena, .bytes = view.count() * ElementBytesOf(dtype) + kPadding});
  return view;
}

void PlanBuilder::Bind(GraphValue* value, View view) {
  viewers_[view.root].push_back(value);
  views_[value] = view;
}

Result<View> PlanBuilder::Constant(DataType dtype, const Shape& shape, std::span<const std::byte> content) {
  MW_ASSIGN_OR_RETURN(kernels::AlignedBuffer buffer, kernels::AlignedBuffer::Allocate(content.size() + kPadding));
  if (!content.empty()) std::memcpy(buffer.data(), content.data(), content.size());
  plan_->owned.push_back(std::move(buffer));
  return View{NewRoot({.memory = Memory::kFixed, .fixed = reinterpret_cast<std::byte*>(plan_->owned.back().data())}), 0,
              dtype, shape, DenseStrides(shape)};
}

int32_t PlanBuilder::NewRoot(Root root) {
  root.first_step = plan_->steps.size();
  root.last_step = root.first_step;
  plan_->roots.push_back(root);
  return static_cast<int32_t>(plan_->roots.size()) - 1;
}

void PlanBuilder::Touch(const View& view) {
  if (view.root < 0) return;
  Root& root = plan_->roots[static_cast<size_t>(view.root)];
  root.last_step = std::max(root.last_step, plan_->steps.size());
}

void PlanBuilder::Emit(NewStep step, const Node& node, std::span<const View> used, StepInfo info) {
  constexpr int64_t kCacheBytes = 1 << 18;
  for (const View& view : used) Touch(view);
  if (info.kind.empty()) info.kind = node.kind;
  info.op = node.op;
  info.operations = node.operations;
  plan_->multiply_adds += info.multiply_adds;
  const bool empties_caches = info.weight_bytes >= kCacheBytes;
  plan_->steps.push_back({std::move(step.step), step.bytes, empties_caches, std::move(info)});
}

size_t PlanBuilder::LastUse(const GraphValue* value) const {
  const auto it = use_positions_.find(value);
  return it == use_positions_.end() ? 0 : *std::ranges::max_element(it->second);
}

int32_t PlanBuilder::StateOf(const View& view) const {
  const Root& root = plan_->roots[static_cast<size_t>(view.root)];
  return root.memory == Memory::kState ? root.index : -1;
}

View PlanBuilder::StateView(int32_t state) const {
  for (const auto& node : graph_.nodes) {
    if (node->state != state) continue;
    const GraphValue* value = !node->outputs.empty() ? node->output() : node->parameters.front().arguments.front();
    return {state_roots_[static_cast<size_t>(state)], 0, value->dtype(), value->shape(), DenseStrides(value->shape())};
  }
  return {};
}

bool PlanBuilder::WrittenBackNext(const Node& node, const GraphValue* result, int32_t state) const {
  for (size_t i = node.position + 1; i < graph_.nodes.size(); ++i) {
    const Node& next = *graph_.nodes[i];
    if (next.state != state) continue;
    if (next.kind == "read_state") return false;
    const GraphValue* data = next.Arg(next.kind == "write_state" ? "data" : "value");
    // Further updates of the result may come between.
    while (data != result) {
      const Node* producer = data->producer;
      if (producer == nullptr || (producer->kind != "slice_update" && producer->kind != "fused_blend")) return false;
      data = producer->Arg("x");
    }
    return true;
  }
  return false;
}

Result<View> PlanBuilder::UpdateTarget(const Node& node, GraphValue* old) {
  MW_ASSIGN_OR_RETURN(const View before, ViewOf(old));
  MW_ASSIGN_OR_RETURN(const bool in_place, UpdateInPlace(node, old));
  if (in_place) {
    // By now `old` may have moved away for a later reader; what is updated is the memory that it had.
    Bind(node.output(), before);
    return before;
  }
  View copy = AllocateAs(node.output(), before.dtype);
  Emit(MakeCopy(before, copy), node, {before, copy});
  return copy;
}

Result<bool> PlanBuilder::UpdateInPlace(const Node& node, GraphValue* old) {
  MW_ASSIGN_OR_RETURN(const View view, ViewOf(old));
  const Root& root = plan_->roots[static_cast<size_t>(view.root)];
  if (root.memory == Memory::kState) {
    if (view.offset != 0 || !IsDense(view) || view.count() != StateView(root.index).count()) return false;
    if (!WrittenBackNext(node, node.output(), root.index)) return false;
    SaveViews(node, view.root);
    return true;
  }
  if (root.memory != Memory::kArena || !IsPermutedDense(view)) return false;
  return std::ranges::none_of(viewers_[view.root],
                              [&](const GraphValue* viewer) { return LastUse(viewer) > node.position; });
}

void PlanBuilder::SaveViews(const Node& node, int32_t root) {
  const std::vector<GraphValue*> viewers = viewers_[root];
  for (GraphValue* viewer : viewers) {
    if (views_[viewer].root != root || LastUse(viewer) <= node.position) continue;
    const View from = views_[viewer];
    View to = AllocateTemporary(from.dtype, from.shape);
    Node copy;
    copy.kind = "save_view";
    copy.op = node.op;
    copy.operations = 0;
    Emit(MakeCopy(from, to), copy, {from, to});
    Bind(viewer, to);
  }
}

int32_t PlanBuilder::ScanOf(const View& mask) {
  const auto [it, added] =
      scans_.emplace(std::make_tuple(mask.root, mask.offset, mask.shape, mask.strides), plan_->scans);
  if (added) ++plan_->scans;
  return it->second;
}

Status PlanBuilder::FinishOutputs() {
  std::map<int32_t, int> shared;
  for (GraphValue* output : graph_.outputs) {
    MW_ASSIGN_OR_RETURN(const View view, ViewOf(output));
    ++shared[view.root];
  }
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    GraphValue* output = graph_.outputs[i];
    MW_ASSIGN_OR_RETURN(const View view, ViewOf(output));
    PlannedOutput planned{graph_.output_names[i], output->type.tensor, view, false, {}};
    Root& root = plan_->roots[static_cast<size_t>(view.root)];
    root.last_step = std::numeric_limits<size_t>::max();
    if (root.memory == Memory::kArena && shared[view.root] == 1 && view.offset == 0 && IsDense(view) &&
        view.dtype == planned.type.dtype && root.bytes == view.count() * ElementBytesOf(view.dtype) + kPadding) {
      root.memory = Memory::kOutput;
      root.index = static_cast<int32_t>(i);
      planned.in_place = true;
    }
    planned.copier =
        Copier(view.dtype, view.strides, planned.type.dtype, DenseStrides(planned.type.shape), planned.type.shape);
    plan_->outputs.push_back(std::move(planned));
  }
  return Status::Ok();
}

}  // namespace milwright::engine
