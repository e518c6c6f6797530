// Names, opsets and functions; the manager: all or nothing, changed by fingerprint, verification.
#include "format/package.h"
#include "passes/diff.h"
#include "passes/pass_test_util.h"
#include "support/files.h"

namespace milwright {
namespace {

using testing::Differences;
using testing::Rewritten;
using testing::SharedDir;
using testing::Short;
using testing::SpecOf;
using testing::TemporaryFolder;
using testing::TestPackage;

constexpr std::string_view kSum = R"(
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp16, [2]> m = add(x = r, y = x);
      write_state(input = s, data = m);
      tensor<fp16, [2]> out = add(x = m, y = y);)";

TEST(Rename, RenamesFeaturesInProgramAndDescription) {
  const ModelSpec spec = SpecOf(kSum, "out");
  const auto after = Rewritten(spec, "rename=x:hidden;s:cache;out:result");
  ASSERT_OK(after);
  EXPECT_EQ(Short(*after),
            "r = read_state(cache)\nm = add(r, hidden)\nwrite_state(m, cache)\nresult = add(m, y)\n-> result");
  const FunctionDescription& description = after->description.functions.front();
  EXPECT_EQ(description.inputs.front().name, "hidden");
  EXPECT_EQ(description.outputs.front().name, "result");
  EXPECT_EQ(description.states.front().name, "cache");
  CompareOptions options;
  options.names = {{"x", "hidden"}, {"s", "cache"}, {"out", "result"}};
  EXPECT_EQ(Differences(spec, *after, options), "");
  const auto back = Rewritten(*after, "rename=hidden:x;cache:s;result:out");
  ASSERT_OK(back);
  std::string why;
  EXPECT_TRUE(ModelsEqual(*back, spec, &why)) << why;
}

TEST(Rename, SwapsAndMakesRoomForItsNames) {
  const ModelSpec spec = SpecOf(kSum, "out");
  const auto after = Rewritten(spec, "rename=x:y;y:x;out:m");
  ASSERT_OK(after);
  EXPECT_EQ(Short(*after),
            "r = read_state(s)\nm_value = add(r, y)\nwrite_state(m_value, s)\nm = add(m_value, x)\n-> m");
}

TEST(Rename, Refuses) {
  const ModelSpec spec = SpecOf(kSum, "out");
  EXPECT_EQ(Rewritten(spec, "rename=nothing:z").status().message(),
            "pass 'rename': no function has an input, output or state 'nothing'");
  EXPECT_EQ(Rewritten(spec, "rename=x:y").status().message(),
            "pass 'rename': the name 'y' belongs to another feature of 'main'");
  EXPECT_EQ(Rewritten(spec, "rename=m:z").status().code(), ErrorCode::kPrecondition);
  EXPECT_EQ(Rewritten(spec, "rename=x:two words").status().code(), ErrorCode::kUsage);
  EXPECT_EQ(Rewritten(spec, "rename").status().code(), ErrorCode::kUsage);
}

TEST(SetOpset, MovesUpAndDownAndRefusesWhatDoesNotExistThere) {
  const ModelSpec spec = SpecOf("tensor<fp16, [2]> out = relu(x = x);", "out", "tensor<fp16, [2]> x");
  const auto down = Rewritten(spec, "set-opset=opset:iOS16");
  ASSERT_OK(down);
  EXPECT_EQ(down->specification_version, 7);
  EXPECT_EQ(down->program.functions().front()->opset, Opset::kIOS16);
  const auto up = Rewritten(*down, "set-opset=opset:ios26");
  ASSERT_OK(up);
  EXPECT_EQ(up->specification_version, 10);
  EXPECT_EQ(Differences(spec, *up), "");
  EXPECT_NE(Rewritten(spec, "set-opset=opset:iOS15").status().message().find("fp16 inputs and outputs need iOS16"),
            std::string::npos);
  EXPECT_NE(Rewritten(SpecOf(kSum, "out"), "set-opset=opset:iOS17").status().message().find("states need iOS18"),
            std::string::npos);
  const ModelSpec sliced = SpecOf(R"(
      tensor<fp16, [2]> out = slice_update(x = x, update = x, begin = tensor<int32, [1]>([0]), end = tensor<int32, [1]>([2]));)",
                                  "out", "tensor<fp16, [2]> x");
  const auto refused = Rewritten(sliced, "set-opset=opset:iOS17");
  EXPECT_EQ(refused.status().code(), ErrorCode::kPrecondition);
  EXPECT_NE(refused.status().message().find("slice_update"), std::string::npos) << refused.status().message();
  EXPECT_EQ(Rewritten(spec, "set-opset=opset:iOS19").status().code(), ErrorCode::kUsage);
  EXPECT_EQ(Rewritten(spec, "set-opset").status().code(), ErrorCode::kUsage);
}

TEST(SetOpset, CompressedWeightsChangeFormBitForBit) {
  const auto folder = SharedDir() / "fixtures/coremltools";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  for (const char* name : {"h_ios17_int8_linear", "h_ios17_pal4", "h_ios17_sparse50", "f_explicit_ios17"}) {
    const auto spec = OpenModel(folder / (std::string(name) + ".mlpackage"));
    ASSERT_OK(spec);
    std::vector<PassResult> results;
    const auto after = Rewritten(*spec, "set-opset=opset:iOS18", &results);
    ASSERT_OK(after);
    EXPECT_EQ(Differences(*spec, *after), "") << name;
    const bool compressed = std::string_view(name).starts_with("h_");
    EXPECT_EQ(results.front().report.notes.size(), compressed ? 1U : 0U) << name;
    TemporaryFolder temporary;
    const std::string path = temporary.Path("out.mlpackage");
    ASSERT_OK(WriteModel(*after, path));
    const auto read = OpenModel(path);
    ASSERT_OK(read);
    EXPECT_EQ(Differences(*spec, *read), "") << name;
  }
}

TEST(ExtractFunction, KeepsOneFunctionAsMain) {
  const auto spec = OpenModel(TestPackage("i_multifunction_int4"));
  ASSERT_OK(spec);
  for (const char* name : {"prefill", "decode"}) {
    const auto after = Rewritten(*spec, std::string("extract-function=function:") + name);
    ASSERT_OK(after);
    ASSERT_EQ(after->program.functions().size(), 1U);
    EXPECT_EQ(after->program.functions().front()->name, "main");
    EXPECT_FALSE(after->description.multi_function);
    CompareOptions options;
    options.functions = {{name, "main"}};
    EXPECT_EQ(Differences(*spec, *after, options), "");
    TemporaryFolder temporary;
    ASSERT_OK(WriteModel(*after, temporary.Path("out.mlpackage")));
    ASSERT_OK(Model::Load(temporary.Path("out.mlpackage")));
  }
  EXPECT_EQ(Rewritten(*spec, "extract-function=function:main").status().message(),
            "pass 'extract-function': the package has no function 'main'");
}

TEST(MergeFunctions, UndoesExtraction) {
  const auto spec = OpenModel(TestPackage("i_multifunction_int4"));
  ASSERT_OK(spec);
  TemporaryFolder temporary;
  const auto decode = Rewritten(*spec, "extract-function=function:decode");
  const auto prefill = Rewritten(*spec, "extract-function=function:prefill");
  ASSERT_OK(decode);
  ASSERT_OK(prefill);
  ASSERT_OK(WriteModel(*decode, temporary.Path("decode.mlpackage")));
  const auto merged = Rewritten(*prefill, "merge-functions=with:" + temporary.Path("decode.mlpackage") +
                                              ";this:prefill;as:decode;default:decode");
  ASSERT_OK(merged);
  EXPECT_EQ(merged->description.default_function, "decode");
  EXPECT_EQ(Differences(*spec, *merged), "");
  // Equal weights are stored once: the merged file is as small as the package that both came from.
  ASSERT_OK(WriteModel(*merged, temporary.Path("merged.mlpackage")));
  const auto bytes = [](const std::string& package) { return LocatePackage(package)->weight_bytes; };
  EXPECT_EQ(bytes(temporary.Path("merged.mlpackage")), bytes(TestPackage("i_multifunction_int4")));
  EXPECT_EQ(Differences(*spec, *OpenModel(temporary.Path("merged.mlpackage"))), "");
}

TEST(MergeFunctions, Refuses) {
  TemporaryFolder temporary;
  const ModelSpec spec = SpecOf(kSum, "out");
  const std::string path = temporary.Path("other.mlpackage");
  ASSERT_OK(WriteModel(spec, path));
  EXPECT_NE(
      Rewritten(spec, "merge-functions=with:" + path).status().message().find("both packages have a function 'main'"),
      std::string::npos);
  const ModelSpec wider =
      SpecOf("write_state(input = s, data = x);", "", "tensor<fp16, [3]> x, state<tensor<fp16, [3]>> s");
  EXPECT_NE(
      Rewritten(wider, "merge-functions=with:" + path + ";as:decode").status().message().find("share states by name"),
      std::string::npos);
  EXPECT_EQ(Rewritten(spec, "merge-functions=with:" + path + ";as:two;default:three").status().code(),
            ErrorCode::kUsage);
  EXPECT_EQ(Rewritten(spec, "merge-functions=with:/nowhere.mlpackage;as:two").status().code(), ErrorCode::kUnreadable);
}

// ---- the manager ----

TEST(PassManager, ParsesUses) {
  const auto uses = ParsePasses("rename=a:b;c:d,dead-code-elimination");
  ASSERT_OK(uses);
  ASSERT_EQ(uses->size(), 2U);
  EXPECT_EQ((*uses)[0].arguments.String("c"), "d");
  EXPECT_EQ((*uses)[1].pass->name, "dead-code-elimination");
  EXPECT_NE(ParsePasses("dead-code").status().message().find("the passes are:"), std::string::npos);
  EXPECT_NE(ParsePasses("dead-code-elimination=x:y").status().message().find("it takes: none"), std::string::npos);
  EXPECT_EQ(ParsePasses("rename=ab").status().code(), ErrorCode::kUsage);
  EXPECT_EQ(ParsePasses("extract-function").status().code(), ErrorCode::kUsage);
  EXPECT_EQ(ParsePasses("").status().code(), ErrorCode::kUsage);
}

TEST(PassManager, NamesAreKebabCaseAndSortedAndInversesExist) {
  std::string_view last;
  for (const Pass& pass : AllPasses()) {
    EXPECT_LT(last, pass.name);
    last = pass.name;
    EXPECT_TRUE(std::ranges::all_of(pass.name, [](char c) { return c == '-' || (c >= 'a' && c <= 'z'); })) << pass.name;
    EXPECT_FALSE(pass.summary.empty()) << pass.name;
    EXPECT_NE(pass.run, nullptr) << pass.name;
    EXPECT_TRUE(pass.inverse.empty() || FindPass(pass.inverse) != nullptr) << pass.name;
  }
}

TEST(PassManager, ChangedIsSeenByFingerprint) {
  const ModelSpec spec = SpecOf(kSum, "out");
  std::vector<PassResult> results;
  ASSERT_OK(Rewritten(spec, "dead-code-elimination,prefer-state-in-downstream,dead-code-elimination", &results));
  ASSERT_EQ(results.size(), 3U);
  EXPECT_FALSE(results[0].changed);
  EXPECT_TRUE(results[1].changed);
  EXPECT_FALSE(results[2].changed);
}

// A pass that edits and then fails.
Status EditAndFail(ModelSpec& model, const PassArguments&, PassReport&) {
  model.program.functions().front()->name = "broken";
  return {ErrorCode::kPrecondition, "will not do"};
}
// A pass that says nothing and leaves a program that does not verify.
Status Break(ModelSpec& model, const PassArguments&, PassReport&) {
  model.program.functions().front()->inputs().front()->type = Type::Tensor(DataType::kFp16, {3});
  return Status::Ok();
}
Status Assume(ModelSpec& model, const PassArguments&, PassReport& report) {
  model.program.functions().front()->body().SetOutputs({});
  report.assumptions.emplace_back("the mask is one-hot");
  return Status::Ok();
}

TEST(PassManager, AFailingPassChangesNothing) {
  ModelSpec spec = SpecOf(kSum, "out");
  const uint64_t before = Fingerprint(spec.program);
  const Pass failing{.name = "edit-and-fail", .summary = "", .inverse = "", .run = EditAndFail};
  const auto results = RunPasses(spec, {{&failing, {}}});
  EXPECT_EQ(results.status().message(), "pass 'edit-and-fail': will not do");
  EXPECT_EQ(Fingerprint(spec.program), before);
}

TEST(PassManager, VerifyEachNamesThePassThatBreaks) {
  ModelSpec spec = SpecOf(kSum, "out");
  const uint64_t before = Fingerprint(spec.program);
  const Pass breaking{.name = "break", .summary = "", .inverse = "", .run = Break};
  PassManagerOptions options;
  options.verify_each = true;
  const auto results = RunPasses(spec, {{&breaking, {}}}, options);
  EXPECT_EQ(results.status().code(), ErrorCode::kInternal);
  EXPECT_NE(results.status().message().find("pass 'break' left an invalid program"), std::string::npos);
  EXPECT_EQ(Fingerprint(spec.program), before);
}

TEST(PassManager, RecordsAssumptionsAndCallsBack) {
  ModelSpec spec = SpecOf(kSum, "out");
  const Pass assuming{.name = "assume", .summary = "", .inverse = "", .run = Assume};
  PassManagerOptions options;
  int calls = 0;
  options.on_changed = [&calls](const Pass& pass, const Program& before, const Program& after) {
    ++calls;
    EXPECT_EQ(pass.name, "assume");
    EXPECT_FALSE(DiffPrograms(before, after).empty());
  };
  ASSERT_OK(RunPasses(spec, {{&assuming, {}}, {&assuming, {}}}, options));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(spec.description.metadata.user_defined.at("milwright.assumptions"),
            "assume: the mask is one-hot\nassume: the mask is one-hot");
}

}  // namespace
}  // namespace milwright
