// split-chunks: chunks run one behind the other equal the whole.
#include "passes/split_chunks.h"

#include <gmock/gmock.h>

#include "passes/step_host.h"
#include "support/files.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OpenFixture;
using testing::Rewritten;
using testing::StepHost;

Result<ChunkedModel> Split(const ModelSpec& model, const std::map<std::string, std::string, std::less<>>& arguments) {
  MW_ASSIGN_OR_RETURN(const ChunkOptions options, ParseChunkOptions(PassArguments(arguments)));
  PassReport report;
  return SplitChunks(model, options, report);
}

std::vector<std::string> StateShapes(const ModelSpec& model) {
  std::vector<std::string> states;
  for (const Value* state : model.program.functions().front()->States()) {
    states.push_back(state->name + " " + ShapeToString(state->type.shape()));
  }
  return states;
}

// Runs the whole and the chunks side by side.
void ExpectChunksEqual(const ModelSpec& whole, const ChunkedModel& chunked, int steps,
                       const std::vector<std::string>& functions = {""}) {
  StepHost host(whole);
  std::vector<std::unique_ptr<StepHost>> hosts;
  for (const ModelSpec& chunk : chunked.chunks) {
    ASSERT_OK(Verify(chunk.program));
    hosts.push_back(std::make_unique<StepHost>(chunk));
  }
  int64_t position = 0;
  for (int step = 0; step < steps; ++step) {
    const std::string& function = functions[std::min(static_cast<size_t>(step), functions.size() - 1)];
    const auto expected = host.Step(position, function);
    ASSERT_OK(expected);
    TensorMap given;
    if (chunked.embedding.has_value()) {
      const std::vector<int64_t> ids = host.DrawInput("input_ids", position, function).ToInts();
      const int64_t width = chunked.embedding->shape()[1];
      Tensor rows = *Tensor::Zeros({DataType::kFp16, {1, static_cast<int64_t>(ids.size()), width}});
      for (size_t i = 0; i < ids.size(); ++i) {
        for (int64_t k = 0; k < width; ++k) {
          rows.SetDouble(static_cast<int64_t>(i) * width + k, chunked.embedding->GetDouble(ids[i] * width + k));
        }
      }
      given.emplace("hidden_in", rows);
    }
    TensorMap outputs;
    for (const auto& chunk : hosts) {
      auto results = chunk->Step(position, function, given);
      ASSERT_OK(results);
      given.clear();
      for (auto& [name, tensor] : *results) {
        if (name == "hidden_out") given.emplace("hidden_in", tensor);
        outputs.insert_or_assign(name, tensor);
      }
    }
    for (const auto& [name, tensor] : *expected) {
      ASSERT_TRUE(outputs.contains(name)) << name;
      EXPECT_TRUE(CompareTensors(outputs.at(name), tensor, {}).passed()) << "step " << step << ", " << name;
    }
    position += host.QueryLength(function);
  }
}

TEST(SplitChunks, EachChunkHasItsLayersAndStates) {
  MW_OPEN_FIXTURE(before, "b_slice");
  auto chunked = Split(before, {{"count", "2"}});
  ASSERT_OK(chunked);
  ASSERT_EQ(chunked->chunks.size(), 2U);
  for (const ModelSpec& chunk : chunked->chunks) {
    EXPECT_THAT(StateShapes(chunk), ElementsAre("k_cache [1, 2, 64, 16]", "v_cache [1, 2, 64, 16]"));
  }
  const FunctionDescription& first = chunked->chunks[0].description.functions[0];
  const FunctionDescription& last = chunked->chunks[1].description.functions[0];
  EXPECT_THAT(first.outputs, ElementsAre(::testing::Field(&FeatureDescription::name, "hidden_out")));
  EXPECT_THAT(last.outputs, ElementsAre(::testing::Field(&FeatureDescription::name, "logits")));
  EXPECT_THAT(last.inputs, ElementsAre(::testing::Field(&FeatureDescription::name, "position_ids"),
                                       ::testing::Field(&FeatureDescription::name, "current_pos"),
                                       ::testing::Field(&FeatureDescription::name, "causal_mask"),
                                       ::testing::Field(&FeatureDescription::name, "hidden_in")));
  EXPECT_EQ(chunked->chunks[1].description.metadata.user_defined.at("milwright.chunk"), "2 of 2");
  ExpectChunksEqual(before, *chunked, 17);
}

TEST(SplitChunks, Fixtures) {
  for (const auto& [fixture, passes] :
       {std::pair("b_slice_sdpa", ""), std::pair("c_mask", ""), std::pair("c_mask_argmax", ""), std::pair("d_dual", ""),
        std::pair("d_dual", "unify-states"), std::pair("d_dual_shift", ""), std::pair("e_conv", ""),
        std::pair("g_unified", ""), std::pair("h_int4_block32", ""), std::pair("j_ane_chunk", ""),
        std::pair("b_slice", "unify-states,slice-update-to-mask"),
        std::pair("c_mask", "split-state=state:k_cache;into:slot")}) {
    MW_OPEN_FIXTURE(opened, fixture);
    auto before = *passes != 0 ? Rewritten(opened, passes) : Result<ModelSpec>(opened.Clone());
    ASSERT_OK(before);
    auto chunked = Split(*before, {{"count", "2"}});
    ASSERT_TRUE(chunked.ok()) << fixture << " " << passes << ": " << chunked.status().message();
    ExpectChunksEqual(*before, *chunked, 17);
  }
}

TEST(SplitChunks, SeveralFunctionsAreCutAlike) {
  for (const char* fixture : {"i_multifunction", "i_multifunction_unified", "i_multifunction_int4"}) {
    MW_OPEN_FIXTURE(before, fixture);
    auto chunked = Split(before, {{"layers", "1+1"}});
    ASSERT_OK(chunked);
    EXPECT_EQ(chunked->chunks[0].program.functions().size(), 2U);
    ExpectChunksEqual(before, *chunked, 10, {"prefill", "decode"});
  }
}

TEST(SplitChunks, ThreeLayersOfTwoKinds) {
  MW_OPEN_FIXTURE(before, "e_conv");
  auto three = Split(before, {{"count", "3"}});
  ASSERT_OK(three);
  EXPECT_THAT(StateShapes(three->chunks[0]), ElementsAre("conv_state [1, 64, 2]"));
  EXPECT_THAT(StateShapes(three->chunks[1]), ElementsAre("kv_cache [2, 2, 64, 16]"));
  EXPECT_THAT(StateShapes(three->chunks[2]), ElementsAre("conv_state [1, 64, 2]"));
  ExpectChunksEqual(before, *three, 17);
  auto uneven = Split(before, {{"layers", "2+1"}});
  ASSERT_OK(uneven);
  ExpectChunksEqual(before, *uneven, 17);
}

TEST(SplitChunks, ByBytes) {
  MW_OPEN_FIXTURE(before, "e_conv");
  const std::string all = std::to_string(1 << 30);
  auto one = Split(before, {{"bytes", all}});
  ASSERT_OK(one);
  EXPECT_EQ(one->chunks.size(), 1U);
  ExpectChunksEqual(before, *one, 17);
  EXPECT_THAT(Split(before, {{"bytes", "1000"}}).status().message(), HasSubstr("layer 0 alone has"));
}

TEST(SplitChunks, EmbeddingAsASideFile) {
  MW_OPEN_FIXTURE(before, "b_slice");
  auto chunked = Split(before, {{"count", "2"}, {"embedding", "true"}});
  ASSERT_OK(chunked);
  ASSERT_TRUE(chunked->embedding.has_value());
  EXPECT_EQ(chunked->embedding->shape(), (Shape{128, 64}));
  EXPECT_EQ(chunked->chunks[0].program.functions()[0]->FindInput("input_ids"), nullptr);
  ExpectChunksEqual(before, *chunked, 17);
  testing::TemporaryFolder folder;
  ASSERT_OK(WriteChunks(*chunked, folder.Path("out")));
  EXPECT_EQ(testing::ReadAll(folder.Path("out/embed_weight.bin")).size(), 128U * 64 * 2);
  for (size_t i = 0; i < 2; ++i) {
    const auto read = OpenModel(folder.Path("out/chunk_" + std::to_string(i + 1) + "of2.mlpackage"));
    ASSERT_OK(read);
    EXPECT_TRUE(ProgramsEqual(read->program, chunked->chunks[i].program));
  }
}

TEST(SplitChunks, RefusesCachesThatAreWrittenTogether) {
  // All layers' keys are put together and written at the end: no place has one value only.
  MW_OPEN_FIXTURE(opened, "f_explicit");
  auto before = Rewritten(opened, "io-to-state");
  ASSERT_OK(before);
  EXPECT_THAT(Split(*before, {{"count", "2"}}).status().message(), HasSubstr("2 chunks cannot be made of 1 layers"));
}

TEST(SplitChunks, Refusals) {
  MW_OPEN_FIXTURE(before, "b_slice");
  EXPECT_THAT(Split(before, {{"count", "3"}}).status().message(), HasSubstr("3 chunks cannot be made of 2 layers"));
  EXPECT_THAT(Split(before, {{"layers", "1+2"}}).status().message(), HasSubstr("which does not fit 1 + 2"));
  EXPECT_THAT(Split(before, {{"layers", "1"}}).status().message(), HasSubstr("the chunks take 1"));
  EXPECT_EQ(Split(before, {}).status().code(), ErrorCode::kUsage);
  EXPECT_EQ(Split(before, {{"count", "2"}, {"bytes", "9"}}).status().code(), ErrorCode::kUsage);
  EXPECT_EQ(Rewritten(before, "split-chunks=count:2").status().code(), ErrorCode::kUsage);
  auto second = Rewritten(before, "split-chunks=count:2;chunk:2");
  ASSERT_OK(second);
  EXPECT_NE(second->program.functions()[0]->FindInput("hidden_in"), nullptr);
}

}  // namespace
}  // namespace milwright
