#include "llm/compress_folder.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "format/package.h"
#include "llm/golden.h"
#include "support/small_model.h"

namespace milwright {
namespace {

using testing::Halves;
using ::testing::UnorderedElementsAre;

// Where the constants of at least ten elements lie, by the name of the value they give.
std::vector<std::string> ConstantsIn(const ModelSpec& model, bool weight_file) {
  std::vector<std::string> names;
  ForEachOperation(model.program.functions()[0]->body(), [&](const Operation& op) {
    const Literal* value = op.FindAttribute("val");
    if (op.type() == "const" && value->tensor.size() >= 10 && value->blob.has_value() == weight_file) {
      names.push_back(op.output()->name);
    }
  });
  return names;
}

// What compression does not touch stays in the file it was in, as with `rewrite`.
TEST(CompressPackage, ImmediateValuesStayImmediate) {
  const ModelSpec model = testing::MakeSpec([](Function& function, Builder& builder) {
    Value* x = function.AddInput("x", TensorType{DataType::kFp16, {1, 64}});
    const Literal weight(Halves({64, 64}, std::vector<float>(4096, 0.5F)));
    const Literal small_weight(Halves({16, 64}, std::vector<float>(1024, 2)));
    Value* large = builder.Op("linear", {{"x", x}, {"weight", weight}}, "l");
    Value* small = builder.Op("linear", {{"x", large}, {"weight", small_weight}}, "s");
    function.body().SetOutputs({small});
  });
  const testing::TemporaryFolder folder;
  const std::string input = folder.path() + "/in.mlpackage";
  WriteOptions all_in_model;
  all_in_model.blob_threshold = 1 << 20;
  ASSERT_OK(WriteModel(model, input, all_in_model));
  CompressOptions options;
  options.format = *ParseCompression("int8");
  for (const std::string& output : {folder.path() + "/out.mlpackage", input}) {
    const auto report = CompressPackage(input, output, options);
    ASSERT_OK(report);
    ASSERT_EQ(report->weights.size(), 1U);
    const auto read = OpenModel(output);
    ASSERT_OK(read);
    EXPECT_THAT(ConstantsIn(*read, /*weight_file=*/false), UnorderedElementsAre("s_weight"));
    EXPECT_THAT(ConstantsIn(*read, /*weight_file=*/true), UnorderedElementsAre());
  }
}

}  // namespace
}  // namespace milwright
