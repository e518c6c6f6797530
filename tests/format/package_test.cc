// Reading and writing whole packages: everything that is there reads, and comes back equal after writing.
#include "format/package.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "format/weight_file.h"
#include "ops/builder.h"
#include "support/files.h"

namespace milwright {
namespace {

namespace fs = std::filesystem;
using testing::AllPackages;
using testing::CopyPackage;
using ::testing::ElementsAre;
using testing::FilesOf;
using ::testing::HasSubstr;
using testing::kModelFile;
using testing::kWeightFile;
using testing::ReadAll;
using testing::TemporaryFolder;
using testing::TestPackage;
using testing::WriteAll;

const WriteOptions kQuick{.durable = false};

// The bytes that every blob reference of the program stands for, in program order.
std::vector<std::string> BlobContents(const Program& program) {
  std::vector<std::string> contents;
  const auto visit = [&contents](const Literal& literal) {
    if (!literal.blob) return;
    const auto bytes = literal.tensor.bytes();
    contents.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (const auto& function : program.functions()) {
    ForEachOperation(function->body(), [&visit](const Operation& op) {
      for (const auto& [key, literal] : op.attributes) visit(literal);
      for (const Input& input : op.inputs()) {
        for (const Operand& operand : input.arguments) {
          if (operand.literal != nullptr) visit(*operand.literal);
        }
      }
    });
  }
  return contents;
}

ModelSpec Opened(const std::string& path) {
  auto model = OpenModel(path);
  EXPECT_OK(model);
  return model.ok() ? *std::move(model) : ModelSpec();
}

TEST(Package, EveryPackageReadsAndComesBackEqual) {
  const TemporaryFolder folder;
  const std::vector<std::string> packages = AllPackages();
  ASSERT_GE(packages.size(), 28U);
  for (const std::string& path : packages) {
    SCOPED_TRACE(path);
    const auto model = OpenModel(path);
    ASSERT_OK(model);
    const std::string first = folder.Path("first.mlpackage");
    const std::string second = folder.Path("second.mlpackage");
    ASSERT_OK(WriteModel(*model, first, kQuick));
    const auto again = OpenModel(first);
    ASSERT_OK(again);
    std::string why;
    EXPECT_TRUE(ModelsEqual(*model, *again, &why)) << why;
    // Constants stay where they were, and their bytes too.
    EXPECT_EQ(BlobContents(model->program), BlobContents(again->program));
    // Writing what was written gives the same bytes, file by file.
    ASSERT_OK(WriteModel(*again, second, kQuick));
    EXPECT_TRUE(FilesOf(first) == FilesOf(second));
    EXPECT_EQ(*PackageIdentity(*model), *PackageIdentity(*again));
  }
}

TEST(Package, CompiledFoldersOpenAndEqualTheirPackages) {
  const auto folder = testing::SharedDir() / "real-files";
  const auto compiled = testing::FindAll(folder, ".mlmodelc");
  if (compiled.empty()) GTEST_SKIP() << folder << " is not there";
  const TemporaryFolder out;
  for (const fs::path& path : compiled) {
    SCOPED_TRACE(path);
    const auto model = OpenModel(path);
    ASSERT_OK(model);
    EXPECT_EQ(model->specification_version, static_cast<int>(model->program.functions().front()->opset));
    for (const fs::path& package : testing::FindAll(folder, ".mlpackage")) {
      if (package.stem() != path.stem()) continue;
      const auto original = OpenModel(package);
      ASSERT_OK(original);
      std::string why;
      EXPECT_TRUE(ProgramsEqual(original->program, model->program,
                                {.ignore_program_attributes = true, .match_function_inputs_by_name = true}, &why))
          << why;
      EXPECT_TRUE(original->description == model->description);
    }
    ASSERT_OK(WriteModel(*model, out.Path("x.mlpackage"), kQuick));
    EXPECT_TRUE(ModelsEqual(*model, Opened(out.Path("x.mlpackage"))));
  }
}

constexpr std::string_view kCompiledProgram = R"(program(1.3)
{
    func main<ios18>(tensor<fp16, [1, ?]> x, state<tensor<fp16, [1, 4]>> cache) {
            tensor<fp16, [1, 4]> old = read_state(input = cache)[name = string("old")];
            write_state(data = old, input = cache)[name = string("w")];
            tensor<fp16, [1, ?]> y = relu(x = x)[name = string("y")];
        } -> (y);
}
)";

TEST(Package, CompiledFolderTakesItsDescriptionFromMetadata) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("m.mlmodelc");
  WriteAll(path + "/model.mil", kCompiledProgram);
  {
    const ModelSpec bare = Opened(path);
    EXPECT_EQ(bare.specification_version, 9);
    ASSERT_EQ(bare.description.functions.size(), 1U);
    EXPECT_EQ(bare.description.functions[0].states[0].name, "cache");
    EXPECT_FALSE(bare.description.multi_function);
  }
  WriteAll(path + "/metadata.json", R"([{"shortDescription": "short", "author": "me", "version": "2",
    "specificationVersion": 9, "userDefinedMetadata": {"k": "v"},
    "inputSchema": [{"name": "x", "type": "MultiArray", "dataType": "Float32", "shape": "[1, 2]", "isOptional": "0",
      "shortDescription": "the input", "shapeRange": "[[1, 1], [1, 8]]", "hasShapeFlexibility": "1"}],
    "stateSchema": [{"name": "cache", "type": "State", "dataType": "Float16", "shape": "[1, 4]"}],
    "outputSchema": [{"name": "unknown"}, 7]}])");
  const ModelSpec model = Opened(path);
  EXPECT_EQ(model.description.metadata.short_description, "short");
  EXPECT_EQ(model.description.metadata.user_defined.at("k"), "v");
  const FunctionDescription& main = model.description.functions[0];
  ASSERT_EQ(main.inputs.size(), 1U);
  EXPECT_EQ(main.inputs[0].short_description, "the input");
  EXPECT_EQ(main.inputs[0].type.array.dtype, DataType::kFp32);
  EXPECT_EQ(main.inputs[0].type.array.shape, (Shape{1, 2}));
  ASSERT_EQ(main.inputs[0].type.array.shape_range.size(), 2U);
  EXPECT_EQ(main.inputs[0].type.array.shape_range[1].upper, 8);
  EXPECT_EQ(main.outputs[0].name, "y");
  // Metadata that is no such thing does not matter.
  WriteAll(path + "/metadata.json", "{");
  EXPECT_TRUE(OpenModel(path).ok());
}

TEST(Package, LocateNamesTheFiles) {
  const std::string path = TestPackage("b_slice");
  const auto files = LocatePackage(path + "//");
  ASSERT_OK(files);
  EXPECT_EQ(files->kind, PackageKind::kPackage);
  EXPECT_EQ(files->path, path);
  EXPECT_EQ(files->model_file, path + std::string(kModelFile));
  EXPECT_EQ(files->weight_file, path + std::string(kWeightFile));
  EXPECT_EQ(files->model_bytes, fs::file_size(files->model_file));
  EXPECT_EQ(files->weight_bytes, fs::file_size(files->weight_file));
  EXPECT_TRUE(LocatePackage(TestPackage("a_accumulator"))->weight_file.empty());
}

TEST(Package, ABareModelFileReadsUnlessItNeedsWeights) {
  const TemporaryFolder folder;
  WriteAll(folder.Path("a.mlmodel"), ReadAll(TestPackage("a_accumulator") + std::string(kModelFile)));
  WriteAll(folder.Path("b.mlmodel"), ReadAll(TestPackage("b_slice") + std::string(kModelFile)));
  EXPECT_TRUE(ModelsEqual(Opened(folder.Path("a.mlmodel")), Opened(TestPackage("a_accumulator"))));
  const Status status = OpenModel(folder.Path("b.mlmodel")).status();
  EXPECT_EQ(status.code(), ErrorCode::kUnreadable);
  EXPECT_THAT(status.message(), HasSubstr("a bare .mlmodel has no weights"));
  EXPECT_THAT(status.message(), HasSubstr("main/op "));
}

TEST(Package, OtherKindsAreNamed) {
  const std::string path =
      testing::SharedDir() / "real-files/findit-studio__coremlit/crates/coremlit/tests/fixtures/identity.mlmodel";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not there";
  const Status status = OpenModel(path).status();
  EXPECT_EQ(status.code(), ErrorCode::kUnreadable);
  EXPECT_THAT(status.message(), HasSubstr("a neural network (neuralNetwork), not an ML Program"));
}

TEST(Package, FunctionsShareTheirWeights) {
  const TemporaryFolder folder;
  const std::string out = folder.Path("m.mlpackage");
  const ModelSpec model = Opened(TestPackage("i_multifunction_int4"));
  ASSERT_EQ(model.program.functions().size(), 2U);
  ASSERT_OK(WriteModel(model, out, kQuick));
  const auto weights = WeightFile::Open(out + std::string(kWeightFile));
  ASSERT_OK(weights);
  EXPECT_EQ((*weights)->count(), 42U);  // shared/fixtures/README.md
  EXPECT_LE((*weights)->size(), fs::file_size(TestPackage("i_multifunction_int4") + std::string(kWeightFile)));
}

// A model of one function with a constant of `count` elements per type.
ModelSpec ModelWithConstants(int64_t count) {
  ModelSpec model;
  Function* function = model.program.AddFunction("main", Opset::kIOS18);
  function->AddInput("x", Type::Tensor(DataType::kFp16, {1}));
  for (const DataType dtype : {DataType::kFp16, DataType::kInt8, DataType::kInt32, DataType::kBool}) {
    auto op = std::make_unique<Operation>("const");
    const std::string name = "c_" + std::string(DataTypeName(dtype));
    op->attributes.emplace("name", Literal::String(name));
    op->attributes.emplace("val", Literal(*Tensor::Zeros({dtype, {count}})));
    op->AddOutput(name, Type::Tensor(dtype, {count}));
    function->body().Insert(std::move(op));
  }
  function->body().SetOutputs({function->inputs()[0].get()});
  model.description.functions.push_back(DescribeFunction(*function));
  return model;
}

TEST(WriteModel, LargeWeightsGoToTheWeightFile) {
  const TemporaryFolder folder;
  const std::string out = folder.Path("m.mlpackage");
  ASSERT_OK(WriteModel(ModelWithConstants(9), out, kQuick));
  EXPECT_FALSE(fs::exists(out + std::string(kWeightFile)));
  EXPECT_THAT(ReadAll(out + "/Manifest.json"), ::testing::Not(HasSubstr("weights")));
  ASSERT_OK(WriteModel(ModelWithConstants(10), out, kQuick));
  const auto back = OpenModel(out, {.verify = false});
  ASSERT_OK(back);
  std::vector<std::string> in_blob;
  for (const auto& op : back->program.functions()[0]->body().operations()) {
    if (op->FindAttribute("val")->blob) in_blob.push_back(op->name());
  }
  EXPECT_THAT(in_blob, ElementsAre("c_fp16", "c_int8"));
  EXPECT_TRUE(ModelsEqual(*back, ModelWithConstants(10)));
  EXPECT_EQ(*PackageIdentity(*back), *PackageIdentity(ModelWithConstants(10)));
  EXPECT_NE(*PackageIdentity(*back), *PackageIdentity(ModelWithConstants(9)));
}

// What was written in the model file stays there when a package is rewritten, and the bytes with it.
TEST(WriteModel, ImmediateValuesStayImmediate) {
  ModelSpec model;
  Function* function = model.program.AddFunction("main", Opset::kIOS18);
  Value* x = function->AddInput("x", TensorType{DataType::kFp16, {1, 16}});
  Builder builder(function->body());
  const auto weight = [](float first) {
    std::vector<float> values(16 * 16, first);
    return Literal(*Tensor::FromFloats({DataType::kFp16, {16, 16}}, values));
  };
  Value* y = builder.Op("linear", {{"x", x}, {"weight", weight(1)}}, "y");
  function->body().SetOutputs({builder.Op("linear", {{"x", y}, {"weight", weight(2)}}, "z")});
  model.description.functions.push_back(DescribeFunction(*function));
  const TemporaryFolder folder;
  const std::string first = folder.Path("First.mlpackage");
  WriteOptions options;
  options.blob_threshold = 1 << 20;
  ASSERT_OK(WriteModel(model, first, options));
  EXPECT_FALSE(std::filesystem::exists(first + std::string(kWeightFile)));

  const auto read = OpenModel(first);
  ASSERT_OK(read);
  ModelSpec changed = read->Clone();
  changed.program.functions()[0]->body().outputs()[0]->name = "renamed";
  changed.description.functions[0].outputs[0].name = "renamed";
  WriteOptions keep;
  keep.immediates_of = &*read;
  const std::string second = folder.Path("Second.mlpackage");
  ASSERT_OK(WriteModel(changed, second, keep));
  EXPECT_FALSE(std::filesystem::exists(second + std::string(kWeightFile)));
  // Undone, it is the first file again, byte for byte.
  const std::string third = folder.Path("Third.mlpackage");
  ASSERT_OK(WriteModel(*read, third, keep));
  EXPECT_EQ(FilesOf(third), FilesOf(first));
  // Without the model that was read, large constants go to the weight file.
  const std::string fourth = folder.Path("Fourth.mlpackage");
  ASSERT_OK(WriteModel(changed, fourth));
  EXPECT_TRUE(std::filesystem::exists(fourth + std::string(kWeightFile)));
}

// Once written here, a package is written again byte for byte, whatever tool made it first.
TEST(WriteModel, ReadingAndWritingIsStable) {
  const TemporaryFolder folder;
  for (const auto& package : AllPackages()) {
    const auto original = OpenModel(package);
    ASSERT_OK(original);
    WriteOptions keep;
    keep.immediates_of = &*original;
    keep.durable = false;
    const std::string once = folder.Path("Once.mlpackage");
    ASSERT_OK(WriteModel(*original, once, keep));
    const auto read = OpenModel(once);
    ASSERT_OK(read);
    std::string why;
    EXPECT_TRUE(ModelsEqual(*original, *read, &why)) << package << ": " << why;
    keep.immediates_of = &*read;
    const std::string twice = folder.Path("Twice.mlpackage");
    ASSERT_OK(WriteModel(*read, twice, keep));
    EXPECT_EQ(FilesOf(once), FilesOf(twice)) << package;
  }
}

TEST(WriteModel, ReplacesAPackageInPlaceWhileItIsMapped) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("m.mlpackage");
  CopyPackage(TestPackage("b_slice"), path);
  const ModelSpec model = Opened(path);
  ASSERT_OK(WriteModel(model, path + "/", kQuick));
  EXPECT_TRUE(ModelsEqual(model, Opened(path)));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.Path()), {}), 1);
}

TEST(WriteModel, RefusesWhatItShould) {
  const TemporaryFolder folder;
  const ModelSpec model = ModelWithConstants(1);
  EXPECT_EQ(WriteModel(model, folder.Path("m.mlmodel")).code(), ErrorCode::kUsage);
  WriteAll(folder.Path("mine.mlpackage/thesis.txt"), "precious");
  EXPECT_EQ(WriteModel(model, folder.Path("mine.mlpackage")).code(), ErrorCode::kUsage);
  EXPECT_EQ(ReadAll(folder.Path("mine.mlpackage/thesis.txt")), "precious");
  EXPECT_EQ(WriteModel(model, folder.Path("no/such/m.mlpackage")).code(), ErrorCode::kIo);
  ModelSpec bad = ModelWithConstants(1);
  bad.program.functions()[0]->inputs()[0]->name = "not an identifier";
  const Status status = WriteModel(bad, folder.Path("m.mlpackage"));
  EXPECT_EQ(status.code(), ErrorCode::kInvalidProgram);
  EXPECT_THAT(status.message(), HasSubstr("'not an identifier'"));
  EXPECT_FALSE(fs::exists(folder.Path("m.mlpackage")));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.Path()), {}), 1);
}

TEST(OpenModel, BringsBackWhatAnInterruptedWriteMovedAside) {
  const TemporaryFolder folder;
  CopyPackage(TestPackage("a_accumulator"), folder.Path(".m.mlpackage.old-7-0"));
  CopyPackage(TestPackage("b_slice"), folder.Path(".m.mlpackage.tmp-1-0"));
  EXPECT_TRUE(ModelsEqual(Opened(folder.Path("m.mlpackage")), Opened(TestPackage("a_accumulator"))));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.Path()), {}), 1);
}

}  // namespace
}  // namespace milwright
