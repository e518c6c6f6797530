// Greedy decoding: ids and texts of every golden file, chunked or not, with and without a prefill function.
#include <gtest/gtest.h>

#include <cstdio>

#include "format/safetensors.h"
#include "sessions.h"
#include "support/test_util.h"

namespace milwright::testing {
namespace {

using nlohmann::json;

/// What greedy decoding gave where the checkpoint was made.
struct Text {
  std::string prompt;  ///< empty: ids only
  std::vector<int64_t> ids;
  std::vector<int64_t> gen_ids;
  std::vector<double> margins;  ///< between the best two logits of each step
  std::string text;             ///< of gen_ids, without special tokens
};

std::vector<Text> ReadTexts(const json& entries) {
  std::vector<Text> texts;
  for (const json& entry : entries) {
    texts.push_back({entry.at("prompt"), entry.at("ids"), entry.at("gen_ids"), entry.at("margins"), entry.at("text")});
  }
  return texts;
}

/// gen_ids of golden.safetensors, if it has any.
std::vector<Text> ReadGoldenIds(const std::string& checkpoint) {
  const auto file = Safetensors::Open(checkpoint + "/golden.safetensors");
  if (!file.ok() || !file->Contains("gen_ids")) return {};
  Text text;
  text.ids = file->Load("input_ids")->ToInts();
  text.gen_ids = file->Load("gen_ids")->ToInts();
  const Tensor logits = *file->Load("gen_logits");
  std::vector<float> values = logits.ToFloats();
  for (int64_t row = 0; row < logits.shape()[0]; ++row) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * logits.shape()[1]);
    std::partial_sort(begin, begin + 2, begin + static_cast<std::ptrdiff_t>(logits.shape()[1]), std::greater<>());
    text.margins.push_back(static_cast<double>(*begin) - *(begin + 1));
  }
  return {text};
}

struct Variant {
  bool states;  ///< fp16 states, or explicit fp32 caches
  int64_t chunks;
  const char* functions;
};

/// Chunked or not, with and without prefill: each alone and none, or (the long form) all four.
std::vector<Variant> Variants() {
  std::vector<Variant> variants;
  for (const bool states : {false, true}) {
    variants.push_back({states, 1, "decode,prefill:4"});
    variants.push_back({states, 2, "decode"});
    if (!FullTests()) continue;
    variants.push_back({states, 1, "decode"});
    variants.push_back({states, 2, "decode,prefill:4"});
  }
  return variants;
}

struct Count {
  int64_t compared = 0;
  int64_t all = 0;
};

/// Runs all texts in a build of `checkpoint`: from explicit fp32 caches in full, from fp16 states up to the first step
/// whose margin is under twice the error that this build's logits have against the golden ones.
void RunTexts(const std::string& name, const std::string& checkpoint, const std::vector<Text>& texts,
              const Variant& variant, Count& count) {
  const TemporaryFolder folder;
  BuildOptions options;
  options.checkpoint = checkpoint;
  options.output = folder.path();
  options.layout = *ParseLayout(variant.states ? "kv-pair" : "explicit-io");
  options.functions = *ParseFunctions(variant.functions);
  options.chunks.count = variant.chunks;
  options.context_length = name == "qwen3-jacobean" ? 256 : 64;  // the goldens'; phi3 chooses its factors by it
  options.compute = DataType::kFp32;
  options.durable = false;
  options.hash_checkpoint = false;
  const auto built = BuildCheckpoint(options);
  ASSERT_TRUE(built.ok()) << built.status().message();
  double margin = 0;
  if (variant.states) {
    const auto golden = ReadGolden(checkpoint);
    ASSERT_OK(golden);
    const auto logits = RunFolder(folder.path(), *golden);
    ASSERT_OK(logits);
    margin = 2 * Compare(*logits, golden->logits, golden->vocabulary, 0).max;
  }
  const auto session = OpenSession(folder.path());
  ASSERT_NE(session, nullptr);
  Count here;
  for (const Text& text : texts) {
    const int64_t compared = CompareGreedy(*session, text.ids, text.gen_ids, text.margins, margin);
    ASSERT_GE(compared, 0) << text.prompt;
    const auto steps = static_cast<int64_t>(text.gen_ids.size());
    here.compared += compared;
    here.all += steps;
    if (text.prompt.empty()) continue;
    const auto tokenizer = Tokenizer::Load(folder.path());
    ASSERT_OK(tokenizer);
    const auto encoded = tokenizer->Encode(text.prompt, true);
    ASSERT_OK(encoded);
    EXPECT_EQ(std::vector<int64_t>(encoded->begin(), encoded->end()), text.ids);
    if (compared < steps) continue;
    GenerateOptions generate;
    generate.max_tokens = steps;
    generate.ignore_eos = true;
    const auto result = Generate(*session, *tokenizer, text.ids, generate);
    ASSERT_OK(result);
    EXPECT_EQ(result->tokens, text.gen_ids);
    EXPECT_EQ(result->text, text.text);
  }
  std::printf("%-18s %-11s %ld chunks, %-16s: %ld of %ld steps compared (margin %.1e)\n", name.c_str(),
              variant.states ? "fp16 states" : "fp32 caches", static_cast<long>(variant.chunks), variant.functions,
              static_cast<long>(here.compared), static_cast<long>(here.all), margin);
  EXPECT_TRUE(variant.states || here.compared == here.all);
  count.compared += here.compared;
  count.all += here.all;
}

// One test, for the bound is on all of them together: at least half of all steps are compared.
TEST(Greedy, IdsAndTextsEqualTheGoldens) {
  const json e2e = ReadJson(std::string(MILWRIGHT_SHARED_DIR) + "/checkpoints/e2e.json");
  Count states;
  for (const std::string& name : CheckpointNames()) {
    const std::string checkpoint = FindCheckpoint(name);
    if (checkpoint.empty()) continue;
    std::vector<Text> texts = ReadGoldenIds(checkpoint);
    if (const json golden = ReadJson(checkpoint + "/golden.json"); golden.contains("greedy")) {
      std::ranges::copy(ReadTexts(golden["greedy"]), std::back_inserter(texts));
    }
    const std::string family = name.substr(0, name.find("-tiny"));
    if (e2e.is_object() && e2e.contains(family) && name == family + "-tiny") {
      std::ranges::copy(ReadTexts(e2e[family]), std::back_inserter(texts));
    }
    if (texts.empty()) continue;
    for (const Variant& variant : Variants()) {
      SCOPED_TRACE(name);
      Count count;
      RunTexts(name, checkpoint, texts, variant, variant.states ? states : count);
    }
  }
  std::printf("from fp16 states: %ld of %ld steps compared\n", static_cast<long>(states.compared),
              static_cast<long>(states.all));
  if (FindCheckpoint("llama-tiny").empty()) GTEST_SKIP() << "the other checkpoints are in ../shared/checkpoints";
  EXPECT_GE(2 * states.compared, states.all);
}

}  // namespace
}  // namespace milwright::testing
