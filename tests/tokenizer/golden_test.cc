// Every case of ../shared/tokenizers (copied to tests/data/tokenizer), byte for byte. The expected values come from the
// Rust library `tokenizers`; see the "oracle" of each file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support.h"
#include "tokenizer/tokenizer.h"

namespace milwright {
namespace {

class GoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = TokenizerData() / GetParam();
    Result<Tokenizer> loaded = Tokenizer::Load(folder);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    tokenizer_ = *std::move(loaded);
    golden_ = ReadJson(folder / "golden.json");
    ASSERT_EQ(golden_["cases"].size(), 107U);
  }

  std::optional<Tokenizer> tokenizer_;
  nlohmann::json golden_;
};

TEST_P(GoldenTest, EncodesAsTheReference) {
  for (const nlohmann::json& golden : golden_["cases"]) {
    const std::string text = golden["text"];
    SCOPED_TRACE(::testing::PrintToString(text));
    const auto ids = tokenizer_->Encode(text, /*add_special_tokens=*/false);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, golden["ids"].get<std::vector<int32_t>>());
    const auto with_special = tokenizer_->Encode(text, /*add_special_tokens=*/true);
    ASSERT_TRUE(with_special.ok()) << with_special.status().message();
    EXPECT_EQ(*with_special, golden["ids_with_special"].get<std::vector<int32_t>>());
    std::vector<std::string> tokens;
    for (const int32_t id : *ids) tokens.push_back(*tokenizer_->IdToToken(id));
    EXPECT_EQ(tokens, golden["tokens"].get<std::vector<std::string>>());
  }
}

TEST_P(GoldenTest, DecodesAsTheReference) {
  for (const nlohmann::json& golden : golden_["cases"]) {
    SCOPED_TRACE(golden["text"].dump());
    const auto ids = golden["ids"].get<std::vector<int32_t>>();
    const auto decoded = tokenizer_->Decode(ids, /*skip_special_tokens=*/false);
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    EXPECT_EQ(*decoded, golden["decoded"]);
    const auto skipped = tokenizer_->Decode(ids, /*skip_special_tokens=*/true);
    ASSERT_TRUE(skipped.ok()) << skipped.status().message();
    EXPECT_EQ(*skipped, golden["decoded_skip_special"]);
  }
}

TEST_P(GoldenTest, StreamsWholeCharactersThatAddUpToTheReference) {
  for (const nlohmann::json& golden : golden_["cases"]) {
    SCOPED_TRACE(golden["text"].dump());
    for (const bool skip : {false, true}) {
      EXPECT_EQ(Stream(*tokenizer_, golden["ids"].get<std::vector<int32_t>>(), skip),
                golden[skip ? "decoded_skip_special" : "decoded"]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTest, ::testing::Values("", "llama3", "gpt2", "gemma", "llama2"),
                         [](const auto& info) { return *info.param ? std::string(info.param) : std::string("qwen2"); });

}  // namespace
}  // namespace milwright
