#include "support/random_program.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ops/builder.h"
#include "ops/infer.h"
#include "support/test_util.h"

namespace milwright::testing {
namespace {

constexpr int64_t kHeads = 2;
constexpr int64_t kRows = 4;
constexpr int64_t kWidth = 2;
constexpr int kMaxDepth = 2;

const Shape kFull = {1, kHeads, kRows, kWidth};
const Shape kRow = {1, kHeads, 1, kWidth};

// The values that an operation may use: those of its block and of the blocks around it.
struct Scope {
  std::vector<Value*> full;
  std::vector<Value*> rows;
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  ModelSpec Make() {
    ModelSpec spec;
    spec.source = "random.mlpackage";
    Function* function = spec.program.AddFunction("main", Opset::kIOS18);
    Value* x = function->AddInput("x", Type::Tensor(DataType::kFp16, kRow));
    Value* y = function->AddInput("y", Type::Tensor(DataType::kFp16, kFull));
    position_ = function->AddInput("pos", Type::Tensor(DataType::kInt32, {1}));
    if (OneIn(2)) update_mask_ = function->AddInput("update_mask", Type::Tensor(DataType::kFp16, {1, 1, kRows, 1}));
    const int count = 1 + Below(3);
    for (int i = 0; i < count; ++i) {
      const int64_t slots = OneIn(3) ? 2 : 1;
      states_.push_back(
          function->AddInput("s" + std::to_string(i), Type::State({DataType::kFp16, {slots, kHeads, kRows, kWidth}})));
    }
    Builder builder(function->body());
    builder_ = &builder;
    Scope scope{{y}, {x}};
    Actions(scope, 4 + Below(8), 0);
    ChooseOutputs(*function, scope);
    EXPECT_OK(builder.status());
    spec.description.functions.push_back(DescribeFunction(*function));
    return spec;
  }

 private:
  // ---- choices ----

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool OneIn(int n) { return Below(n) == 0; }
  // Recent values are likelier, so that chains come about.
  Value* Pick(const std::vector<Value*>& values) {
    const int size = static_cast<int>(values.size());
    return values[static_cast<size_t>(OneIn(2) ? size - 1 - Below(std::min(size, 3)) : Below(size))];
  }
  Value* PickState() { return states_[static_cast<size_t>(Below(static_cast<int>(states_.size())))]; }

  // ---- small pieces ----

  Value* Op(std::string_view type, std::vector<Binding> bindings) { return builder_->Op(type, std::move(bindings)); }
  static Literal Half(double value) { return Literal::Float(DataType::kFp16, value); }
  static Literal Vector(const std::vector<int64_t>& values) { return Literal::Int32s(values); }
  Value* Halved(Value* value) { return Op("mul", {{"x", value}, {"y", Half(0.5)}}); }
  Value* Average(Value* a, Value* b) { return Halved(Op("add", {{"x", a}, {"y", b}})); }
  static int64_t Slots(const Value* state) { return state->type.shape().front(); }

  Value* Slot(Value* stack, int64_t slot) {
    return Op("slice_by_index",
              {{"x", stack}, {"begin", Vector({slot, 0, 0, 0})}, {"end", Vector({slot + 1, kHeads, kRows, kWidth})}});
  }
  Value* WithSlot(Value* stack, int64_t slot, Value* content) {
    return Op("slice_update", {{"x", stack},
                               {"update", content},
                               {"begin", Vector({slot, 0, 0, 0})},
                               {"end", Vector({slot + 1, kHeads, kRows, kWidth})}});
  }

  // [first, 0, pos, 0] and the like.
  Value* Corner(int64_t first, int64_t second, Value* third, int64_t fourth) {
    return Op("concat",
              {{"values", std::vector<Value*>{builder_->Const(Vector({first})), builder_->Const(Vector({second})),
                                              third, builder_->Const(Vector({fourth}))}},
               {"axis", Literal::Int32(0)},
               {"interleave", Literal::Bool(false)}});
  }

  // 1 at the row that is written.
  Value* Mask() {
    if (update_mask_ != nullptr && OneIn(2)) return update_mask_;
    return Op("cast", {{"x", AtPosition()}, {"dtype", Literal::String("fp16")}});
  }
  Value* AtPosition() {
    const Tensor range = *Tensor::VectorOf(DataType::kInt32, {0, 1, 2, 3}).Reshaped({1, 1, kRows, 1});
    return Op("equal", {{"x", builder_->Const(Literal(range))}, {"y", position_}});
  }

  // ---- updates: the new content of [1, 2, 4, 2] from the old ----

  Value* SliceUpdate(Value* old, Value* row, int64_t slot = 0) {
    Value* next = Op("add", {{"x", position_}, {"y", Literal::Int32(1)}});
    return Op("slice_update", {{"x", old},
                               {"update", row},
                               {"begin", Corner(slot, 0, position_, 0)},
                               {"end", Corner(slot + 1, kHeads, next, kWidth)}});
  }

  Value* MaskBlend(Value* old, Value* row) {
    if (OneIn(3)) {
      Value* tiled = Op("tile", {{"x", row}, {"reps", Vector({1, 1, kRows, 1})}});
      return Op("select", {{"cond", AtPosition()}, {"a", tiled}, {"b", old}});
    }
    Value* mask = Mask();
    Value* rest = Op("sub", {{"x", Half(1)}, {"y", mask}});
    return Op("add", {{"x", Op("mul", {{"x", old}, {"y", rest}})}, {"y", Op("mul", {{"x", row}, {"y", mask}})}});
  }

  Value* ShiftConcat(Value* old, Value* row) {
    const auto concat = [this](Value* first, Value* second) {
      return Op("concat", {{"values", std::vector<Value*>{first, second}},
                           {"axis", Literal::Int32(2)},
                           {"interleave", Literal::Bool(false)}});
    };
    const auto drop_front = [this](Value* value, int64_t rows) {
      return Op("slice_by_index",
                {{"x", value}, {"begin", Vector({0, 0, 1, 0})}, {"end", Vector({1, kHeads, rows, kWidth})}});
    };
    return OneIn(2) ? concat(drop_front(old, kRows), row) : drop_front(concat(old, row), kRows + 1);
  }

  Value* ShiftMatmul(Value* old, Value* row) {
    std::vector<float> shift(kRows * kRows, 0);
    for (int64_t i = 0; i + 1 < kRows; ++i) shift[static_cast<size_t>(i * kRows + i + 1)] = 1;
    const Tensor last = *Tensor::FromFloats({DataType::kFp16, {1, 1, kRows, 1}}, std::vector<float>{0, 0, 0, 1});
    Value* matrix = builder_->Const(Literal(*Tensor::FromFloats({DataType::kFp16, {kRows, kRows}}, shift)));
    Value* moved =
        Op("matmul",
           {{"x", matrix}, {"y", old}, {"transpose_x", Literal::Bool(false)}, {"transpose_y", Literal::Bool(false)}});
    return Op("add", {{"x", moved}, {"y", Op("mul", {{"x", row}, {"y", Literal(last)}})}});
  }

  Value* Scatter(Value* old, Value* row) {
    return Op("scatter", {{"data", old},
                          {"indices", position_},
                          {"updates", row},
                          {"axis", Literal::Int32(2)},
                          {"mode", Literal::String("update")},
                          {"validate_indices", Literal::Bool(false)}});
  }

  Value* ThroughFp32(Value* value) {
    Value* wide = Op("cast", {{"x", value}, {"dtype", Literal::String("fp32")}});
    return Op("cast", {{"x", wide}, {"dtype", Literal::String("fp16")}});
  }

  Value* Updated(Value* old, const Scope& scope) {
    Value* row = Pick(scope.rows);
    switch (Below(9)) {
      case 0:
        return MaskBlend(old, row);
      case 1:
        return ShiftConcat(old, row);
      case 2:
        return ShiftMatmul(old, row);
      case 3:
        return Scatter(old, row);
      case 4:
        return Average(old, Pick(scope.full));
      case 5:
        return Pick(scope.full);
      case 6:
        return OneIn(2) ? old : ThroughFp32(old);
      default:
        return SliceUpdate(old, row);
    }
  }

  // ---- actions ----

  void Read(Scope& scope) {
    Value* state = PickState();
    Value* content = builder_->ReadState(state);
    scope.full.push_back(Slots(state) == 1 ? content : Slot(content, Below(2)));
  }

  void Update(Scope& scope) {
    Value* state = PickState();
    Value* old = builder_->ReadState(state);
    if (OneIn(4)) PureOp(scope);  // something between read and write
    Value* content = nullptr;
    if (Slots(state) == 1) {
      content = Updated(old, scope);
    } else if (OneIn(3)) {
      content = SliceUpdate(old, Pick(scope.rows), Below(2));
    } else if (OneIn(4)) {
      content =
          Op("concat", {{"values", std::vector<Value*>{Updated(Slot(old, 0), scope), Updated(Slot(old, 1), scope)}},
                        {"axis", Literal::Int32(0)},
                        {"interleave", Literal::Bool(false)}});
    } else {
      const int64_t slot = Below(2);
      content = WithSlot(old, slot, Updated(Slot(old, slot), scope));
    }
    if (OneIn(4)) PureOp(scope);
    if (OneIn(5)) {
      content = Op("coreml_update_state", {{"state", state}, {"value", content}});
    } else {
      builder_->WriteState(state, content);
      if (OneIn(3)) content = builder_->ReadState(state);
    }
    if (OneIn(2)) scope.full.push_back(Slots(state) == 1 ? content : Slot(content, Below(2)));
    if (OneIn(3)) scope.full.push_back(Slots(state) == 1 ? old : Slot(old, Below(2)));
  }

  // The same write once more, with another between (T04), or a write of something unrelated.
  void Write(const Scope& scope) {
    Value* state = PickState();
    Value* data = Pick(scope.full);
    Value* other = Pick(scope.full);
    const auto write = [&](Value* value) {
      builder_->WriteState(state, Slots(state) == 1 ? value : WithSlot(builder_->ReadState(state), Below(2), value));
    };
    write(data);
    if (OneIn(2)) return;
    write(other);
    write(data);
  }

  void PureOp(Scope& scope) {
    for (int repeat = OneIn(5) ? 2 : 1; repeat > 0; --repeat) {
      if (repeat == 2) state_of_choices_ = random_;
      if (repeat == 1 && state_of_choices_.has_value()) random_ = *std::exchange(state_of_choices_, std::nullopt);
      OnePureOp(scope);
    }
  }

  void OnePureOp(Scope& scope) {
    switch (Below(9)) {
      case 0:
        scope.full.push_back(Average(Pick(scope.full), Pick(scope.full)));
        break;
      case 1:
        scope.full.push_back(Op("mul", {{"x", Pick(scope.full)}, {"y", Pick(scope.rows)}}));
        break;
      case 2:
        scope.full.push_back(Op("tanh", {{"x", Pick(scope.full)}}));
        break;
      case 3:
        scope.full.push_back(Op("relu", {{"x", Pick(scope.full)}}));
        break;
      case 4:
        scope.rows.push_back(
            Op("reduce_mean", {{"x", Pick(scope.full)}, {"axes", Vector({2})}, {"keep_dims", Literal::Bool(true)}}));
        break;
      case 5:
        scope.rows.push_back(Op("sub", {{"x", Pick(scope.rows)}, {"y", Half(0.25)}}));
        break;
      case 6: {  // an expression of constants
        Value* constant = builder_->Const(
            Literal(*Tensor::FromFloats({DataType::kFp16, kRow}, std::vector<float>{0.5F, -0.25F, 1, 0.125F})));
        scope.rows.push_back(Op("tanh", {{"x", Op("mul", {{"x", constant}, {"y", Half(0.5)}})}}));
        break;
      }
      case 7:
        scope.full.push_back(Op("sub", {{"x", Pick(scope.full)}, {"y", Pick(scope.rows)}}));
        break;
      default:
        scope.rows.push_back(Average(Pick(scope.rows), Pick(scope.rows)));
    }
  }

  Value* Predicate(const Scope& scope) {
    Value* mean = Op("reduce_mean",
                     {{"x", Pick(scope.full)}, {"axes", Vector({0, 1, 2, 3})}, {"keep_dims", Literal::Bool(false)}});
    return Op("greater", {{"x", mean}, {"y", Half(0)}});
  }

  void Cond(Scope& scope, int depth) {
    Value* predicate = Predicate(scope);
    Block& outer = builder_->block();
    Operation* op = outer.Insert(std::make_unique<Operation>("cond"));
    op->SetInput("pred", Operand(predicate));
    for (int branch = 0; branch < 2; ++branch) {
      Block* block = op->AddBlock();
      builder_->SetInsertionPoint(*block, nullptr);
      Scope inner = scope;
      PureOp(inner);
      Actions(inner, 1 + Below(3), depth + 1);
      block->SetOutputs({Op("identity", {{"x", Pick(inner.full)}})});
    }
    builder_->SetInsertionPoint(outer, nullptr);
    scope.full.push_back(op->AddOutput(Name("cond"), Type::Tensor(DataType::kFp16, kFull)));
  }

  void Loop(Scope& scope, int depth) {
    Block& outer = builder_->block();
    Value* start = builder_->Const(Literal::Int32(0));
    Value* carried = Pick(scope.full);
    Operation* op = outer.Insert(std::make_unique<Operation>("while_loop"));
    op->SetInput("loop_vars", std::vector<Operand>{Operand(start), Operand(carried)});
    for (int part = 0; part < 2; ++part) {
      Block* block = op->AddBlock();
      builder_->SetInsertionPoint(*block, nullptr);
      Value* turn = block->AddInput(Name("turn"), Type::Scalar(DataType::kInt32));
      Value* value = block->AddInput(Name("carried"), Type::Tensor(DataType::kFp16, kFull));
      if (part == 0) {
        block->SetOutputs({Op("less", {{"x", turn}, {"y", Literal::Int32(1 + Below(2))}})});
        continue;
      }
      Scope inner = scope;
      inner.full.push_back(value);
      Actions(inner, 1 + Below(3), depth + 1);
      Value* next = Op("add", {{"x", turn}, {"y", Literal::Int32(1)}});
      block->SetOutputs({next, Average(value, Pick(inner.full))});
    }
    builder_->SetInsertionPoint(outer, nullptr);
    op->AddOutput(Name("turns"), Type::Scalar(DataType::kInt32));
    scope.full.push_back(op->AddOutput(Name("loop"), Type::Tensor(DataType::kFp16, kFull)));
  }

  void Actions(Scope& scope, int count, int depth) {
    for (int i = 0; i < count; ++i) {
      const int choice = Below(16);
      if (choice < 5) {
        PureOp(scope);
      } else if (choice < 7) {
        Read(scope);
      } else if (choice < 13) {
        Update(scope);
      } else if (choice < 14) {
        Write(scope);
      } else if (depth < kMaxDepth) {
        choice == 14 ? Cond(scope, depth) : Loop(scope, depth);
      }
    }
  }

  void ChooseOutputs(Function& function, Scope& scope) {
    std::vector<Value*> outputs;
    const int count = 1 + Below(3);
    for (int i = 0; i < count; ++i) {
      Value* value = OneIn(3) ? Pick(scope.rows) : Pick(scope.full);
      const bool taken = std::ranges::find(outputs, value) != outputs.end();
      // An input, or one value twice, is no output of its own.
      outputs.push_back(value->producer() == nullptr || value->producer()->type() == "const" || taken ? Halved(value)
                                                                                                      : value);
    }
    function.body().SetOutputs(outputs);
  }

  std::string Name(std::string_view base) { return std::string(base) + "_v" + std::to_string(names_++); }

  std::mt19937_64 random_;
  std::optional<std::mt19937_64> state_of_choices_;
  Builder* builder_ = nullptr;
  Value* position_ = nullptr;
  Value* update_mask_ = nullptr;
  std::vector<Value*> states_;
  int names_ = 0;
};

// ---- reducing ----

Operation* OperationAt(const ModelSpec& spec, size_t index) {
  Operation* found = nullptr;
  size_t i = 0;
  for (const auto& function : spec.program.functions()) {
    ForEachOperation(function->body(), [&](Operation& op) {
      if (i++ == index) found = &op;
    });
  }
  return found;
}

size_t CountOperations(const ModelSpec& spec) {
  size_t count = 0;
  for (const auto& function : spec.program.functions())
    ForEachOperation(function->body(), [&count](Operation&) { ++count; });
  return count;
}

// Removes an operation; its results become an operand or an input of equal type.
bool Drop(Operation& op) {
  for (const auto& output : op.outputs()) {
    if (output->uses().empty()) continue;
    Value* substitute = nullptr;
    for (const Input& input : op.inputs()) {
      for (const Operand& operand : input.arguments) {
        if (operand.value != nullptr && operand.value->type == output->type) substitute = operand.value;
      }
    }
    for (const auto& input : op.parent()->function()->inputs()) {
      if (substitute == nullptr && input->type == output->type) substitute = input.get();
    }
    if (substitute == nullptr) return false;
    output->ReplaceAllUsesWith(substitute);
  }
  op.parent()->Erase(&op);
  return true;
}

// Whether every loop still counts up to a constant, as the generator's do: what runs for ever is no smaller program.
bool LoopsEnd(const Function& function) {
  bool end = true;
  ForEachOperation(function.body(), [&end](const Operation& op) {
    if (op.type() != "while_loop") return;
    const Block& condition = *op.blocks()[0];
    const Block& body = *op.blocks()[1];
    const Operation* less = condition.outputs()[0]->producer();
    const Operation* add = body.outputs()[0]->producer();
    end = end && less != nullptr && less->type() == "less" && less->InputConstant("y") != nullptr &&
          less->InputValue("x") == condition.inputs()[0].get() && add != nullptr && add->type() == "add" &&
          add->InputConstant("y") != nullptr && add->InputConstant("y")->tensor.GetInt(0) > 0 &&
          add->InputValue("x") == body.inputs()[0].get();
  });
  return end;
}

bool DropOutput(ModelSpec& spec, size_t index) {
  Function& function = *spec.program.functions().front();
  std::vector<Value*> outputs = function.body().outputs();
  if (index >= outputs.size()) return false;
  outputs.erase(outputs.begin() + static_cast<std::ptrdiff_t>(index));
  function.body().SetOutputs(outputs);
  return true;
}

}  // namespace

ModelSpec RandomProgram(uint64_t seed) { return Generator(seed).Make(); }

ModelSpec Reduce(const ModelSpec& spec, const std::function<bool(const ModelSpec&)>& fails) {
  ModelSpec best = spec.Clone();
  const auto accept = [&](ModelSpec candidate) {
    Function& function = *candidate.program.functions().front();
    candidate.description.functions = {DescribeFunction(function)};
    if (!Verify(candidate.program).ok() || !LoopsEnd(function) || !fails(candidate)) return false;
    best = std::move(candidate);
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = best.program.functions().front()->body().outputs().size(); i-- > 0;) {
      ModelSpec candidate = best.Clone();
      if (DropOutput(candidate, i)) changed = accept(std::move(candidate)) || changed;
    }
    for (size_t i = CountOperations(best); i-- > 0;) {
      ModelSpec candidate = best.Clone();
      Operation* op = OperationAt(candidate, i);
      if (op != nullptr && Drop(*op)) changed = accept(std::move(candidate)) || changed;
    }
  }
  return best;
}

}  // namespace milwright::testing
