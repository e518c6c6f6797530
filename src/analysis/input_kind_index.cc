// Kinds of integer inputs: where an index goes.
#include "analysis/dataflow.h"
#include "analysis/effects.h"
#include "analysis/input_kind_parts.h"

namespace milwright {
namespace {

class IndexWalk {
 public:
  explicit IndexWalk(const Value* input) {
    Add(input);
    while (!pending_.empty()) {
      const Value* value = pending_.back();
      pending_.pop_back();
      for (const Use& use : value->uses()) {
        if (use.op != nullptr) Visit(*use.op, use.input);
      }
    }
  }
  [[nodiscard]] const IndexUse& result() const { return result_; }

 private:
  void Add(const Value* value) {
    if (seen_.insert(value).second) pending_.push_back(value);
  }

  void Visit(const Operation& op, std::string_view parameter) {
    static const OpNames kPassing = {"cast",          "add",       "sub",      "mul",       "expand_dims",
                                     "squeeze",       "concat",    "reshape",  "select",    "greater_equal",
                                     "less",          "identity",  "stack",    "tile",      "maximum",
                                     "minimum",       "shape",     "range_1d", "equal",     "slice_by_index",
                                     "slice_by_size", "not_equal", "greater",  "less_equal"};
    static const OpNames kComparing = {"equal", "less", "less_equal", "greater", "greater_equal", "not_equal"};
    const std::string& type = op.type();
    const Value* x = op.InputValue("x");
    if (parameter == "begin" || parameter == "end") {
      const std::optional<int64_t> size = x != nullptr ? SlicedSize(op, x->type.shape()) : std::nullopt;
      if (type == "slice_update") {
        result_.writes = true;
        Limit(result_.write_size, size);
      } else if (x != nullptr && x->constant() != nullptr) {
        UseTable(x, size);
      }
      return;
    }
    if (type.starts_with("gather") && parameter == "indices") {
      const Literal* axis = op.InputConstant("axis");
      if (x != nullptr) UseTable(x, KnownSize(x->type.shape(), axis != nullptr ? axis->tensor.GetInt(0) : 0));
      return;
    }
    if (type.starts_with("scatter") && parameter == "indices") {
      const Value* data = op.InputValue("data");
      const Literal* axis = op.InputConstant("axis");
      result_.writes = true;
      if (data != nullptr) {
        Limit(result_.write_size, KnownSize(data->type.shape(), axis != nullptr ? axis->tensor.GetInt(0) : 0));
      }
      return;
    }
    const Value* range = kComparing.contains(type) ? ComparedRange(op) : nullptr;
    if (type == "one_hot" || range != nullptr) {
      result_.compared = true;
      const Shape& places = range != nullptr ? range->type.shape() : op.output()->type.shape();
      if (IsStatic(places)) Limit(result_.write_size, std::ranges::max(places));
      return;
    }
    if (type == "mod" && parameter == "x") {
      if (const Literal* y = op.InputConstant("y"); y != nullptr && y->tensor.size() == 1) {
        result_.ring_size = y->tensor.GetInt(0);
      }
      return;
    }
    if (!kPassing.contains(type)) return;
    for (const auto& output : op.outputs()) Add(output.get());
  }

  void UseTable(const Value* table, std::optional<int64_t> rows) {
    if (table->producer() == nullptr && table->constant() == nullptr) return;
    result_.tables.insert(table);
    Limit(result_.table_size, rows);
  }

  // Along which axis the index slices `shape`: its place in the begin vector.
  [[nodiscard]] std::optional<int64_t> SlicedSize(const Operation& op, const Shape& shape) const {
    for (const char* parameter : {"begin", "end"}) {
      const Value* vector = op.InputValue(parameter);
      if (vector == nullptr) continue;
      vector = PeelViews(vector);
      const Operation* concat = vector->producer();
      if (concat == nullptr || (concat->type() != "concat" && concat->type() != "stack")) continue;
      int64_t at = 0;
      for (const Operand& operand : concat->FindInput("values")->arguments) {
        if (operand.value != nullptr && operand.value->constant() == nullptr && seen_.contains(operand.value)) {
          return KnownSize(shape, at);
        }
        at += operand.type().rank() == 0 ? 1 : std::max<int64_t>(operand.type().shape()[0], 1);
      }
    }
    return shape.size() == 1 ? KnownSize(shape, 0) : std::nullopt;
  }

  // What an index is compared with when that is the positions of the rows: several constants, or a range.
  static const Value* ComparedRange(const Operation& op) {
    for (const char* side : {"x", "y"}) {
      const Value* value = op.InputValue(side);
      if (value == nullptr) continue;
      const Value* peeled = PeelViews(value);
      const Operation* producer = peeled->producer();
      const Literal* constant = peeled->constant();
      if ((constant != nullptr && constant->tensor.size() > 1) ||
          (producer != nullptr && producer->type() == "range_1d")) {
        return value;
      }
    }
    return nullptr;
  }

  IndexUse result_;
  ValueSet seen_;
  std::vector<const Value*> pending_;
};

}  // namespace

IndexUse FindIndexUse(const Value& input) { return IndexWalk(&input).result(); }

void FindIndexKind(const IndexUse& use, InputFacts& facts) {
  const Value& input = *facts.input;
  Limit(facts.bound, use.write_size);
  Limit(facts.bound, use.table_size);
  const bool several = input.type.rank() > 0 && input.type.shape().back() != 1;
  const InputKind place = several || input.type.rank() > 1 ? InputKind::kPositionIds : InputKind::kPosition;
  if (use.writes || use.compared || use.ring_size.has_value()) {
    facts.kind = place;
  } else if (NameHas(input, {"pos", "offset", "current_len", "past_len"})) {
    facts.kind = place;
  } else if (NameHas(input, {"input_id", "inputid", "token", "input_ids"})) {
    facts.kind = InputKind::kTokenId;
  } else if (use.tables.size() > 1) {
    facts.kind = place;  // cosines and sines
  } else if (use.tables.size() == 1) {
    facts.kind = InputKind::kTokenId;
  }
  if (facts.kind == InputKind::kPosition && !use.writes && !use.compared && input.type.rank() > 0) {
    facts.kind = InputKind::kPositionIds;  // of a step of one row
  }
  if (NameHas(input, {"ring"}) && facts.kind == InputKind::kPosition) facts.kind = InputKind::kRingPosition;
}

void SeparateRings(const IndexUses& uses, FunctionInputs& inputs) {
  std::optional<int64_t> longest;
  for (const auto& [input, use] : uses) {
    if (use.writes && use.write_size.has_value()) longest = std::max(longest.value_or(0), *use.write_size);
  }
  for (InputFacts& facts : inputs.inputs) {
    const auto it = uses.find(facts.input);
    if (it == uses.end() || !it->second.writes || !it->second.write_size.has_value()) continue;
    if (facts.kind == InputKind::kPosition && it->second.write_size < longest) facts.kind = InputKind::kRingPosition;
  }
}

}  // namespace milwright
