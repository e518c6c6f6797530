// Every rule of this table fires on a program made for it, and is silent on its twin that differs in the one thing.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "check/rule.h"
#include "check/targets.h"
#include "format/package.h"
#include "milwright/model.h"
#include "passes/pass.h"
#include "support/small_model.h"
#include "support/test_util.h"

namespace milwright {
namespace {

using testing::DataDir;
using testing::FindAll;
using testing::Floats;
using testing::Halves;
using testing::Ints;
using testing::MakeSpec;

Type Half(Shape shape) { return Type::Tensor(DataType::kFp16, std::move(shape)); }
Type State(Shape shape) { return Type::State({DataType::kFp16, std::move(shape)}); }

// A program of one op on an fp16 input: the body gets the input and returns the output.
ModelSpec OneOp(Shape shape, const std::function<Value*(Builder&, Value*)>& body) {
  return MakeSpec([&](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Half(shape));
    Value* y = body(b, x);
    if (y != nullptr) function.body().SetOutputs({y});
  });
}

enum class Write { kSlice, kMask, kShift, kScatter };

// Attention over the keys and values of one state: k = kv[0:1], v = kv[1:2]; scores, softmax, product.
Value* Attend(Builder& b, Value* q, Value* cache) {
  const int64_t heads = cache->type.shape()[1];
  const int64_t rows = cache->type.shape()[2];
  const int64_t size = cache->type.shape()[3];
  const auto slot = [&](int64_t i) {
    return b.Op(
        "slice_by_index",
        {{"x", cache}, {"begin", Literal::Int32s({i, 0, 0, 0})}, {"end", Literal::Int32s({i + 1, heads, rows, size})}});
  };
  Value* scores =
      b.Op("matmul",
           {{"x", q}, {"y", slot(0)}, {"transpose_x", Literal::Bool(false)}, {"transpose_y", Literal::Bool(true)}});
  Value* weights = b.Op("softmax", {{"x", scores}, {"axis", Literal::Int32(-1)}});
  return b.Op(
      "matmul",
      {{"x", weights}, {"y", slot(1)}, {"transpose_x", Literal::Bool(false)}, {"transpose_y", Literal::Bool(false)}});
}

// The cache [2, heads, rows, size] with `rows_written` new rows.
Value* Updated(Builder& b, Function& function, Value* old, Write write, int64_t rows_written) {
  const Shape& shape = old->type.shape();
  Value* fresh = function.FindInput("fresh");
  if (fresh == nullptr) fresh = function.AddInput("fresh", Half({2, shape[1], rows_written, shape[3]}));
  switch (write) {
    case Write::kShift:
      return b.Op(
          "concat",
          {{"values", std::vector<Value*>{b.Op("slice_by_index", {{"x", old},
                                                                  {"begin", Literal::Int32s({0, 0, rows_written, 0})},
                                                                  {"end", Literal::Int32s(shape)}}),
                                          fresh}},
           {"axis", Literal::Int32(2)},
           {"interleave", Literal::Bool(false)}});
    case Write::kMask: {
      Value* mask = function.AddInput("mask", Half({1, 1, shape[2], 1}));
      Value* keep = b.Op("sub", {{"x", Literal::Float(DataType::kFp16, 1)}, {"y", mask}});
      return b.Op("add",
                  {{"x", b.Op("mul", {{"x", old}, {"y", keep}})}, {"y", b.Op("mul", {{"x", fresh}, {"y", mask}})}});
    }
    case Write::kScatter: {
      Value* at = function.AddInput("at", Type::Tensor(DataType::kInt32, {rows_written}));
      return b.Op("scatter", {{"data", old},
                              {"indices", at},
                              {"updates", fresh},
                              {"axis", Literal::Int32(2)},
                              {"mode", Literal::String("update")},
                              {"validate_indices", Literal::Bool(false)}});
    }
    case Write::kSlice:
      break;
  }
  Value* position = function.AddInput("position", Type::Tensor(DataType::kInt32, {1}));
  Value* end = b.Op("add", {{"x", position}, {"y", Literal::Int32(rows_written)}});
  const auto place = [&](Value* row, int64_t slots, int64_t heads, int64_t size) {
    return b.Op("concat", {{"values", std::vector<Value*>{b.Const(Literal::Int32s({slots, heads})), row,
                                                          b.Const(Literal::Int32s({size}))}},
                           {"axis", Literal::Int32(0)},
                           {"interleave", Literal::Bool(false)}});
  };
  return b.Op(
      "slice_update",
      {{"x", old}, {"update", fresh}, {"begin", place(position, 0, 0, 0)}, {"end", place(end, 2, shape[1], shape[3])}});
}

// One KV state of `shape` written as `write` says, and attention over it.
ModelSpec Kv(Shape shape, Write write = Write::kSlice, int64_t rows_written = 1,
             const std::function<void(Function&, Builder&)>& more = {}) {
  return MakeSpec([&](Function& function, Builder& b) {
    Value* q = function.AddInput("q", Half({1, shape[1], rows_written, shape[3]}));
    Value* state = function.AddInput("kv_cache", State(shape));
    b.WriteState(state, Updated(b, function, b.ReadState(state), write, rows_written));
    Value* out = Attend(b, q, b.ReadState(state));
    if (out != nullptr) function.body().SetOutputs({out});
    if (more) more(function, b);
  });
}

const Shape kGood = {2, 2, 64, 32};

// A second state of a short convolution: a window shifted by one each step.
void AddWindow(Function& function, Builder& b) {
  Value* state = function.AddInput("window", State({1, 4, 3}));
  Value* x = function.AddInput("x", Half({1, 4, 1}));
  Value* old = b.ReadState(state);
  Value* kept =
      b.Op("slice_by_index", {{"x", old}, {"begin", Literal::Int32s({0, 0, 1})}, {"end", Literal::Int32s({1, 4, 3})}});
  Value* window = b.Op(
      "concat",
      {{"values", std::vector<Value*>{kept, x}}, {"axis", Literal::Int32(-1)}, {"interleave", Literal::Bool(false)}});
  b.WriteState(state, window);
  Value* y = b.Op("conv", {{"x", b.ReadState(state)},
                           {"weight", Literal(Halves({4, 1, 3}, std::vector<float>(12, 0.5F)))},
                           {"strides", Literal::Int32s({1})},
                           {"pad_type", Literal::String("valid")},
                           {"pad", Literal::Int32s({0, 0})},
                           {"dilations", Literal::Int32s({1})},
                           {"groups", Literal::Int32(4)}});
  if (y != nullptr) function.body().SetOutputs({function.body().outputs().front(), y});
}

ModelSpec Masked(double value) {
  return OneOp({1, 32}, [value](Builder& b, Value* x) {
    Value* masked = b.Op("add", {{"x", x}, {"y", Literal::Float(DataType::kFp16, value)}});
    return b.Op("softmax", {{"x", masked}, {"axis", Literal::Int32(-1)}});
  });
}

ModelSpec Rsqrt(double epsilon) {
  return OneOp({1, 32}, [epsilon](Builder& b, Value* x) {
    return b.Op("rsqrt", {{"x", x}, {"epsilon", Literal::Float(DataType::kFp16, epsilon)}});
  });
}

// A look-up of `rows` rows with int16 ids.
ModelSpec Lookup(int64_t rows) {
  return MakeSpec([rows](Function& function, Builder& b) {
    Value* table = function.AddInput("table", Half({rows, 2}));
    Value* ids = function.AddInput("ids", Type::Tensor(DataType::kInt16, {3}));
    Value* y = b.Op("gather", {{"x", table}, {"indices", ids}, {"axis", Literal::Int32(0)}});
    if (y != nullptr) function.body().SetOutputs({y});
  });
}

ModelSpec ConstantLookup() {
  return OneOp({8, 2}, [](Builder& b, Value* x) {
    return b.Op("gather", {{"x", x}, {"indices", Literal::Int32s({1, 2})}, {"axis", Literal::Int32(0)}});
  });
}

// A product with int8 weights [32, 64] and scales of `scale` shape, all of them `value`.
ModelSpec Quantized(const Shape& scale, float value = 0.5F) {
  return OneOp({1, 64}, [&](Builder& b, Value* x) {
    Tensor data = *Tensor::VectorOf(DataType::kInt8, std::vector<int64_t>(32 * 64, 1)).Reshaped({32, 64});
    Tensor scales = Halves(scale, std::vector<float>(static_cast<size_t>(scale[0] * scale[1]), value));
    Value* weight = b.Op("constexpr_blockwise_shift_scale", {{"data", Literal(data)}, {"scale", Literal(scales)}});
    return b.Op("linear", {{"x", x}, {"weight", weight}});
  });
}

// A product with a 4-bit palette [32, 64]: `groups` tables along rows and columns, with scales when `scaled`.
ModelSpec Palettized(int64_t row_groups, int64_t column_groups, bool scaled = false) {
  return OneOp({1, 64}, [&](Builder& b, Value* x) {
    Tensor indices = *Tensor::VectorOf(DataType::kUInt4, std::vector<int64_t>(32 * 64, 1)).Reshaped({32, 64});
    const auto entries = static_cast<size_t>(row_groups * column_groups * 16);
    Tensor lut = Halves({row_groups, column_groups, 16, 1}, std::vector<float>(entries, 0.25F));
    Value* weight = b.Op("constexpr_lut_to_dense", {{"indices", Literal(indices)}, {"lut", Literal(lut)}});
    if (scaled) {
      Tensor scales = Halves({32, 1}, std::vector<float>(32, 0.5F));
      weight = b.Op("constexpr_blockwise_shift_scale", {{"data", weight}, {"scale", Literal(scales)}});
    }
    return b.Op("linear", {{"x", x}, {"weight", weight}});
  });
}

ModelSpec Unary(std::string_view type, Shape shape = {1, 32}) {
  return OneOp(std::move(shape), [type](Builder& b, Value* x) { return b.Op(type, {{"x", x}}); });
}

ModelSpec IntegerAdd(DataType dtype) {
  return MakeSpec([dtype](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(dtype, {4}));
    function.body().SetOutputs({b.Op("add", {{"x", x}, {"y", x}})});
  });
}

ModelSpec Argmax(bool as_output) {
  return OneOp({1, 32}, [as_output](Builder& b, Value* x) {
    Value* best = b.Op("reduce_argmax", {{"x", x}, {"axis", Literal::Int32(-1)}, {"keep_dims", Literal::Bool(false)}});
    return as_output ? best : b.Op("cast", {{"x", best}, {"dtype", Literal::String("fp16")}});
  });
}

ModelSpec Depthwise(int64_t channels) {
  return OneOp({1, channels, 3}, [channels](Builder& b, Value* x) {
    const std::vector<float> taps(static_cast<size_t>(channels * 3), 1.0F);
    return b.Op("conv", {{"x", x},
                         {"weight", Literal(Halves({channels, 1, 3}, taps))},
                         {"strides", Literal::Int32s({1})},
                         {"pad_type", Literal::String("valid")},
                         {"pad", Literal::Int32s({0, 0})},
                         {"dilations", Literal::Int32s({1})},
                         {"groups", Literal::Int32(channels)}});
  });
}

ModelSpec ActivationQuantization(bool quantize) {
  return OneOp({1, 32}, [quantize](Builder& b, Value* x) {
    if (!quantize) return b.Op("relu", {{"x", x}});
    Value* q = b.Op(
        "quantize",
        {{"input", x}, {"scale", Literal::Float(DataType::kFp16, 0.5)}, {"output_dtype", Literal::String("int8")}});
    return b.Op("dequantize", {{"input", q}, {"scale", Literal::Float(DataType::kFp16, 0.5)}});
  });
}

// decode and prefill functions over one state, the latter of `rows` rows.
ModelSpec TwoFunctions(int64_t rows) {
  ModelSpec decode = Kv(kGood);
  ModelSpec prefill = Kv(kGood, Write::kSlice, rows);
  std::unique_ptr<Function> function = CloneFunction(*prefill.program.functions().front());
  function->name = "prefill";
  decode.program.AddFunction(std::move(function));
  return decode;
}

// The description of a variable input: nothing, or its range.
ModelSpec Variable(bool described) {
  ModelSpec spec = OneOp({1, kUnknownDim}, [](Builder& b, Value* x) { return b.Op("relu", {{"x", x}}); });
  if (described) spec.description.functions[0].inputs[0].type.array.shape_range = {{1, 1}, {1, 64}};
  return spec;
}

ModelSpec SliceUpdateTo(int64_t end) {
  ModelSpec spec = OneOp({4, 8}, [](Builder& b, Value* x) {
    Value* part =
        b.Op("slice_by_index", {{"x", x}, {"begin", Literal::Int32s({0, 0})}, {"end", Literal::Int32s({2, 8})}});
    return b.Op("slice_update",
                {{"x", x}, {"update", part}, {"begin", Literal::Int32s({0, 0})}, {"end", Literal::Int32s({2, 8})}});
  });
  // What the builder would refuse stands in files of others.
  ForEachOperation(spec.program.functions()[0]->body(), [end](Operation& op) {
    if (op.type() == "slice_update") op.SetInput("end", Literal::Share(Literal::Int32s({end, 8})));
  });
  return spec;
}

// Gemma's chunk that hands on keys: a slice of the written state is an output, and attention reads it too.
ModelSpec KeysAsOutput(bool also_output) {
  return Kv(kGood, Write::kSlice, 1, [also_output](Function& function, Builder&) {
    if (!also_output) return;
    Value* slice = nullptr;
    ForEachOperation(function.body(), [&slice](const Operation& op) {
      if (op.type() == "slice_by_index") slice = op.output();
    });
    function.body().SetOutputs({function.body().outputs().front(), slice});
  });
}

// A decode and a prefill function that share a state's name, but not its shape.
ModelSpec OtherShapeInPrefill() {
  ModelSpec decode = Kv(kGood);
  std::unique_ptr<Function> function = CloneFunction(*Kv({2, 2, 32, 32}).program.functions().front());
  function->name = "prefill";
  decode.program.AddFunction(std::move(function));
  return decode;
}

ModelSpec WithoutStateInDescription() {
  ModelSpec spec = Kv(kGood);
  spec.description.functions[0].states.clear();
  return spec;
}

// One state [4] and an input x of its type: the body reads and writes, and returns the output (null: none).
ModelSpec OneState(const std::function<Value*(Builder&, Value* state, Value* x)>& body,
                   DataType dtype = DataType::kFp16) {
  return MakeSpec([&](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(dtype, {4}));
    Value* state = function.AddInput("s", Type::State({dtype, {4}}));
    Value* y = body(b, state, x);
    if (y != nullptr) function.body().SetOutputs({y});
  });
}

Value* Sum(Builder& b, Value* x, Value* y) { return b.Op("add", {{"x", x}, {"y", y}}); }

// An accumulator: reads, adds, writes, and returns the sum itself or another value.
ModelSpec Accumulator(bool returns_written, DataType dtype = DataType::kFp16) {
  return OneState(
      [returns_written](Builder& b, Value* state, Value* x) {
        Value* sum = Sum(b, b.ReadState(state), x);
        b.WriteState(state, sum);
        return returns_written ? sum : Sum(b, b.ReadState(state), x);
      },
      dtype);
}

ModelSpec UpdateWithoutOutput() {
  return OneState([](Builder& b, Value* state, Value* x) -> Value* {
    b.WriteState(state, Sum(b, b.ReadState(state), x));
    return nullptr;
  });
}

// A write of another shape than the state's, as only a file of others has it.
ModelSpec WrittenShape(bool right) {
  ModelSpec spec = MakeSpec([](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Half({4}));
    function.AddInput("row", Half({1, 4}));
    Value* state = function.AddInput("s", State({4}));
    b.WriteState(state, x);
    function.body().SetOutputs({Sum(b, b.ReadState(state), x)});
  });
  Function& function = *spec.program.functions()[0];
  ForEachOperation(function.body(), [&](Operation& op) {
    if (!right && op.type() == "write_state") op.SetInput("data", function.FindInput("row"));
  });
  return spec;
}

enum class Access { kNone, kRead, kWrite, kWriteBack, kWriteAndRead };
ModelSpec Accessed(Access access) {
  return OneState([access](Builder& b, Value* state, Value* x) {
    if (access == Access::kWriteBack) b.WriteState(state, b.ReadState(state));
    if (access == Access::kWrite || access == Access::kWriteAndRead) b.WriteState(state, x);
    return access == Access::kNone || access == Access::kWrite ? Sum(b, x, x) : Sum(b, b.ReadState(state), x);
  });
}

// read, write, read again: the first value is used behind the write (T01 of the state semantics).
ModelSpec ReadAcrossWrite(bool across) {
  return OneState([across](Builder& b, Value* state, Value* x) {
    Value* old = b.ReadState(state);
    b.WriteState(state, x);
    return across ? Sum(b, old, b.ReadState(state)) : Sum(b, b.ReadState(state), x);
  });
}

ModelSpec VariableBesideState(int64_t size) {
  return Kv(kGood, Write::kSlice, 1, [size](Function& function, Builder& b) {
    Value* x = function.AddInput("tokens", Half({1, size}));
    function.body().SetOutputs({function.body().outputs().front(), b.Op("relu", {{"x", x}})});
  });
}

// A product with an fp16 weight of `megabytes` MB, of which no page is ever touched.
ModelSpec LargeWeight(int64_t megabytes) {
  const TensorType type{DataType::kFp16, {megabytes * 500, 1000}};
  const auto bytes = static_cast<size_t>(megabytes * 1000 * 1000);
  void* pages = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(pages, MAP_FAILED);
  const std::shared_ptr<const void> owner(pages, [bytes](const void* p) { munmap(const_cast<void*>(p), bytes); });
  const Tensor weight = *Tensor::Borrow(type, {static_cast<const std::byte*>(pages), bytes}, owner);
  return OneOp({1, 1000}, [&weight](Builder& b, Value* x) {
    return b.Op("linear", {{"x", x}, {"weight", Literal(weight)}});
  });
}

struct Case {
  std::string id;
  std::string target;
  ModelSpec fires;
  ModelSpec silent;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&cases](std::string id, std::string target, ModelSpec fires, ModelSpec silent) {
    cases.push_back({std::move(id), std::move(target), std::move(fires), std::move(silent)});
  };
  const std::string ane = "ane-macos26";
  add("MW101", "any", UpdateWithoutOutput(), Accumulator(false));
  add("MW102", "any", OtherShapeInPrefill(), TwoFunctions(1));
  add("MW201", "any", WithoutStateInDescription(), Kv(kGood));
  add("MW202", "any", Accumulator(false, DataType::kFp32), Accumulator(false));
  add("MW203", "any", WrittenShape(false), WrittenShape(true));
  add("MW205", "any", Accumulator(true), Accumulator(false));
  add("MW206", "any", Accessed(Access::kNone), Accessed(Access::kRead));
  add("MW207", "any", Accessed(Access::kWrite), Accessed(Access::kWriteAndRead));
  add("MW208", "any", Accessed(Access::kRead), Accessed(Access::kWriteAndRead));
  add("MW209", "any", Accessed(Access::kWriteBack), Accessed(Access::kWriteAndRead));
  add("MW210", "any", ReadAcrossWrite(true), ReadAcrossWrite(false));
  add("MW303", ane, VariableBesideState(kUnknownDim), VariableBesideState(8));
  add("MW406", "any", LargeWeight(1001), LargeWeight(1000));
  add("MW103", "any", Variable(false), Variable(true));
  add("MW211", "ane-ios26", KeysAsOutput(true), KeysAsOutput(false));
  add("MW212", ane, Kv(kGood, Write::kShift), Kv(kGood, Write::kMask));
  add("MW213", ane, Kv(kGood, Write::kScatter), Kv(kGood));
  add("MW214", ane, Kv(kGood, Write::kSlice, 33), Kv(kGood, Write::kSlice, 32));
  add("MW215", "any", SliceUpdateTo(6), SliceUpdateTo(2));
  add("MW216", "any", Kv(kGood), Kv(kGood, Write::kMask));
  add("MW217", ane, Kv(kGood, Write::kSlice, 1, AddWindow), Kv(kGood));
  add("MW218", ane, Kv(kGood, Write::kSlice, 1, AddWindow), Kv(kGood));
  add("MW219", ane, Kv(kGood, Write::kSlice, 1, AddWindow), Kv(kGood));
  add("MW301", ane, Kv({2, 2, 64, 24}), Kv(kGood));
  add("MW302", ane, Kv(kGood, Write::kSlice, 1, AddWindow), Kv(kGood));
  add("MW304", ane, Unary("relu", {4, 33}), Unary("relu", {4, 64}));
  add("MW305", "any", Kv({2, 2, 32768, 32}), Kv({2, 2, 16384, 32}));
  add("MW401", ane, Quantized({32, 2}), Quantized({32, 1}));
  add("MW402", ane, Palettized(4, 2), Palettized(4, 1));
  add("MW403", "any", Quantized({32, 1}, 0), Quantized({32, 1}));
  add("MW404", ane, Palettized(4, 1, true), Palettized(4, 1));
  add("MW405", "ane-ios26", ActivationQuantization(true), ActivationQuantization(false));
  add("MW501", "any", Masked(-65504), Masked(-1e4));
  add("MW502", "any", Lookup(40000), Lookup(32768));
  add("MW503", "any", Rsqrt(1e-12), Rsqrt(1e-5));
  add("MW601", "ane-macos27-m4", Unary("tan"), Unary("relu"));
  add("MW602", ane, IntegerAdd(DataType::kInt32), IntegerAdd(DataType::kFp16));
  add("MW603", ane, Lookup(8), ConstantLookup());
  add("MW604", "ane-macos27-m4", Unary("relu", {1, 65537}), Unary("relu", {1, 65536}));
  add("MW605", ane, Argmax(true), Argmax(false));
  add("MW606", ane, Depthwise(1024), Depthwise(512));
  add("MW607", "ane-ios26", TwoFunctions(8), TwoFunctions(1));
  add("MW608", ane, SliceUpdateTo(2), Kv(kGood));
  return cases;
}

std::vector<std::string> Ids(const std::vector<Finding>& findings) {
  std::vector<std::string> ids;
  for (const Finding& finding : findings) ids.push_back(finding.id);
  return ids;
}

TEST(Rules, FireAndAreSilent) {
  for (const Case& test : Cases()) {
    SCOPED_TRACE(test.id);
    ASSERT_NE(FindTarget(test.target), nullptr);
    EXPECT_THAT(Ids(CheckModel(test.fires, {test.target, {}})), ::testing::Contains(test.id));
    EXPECT_THAT(Ids(CheckModel(test.silent, {test.target, {}})), ::testing::Not(::testing::Contains(test.id)));
  }
}

TEST(Rules, EveryRuleHasACase) {
  std::set<std::string> tested;
  for (const Case& test : Cases()) tested.insert(test.id);
  for (const Rule& rule : AllRules()) EXPECT_TRUE(tested.contains(std::string(rule.id))) << rule.id;
}

// Fixes come from the table of their rule, and read as passes.
TEST(Rules, FixesAreThoseOfTheTable) {
  size_t fixes = 0;
  for (const Case& test : Cases()) {
    for (const Finding& finding : CheckModel(test.fires, {test.target, {}})) {
      const Rule& rule = *FindRule(finding.id);
      EXPECT_TRUE(!finding.fix.has_value() || !rule.fixes.empty()) << rule.id;
      if (!finding.fix.has_value()) continue;
      const auto uses = ParsePasses(finding.fix->passes);
      ASSERT_OK(uses);
      std::vector<std::string_view> names;
      for (const PassUse& use : *uses) names.push_back(use.pass->name);
      EXPECT_THAT(rule.fixes,
                  ::testing::Contains(::testing::Field(&RuleFix::passes, fmt::format("{}", fmt::join(names, ",")))));
      ++fixes;
    }
  }
  EXPECT_GE(fixes, 8U);
}

TEST(Rules, TableIsWhole) {
  std::string previous;
  for (const Rule& rule : AllRules()) {
    SCOPED_TRACE(rule.id);
    EXPECT_GT(rule.id, previous);
    previous = rule.id;
    EXPECT_NE(rule.check, nullptr);
    EXPECT_FALSE(rule.summary.empty());
    EXPECT_FALSE(rule.explanation.empty());
    for (const auto& list : {rule.evidence_for, rule.evidence_against}) {
      for (const std::string_view evidence : list) {
        EXPECT_TRUE(evidence.starts_with("report ") || BuiltInLedger().FindHypothesis(evidence) != nullptr ||
                    BuiltInLedger().Find(evidence) != nullptr)
            << evidence;
      }
    }
  }
}

// docs/rules holds the page of every rule. MILWRIGHT_UPDATE_DOCS=1 writes them anew.
TEST(Rules, PagesAreThoseOfTheTable) {
  const std::filesystem::path folder = std::filesystem::path(MILWRIGHT_SOURCE_DIR) / "docs/rules";
  if (std::getenv("MILWRIGHT_UPDATE_DOCS") != nullptr) std::filesystem::create_directories(folder);
  for (const Rule& rule : AllRules()) {
    const std::filesystem::path path = folder / (std::string(rule.id) + ".md");
    if (std::getenv("MILWRIGHT_UPDATE_DOCS") != nullptr) std::ofstream(path) << RulePage(rule);
    std::ifstream file(path);
    std::stringstream page;
    page << file.rdbuf();
    EXPECT_EQ(page.str(), RulePage(rule)) << path;
  }
  EXPECT_EQ(FindAll(folder, ".md").size(), AllRules().size());
}

void ExpectClean(const std::string& path) {
  SCOPED_TRACE(path);
  const auto model = OpenModel(path);
  ASSERT_OK(model);
  for (const Finding& finding : CheckModel(*model)) {
    EXPECT_LT(finding.severity, Severity::kWarning) << finding.id << " " << finding.message;
  }
}

TEST(Rules, DefaultLayoutsAreClean) {
  ExpectClean((DataDir() / "packages/b_slice.mlpackage").string());
  ExpectClean((DataDir() / "packages/i_multifunction_int4.mlpackage").string());
}

TEST(Rules, DefaultLayoutsOfTheFixturesAreClean) {
  const auto folder = testing::SharedDir() / "fixtures/coremltools";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  for (const char* name : {"b_slice", "g_unified", "i_multifunction"}) {
    ExpectClean((folder / (std::string(name) + ".mlpackage")).string());
  }
}

}  // namespace
}  // namespace milwright
