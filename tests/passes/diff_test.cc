// The structural difference of two models.
#include "passes/diff.h"

#include "format/package.h"
#include "passes/pass_test_util.h"
#include "support/files.h"

namespace milwright {
namespace {

using testing::Rewritten;
using testing::SpecOf;
using testing::TestPackage;

constexpr std::string_view kBody = R"(
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp16, [2]> m = add(x = r, y = x);
      write_state(input = s, data = m);
      tensor<fp16, [2]> scaled = mul(x = m, y = fp16(2));
      tensor<fp16, [2]> out = sub(x = scaled, y = y);)";

std::string TextOf(std::string_view before, std::string_view after, std::string_view outputs_after = "out") {
  return DiffText(DiffPrograms(SpecOf(before, "out").program, SpecOf(after, outputs_after).program));
}

TEST(Diff, NothingBetweenAModelAndItself) {
  for (const char* name : {"b_slice", "i_multifunction_int4"}) {
    const auto model = OpenModel(TestPackage(name));
    ASSERT_OK(model);
    EXPECT_TRUE(DiffModels(*model, *model).empty()) << DiffText(DiffModels(*model, *model));
    EXPECT_TRUE(DiffModels(*model, model->Clone()).empty());
  }
}

TEST(Diff, AddedRemovedAndChangedOperations) {
  EXPECT_EQ(TextOf(kBody, R"(
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp16, [2]> m = add(x = r, y = y);
      write_state(input = s, data = m);
      tensor<fp16, [2]> scaled = mul(x = m, y = fp16(3));
      tensor<fp16, [2]> extra = relu(x = scaled);
      tensor<fp16, [2]> out = sub(x = extra, y = y);)"),
            "~ main/op 1 'm' (add)\n"
            "    input y: 'x' -> 'y'\n"
            "~ main/op 3 'scaled' (mul)\n"
            "    input y: 2 -> 3\n"
            "~ main/op 4 'out' (sub)\n"
            "    input x: 'scaled' -> 'extra'\n"
            "+ main/op 4 'extra' (relu)\n");
}

TEST(Diff, MovedOperations) {
  EXPECT_EQ(TextOf(kBody, R"(
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp16, [2]> m = add(x = r, y = x);
      tensor<fp16, [2]> scaled = mul(x = m, y = fp16(2));
      tensor<fp16, [2]> out = sub(x = scaled, y = y);
      write_state(input = s, data = m);)"),
            "> main/op 2 'write_state' (write_state)\n    now main/op 4 'write_state' (write_state)\n");
}

TEST(Diff, RenamedValuesAreMatchedByOrder) {
  EXPECT_EQ(TextOf(kBody, R"(
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp16, [2]> sum = add(x = r, y = x);
      write_state(input = s, data = sum);
      tensor<fp16, [2]> scaled = mul(x = sum, y = fp16(2));
      tensor<fp16, [2]> out = sub(x = scaled, y = y);)"),
            "~ main/op 1 'm' (add)\n    name: 'm' -> 'sum'\n");
}

TEST(Diff, FeaturesAndOutputs) {
  const ModelSpec before =
      SpecOf("tensor<fp16, [2]> out = relu(x = x);", "out", "tensor<fp16, [2]> x, tensor<fp16, [2]> z");
  const ModelSpec after = SpecOf("tensor<fp16, [3]> out = relu(x = x); tensor<fp16, [3]> more = relu(x = out);",
                                 "out, more", "tensor<fp16, [3]> x, state<tensor<fp16, [2]>> s");
  EXPECT_EQ(DiffText(DiffPrograms(before.program, after.program)),
            "~ main/input 'x'\n"
            "    type: tensor<fp16, [2]> -> tensor<fp16, [3]>\n"
            "- main/input 'z'\n"
            "+ main/state 's'\n"
            "~ main/op 0 'out' (relu)\n"
            "    type: tensor<fp16, [2]> -> tensor<fp16, [3]>\n"
            "+ main/op 1 'more' (relu)\n"
            "~ main/output 'out'\n"
            "    type: tensor<fp16, [2]> -> tensor<fp16, [3]>\n"
            "+ main/output 'more'\n");
}

TEST(Diff, NestedBlocks) {
  const auto with = [](const std::string& inner) {
    return "fp16 total = reduce_sum(x = x, axes = tensor<int32, [1]>([0]), keep_dims = bool(false));"
           "bool flag = greater(x = total, y = fp16(0));"
           "tensor<fp16, [2]> out = cond(pred = flag) () { tensor<fp16, [2]> yes = " +
           inner + " } -> (yes), () { tensor<fp16, [2]> no = relu(x = y); } -> (no);";
  };
  EXPECT_EQ(TextOf(with("relu(x = x);"), with("relu(x = y);")),
            "~ main/'out'/block0/op 0 'yes' (relu)\n    input x: 'x' -> 'y'\n");
}

TEST(Diff, WeightsByTypeBytesAndName) {
  const auto with = [](const std::string& name, const std::string& last) {
    std::string values = "[";
    for (int i = 0; i < 11; ++i) values += "0x1p+0, ";
    return "tensor<fp16, [12]> " + name + " = const()[name = string(\"w\"), val = tensor<fp16, [12]>(" + values + last +
           "])]; tensor<fp16, [12]> out = mul(x = x, y = " + name + ");";
  };
  const auto text = [&](const std::string& name, const std::string& last) {
    return DiffText(DiffPrograms(SpecOf(with("w", "0x1p+0"), "out", "tensor<fp16, [12]> x").program,
                                 SpecOf(with(name, last), "out", "tensor<fp16, [12]> x").program));
  };
  EXPECT_EQ(text("w", "0x1p+0"), "");
  EXPECT_EQ(text("w", "0x1p+1"), "~ main/op 1 'out' (mul)\n    weight y: other values of tensor<fp16, [12]>\n");
  EXPECT_EQ(text("v", "0x1p+0"), "~ main/op 1 'out' (mul)\n    weight y: renamed 'w' -> 'v'\n");
}

TEST(Diff, ModelsDifferInVersionMetadataAndDescription) {
  const ModelSpec before = SpecOf(kBody, "out");
  auto after = Rewritten(before, "set-opset=opset:iOS26,rename=x:row");
  ASSERT_OK(after);
  after->description.metadata.author = "someone";
  EXPECT_EQ(DiffText(DiffModels(before, *after)),
            "~ model\n"
            "    specification version: 9 -> 10\n"
            "    author: '' -> 'someone'\n"
            "- main/described input 'x'\n"
            "+ main/described input 'row'\n"
            "~ function 'main'\n"
            "    opset: iOS18 -> iOS26\n"
            "- main/input 'x'\n"
            "+ main/input 'row'\n"
            "~ main/op 1 'm' (add)\n"
            "    input y: 'x' -> 'row'\n");
}

}  // namespace
}  // namespace milwright
