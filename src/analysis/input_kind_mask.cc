// Kinds of float and bool inputs: masks by the attention that they go into, the others by their use and name.
#include <utility>

#include "analysis/dataflow.h"
#include "analysis/effects.h"
#include "analysis/input_kind_parts.h"

namespace milwright {
namespace {

const OpNames& MaskedScoreOps() {
  static const OpNames kOps = {"add",       "mul",           "real_div", "sub",    "cast",           "reshape",
                               "transpose", "select",        "squeeze",  "tanh",   "slice_by_index", "maximum",
                               "clip",      "slice_by_size", "identity", "concat", "expand_dims"};
  return kOps;
}

class MaskWalk {
 public:
  explicit MaskWalk(const Value* input) {
    Add(input);
    while (!pending_.empty()) {
      const Value* value = pending_.back();
      pending_.pop_back();
      for (const Use& use : value->uses()) {
        if (use.op != nullptr) Visit(*use.op, use.input, *value);
      }
    }
  }
  [[nodiscard]] const MaskUse& result() const { return result_; }

 private:
  void Add(const Value* value) {
    if (seen_.insert(value).second) pending_.push_back(value);
  }
  void Pass(const Operation& op) {
    for (const auto& output : op.outputs()) Add(output.get());
  }

  void Visit(const Operation& op, std::string_view parameter, const Value& value) {
    static const OpNames kPassing = {"cast",     "expand_dims", "squeeze",        "reshape",           "transpose",
                                     "identity", "tile",        "slice_by_index", "slice_by_size",     "logical_not",
                                     "concat",   "stack",       "gather",         "gather_along_axis", "reverse"};
    const std::string& type = op.type();
    if (type == "scaled_dot_product_attention") {
      if (parameter == "attn_mask") result_.scores.push_back(&op);
      return;
    }
    const bool select = type == "select" && parameter == "cond";
    const Value* other = Other(op, value);
    const bool by_constant = other == nullptr || other->constant() != nullptr;
    if ((type == "add" && !by_constant) || select) {
      const bool to_softmax = !op.outputs().empty() && LeadsToSoftmax(op);
      if (to_softmax && HoldsScores(op, value)) {
        result_.scores.push_back(&op);
      } else if (to_softmax) {
        Pass(op);  // part of a mask
      } else if (select) {
        result_.multiplies = result_.complemented = true;  // select(mask, new, old) updates a cache
      }
      return;
    }
    if (type == "sub" && parameter == "y" && by_constant) {
      result_.complemented = true;
      return Pass(op);
    }
    if (type == "mul") {
      if (by_constant) return Pass(op);
      result_.multiplies = true;
      return;
    }
    if (!kPassing.contains(type) && !((type == "add" || type == "sub" || type == "real_div") && by_constant)) return;
    const bool computed_slice =
        type.starts_with("slice_by_") && op.InputValue("begin") != nullptr && op.InputConstant("begin") == nullptr;
    const bool computed_gather =
        type.starts_with("gather") && parameter == "x" && op.InputConstant("indices") == nullptr;
    if (computed_slice || computed_gather) result_.rotated = true;
    if (parameter != "indices" && parameter != "begin") Pass(op);
  }

  static const Value* Other(const Operation& op, const Value& value) {
    for (const char* side : {"x", "y"}) {
      const Value* operand = op.InputValue(side);
      if (operand != nullptr && operand != &value) return operand;
    }
    return nullptr;
  }

  // Whether an operand besides `mask` is the product of queries and keys.
  static bool HoldsScores(const Operation& op, const Value& mask) {
    return std::ranges::any_of(op.inputs(), [&mask](const Input& input) {
      const Value* operand = input.arguments.front().value;
      return operand != nullptr && operand != &mask && ComesFrom(operand, {"matmul", "einsum"}, MaskedScoreOps());
    });
  }

  static bool LeadsToSoftmax(const Operation& op) {
    return LeadsTo(op.output(), {"softmax", "exp", "reduce_log_sum_exp"}, MaskedScoreOps());
  }

  MaskUse result_;
  ValueSet seen_;
  std::vector<const Value*> pending_;
};

// The states and cache inputs whose content the scores at `op` are computed from.
ValueSet CachesBehind(const Operation& op, const ValueSet& caches) {
  static const OpNames kBackOfKeys = {"slice_by_index",
                                      "slice_by_size",
                                      "split",
                                      "reshape",
                                      "transpose",
                                      "expand_dims",
                                      "squeeze",
                                      "concat",
                                      "stack",
                                      "tile",
                                      "cast",
                                      "identity",
                                      "slice_update",
                                      "select",
                                      "pad",
                                      "add",
                                      "mul",
                                      "sub",
                                      "gather",
                                      "reverse",
                                      "repeat_interleave",
                                      "scatter",
                                      "scatter_nd",
                                      "write_state",
                                      "real_div",
                                      "scatter_along_axis"};
  ValueSet found;
  ValueSet seen;
  std::vector<std::pair<const Value*, bool>> pending;  // a value, and whether the product is behind us
  const auto add = [&](const Value* value, bool keys) {
    if (value != nullptr && seen.insert(value).second) pending.emplace_back(value, keys);
  };
  if (op.type() == "scaled_dot_product_attention") {
    add(op.InputValue("key"), true);
  } else {
    for (const char* side : {"x", "y", "a", "b"}) add(op.InputValue(side), false);
  }
  while (!pending.empty()) {
    const auto [value, keys] = pending.back();
    pending.pop_back();
    if (caches.contains(value)) found.insert(value);
    const Operation* producer = value->producer();
    if (producer == nullptr) continue;
    if (IsStateRead(*producer) || producer->type() == "coreml_update_state") {
      found.insert(StateOf(*producer));
      continue;
    }
    const bool product = producer->type() == "matmul" || producer->type() == "einsum";
    if (product ? keys : !(keys ? kBackOfKeys : MaskedScoreOps()).contains(producer->type())) continue;
    for (const Input& input : producer->inputs()) {
      for (const Operand& operand : input.arguments) add(operand.value, keys || product);
    }
  }
  return found;
}

// Whether a product with weights follows, behind a norm at most.
bool FeedsWeights(const Value& input) {
  static const OpNames kThrough = {
      "cast",     "mul",    "add",     "sub",           "reduce_mean", "transpose", "reshape",
      "rsqrt",    "square", "concat",  "layer_norm",    "expand_dims", "squeeze",   "reduce_sum_square",
      "real_div", "sqrt",   "l2_norm", "reduce_l2_norm"};
  bool found = false;
  WalkForward(
      &input, [](const Operation& op) { return kThrough.contains(op.type()); },
      [&found](const Operation& op, const Value*) {
        found = found || op.type() == "linear" || op.type() == "conv" || op.type() == "matmul";
      });
  return found;
}

// Whether the program puts new rows behind what it reads of `state`, `columns` rows in all, to attend to both: the
// state itself gets the rows elsewhere.
bool AppendsRows(const StateFacts& state, int64_t columns) {
  static const OpNames kViews = {"slice_by_index", "slice_by_size", "split",    "reshape", "transpose",
                                 "expand_dims",    "squeeze",       "identity", "cast"};
  bool appends = false;
  for (const StateRead& read : state.reads) {
    WalkForward(
        read.value, [](const Operation& op) { return kViews.contains(op.type()); },
        [&](const Operation& op, const Value* content) {
          const Literal* axis = op.type() == "concat" ? op.InputConstant("axis") : nullptr;
          if (axis == nullptr || op.FindInput("values")->arguments.front().value != content) return;
          const int64_t at = axis->tensor.GetInt(0);
          const auto rows = KnownSize(op.output()->type.shape(), at);
          const auto old_rows = KnownSize(content->type.shape(), at);
          appends = appends || (rows == columns && old_rows < columns);
        });
  }
  return appends;
}

// How long the axis is along which `pair` gives out rows.
std::optional<int64_t> RowsOf(const CachePair& pair) {
  const Shape& cache = pair.input->type.shape();
  const Shape& rows = pair.output->type.shape();
  for (size_t i = 0; i < cache.size() && i < rows.size(); ++i) {
    if (cache[i] != rows[i]) return KnownSize(cache, static_cast<int64_t>(i));
  }
  return std::nullopt;
}

}  // namespace

MaskUse FindMaskUse(const Value& input) { return MaskWalk(&input).result(); }

void FindMaskKind(const MaskUse& use, InputFacts& facts) {
  const Value& input = *facts.input;
  if (!use.scores.empty()) {
    facts.kind = InputKind::kCausalMask;
  } else if ((use.multiplies && use.complemented) || NameHas(input, {"update_mask", "write_mask"})) {
    facts.kind = InputKind::kUpdateMask;
  } else if (NameHas(input, {"mask"}) && !NameHas(input, {"visual"}) && input.type.rank() >= 2) {
    facts.kind = InputKind::kCausalMask;
  } else if (use.multiplies && NameHas(input, {"cos"})) {
    facts.kind = InputKind::kRotaryCos;
  } else if (use.multiplies && NameHas(input, {"sin"})) {
    facts.kind = InputKind::kRotarySin;
  } else if (IsFloat(input.type.dtype()) && input.type.rank() >= 2 &&
             (NameHas(input, {"hidden", "embed"}) || FeedsWeights(input))) {
    facts.kind = InputKind::kHidden;
  }
}

void SeparateSlidingMasks(const FunctionStates& states, const MaskUses& uses, FunctionInputs& inputs) {
  ValueSet caches;
  for (const CachePair& pair : states.cache_pairs) caches.insert(pair.input);
  std::optional<int64_t> longest;
  for (const InputFacts& facts : inputs.inputs) {
    if (facts.kind != InputKind::kCausalMask) continue;
    if (const auto columns = KnownSize(facts.input->type.shape(), -1); columns.has_value()) {
      longest = std::max(longest.value_or(0), *columns);
    }
  }
  for (InputFacts& facts : inputs.inputs) {
    if (facts.kind != InputKind::kCausalMask) continue;
    const MaskUse& use = uses.at(facts.input);
    const auto columns = KnownSize(facts.input->type.shape(), -1);
    bool shifted = use.rotated;
    for (const Operation* op : use.scores) {
      for (const Value* cache : CachesBehind(*op, caches)) {
        if (const StateFacts* state = states.Find(cache); state != nullptr) {
          // One buffer may hold windows that shift and longer caches that do not.
          const bool all = std::ranges::all_of(state->writes, Shifts, &StateWrite::form);
          shifted = shifted || (Shifts(state->form) && (all || columns < longest));
          const bool behind = !Shifts(state->form) && columns.has_value() && AppendsRows(*state, *columns);
          facts.own_rows_last = facts.own_rows_last || behind;
          continue;
        }
        const auto pair = std::ranges::find(states.cache_pairs, cache, &CachePair::input);
        if (pair == states.cache_pairs.end()) continue;
        if (pair->whole) {
          shifted = shifted || Shifts(pair->form);
        } else if (Shifts(pair->form)) {
          // Either the whole cache and behind it the new rows, or the new rows in place of the oldest.
          const auto rows = RowsOf(*pair);
          const bool behind = rows.has_value() && columns.has_value() && *columns > *rows;
          (behind ? facts.own_rows_last : shifted) = true;
          std::ranges::find(inputs.inputs, pair->input, &InputFacts::input)->shifts_rows = !behind;
        }
      }
    }
    if (shifted) {
      facts.kind = InputKind::kSlidingMaskRight;
    } else if (NameHas(*facts.input, {"sliding", "swa", "local", "window"}) || columns < longest) {
      facts.kind = InputKind::kSlidingMaskLeft;
    }
  }
}

}  // namespace milwright
