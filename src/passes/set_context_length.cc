// set-context-length: a static program with caches of another length.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/dataflow.h"
#include "analysis/effects.h"
#include "analysis/input_kind.h"
#include "analysis/update_form.h"
#include "ops/infer.h"
#include "passes/context_axes.h"
#include "passes/context_tables.h"
#include "passes/edit.h"
#include "passes/entries.h"

namespace milwright {
namespace {

// An axis along which a cache is filled: of the value that an update makes.
struct CacheAxis {
  std::string cache;  // the state or the input
  const Value* value = nullptr;
  size_t axis = 0;
  bool window = false;  // a ring or a shifted window: its length is not that of the context

  [[nodiscard]] int64_t length() const { return value->type.shape()[axis]; }
};

bool IsPlace(InputKind kind) { return kind == InputKind::kPosition || kind == InputKind::kPositionIds; }

// Visits what `value` is computed from, until `visit` says that it has seen enough of that branch.
void WalkBack(const Value* value, const std::function<bool(const Value&)>& enough) {
  std::vector<const Value*> pending{value};
  std::set<const Value*> seen;
  while (!pending.empty()) {
    const Value* next = pending.back();
    pending.pop_back();
    if (!seen.insert(next).second || enough(*next) || next->producer() == nullptr) continue;
    for (const Input& input : next->producer()->inputs()) {
      for (const Operand& operand : input.arguments) {
        if (operand.value != nullptr) pending.push_back(operand.value);
      }
    }
  }
}

// The axis of a mask blend: the only one along which a factor of it varies.
std::optional<size_t> BlendAxis(const Operation& blend, const OldContent& old) {
  const Shape& cache = blend.output()->type.shape();
  std::set<size_t> axes;
  WalkBack(blend.output(), [&](const Value& value) {
    if (old.dependent.contains(&value)) return false;
    const Shape& shape = value.type.shape();
    std::vector<size_t> varies;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] != 1) varies.push_back(i);
    }
    // Behind the mask, or behind the new row, lies nothing of interest.
    const bool fits = varies.size() == 1 && shape.size() <= cache.size();
    const size_t axis = fits ? varies.front() + cache.size() - shape.size() : 0;
    if (fits && shape[varies.front()] == cache[axis]) axes.insert(axis);
    return true;
  });
  return axes.size() == 1 ? std::optional(*axes.begin()) : std::nullopt;
}

class Setter {
 public:
  Setter(ModelSpec& model, const PassArguments& arguments, PassReport& report)
      : model_(model), arguments_(arguments), report_(report) {}

  Status Run() {
    MW_ASSIGN_OR_RETURN(length_, arguments_.Int("length", 0));
    if (length_ < 1) return Usage(fmt::format("'length' must be positive, not {}", length_));
    const auto& functions = model_.program.functions();
    std::vector<std::vector<CacheAxis>> axes;
    for (const auto& function : functions) {
      MW_ASSIGN_OR_RETURN(FunctionInputs inputs, FindInputKinds(*function));
      inputs_.push_back(std::move(inputs));
      axes.push_back(FindCacheAxes(*function, inputs_.back()));
    }
    MW_RETURN_IF_ERROR(Choose(axes));
    // States are shared: what one function finds out about their sizes holds in all.
    std::map<std::string, Shape> states;
    std::vector<ContextAxes> found;
    for (bool settled = false; !settled;) {
      settled = true;
      found.clear();
      for (size_t i = 0; i < functions.size(); ++i) {
        found.emplace_back(*functions[i]);
        MW_RETURN_IF_ERROR(Follow(*functions[i], inputs_[i], axes[i], states, found.back()));
        for (const Value* state : functions[i]->States()) {
          const auto shape = found.back().ShapeOf(state);
          if (!shape.has_value()) continue;
          settled = settled && states.contains(state->name);
          states[state->name] = *shape;
        }
      }
    }
    std::vector<std::map<std::string, Shape>> before(functions.size());
    for (size_t i = 0; i < functions.size(); ++i) {
      for (const auto& input : functions[i]->inputs()) before[i][input->name] = input->type.shape();
      for (const Value* output : functions[i]->body().outputs()) before[i][output->name] = output->type.shape();
    }
    for (size_t i = 0; i < functions.size(); ++i) {
      MW_RETURN_IF_ERROR(found[i].Apply(ResizeTable));
    }
    for (size_t i = 0; i < functions.size(); ++i) MW_RETURN_IF_ERROR(SetFlexible(*functions[i], before[i]));
    RefreshDescription(model_);
    if (Status valid = Verify(model_.program); !valid.ok()) {
      return Refuse(fmt::format("with a context of {} the program would not be valid: {}", length_, valid.message()));
    }
    report_.notes.push_back(fmt::format("context {} -> {}", old_length_, length_));
    return Status::Ok();
  }

 private:
  // Features that are flexible along other axes keep that, with the new length along this one.
  Status SetFlexible(const Function& function, const std::map<std::string, Shape>& before) {
    FunctionDescription* description = model_.description.Find(function.name);
    if (description == nullptr) return Status::Ok();
    const auto set = [&](FeatureDescription& feature, const Value* value) -> Status {
      if (value == nullptr) return Status::Ok();
      const auto old = before.find(value->name);
      ArrayFeature& array = feature.type.array;
      if (old == before.end() || !array.IsFlexible()) return Status::Ok();
      for (size_t axis = 0; axis < old->second.size(); ++axis) {
        const int64_t size = value->type.shape()[axis];
        if (size == old->second[axis]) continue;
        const auto replace = [&](Shape& shape) {
          if (axis < shape.size()) shape[axis] = size;
        };
        replace(array.shape);
        for (Shape& shape : array.enumerated_shapes) replace(shape);
        if (axis >= array.shape_range.size()) continue;
        ArrayFeature::Range& range = array.shape_range[axis];
        if (range.upper != old->second[axis] || range.lower != static_cast<uint64_t>(range.upper)) {
          return Refuse(fmt::format("the length of '{}' of '{}' is flexible", feature.name, function.name));
        }
        range = {static_cast<uint64_t>(size), size};
      }
      return Status::Ok();
    };
    for (auto* features : {&description->inputs, &description->states}) {
      for (FeatureDescription& feature : *features) {
        MW_RETURN_IF_ERROR(set(feature, function.FindInput(feature.name)));
      }
    }
    for (FeatureDescription& feature : description->outputs) {
      const auto& outputs = function.body().outputs();
      const auto output = std::ranges::find(outputs, feature.name, &Value::name);
      MW_RETURN_IF_ERROR(set(feature, output != outputs.end() ? *output : nullptr));
    }
    return Status::Ok();
  }

  static void AddUpdate(const std::string& cache, const StateWrite& write, const OldContent& old,
                        const FunctionInputs& inputs, std::vector<CacheAxis>& axes) {
    if (write.update_op == nullptr || write.update_op->outputs().empty()) return;
    CacheAxis found{cache, write.update_op->output(), 0, false};
    std::optional<size_t> axis;
    if (write.axis.has_value()) axis = static_cast<size_t>(*write.axis);
    switch (write.form) {
      case UpdateForm::kShiftConcat:
      case UpdateForm::kShiftMatmul:
        found.value = write.data;
        found.window = true;
        break;
      case UpdateForm::kMaskBlend:
        axis = BlendAxis(*write.update_op, old);
        break;
      case UpdateForm::kScatter: {
        const Literal* at = write.update_op->InputConstant("axis");
        const int64_t along = at != nullptr ? at->tensor.GetInt(0) : 0;
        axis = static_cast<size_t>(along < 0 ? along + found.value->type.rank() : along);
        break;
      }
      case UpdateForm::kSliceUpdate:
        WalkBack(write.begin, [&](const Value& value) {
          const auto input = std::ranges::find(inputs.inputs, &value, &InputFacts::input);
          found.window = found.window || (input != inputs.inputs.end() && input->kind == InputKind::kRingPosition) ||
                         (value.producer() != nullptr && value.producer()->type() == "mod");
          return false;
        });
        break;
      case UpdateForm::kStaticSlot:
        break;
      default:
        return;
    }
    if (!axis.has_value() || *axis >= found.value->type.shape().size()) return;
    found.axis = *axis;
    axes.push_back(found);
  }

  static std::vector<CacheAxis> FindCacheAxes(const Function& function, const FunctionInputs& inputs) {
    std::vector<CacheAxis> axes;
    const FunctionStates states = AnalyzeStates(function);
    for (const StateFacts& facts : states.states) {
      std::vector<const Value*> reads;
      for (const StateRead& read : facts.reads) reads.push_back(read.value);
      const OldContent old(reads);
      for (const StateWrite& write : facts.writes) AddUpdate(facts.state->name, write, old, inputs, axes);
    }
    for (const CachePair& pair : states.cache_pairs) {
      if (pair.whole) {
        const OldContent old({pair.input});
        AddUpdate(pair.input->name, ClassifyUpdate(pair.output, old), old, inputs, axes);
        continue;
      }
      std::optional<size_t> axis;
      for (size_t i = 0; i < pair.input->type.shape().size() && i < pair.output->type.shape().size(); ++i) {
        if (pair.input->type.shape()[i] != pair.output->type.shape()[i]) axis = i;
      }
      const auto facts = std::ranges::find(inputs.inputs, pair.input, &InputFacts::input);
      const bool shifts = facts != inputs.inputs.end() && facts->shifts_rows;
      if (axis.has_value()) axes.push_back({pair.input->name, pair.input, *axis, shifts});
    }
    return axes;
  }

  // Leaves the axes of the chosen caches: those named, or all that are filled from row 0 on and are longest.
  Status Choose(std::vector<std::vector<CacheAxis>>& axes) {
    std::vector<std::string> wanted = arguments_.List("states");
    for (const std::string& input : arguments_.List("inputs")) wanted.push_back(input);
    std::set<std::string> found;
    int64_t longest = 0;
    for (const auto& in_function : axes) {
      for (const CacheAxis& cache : in_function) {
        found.insert(cache.cache);
        const bool chosen = wanted.empty() ? !cache.window : std::ranges::count(wanted, cache.cache) > 0;
        if (chosen) longest = std::max(longest, cache.length());
      }
    }
    for (const std::string& name : wanted) {
      if (!found.contains(name)) return Refuse(fmt::format("'{}' is no cache that is filled row by row", name));
    }
    if (longest == 0) {
      return Refuse(
          "no cache is filled row by row, so that there is no context (windows are named with states: or "
          "inputs:)");
    }
    old_length_ = longest;
    for (auto& in_function : axes) {
      for (const CacheAxis& cache : in_function) {
        if (std::ranges::count(wanted, cache.cache) > 0 && cache.length() != longest) {
          return Refuse(fmt::format("'{}' is {} rows long, another cache {}: set them one after the other", cache.cache,
                                    cache.length(), longest));
        }
      }
      std::erase_if(in_function, [&](const CacheAxis& cache) {
        const bool chosen = wanted.empty() ? !cache.window : std::ranges::count(wanted, cache.cache) > 0;
        return !chosen || cache.length() != longest;
      });
    }
    return Status::Ok();
  }

  Status Follow(Function& function, const FunctionInputs& inputs, const std::vector<CacheAxis>& caches,
                const std::map<std::string, Shape>& states, ContextAxes& axes) {
    if (inputs.query_length > length_) {
      return Refuse(fmt::format("'{}' takes {} tokens at once, more than a context of {}", function.name,
                                inputs.query_length, length_));
    }
    for (const CacheAxis& cache : caches) MW_RETURN_IF_ERROR(axes.Mark(cache.value, cache.axis, length_));
    for (const Value* state : function.States()) {
      const auto shape = states.find(state->name);
      if (shape == states.end()) continue;
      for (size_t axis = 0; axis < shape->second.size(); ++axis) {
        if (shape->second[axis] == state->type.shape()[axis]) continue;
        MW_RETURN_IF_ERROR(axes.Mark(state, axis, shape->second[axis]));
      }
    }
    for (const CachePair& pair : AnalyzeStates(function).cache_pairs) {
      if (pair.whole) axes.Tie(pair.input, pair.output);
    }
    MW_RETURN_IF_ERROR(MarkTables(function, inputs, axes));
    MW_RETURN_IF_ERROR(axes.Run());
    return SetPositionArithmetic(function, axes);
  }

  // Whether `value` is the same in every step.
  static bool IsFixed(const Value* value) {
    bool fixed = true;
    WalkBack(value, [&fixed](const Value& v) {
      if (v.producer() == nullptr || IsStateRead(*v.producer())) fixed = false;
      return !fixed;
    });
    return fixed;
  }

  // Values that count positions: the inputs that do, and arithmetic on them.
  void FindPositions(const Function& function, const FunctionInputs& inputs) {
    static const std::set<std::string_view> keep = {
        "add",     "sub",     "mul",           "cast",    "select",     "minimum",   "maximum", "mod",
        "reshape", "squeeze", "expand_dims",   "clip",    "identity",   "floor_div", "concat",  "slice_by_index",
        "tile",    "stack",   "greater_equal", "greater", "less_equal", "less",      "equal",   "not_equal"};
    positions_.clear();
    for (const InputFacts& facts : inputs.inputs) {
      if (IsPlace(facts.kind)) positions_.insert(facts.input);
    }
    ForEachOperation(function.body(), [&](const Operation& op) {
      if (!keep.contains(op.type())) return;
      const bool counts = std::ranges::any_of(op.inputs(), [&](const Input& input) {
        return std::ranges::any_of(input.arguments, [&](const Operand& operand) {
          return operand.value != nullptr && positions_.contains(operand.value);
        });
      });
      if (counts && IsInteger(op.output()->type.dtype())) positions_.insert(op.output());
    });
  }

  // Tables that positions index must have a row for every position; those of the context's length change with it.
  Status MarkTables(const Function& function, const FunctionInputs& inputs, ContextAxes& axes) {
    FindPositions(function, inputs);
    Status status;
    ForEachOperation(function.body(), [&](const Operation& op) {
      if (!status.ok()) return;
      const bool gather = op.type() == "gather" || op.type() == "gather_along_axis";
      const bool slice = op.type() == "slice_by_index" || op.type() == "slice_by_size";
      const Input* x = gather || slice ? op.FindInput("x") : nullptr;
      const Value* index = op.InputValue(gather ? "indices" : "begin");
      if (x == nullptr || index == nullptr || !positions_.contains(index)) return;
      const Operand& table = x->arguments.front();
      if (table.value == nullptr || positions_.contains(table.value) || !IsFixed(table.value)) return;
      const Shape& shape = table.type().shape();
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        if (!IndexesAxis(op, gather, axis, shape.size())) continue;
        if (shape[axis] > old_length_ ? shape[axis] >= length_ : length_ <= shape[axis] && length_ > old_length_) {
          continue;  // it reaches far enough
        }
        if (table.value->producer() != nullptr && table.value->producer()->type().starts_with("constexpr_")) {
          // What is too long does no harm.
          if (length_ < old_length_) {
            kept_.push_back(&op);
          } else {
            status = ContextAxes::Open(
                op, fmt::format("the rows to add to '{}' are not known: it is compressed", table.value->name));
          }
          continue;
        }
        if (shape[axis] < old_length_) {
          if (length_ > shape[axis] && length_ > old_length_) {
            status = ContextAxes::Open(op, fmt::format("a table of {} rows is indexed by a position that may be {}",
                                                       shape[axis], length_ - 1));
          }
          continue;
        }
        tables_.push_back(&op);
        status = MarkTable(op, table, axis, axes);
      }
    });
    return status;
  }

  static bool IndexesAxis(const Operation& op, bool gather, size_t axis, size_t rank) {
    if (gather) {
      const Literal* at = op.InputConstant("axis");
      const int64_t along = at != nullptr ? at->tensor.GetInt(0) : 0;
      return axis == static_cast<size_t>(along < 0 ? along + static_cast<int64_t>(rank) : along);
    }
    const auto entries = VectorEntries(op, "begin", rank);
    return entries.has_value() && !(*entries)[axis].constant.has_value() &&
           AxisConstants(op, "begin_mask", rank, 0)[axis] == 0;
  }

  Status MarkTable(const Operation& op, const Operand& table, size_t axis, ContextAxes& axes) const {
    return table.constant() != nullptr ? axes.MarkConstant(op, table, axis, length_)
                                       : axes.Mark(table.value, axis, length_);
  }

  // Numbers in the arithmetic of positions that are the length: the wrap of negative indices (index + rows) and limits
  // (min(position, rows - 1)) follow; others say something that is not known.
  Status SetPositionArithmetic(Function& function, ContextAxes& axes) {
    std::set<const Operation*> wraps;
    for (const Operation* op : tables_) FindWrap(*op, wraps);
    std::set<const Operation*> stay;
    for (const Operation* op : kept_) FindWrap(*op, stay);
    Status status;
    ForEachOperation(function.body(), [&](Operation& op) {
      if (!status.ok() || op.outputs().empty()) return;
      static const std::set<std::string_view> arithmetic = {
          "add",  "sub",           "mul",     "minimum",    "maximum", "mod",      "floor_div",
          "less", "greater_equal", "greater", "less_equal", "equal",   "not_equal"};
      if (!arithmetic.contains(op.type())) return;
      for (const auto& [one, other] : {std::pair("x", "y"), std::pair("y", "x")}) {
        const Value* position = op.InputValue(one);
        const Literal* number = op.InputConstant(other);
        if (position == nullptr || number == nullptr || !positions_.contains(position)) continue;
        if (number->tensor.size() != 1 || !IsInteger(number->tensor.dtype())) continue;
        const int64_t value = number->tensor.GetInt(0);
        if (value < 2 || (value != old_length_ && value != old_length_ - 1)) continue;
        if (stay.contains(&op) && !wraps.contains(&op)) continue;
        if (wraps.contains(&op) || op.type() == "minimum") {
          status = axes.SetEntry(op, other, 0, value + length_ - old_length_);
        } else {
          status = ContextAxes::Open(
              op, fmt::format("the constant {} may be the length of the context or something else", value));
        }
      }
    });
    return status;
  }

  // select(index >= 0, index, index + rows) before a lookup: rows follow the table.
  static void FindWrap(const Operation& lookup, std::set<const Operation*>& wraps) {
    static const std::set<std::string_view> views = {"cast", "reshape", "expand_dims", "squeeze", "identity", "select"};
    const Value* index = lookup.InputValue(lookup.FindInput("indices") != nullptr ? "indices" : "begin");
    if (index == nullptr) return;
    WalkBack(index, [&wraps](const Value& value) {
      const Operation* op = value.producer();
      if (op == nullptr) return true;
      if (op->type() == "add") wraps.insert(op);
      return !views.contains(op->type());
    });
  }

  ModelSpec& model_;
  const PassArguments& arguments_;
  PassReport& report_;
  int64_t length_ = 0;
  int64_t old_length_ = 0;
  std::vector<FunctionInputs> inputs_;
  std::set<const Value*> positions_;
  std::vector<const Operation*> tables_;  // lookups in tables that change
  std::vector<const Operation*> kept_;    // ... that stay longer than they need be
};

}  // namespace

Status SetContextLength(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  return Setter(model, arguments, report).Run();
}

}  // namespace milwright
