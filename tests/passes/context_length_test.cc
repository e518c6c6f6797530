// set-context-length: what follows the length of the caches, what stays, and what is refused.
#include <gmock/gmock.h>

#include <cmath>

#include "format/package.h"
#include "llm/build.h"
#include "passes/context_tables.h"
#include "passes/diff.h"
#include "passes/pass_test_util.h"
#include "support/files.h"
#include "support/small_model.h"

namespace milwright {
namespace {

using testing::Differences;
using ::testing::HasSubstr;
using testing::MakeSpec;
using testing::Rewritten;
using testing::SharedDir;

// A row of [1, 2] goes into a cache of [1, 6, 2] at `pos`; scores of the row with all rows, under a mask; what `more`
// makes of the position and the updated cache is added as a second output.
ModelSpec Decoder(const std::function<Value*(Builder&, Value* position, Value* cache)>& more, int64_t width = 2) {
  return MakeSpec([&](Function& function, Builder& b) {
    Value* row = function.AddInput("hidden_states", Type::Tensor(DataType::kFp16, {1, 1, width}));
    Value* position = function.AddInput("position", Type::Tensor(DataType::kInt32, {1}));
    Value* mask = function.AddInput("causal_mask", Type::Tensor(DataType::kFp16, {1, 1, 6}));
    Value* cache = function.AddInput("k_cache", Type::State({DataType::kFp16, {1, 6, width}}));
    Value* next = b.Op("add", {{"x", position}, {"y", Literal::Int32(1)}}, "next");
    const auto vector = [&b](Value* middle, int64_t last, const char* name) {
      Value* head = b.Const(Literal::Int32s({0}));
      Value* tail = b.Const(Literal::Int32s({last}));
      return b.Op("concat",
                  {{"values", std::vector<Value*>{head, middle, tail}},
                   {"axis", Literal::Int32(0)},
                   {"interleave", Literal::Bool(false)}},
                  name);
    };
    Value* updated = b.Op("slice_update",
                          {{"x", b.ReadState(cache, "old")},
                           {"update", row},
                           {"begin", vector(position, 0, "begin")},
                           {"end", vector(next, width, "end")},
                           {"begin_mask", Literal::Bools({1, 0, 1})},
                           {"end_mask", Literal::Bools({1, 0, 1})}},
                          "updated");
    b.WriteState(cache, updated);
    Value* keys = b.Op("slice_by_index",
                       {{"x", b.ReadState(cache, "now")},
                        {"begin", Literal::Int32s({0, 0, 0})},
                        {"end", Literal::Int32s({1, 6, width})}},
                       "keys");
    Value* scores = b.Op("matmul", {{"x", row}, {"y", keys}, {"transpose_y", Literal::Bool(true)}}, "scores");
    Value* weights =
        b.Op("softmax", {{"x", b.Op("add", {{"x", scores}, {"y", mask}}, "masked")}, {"axis", Literal::Int32(-1)}},
             "weights");
    Value* out = b.Op("matmul", {{"x", weights}, {"y", keys}}, "out");
    Value* extra = more ? more(b, position, updated) : nullptr;
    function.body().SetOutputs(extra != nullptr ? std::vector<Value*>{out, extra} : std::vector<Value*>{out});
  });
}

ModelSpec Plain(int64_t width = 2) { return Decoder(nullptr, width); }

// The lines of `text` that hold `word`.
std::string LinesWith(const std::string& text, const std::string& word) {
  std::string found;
  size_t from = 0;
  while (from < text.size()) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string line = text.substr(from, end - from);
    if (line.find(word) != std::string::npos) found += line.substr(line.find_first_not_of(' ')) + "\n";
    from = end + 1;
  }
  return found;
}

std::string Text(const ModelSpec& spec) { return PrintFunction(*spec.program.functions().front()); }

std::string RefusalOf(const ModelSpec& spec, const std::string& options) {
  const auto after = Rewritten(spec, "set-context-length=" + options);
  EXPECT_FALSE(after.ok());
  EXPECT_EQ(after.status().code(), ErrorCode::kPrecondition) << after.status().message();
  return after.ok() ? "" : after.status().message();
}

void ExpectEqual(const ModelSpec& before, const ModelSpec& after, int steps = 6) {
  CompareOptions options;
  options.steps = steps;
  EXPECT_EQ(Differences(before, after, options), "");
}

TEST(SetContextLength, CacheMaskAndSliceEndsFollow) {
  // As wide as it is long: equal numbers must not be taken for each other.
  const ModelSpec before = Plain(6);
  const auto after = Rewritten(before, "set-context-length=length:9");
  ASSERT_OK(after);
  const std::string text = Text(*after);
  EXPECT_THAT(LinesWith(text, "func main"),
              HasSubstr("(tensor<fp16, [1, 1, 6]> hidden_states, tensor<int32, [1]> position, tensor<fp16, [1, 1, 9]> "
                        "causal_mask, state<tensor<fp16, [1, 9, 6]>> k_cache)"));
  EXPECT_THAT(LinesWith(text, "keys = slice_by_index"), HasSubstr("tensor<fp16, [1, 9, 6]> keys"));
  EXPECT_THAT(LinesWith(text, "keys_end"), HasSubstr("tensor<int32, [3]>([1, 9, 6])"));
  EXPECT_THAT(LinesWith(text, "scores = matmul"), HasSubstr("tensor<fp16, [1, 1, 9]> scores"));
  EXPECT_THAT(LinesWith(text, "out = matmul"), HasSubstr("tensor<fp16, [1, 1, 6]> out"));
  EXPECT_EQ(after->description.Find("main")->inputs[2].type.array.shape, (Shape{1, 1, 9}));
  ExpectEqual(before, *after);
  const auto back = Rewritten(*after, "set-context-length=length:6");
  ASSERT_OK(back);
  EXPECT_TRUE(DiffModels(before, *back).empty()) << DiffText(DiffModels(before, *back));
}

TEST(SetContextLength, RangesAndComputedMasksFollow) {
  const ModelSpec before = Decoder([](Builder& b, Value* position, Value* cache) {
    Value* range = b.Op(
        "range_1d", {{"start", Literal::Int32(0)}, {"end", Literal::Int32(6)}, {"step", Literal::Int32(1)}}, "range");
    Value* seen = b.Op("less_equal", {{"x", range}, {"y", position}}, "seen");
    Value* column = b.Op("reshape", {{"x", seen}, {"shape", Literal::Int32s({1, 6, 1})}}, "column");
    Value* kept =
        b.Op("mul", {{"x", cache}, {"y", b.Op("cast", {{"x", column}, {"dtype", Literal::String("fp16")}})}}, "kept");
    return b.Op("reduce_sum", {{"x", kept}, {"axes", Literal::Int32s({1})}, {"keep_dims", Literal::Bool(false)}},
                "sum");
  });
  const auto after = Rewritten(before, "set-context-length=length:10");
  ASSERT_OK(after);
  EXPECT_THAT(LinesWith(Text(*after), "range_end"), HasSubstr("int32(10)"));
  EXPECT_THAT(LinesWith(Text(*after), "column_shape"), HasSubstr("([1, 10, 1])"));
  ExpectEqual(before, *after);
}

TEST(SetContextLength, MasksOfCountingConstantsFollow) {
  const auto with_table = [](std::vector<int64_t> numbers) {
    return Decoder([numbers](Builder& b, Value* position, Value* cache) {
      Tensor table = *Tensor::VectorOf(DataType::kInt32, numbers).Reshaped({1, 6, 1});
      Value* here = b.Op("equal", {{"x", Literal(table)}, {"y", position}}, "here");
      Value* mask = b.Op("cast", {{"x", here}, {"dtype", Literal::String("fp16")}}, "one_hot");
      return b.Op("mul", {{"x", cache}, {"y", mask}}, "row_only");
    });
  };
  const ModelSpec before = with_table({0, 1, 2, 3, 4, 5});
  const auto after = Rewritten(before, "set-context-length=length:8");
  ASSERT_OK(after);
  EXPECT_THAT(LinesWith(Text(*after), "here_x"), HasSubstr("([[[0], [1], [2], [3], [4], [5], [6], [7]]])"));
  EXPECT_THAT(RefusalOf(with_table({0, 1, 2, 3, 5, 4}), "length:8"),
              ::testing::AllOf(HasSubstr("'here' (equal)"), HasSubstr("'here_x'")));
  EXPECT_OK(Rewritten(with_table({0, 1, 2, 3, 5, 4}), "set-context-length=length:4"));
}

Value* Lookup(Builder& b, Value* index, Tensor table) {
  return b.Op("gather", {{"x", Literal(std::move(table))}, {"indices", index}, {"axis", Literal::Int32(0)}},
              "looked_up");
}

TEST(SetContextLength, LearnedTablesAreCutButNotGrown) {
  const auto with_rows = [](int64_t rows) {
    return Decoder([rows](Builder& b, Value* position, Value*) {
      std::vector<float> numbers;
      for (int64_t i = 0; i < 3 * rows; ++i) numbers.push_back(static_cast<float>((i * i * 7) % 31) / 16);
      return Lookup(b, position, *Tensor::FromFloats({DataType::kFp16, {rows, 3}}, numbers));
    });
  };
  const auto cut = Rewritten(with_rows(6), "set-context-length=length:4");
  ASSERT_OK(cut);
  EXPECT_THAT(LinesWith(Text(*cut), "looked_up_x"), HasSubstr("tensor<fp16, [4, 3]>"));
  ExpectEqual(with_rows(6), *cut, 4);
  EXPECT_THAT(RefusalOf(with_rows(6), "length:8"),
              ::testing::AllOf(HasSubstr("'looked_up' (gather)"), HasSubstr("has 6 rows and would need 8")));
  // A longer table reaches.
  const auto longer = Rewritten(with_rows(10), "set-context-length=length:8");
  ASSERT_OK(longer);
  EXPECT_THAT(LinesWith(Text(*longer), "looked_up_x"), HasSubstr("tensor<fp16, [10, 3]>"));
}

TEST(SetContextLength, WrapOfNegativePositionsFollowsTheTable) {
  const ModelSpec before = Decoder([](Builder& b, Value* position, Value*) {
    Value* from_start = b.Op("greater_equal", {{"x", position}, {"y", Literal::Int32(0)}}, "from_start");
    Value* from_end = b.Op("add", {{"x", position}, {"y", Literal::Int32(6)}}, "from_end");
    Value* index = b.Op("select", {{"cond", from_start}, {"a", position}, {"b", from_end}}, "index");
    return Lookup(b, index, *Tensor::FromFloats({DataType::kFp16, {6}}, std::vector<float>{0, 1, 2, 3, 4, 5}));
  });
  const auto after = Rewritten(before, "set-context-length=length:9");
  ASSERT_OK(after);
  EXPECT_THAT(LinesWith(Text(*after), "from_end_y"), HasSubstr("int32(9)"));
  ExpectEqual(before, *after);
}

TEST(SetContextLength, RefusesWhatIsAmbiguous) {
  EXPECT_THAT(RefusalOf(Decoder([](Builder& b, Value* position, Value*) {
                          return b.Op("sub", {{"x", Literal::Int32(5)}, {"y", position}}, "left");
                        }),
                        "length:9"),
              ::testing::AllOf(HasSubstr("'left' (sub)"), HasSubstr("constant 5 may be")));
  EXPECT_THAT(
      RefusalOf(Decoder([](Builder& b, Value*, Value* cache) {
                  return b.Op(
                      "slice_by_index",
                      {{"x", cache}, {"begin", Literal::Int32s({0, 2, 0})}, {"end", Literal::Int32s({1, 6, 2})}},
                      "rest");
                }),
                "length:9"),
      ::testing::AllOf(HasSubstr("'rest' (slice_by_index)"), HasSubstr("keeps its length or grows")));
  EXPECT_THAT(RefusalOf(Decoder([](Builder& b, Value*, Value* cache) {
                          return b.Op("reshape", {{"x", cache}, {"shape", Literal::Int32s({3, 4})}}, "mixed");
                        }),
                        "length:12"),
              ::testing::AllOf(HasSubstr("'mixed' (reshape)"), HasSubstr("ambiguous")));
}

TEST(SetContextLength, RefusesWhatDependsOnTheLength) {
  EXPECT_THAT(RefusalOf(Decoder([](Builder& b, Value*, Value* cache) {
                          return b.Op("reduce_mean", {{"x", cache}, {"axes", Literal::Int32s({1})}}, "mean");
                        }),
                        "length:9"),
              ::testing::AllOf(HasSubstr("'mean' (reduce_mean)"), HasSubstr("depends on the length")));
  EXPECT_THAT(
      RefusalOf(Decoder([](Builder& b, Value*, Value* cache) {
                  Tensor weight = *Tensor::FromFloats({DataType::kFp16, {1, 6}}, std::vector<float>{1, 3, 2, 5, 4, 6});
                  Value* turned = b.Op("transpose", {{"x", cache}, {"perm", Literal::Int32s({0, 2, 1})}}, "turned");
                  return b.Op("linear", {{"x", turned}, {"weight", Literal(weight)}}, "mixer");
                }),
                "length:9"),
      ::testing::AllOf(HasSubstr("'mixer' (linear)"), HasSubstr("'mixer_weight'")));
  EXPECT_THAT(
      RefusalOf(Decoder([](Builder& b, Value*, Value* cache) {
                  return b.Op(
                      "slice_by_index",
                      {{"x", cache}, {"begin", Literal::Int32s({0, 0, 0})}, {"end", Literal::Int32s({1, 4, 2})}},
                      "first_four");
                }),
                "length:3"),
      ::testing::AllOf(HasSubstr("'first_four' (slice_by_index)"), HasSubstr("too short")));
  EXPECT_THAT(RefusalOf(testing::SpecOf("", "x"), "length:9"), HasSubstr("no cache is filled row by row"));
  EXPECT_THAT(RefusalOf(Plain(), "length:9;states:other"), HasSubstr("'other' is no cache"));
  EXPECT_EQ(Rewritten(Plain(), "set-context-length=length:0").status().code(), ErrorCode::kUsage);
}

Literal Cosines(int64_t rows, int64_t columns, double theta, DataType type) {
  std::vector<float> values;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const double k = static_cast<double>(column % (columns / 2)) / (static_cast<double>(columns) / 2);
      values.push_back(static_cast<float>(std::cos(static_cast<double>(row) * std::pow(theta, -k))));
    }
  }
  return Literal(*Tensor::FromFloats({type, {rows, columns}}, values));
}

TEST(ResizeTable, RotaryTablesAreComputedAnew) {
  for (const double theta : {10000.0, 500000.0, 1000000.0, 25000.0}) {
    for (const DataType type : {DataType::kFp16, DataType::kFp32}) {
      const auto grown = ResizeTable(Cosines(40, 32, theta, type), {200, 32});
      ASSERT_OK(grown);
      EXPECT_TRUE(grown->tensor.BitEquals(Cosines(200, 32, theta, type).tensor)) << theta;
    }
  }
  // One element off by more than its precision: no such table.
  Literal wrong = Cosines(40, 32, 10000, DataType::kFp16);
  wrong.tensor.SetDouble(35 * 32 + 3, wrong.tensor.GetDouble(35 * 32 + 3) + 0.01);
  EXPECT_FALSE(ResizeTable(wrong, {200, 32}).ok());
}

TEST(ResizeTable, CausalMasks) {
  const auto mask = [](int64_t size) {
    std::vector<float> values;
    for (int64_t i = 0; i < size * size; ++i) values.push_back(i % size <= i / size ? 0 : -1e4F);
    return Literal(*Tensor::FromFloats({DataType::kFp16, {1, size, size}}, values));
  };
  const auto grown = ResizeTable(mask(5), {1, 8, 8});
  ASSERT_OK(grown);
  EXPECT_TRUE(grown->tensor.BitEquals(mask(8).tensor));
  const auto cut = ResizeTable(mask(5), {1, 3, 3});
  ASSERT_OK(cut);
  EXPECT_TRUE(cut->tensor.BitEquals(mask(3).tensor));
  Literal band = mask(5);
  band.tensor.SetDouble(20, -1e4);  // row 4 does not see row 0: a window of four
  EXPECT_FALSE(ResizeTable(band, {1, 8, 8}).ok());
}

TEST(ResizeTable, NumbersThatTheTypeCannotCountOnAreRefused) {
  std::vector<float> numbers;
  for (int i = 0; i < 2000; ++i) numbers.push_back(static_cast<float>(i));
  const Literal table(*Tensor::FromFloats({DataType::kFp16, {2000}}, numbers));
  EXPECT_OK(ResizeTable(table, {2049}));
  EXPECT_FALSE(ResizeTable(table, {4000}).ok());  // fp16 has no 2049
}

// What `milwright build` makes of a checkpoint for a length, and what the pass makes of another length's package, are
// one package.
class BuiltPackages : public ::testing::TestWithParam<std::tuple<std::string, std::string, CacheUpdate>> {};

ModelSpec Build(const std::string& checkpoint, const std::string& layout, CacheUpdate update, int64_t length) {
  const testing::TemporaryFolder own;  // the mapping of its weights stays when it goes
  const std::string folder = own.Path();
  BuildOptions options;
  options.checkpoint = SharedDir() / "checkpoints" / checkpoint;
  options.output = folder;
  options.context_length = length;
  options.layout = *ParseLayout(layout);
  options.update = update;
  options.functions = *ParseFunctions("decode,prefill:4");
  options.durable = false;
  options.hash_checkpoint = false;
  EXPECT_OK(BuildCheckpoint(options));
  auto spec = OpenModel(folder + "/model.mlpackage");
  EXPECT_OK(spec);
  return spec.ok() ? *std::move(spec) : ModelSpec();
}

TEST_P(BuiltPackages, AnotherLengthIsAnotherBuild) {
  const auto& [checkpoint, layout, update] = GetParam();
  if (!std::filesystem::exists(SharedDir() / "checkpoints")) GTEST_SKIP() << "needs ../shared/checkpoints";
  const ModelSpec built = Build(checkpoint, layout, update, 48);
  for (const int64_t length : {24, 96}) {
    const auto after = Rewritten(built, "set-context-length=length:" + std::to_string(length));
    ASSERT_OK(after);
    ExpectEqual(built, *after, 20);
    const ModelDiff diff = DiffModels(Build(checkpoint, layout, update, length), *after);
    EXPECT_TRUE(diff.empty()) << DiffText(diff);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, BuiltPackages,
                         ::testing::Values(std::tuple("qwen3-tiny", "kv-pair", CacheUpdate::kSlice),
                                           std::tuple("qwen3-tiny", "unified", CacheUpdate::kSlice),
                                           std::tuple("qwen3-tiny", "unified:interleaved", CacheUpdate::kMask),
                                           std::tuple("qwen3-tiny", "per-layer", CacheUpdate::kSlice),
                                           std::tuple("qwen3-tiny", "per-layer", CacheUpdate::kMask),
                                           std::tuple("qwen3-tiny", "explicit-io", CacheUpdate::kSlice),
                                           std::tuple("qwen3-tiny", "explicit-io", CacheUpdate::kMask),
                                           std::tuple("qwen3-tiny", "explicit-io:new", CacheUpdate::kSlice),
                                           std::tuple("gemma3-tiny", "kv-pair", CacheUpdate::kRing),
                                           std::tuple("gemma3-tiny", "per-layer", CacheUpdate::kShift),
                                           std::tuple("gemma4-tiny", "kv-pair", CacheUpdate::kSlice),
                                           std::tuple("lfm2-tiny", "kv-pair", CacheUpdate::kSlice),
                                           std::tuple("qwen3_5-tiny", "kv-pair", CacheUpdate::kSlice)),
                         [](const auto& info) { return "Case" + std::to_string(info.index); });

TEST(SetContextLength, ScaledFrequenciesAreNotGuessed) {
  if (!std::filesystem::exists(SharedDir() / "checkpoints")) GTEST_SKIP() << "needs ../shared/checkpoints";
  const ModelSpec built = Build("llama-tiny", "kv-pair", CacheUpdate::kSlice, 48);  // llama3 scaling
  EXPECT_THAT(RefusalOf(built, "length:96"), HasSubstr("'rotary_cosine_table'"));
  EXPECT_OK(Rewritten(built, "set-context-length=length:24"));
}

}  // namespace
}  // namespace milwright
