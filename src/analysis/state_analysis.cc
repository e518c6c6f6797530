#include "analysis/state_analysis.h"

#include <algorithm>
#include <map>

#include "analysis/dataflow.h"
#include "analysis/effects.h"
#include "analysis/update_form.h"

namespace milwright {
namespace {

using Names = std::unordered_set<std::string_view>;

// Ops that move or scale content without mixing it with other content.
const Names& MovingOps() {
  static const Names kOps = {"slice_by_index", "slice_by_size", "split",  "reshape", "transpose", "expand_dims",
                             "squeeze",        "concat",        "stack",  "tile",    "cast",      "identity",
                             "gather",         "slice_update",  "select", "pad",     "reverse",   "repeat_interleave"};
  return kOps;
}

bool ScalesOnly(const Operation& op) {
  if (op.type() != "mul" && op.type() != "real_div") return false;
  const Literal* x = op.InputConstant("x");
  const Literal* y = op.InputConstant("y");
  return (x != nullptr && x->tensor.size() == 1) || (y != nullptr && y->tensor.size() == 1);
}

// Blends of a mask update count as moving: the cache comes out as a cache.
bool MovesContent(const Operation& op) {
  return MovingOps().contains(op.type()) || ScalesOnly(op) || JoinedHalves(op) != nullptr;
}

const Names& SoftmaxOps() {
  static const Names kOps = {"softmax", "exp"};
  return kOps;
}

// From scores to the softmax: scale, mask, soft cap, and the subtraction of the maximum when it is written out.
const Names& OpsBeforeSoftmax() {
  static const Names kOps = {"add",           "mul",        "real_div",    "sub",     "cast",   "reshape",
                             "transpose",     "select",     "expand_dims", "squeeze", "concat", "slice_by_index",
                             "tanh",          "identity",   "maximum",     "clip",    "where",  "split",
                             "slice_by_size", "scaled_tanh"};
  return kOps;
}

// From the softmax back to the weights' product with the values.
const Names& WeightOps() {
  static const Names kOps = {"cast",     "reshape", "transpose", "expand_dims",    "squeeze",       "identity",
                             "real_div", "mul",     "split",     "slice_by_index", "slice_by_size", "concat"};
  return kOps;
}

// What the content of a state flows into decides its role.
class RoleFinder {
 public:
  StateRole Find(const std::vector<const Value*>& contents, UpdateForm form, const std::vector<StateWrite>& writes) {
    for (const Value* content : contents) {
      WalkForward(content, MovesContent, [this](const Operation& op, const Value* operand) { Visit(op, operand); });
    }
    if (attention_) return StateRole::kKv;
    if (convolution_) return StateRole::kConv;
    const bool carried =
        form == UpdateForm::kReadModifyWrite || form == UpdateForm::kWholeOverwrite || form == UpdateForm::kStaticSlot;
    if (form == UpdateForm::kReadModifyWrite && IsRunningSum(contents, writes)) return StateRole::kAccumulator;
    if (carried && (computes_ || product_)) return StateRole::kRecurrent;
    return StateRole::kUnknown;
  }

 private:
  void Visit(const Operation& op, const Value* operand) {
    const std::string& type = op.type();
    if (type == "scaled_dot_product_attention") {
      attention_ = attention_ || op.InputValue("key") == operand || op.InputValue("value") == operand;
    } else if (type == "matmul" || type == "einsum" || type == "mul") {
      VisitProduct(op, operand);
    } else if (type == "conv" && op.InputValue("x") == operand) {
      convolution_ = true;
    }
    if (type != "write_state" && type != "read_state") computes_ = true;
  }

  void VisitProduct(const Operation& op, const Value* operand) {
    bool constant_other = false;
    for (const Input& input : op.inputs()) {
      for (const Operand& other : input.arguments) {
        if (other.value == operand) continue;
        constant_other = constant_other || (other.constant() != nullptr && other.type().rank() > 0);
        if (op.type() != "mul" && other.value != nullptr && ComesFrom(other.value, SoftmaxOps(), WeightOps()))
          attention_ = true;
      }
    }
    if (op.type() == "mul") {
      // Taps times window, summed: a convolution written out.
      if (constant_other && LeadsTo(op.output(), {"reduce_sum"}, WeightOps())) convolution_ = true;
      return;
    }
    product_ = product_ || !constant_other;
    if (!constant_other && LeadsTo(op.output(), SoftmaxOps(), OpsBeforeSoftmax())) attention_ = true;
  }

  // The old content passes through additions only.
  static bool IsRunningSum(const std::vector<const Value*>& contents, const std::vector<StateWrite>& writes) {
    const ValueSet old(contents.begin(), contents.end());
    return !writes.empty() && std::ranges::all_of(writes, [&old](const StateWrite& write) {
      const Operation* op = write.update_op;
      if (op == nullptr || (op->type() != "add" && op->type() != "sub")) return false;
      for (const char* side : {"x", "y"}) {
        const Value* term = op->InputValue(side);
        if (term != nullptr && old.contains(PeelViews(term))) return true;
      }
      return false;
    });
  }

  bool attention_ = false;
  bool convolution_ = false;
  bool product_ = false;
  bool computes_ = false;
};

UpdateForm JoinForms(const std::vector<StateWrite>& writes, bool read) {
  if (writes.empty()) return read ? UpdateForm::kReadOnly : UpdateForm::kNone;
  // The rarer and riskier forms win over plain ones, so that a fault in one layer shows.
  constexpr UpdateForm kOrder[] = {UpdateForm::kShiftConcat, UpdateForm::kShiftMatmul,    UpdateForm::kScatter,
                                   UpdateForm::kMaskBlend,   UpdateForm::kSliceUpdate,    UpdateForm::kReadModifyWrite,
                                   UpdateForm::kStaticSlot,  UpdateForm::kWholeOverwrite, UpdateForm::kWrittenBack};
  for (const UpdateForm form : kOrder) {
    if (std::ranges::find(writes, form, &StateWrite::form) != writes.end()) return form;
  }
  return UpdateForm::kReadModifyWrite;
}

// ---- hazards ----

struct Access {
  Operation* op;
  const Value* value;  ///< result of a read, data of a write
  bool write;
  size_t position;
};

class HazardFinder {
 public:
  HazardFinder(const std::vector<Access>& accesses, const std::unordered_map<const Operation*, size_t>& order)
      : accesses_(accesses), order_(order) {}

  std::vector<OrderHazard> Find() {
    std::vector<OrderHazard> hazards;
    for (size_t i = 0; i < accesses_.size(); ++i) {
      if (accesses_[i].write) {
        MovedWrite(i, hazards);
        RepeatedWrite(i, hazards);
      } else {
        ReadAcrossWrite(i, hazards);
      }
    }
    return hazards;
  }

 private:
  // A read whose value is used after a later write, while the state is read again behind that write.
  void ReadAcrossWrite(size_t i, std::vector<OrderHazard>& hazards) const {
    const Access& read = accesses_[i];
    size_t last_use = 0;
    for (const Use& use : read.value->uses()) {
      const Operation* op = use.op;
      last_use = std::max(last_use, op != nullptr ? order_.at(op) : order_.size());
    }
    const Operation* write = nullptr;
    for (size_t k = i + 1; k < accesses_.size(); ++k) {
      if (accesses_[k].write && accesses_[k].position < last_use) write = accesses_[k].op;
      if (!accesses_[k].write && write != nullptr) {
        hazards.push_back({OrderHazard::Kind::kReadAcrossWrite, read.op, accesses_[k].op});
        return;
      }
    }
  }

  // coremltools moves a write right behind the op that makes its value, whatever lies between.
  void MovedWrite(size_t i, std::vector<OrderHazard>& hazards) const {
    const Access& write = accesses_[i];
    // It does not move to inputs, constants and state ops (coremltools' optimize_state.py).
    const Operation* producer = write.value->producer();
    if (producer == nullptr || producer->type() == "const" || StateOf(*producer) != nullptr) return;
    const size_t made = order_.at(producer);
    for (size_t k = 0; k < i; ++k) {
      if (accesses_[k].position <= made) continue;
      hazards.push_back(
          {accesses_[k].write ? OrderHazard::Kind::kMovedAcrossWrite : OrderHazard::Kind::kMovedAcrossRead,
           accesses_[k].op, write.op});
      return;
    }
  }

  void RepeatedWrite(size_t i, std::vector<OrderHazard>& hazards) const {
    bool other_between = false;
    for (size_t k = i; k-- > 0;) {
      if (!accesses_[k].write) continue;
      if (accesses_[k].value == accesses_[i].value) {
        if (other_between) hazards.push_back({OrderHazard::Kind::kRepeatedWrite, accesses_[k].op, accesses_[i].op});
        return;
      }
      other_between = true;
    }
  }

  const std::vector<Access>& accesses_;
  const std::unordered_map<const Operation*, size_t>& order_;
};

// ---- outputs ----

std::vector<ExposedOutput> FindExposed(const Function& function, const StateFacts& facts,
                                       const std::vector<Access>& accesses) {
  std::vector<ExposedOutput> exposed;
  if (facts.writes.empty()) return exposed;
  const auto write_of = [&](const Value* value) -> Operation* {
    for (const StateWrite& write : facts.writes) {
      if (PeelViews(write.data) == value) return write.op;
    }
    return nullptr;
  };
  // A read behind a write shows the updated state.
  const auto updated_read = [&](const Value* value) -> Operation* {
    Operation* last_write = nullptr;
    for (const Access& access : accesses) {
      if (access.write) last_write = access.op;
      if (!access.write && access.value == value) return last_write;
    }
    return nullptr;
  };
  for (Value* output : function.body().outputs()) {
    const Value* peeled = PeelViews(output);
    if (Operation* write = write_of(peeled); write != nullptr) {
      exposed.push_back({output, write, false, output->uses().size() > 1});
      continue;
    }
    const Operation* slice = peeled->producer();
    if (slice == nullptr || !slice->type().starts_with("slice_by_")) continue;
    const Value* source = slice->InputValue("x");
    if (source == nullptr) continue;
    source = PeelViews(source);
    Operation* write = write_of(source);
    if (write == nullptr) write = updated_read(source);
    if (write != nullptr)
      exposed.push_back(
          {output, write, true,
           peeled->uses().size() + output->uses().size() > 2 || (peeled == output && output->uses().size() > 1)});
  }
  return exposed;
}

bool ReadMatters(const Function& function, const StateFacts& facts) {
  std::vector<const Value*> sources;
  for (const StateRead& read : facts.reads) sources.push_back(read.value);
  const ValueSet reached = ForwardClosure(sources);
  for (const Value* output : function.body().outputs()) {
    if (reached.contains(output)) return true;
  }
  bool matters = false;
  ForEachOperation(function.body(), [&](const Operation& op) {
    const char* data = op.type() == "write_state" ? "data" : op.type() == "coreml_update_state" ? "value" : nullptr;
    if (data == nullptr || !reached.contains(op.InputValue(data))) return;
    const Value* state = op.InputValue(op.type() == "write_state" ? "input" : "state");
    const bool written_back = state == facts.state && std::ranges::any_of(sources, [&](const Value* source) {
                                return PeelViews(op.InputValue(data)) == source;
                              });
    matters = matters || !written_back;
  });
  return matters;
}

// What the op that carries the update form makes: the cache, or one slot of it, after the update.
const Value* UpdatedSlot(const StateWrite& write) {
  return write.update_op != nullptr && !write.update_op->outputs().empty() ? write.update_op->output() : nullptr;
}

StateFacts Analyze(const Function& function, Value* state, const std::unordered_map<const Operation*, size_t>& order) {
  StateFacts facts;
  facts.state = state;
  std::vector<Access> accesses;
  for (const Use& use : state->uses()) {
    if (use.op == nullptr) continue;
    Operation* op = use.op;
    const size_t position = order.at(op);
    if (op->type() == "read_state") {
      accesses.push_back({op, op->output(), false, position});
    } else if (op->type() == "write_state") {
      accesses.push_back({op, op->InputValue("data"), true, position});
    } else if (op->type() == "coreml_update_state") {  // a write, and a read right behind it
      accesses.push_back({op, op->InputValue("value"), true, position});
      accesses.push_back({op, op->output(), false, position});
    }
  }
  std::ranges::stable_sort(accesses, {}, &Access::position);
  std::vector<const Value*> contents;
  for (const Access& access : accesses) {
    if (access.write) continue;
    facts.reads.push_back({access.op, const_cast<Value*>(access.value), access.position});
    contents.push_back(access.value);
  }
  for (const Access& access : accesses) {
    if (!access.write || access.value == nullptr) continue;
    const OldContent old(contents);
    StateWrite write = ClassifyUpdate(const_cast<Value*>(access.value), old);
    write.op = access.op;
    write.position = access.position;
    facts.writes.push_back(write);
    // A program may go on with the value it wrote instead of reading it again. What the host passes in is not content.
    if (access.value->producer() != nullptr && old.dependent.contains(access.value)) contents.push_back(access.value);
  }
  facts.form = JoinForms(facts.writes, !facts.reads.empty());
  for (const StateWrite& write : facts.writes) {
    if (write.width.has_value()) facts.query_length = std::max(facts.query_length.value_or(0), *write.width);
    // Whatever the form, what was written, and the updated slot in it, stand for the content from then on.
    for (const Value* fresh : {static_cast<const Value*>(write.data), UpdatedSlot(write)}) {
      if (fresh != nullptr && std::ranges::find(contents, fresh) == contents.end()) contents.push_back(fresh);
    }
  }
  facts.role = RoleFinder().Find(contents, facts.form, facts.writes);
  facts.exposed = FindExposed(function, facts, accesses);
  facts.hazards = HazardFinder(accesses, order).Find();
  facts.read_matters = ReadMatters(function, facts);
  return facts;
}

// ---- caches kept by the host ----

bool MaybeCache(const Value& input) {
  return input.type.IsTensor() && IsFloat(input.type.dtype()) && input.type.rank() >= 2;
}

// How alike two names are: the length of the longest common part of names such as "k_cache" and "k_cache_out".
size_t NameLikeness(std::string_view a, std::string_view b) {
  size_t best = 0;
  for (size_t start = 0; start < a.size(); ++start) {
    size_t length = best + 1;
    while (start + length <= a.size() && b.find(a.substr(start, length)) != std::string_view::npos) best = length++;
  }
  return best;
}

// Whether `output` is `input` plus something: the residual stream of a network, which is no cache though types agree.
bool IsResidual(const Value* output, const Value* input) {
  ValueSet seen{output};
  std::vector<const Value*> pending{output};
  while (!pending.empty()) {
    const Value* value = PeelViews(pending.back());
    pending.pop_back();
    if (value == input) return true;
    const Operation* op = value->producer();
    if (op == nullptr) continue;
    const bool scaled = op->type() == "mul" && (op->InputConstant("x") != nullptr || op->InputConstant("y") != nullptr);
    if (op->type() != "add" && op->type() != "sub" && op->type() != "transpose" && !scaled) continue;
    for (const char* side : {"x", "y"}) {
      const Value* term = op->InputValue(side);
      if (term != nullptr && seen.insert(term).second) pending.push_back(term);
    }
  }
  return false;
}

// The new rows that a program both puts into `input` and gives out.
const Value* NewRows(const Operation& op, const Value& input, std::optional<int64_t>* axis) {
  if (op.type() == "slice_update" && op.InputValue("x") != nullptr && PeelViews(op.InputValue("x")) == &input) {
    return op.InputValue("update");
  }
  if (op.type() != "concat") return nullptr;
  const Literal* at = op.InputConstant("axis");
  const Value* fresh = nullptr;
  bool holds_cache = false;
  for (const Operand& operand : op.FindInput("values")->arguments) {
    const Value* value = operand.value != nullptr ? PeelViews(operand.value) : nullptr;
    const Operation* slice = value != nullptr ? value->producer() : nullptr;
    const bool is_piece = slice != nullptr && slice->type().starts_with("slice_by_") &&
                          slice->InputValue("x") != nullptr && PeelViews(slice->InputValue("x")) == &input;
    if (value == &input || is_piece) {
      holds_cache = true;
    } else {
      fresh = operand.value;
    }
  }
  if (!holds_cache || fresh == nullptr) return nullptr;
  if (at != nullptr) *axis = at->tensor.GetInt(0);
  return fresh;
}

// New rows are no larger than the cache along any axis.
bool MayFit(const Type& rows, const Type& cache) {
  if (rows.rank() != cache.rank()) return true;  // another view of them
  for (size_t i = 0; i < rows.shape().size(); ++i) {
    if (rows.shape()[i] > cache.shape()[i]) return false;
  }
  return true;
}

struct PairCandidate {
  CachePair pair;
  size_t likeness;
  bool exact;
};

// Outputs that are only the new rows of a cache: what goes into it goes out, one layer or all layers put together.
void FindNewRows(const Function& function, Value& input, std::vector<PairCandidate>& candidates) {
  ValueSet rows;
  CachePair pair{&input, nullptr, false, UpdateForm::kSliceUpdate, StateRole::kUnknown, {}};
  std::vector<const Value*> contents = {&input};
  // An update of what an update made puts in the rows of the next layer.
  std::vector<const Value*> sources = {&input};
  for (size_t i = 0; i < sources.size(); ++i) {
    const Value& source = *sources[i];
    WalkForward(
        &source,
        [](const Operation& op) {
          return op.type() == "identity" || op.type() == "cast" || op.type().starts_with("slice_by_");
        },
        [&](const Operation& op, const Value*) {
          const Value* fresh = NewRows(op, source, &pair.axis);
          if (fresh == nullptr) return;
          rows.insert(PeelViews(fresh));
          contents.push_back(op.output());
          if (op.type() == "concat") pair.form = UpdateForm::kShiftConcat;
          if (op.type() == "slice_update" && std::ranges::find(sources, op.output()) == sources.end()) {
            sources.push_back(op.output());
          }
        });
  }
  if (rows.empty()) return;
  const auto is_rows = [&rows](const Value* value) { return value != nullptr && rows.contains(PeelViews(value)); };
  for (Value* output : function.body().outputs()) {
    const Operation* op = PeelViews(output)->producer();
    const bool stacked = op != nullptr && (op->type() == "concat" || op->type() == "stack") &&
                         std::ranges::all_of(op->FindInput("values")->arguments,
                                             [&](const Operand& operand) { return is_rows(operand.value); });
    if ((!is_rows(output) && !stacked) || output->type == input.type || !MayFit(output->type, input.type)) continue;
    pair.output = output;
    pair.role = RoleFinder().Find(contents, pair.form, {});
    candidates.push_back({pair, NameLikeness(input.name, output->name), true});
  }
}

// The input that `output` is the new content of by its name: NAME_out is NAME's (contract simple, the pass
// state-to-io).
const Value* OwnerByName(const Function& function, const Value& output) {
  for (const Value* input : function.TensorInputs()) {
    if (output.name == input->name + "_out" && output.type == input->type) return input;
  }
  return nullptr;
}

std::vector<CachePair> FindCachePairs(const Function& function) {
  std::vector<PairCandidate> candidates;
  for (Value* input : function.TensorInputs()) {
    if (!MaybeCache(*input)) continue;
    const OldContent old({input});
    const auto first = static_cast<std::ptrdiff_t>(candidates.size());
    std::optional<PairCandidate> own;
    for (Value* output : function.body().outputs()) {
      if (output == input || !(output->type == input->type)) continue;
      const Value* owner = OwnerByName(function, *output);
      if (owner != nullptr && owner != input) continue;
      // By convention a pair whatever makes the output, be it the input as it is; but a residual stream has such names
      // too.
      const bool conventional = owner == input && (PeelViews(output) == input || !IsResidual(output, input));
      if (!old.dependent.contains(output) && !conventional) continue;
      const StateWrite write = ClassifyUpdate(output, old);
      if (write.form == UpdateForm::kWrittenBack && !conventional) continue;
      CachePair pair{input, output, true, write.form, StateRole::kUnknown, write.axis};
      std::vector<const Value*> contents = {input, output};
      if (const Value* slot = UpdatedSlot(write); slot != nullptr) contents.push_back(slot);
      pair.role = RoleFinder().Find(contents, write.form, {write});
      const size_t likeness = NameLikeness(input->name, output->name);
      // A value that merely depends on an input of equal shape is no cache of it, unless the names say so.
      const bool structural = write.form != UpdateForm::kReadModifyWrite;
      const bool named = likeness * 2 >= input->name.size() && likeness >= 3 && !IsResidual(output, input);
      if (owner == input) own = {pair, std::string::npos, true};
      if (conventional || structural || named || pair.role == StateRole::kAccumulator) {
        candidates.push_back({pair, likeness, structural});
      }
    }
    FindNewRows(function, *input, candidates);
    // An input that is a cache at all comes back from the output that carries its name.
    if (own.has_value() && static_cast<std::ptrdiff_t>(candidates.size()) > first) {
      candidates.erase(candidates.begin() + first, candidates.end());
      candidates.push_back(*own);
    }
  }
  std::ranges::stable_sort(candidates, [](const PairCandidate& a, const PairCandidate& b) {
    return std::pair(a.exact, a.likeness) > std::pair(b.exact, b.likeness);
  });
  std::vector<CachePair> pairs;
  ValueSet taken;
  for (const PairCandidate& candidate : candidates) {
    if (taken.contains(candidate.pair.input) || taken.contains(candidate.pair.output)) continue;
    taken.insert(candidate.pair.input);
    taken.insert(candidate.pair.output);
    pairs.push_back(candidate.pair);
  }
  std::ranges::sort(pairs, {}, [](const CachePair& pair) { return pair.input->index(); });
  return pairs;
}

}  // namespace

const StateFacts* FunctionStates::Find(const Value* state) const {
  const auto it = std::ranges::find(states, state, &StateFacts::state);
  return it != states.end() ? &*it : nullptr;
}

FunctionStates AnalyzeStates(const Function& function) {
  FunctionStates result;
  const auto order = ProgramOrder(function);
  for (Value* state : function.States()) result.states.push_back(Analyze(function, state, order));
  result.cache_pairs = FindCachePairs(function);
  return result;
}

bool DependsOn(const Value* value, const Value* source) { return ForwardClosure({source}).contains(value); }

}  // namespace milwright
