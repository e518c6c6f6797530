// The Tokenizer class: round trips, look-ups, hostile files and hostile texts.
#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <random>
#include <thread>

#include "support.h"
#include "support/files.h"
#include "tokenizer/unicode.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

nlohmann::json MinimalTokenizer() {
  return {{"version", "1.0"},
          {"model",
           {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", nlohmann::json::array({"a b"})}}}};
}

Status LoadError(const nlohmann::json& json) {
  const Result<Tokenizer> tokenizer = Tokenizer::FromJson(json.dump(), "tokenizer.json");
  return tokenizer.status();
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text, /*add_special_tokens=*/false);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : std::vector<int32_t>();
}

/// Any code points but surrogates; mostly from the ranges where tokenizers have rules.
std::string RandomText(std::mt19937& random, size_t length) {
  static constexpr std::pair<char32_t, char32_t> kRanges[] = {{0x20, 0x7E},   {0x09, 0x0D},      {0xA0, 0x24F},
                                                              {0x300, 0x36F}, {0x2000, 0x206F},  {0x4E00, 0x4FFF},
                                                              {0x0, 0xD7FF},  {0xE000, 0x10FFFF}};
  std::string text;
  for (size_t i = 0; i < length; ++i) {
    const auto& [low, high] = kRanges[random() % std::size(kRanges)];
    AppendUtf8(low + static_cast<char32_t>(random() % (high - low + 1)), text);
  }
  return text;
}

TEST(TokenizerTest, DecodingUndoesByteLevelEncoding) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const char* folder : {"llama3", "gpt2"}) {  // without normalizer
    const auto tokenizer = Tokenizer::Load(TokenizerData() / folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    for (int i = 0; i < 300; ++i) {
      const std::string text = RandomText(random, random() % 60);
      const std::vector<int32_t> ids = Encode(*tokenizer, text);
      const auto decoded = tokenizer->Decode(ids, /*skip_special_tokens=*/false);
      ASSERT_TRUE(decoded.ok());
      ASSERT_EQ(*decoded, text);
      ASSERT_EQ(Stream(*tokenizer, ids, /*skip_special_tokens=*/false), text);
    }
  }
}

TEST(TokenizerTest, StreamingEqualsDecodingForAnyIds) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const char* folder : {"", "llama3", "gpt2", "gemma", "llama2"}) {
    SCOPED_TRACE(folder);
    const auto tokenizer = Tokenizer::Load(TokenizerData() / folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    for (int i = 0; i < 200; ++i) {
      std::vector<int32_t> ids(random() % 30);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<size_t>(tokenizer->id_limit() + 3));
      const auto decoded = tokenizer->Decode(ids, /*skip_special_tokens=*/true);
      ASSERT_TRUE(decoded.ok());
      ASSERT_EQ(Stream(*tokenizer, ids, /*skip_special_tokens=*/true), *decoded) << ::testing::PrintToString(ids);
      ASSERT_FALSE(FindInvalidUtf8(*decoded));
    }
  }
}

TEST(TokenizerTest, LooksUpTokensAndSpecialIds) {
  const auto tokenizer = Tokenizer::Load(TokenizerData() / "llama3");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->vocab_size(), 512U);
  EXPECT_EQ(tokenizer->id_limit(), 512);
  EXPECT_EQ(tokenizer->special_ids().bos, 496);
  EXPECT_EQ(tokenizer->special_ids().eos, 497);
  EXPECT_EQ(tokenizer->special_ids().pad, 498);
  EXPECT_EQ(tokenizer->special_ids().unk, std::nullopt);
  EXPECT_EQ(tokenizer->TokenToId("<think>"), 504);
  EXPECT_EQ(tokenizer->TokenToId("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->IdToToken(504), "<think>");
  EXPECT_EQ(tokenizer->IdToToken(512), std::nullopt);
  EXPECT_TRUE(tokenizer->IsSpecial(497));
  EXPECT_FALSE(tokenizer->IsSpecial(504));  // added, but not special
  EXPECT_FALSE(tokenizer->IsSpecial(0));
}

TEST(TokenizerTest, IgnoresIdsWithoutTokenAndRefusesNegativeOnes) {
  const Tokenizer tokenizer = MakeTokenizer(MinimalTokenizer());
  const auto decoded = tokenizer.Decode({2, 99, 0}, /*skip_special_tokens=*/false);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, "ab a");
  EXPECT_EQ(tokenizer.Decode({-1}, false).status().code(), ErrorCode::kUsage);
}

TEST(TokenizerTest, RefusesTextThatIsNotUtf8) {
  const Tokenizer tokenizer = MakeTokenizer(MinimalTokenizer());
  for (const std::string text : {"a\xFF", "\xC3", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80", "a\x80"}) {
    EXPECT_EQ(tokenizer.Encode(text, false).status().code(), ErrorCode::kUsage) << ::testing::PrintToString(text);
  }
}

TEST(TokenizerTest, NamesFileAndComponentThatItDoesNotSupport) {
  const std::pair<const char*, const char*> cases[] = {
      {"normalizer", R"({"type": "BertNormalizer"})"}, {"pre_tokenizer", R"({"type": "UnicodeScripts"})"},
      {"post_processor", R"({"type": "Nothing"})"},    {"decoder", R"({"type": "CTC"})"},
      {"model", R"({"type": "WordPiece"})"},
  };
  for (const auto& [key, component] : cases) {
    nlohmann::json json = MinimalTokenizer();
    json[key] = nlohmann::json::parse(component);
    EXPECT_THAT(LoadError(json).message(), HasSubstr(std::string("tokenizer.json: ") + key));
    EXPECT_THAT(LoadError(json).message(), HasSubstr("not supported"));
  }
  nlohmann::json nested = MinimalTokenizer();
  nested["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, {{"type", "WordPiece"}}}}};
  EXPECT_THAT(LoadError(nested).message(), HasSubstr("tokenizer.json: decoder.decoders[1] is a decoder of type"));
}

TEST(TokenizerTest, RefusesBrokenFiles) {
  const std::pair<const char*, const char*> patches[] = {
      // JSON merge patches of the minimal file, and what the error must say.
      {R"({"version": "2.0"})", "version"},
      {R"({"version": 1})", "version must be a string"},
      {R"({"model": null})", "model"},
      {R"({"model": []})", "model"},
      {R"({"model": {"vocab": null}})", "vocab"},
      {R"({"model": {"vocab": ["a"]}})", "vocab must be an object"},
      {R"({"model": {"vocab": {"a": -1}}})", "vocab[\"a\"] must be an integer"},
      {R"({"model": {"vocab": {"a": 1.5}}})", "must be an integer"},
      {R"({"model": {"vocab": {"a": 99999999999}}})", "must be an integer"},
      {R"({"model": {"vocab": {"a": 18446744073709551615}}})", "must be an integer"},
      {R"({"model": {"merges": null}})", "merges"},
      {R"({"model": {"merges": ["a"]}})", "merges[0] must be two tokens"},
      {R"({"model": {"merges": ["a b c"]}})", "merges[0]"},
      {R"({"model": {"merges": [["a"]]}})", "merges[0]"},
      {R"({"model": {"merges": ["a x"]}})", "\"x\", which is not in the vocabulary"},
      {R"({"model": {"merges": ["b a"]}})", "makes \"ba\", which is not in the vocabulary"},
      {R"({"model": {"dropout": 0.5}})", "dropout"},
      {R"({"model": {"byte_fallback": "yes"}})", "byte_fallback must be true or false"},
      {R"({"model": {"type": "Unigram", "vocab": [["a"]]}})", "vocab[0] must be [token, score]"},
      {R"({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1}})", "unk_id must be an integer from 0 to 0"},
      {R"({"added_tokens": {}})", "added_tokens must be an array"},
      {R"({"added_tokens": [{"content": "x"}]})", "added_tokens[0] has no \"id\""},
      {R"({"added_tokens": [{"content": "x", "id": 9}]})", "gives \"x\" the id 9"},
      {R"({"added_tokens": [{"content": "a", "id": 1}]})", "gives \"a\" the id 1"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(" }, "behavior": "Isolated"}})", "pattern"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a&&b]" }, "behavior": "Isolated"}})",
       "intersections"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a[b]]" }, "behavior": "Isolated"}})", "nested"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"String": "" }, "behavior": "Isolated"}})", "empty string"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"String": "x" }, "behavior": "Sideways"}})", "Sideways"},
      {R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "ab"}})", "one character"},
      {R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}})", "last"},
      {R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "!!!!"}})", "base64"},
      {R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}})", "trie size"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": [], "special_tokens": {}}})", "sequence A"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}],
          "special_tokens": {}}})",
       "has no \"x\""},
      {R"({"decoder": {"type": "Strip", "content": "", "start": 1, "stop": 0}})", "one character"},
      {R"({"decoder": {"type": "Strip", "content": "x", "start": -1, "stop": 0}})", "start must be an integer"},
  };
  for (const auto& [patch, wanted] : patches) {
    SCOPED_TRACE(patch);
    nlohmann::json json = MinimalTokenizer();
    json.merge_patch(nlohmann::json::parse(patch));
    const Status status = LoadError(json);
    EXPECT_EQ(status.code(), ErrorCode::kUnreadable);
    EXPECT_THAT(status.message(), HasSubstr(wanted));
    EXPECT_THAT(status.message(), HasSubstr("tokenizer.json"));
  }
}

TEST(TokenizerTest, RefusesWhatIsNoJson) {
  EXPECT_FALSE(Tokenizer::FromJson("", "t").ok());
  EXPECT_FALSE(Tokenizer::FromJson("{", "t").ok());
  EXPECT_FALSE(Tokenizer::FromJson("[1]", "t").ok());
  EXPECT_FALSE(Tokenizer::FromJson("{\"a\": \"\xFF\"}", "t").ok());
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_THAT(Tokenizer::FromJson(deep, "t").status().message(), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(Tokenizer::Load("/no/such/folder").status().message(), HasSubstr("/no/such/folder: no such file"));
}

TEST(TokenizerTest, SurvivesAnyTruncationOfAFile) {
  const std::string text = ReadText(TokenizerData() / "gemma" / "tokenizer.json");
  for (size_t size = 0; size < text.size(); size += 97) {
    EXPECT_FALSE(Tokenizer::FromJson(text.substr(0, size), "t").ok());
  }
}

TEST(TokenizerTest, EndsOnMergesThatUndoEachOther) {
  // "" + "ab" = "ab": a merge that changes nothing, and pairs whose results merge again in a circle.
  nlohmann::json json = MinimalTokenizer();
  json["model"]["vocab"] = {{"", 0}, {"a", 1}, {"aa", 2}, {"aaa", 3}, {"aaaa", 4}};
  json["model"]["merges"] = {" a", "a ", "aa a", "a a", "aa aa", "a aa"};
  const Tokenizer tokenizer = MakeTokenizer(json);
  EXPECT_THAT(Encode(tokenizer, "aaaaa"), ElementsAre(3, 2));
}

TEST(TokenizerTest, LaterDuplicateMergesWin) {
  nlohmann::json json = MinimalTokenizer();
  json["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}};
  json["model"]["merges"] = {"a b", "b c", "a b"};
  EXPECT_THAT(Encode(MakeTokenizer(json), "abc"), ElementsAre(0, 4));
}

/// Seconds of processor time that encoding takes.
double SecondsToEncode(const Tokenizer& tokenizer, const std::string& text) {
  const std::clock_t start = std::clock();
  const auto ids = tokenizer.Encode(text, /*add_special_tokens=*/false);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(TokenizerTest, HostileTextsTakeNearlyLinearTime) {
  std::string mixed;
  for (size_t i = 0; mixed.size() < 1'000'000; ++i) AppendUtf8(0x21 + static_cast<char32_t>(i * 7919 % 0xD000), mixed);
  std::string units[] = {"a", " ", "\n", "th", " \n", "<|im_start", "\xCC\x81\xCC\xA3", "1", "'", "▁", "\t x"};
  for (const char* folder : {"", "llama3", "gpt2", "gemma", "llama2"}) {
    const auto tokenizer = Tokenizer::Load(TokenizerData() / folder);
    ASSERT_TRUE(tokenizer.ok());
    for (const std::string& unit : units) {
      SCOPED_TRACE(::testing::PrintToString(unit) + " in " + folder);
      std::string text;
      while (text.size() < 1'000'000) text += unit;
      // Measured: below 0.5 s of processor time, with sanitizers below 8 s. Quadratic time would be hours.
      EXPECT_LT(SecondsToEncode(*tokenizer, text), 30);
    }
    EXPECT_LT(SecondsToEncode(*tokenizer, mixed), 30);
  }
}

TEST(TokenizerTest, PatternsThatBacktrackTooMuchFail) {
  nlohmann::json json = MinimalTokenizer();
  json["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a|a)+$"}}}, {"behavior", "Isolated"}};
  const auto ids = MakeTokenizer(json).Encode(std::string(50, 'a') + "b", false);
  EXPECT_EQ(ids.status().code(), ErrorCode::kRuntime);
  EXPECT_THAT(ids.status().message(), HasSubstr("(a|a)+$"));
}

TEST(TokenizerTest, ThreadsMayShareATokenizer) {
  const auto tokenizer = Tokenizer::Load(TokenizerData() / "gemma");
  ASSERT_TRUE(tokenizer.ok());
  const std::string text = "the river 世界 and the bank\n";
  const std::vector<int32_t> expected = Encode(*tokenizer, text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) EXPECT_EQ(Encode(*tokenizer, text), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenizerTest, RefusesAConfigThatNamesUnknownTokens) {
  const testing::TemporaryFolder own;
  const std::filesystem::path folder = own.Path();
  std::ofstream(folder / "tokenizer.json") << MinimalTokenizer().dump();
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token": {"content": "<end>"}})";
  EXPECT_THAT(Tokenizer::Load(folder).status().message(), HasSubstr("\"<end>\" as eos_token"));
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token": {"content": "ab"}, "bos_token": "a"})";
  const auto tokenizer = Tokenizer::Load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->special_ids().eos, 2);
  EXPECT_EQ(tokenizer->special_ids().bos, 0);
}

}  // namespace
}  // namespace milwright
