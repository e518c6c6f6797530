// The parts that a tokenizer is made of, each against a plain definition of what it does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "support.h"
#include "tokenizer/bpe_merge.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/precompiled_charsmap.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_normalization.h"
#include "tokenizer/word_cache.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

/// Merges as the definition says: look for the best pair, merge it, look again.
std::vector<int32_t> MergeNaively(const PairMap& merges, std::vector<int32_t> symbols) {
  while (true) {
    size_t best = symbols.size();
    Merge best_merge;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge merge = merges.Find(static_cast<uint32_t>(symbols[i]), static_cast<uint32_t>(symbols[i + 1]));
      if (merge.rank < best_merge.rank) {
        best = i;
        best_merge = merge;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = best_merge.id;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(BpeMergeTest, EqualsTheDefinition) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    // Merges over tokens 0..5 make tokens 6.., of any two tokens before.
    PairMap merges;
    const int32_t count = 1 + static_cast<int32_t>(random() % 40);
    for (int32_t rank = 0; rank < count; ++rank) {
      const uint32_t known = 6 + static_cast<uint32_t>(rank);
      merges.Set(random() % known, random() % known, {static_cast<int32_t>(random() % 100), 6 + rank});
    }
    std::vector<int32_t> symbols(random() % 120);
    for (int32_t& symbol : symbols) symbol = static_cast<int32_t>(random() % 6);
    // Equal ranks are possible here and not in files; then the two may only differ in which pair goes first, so give
    // every pair its own rank.
    PairMap unique;
    int32_t rank = 0;
    for (uint32_t a = 0; a < 50; ++a) {
      for (uint32_t b = 0; b < 50; ++b) {
        const Merge merge = merges.Find(a, b);
        if (merge.rank != Merge::kNone) unique.Set(a, b, {merge.rank * 1000 + rank++, merge.id});
      }
    }
    const std::vector<int32_t> expected = MergeNaively(unique, symbols);
    std::vector<int32_t> merged = symbols;
    MergeSymbols(unique, merged);
    ASSERT_EQ(merged, expected) << ::testing::PrintToString(symbols);
  }
}

TEST(BpeModelTest, CuttingTheTextChangesNothing) {
  // Gemma's model finds cuts by itself. The same with a merge of a byte token, which never applies, cannot cut.
  nlohmann::json json = ReadJson(TokenizerData() / "gemma" / "tokenizer.json");
  const Tokenizer cutting = MakeTokenizer(json);
  json["model"]["vocab"]["<0x00>!"] = 100000;
  json["model"]["merges"].push_back({"<0x00>", "!"});
  const Tokenizer whole = MakeTokenizer(json);
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string pieces[] = {"the", " ", "a", "th", "God", "世", "é", "\n", "in", " the", ".", "😀", "er", "LORD"};
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t i = random() % 40; i > 0; --i) text += pieces[random() % std::size(pieces)];
    ASSERT_EQ(*cutting.Encode(text, false), *whole.Encode(text, false)) << text;
  }
}

TEST(ByteTrieTest, FindsEveryKeyThatStartsATextShortestFirst) {
  const ByteTrie trie({{"a", 1}, {"abc", 2}, {"ab", 3}, {"b", 4}, {"", 5}, {"ab", 6}});
  std::vector<std::pair<size_t, int32_t>> found;
  trie.ForEachPrefix("abcd", [&](size_t length, int32_t value) { found.emplace_back(length, value); });
  EXPECT_THAT(found, ElementsAre(std::pair(1, 1), std::pair(2, 6), std::pair(3, 2)));
  EXPECT_EQ(trie.LongestPrefix("abx"), (std::pair<size_t, int32_t>(2, 6)));
  EXPECT_EQ(trie.LongestPrefix("x").first, 0U);
  EXPECT_EQ(trie.LongestPrefix("").first, 0U);
  EXPECT_TRUE(ByteTrie().empty());
  EXPECT_EQ(ByteTrie().LongestPrefix("a").first, 0U);
}

TEST(WordCacheTest, KeepsWhatFitsAndNeverMixesWords) {
  WordCache cache;
  for (int32_t i = 0; i < 200'000; ++i) {
    const std::string word = "word" + std::to_string(i);
    ASSERT_FALSE(cache.Find(word));
    cache.Add(word, std::vector<int32_t>{i, i + 1});
    ASSERT_THAT(*cache.Find(word), ElementsAre(i, i + 1));
  }
  EXPECT_THAT(*cache.Find("word199999"), ElementsAre(199999, 200000));
  cache.Add(std::string(1000, 'x'), std::vector<int32_t>{1});
  EXPECT_FALSE(cache.Find(std::string(1000, 'x')));
}

TEST(LossyUtf8Test, ReplacesMaximalInvalidRunsWhereverTheBytesAreCut) {
  const std::pair<std::string, std::string> cases[] = {
      {"a\xC3\xA9z", "aéz"},
      {"\xE4\xB8\x96", "世"},
      {"\xE4\xB8", "�"},
      {"\xE4\xB8z", "�z"},
      {"\xFF\xFE", "��"},
      {"\xED\xA0\x80", "���"},       // a surrogate: no byte of it may start one
      {"\xF0\x9F\x98", "�"},         // the start of one character
      {"\xF0\x80\x80\x80", "����"},  // overlong
      {"\xC0\xAF", "��"},
      {"\x80\x41", "�A"},
      {"\xF4\x90\x80\x80", "����"},  // above U+10FFFF
  };
  for (const auto& [bytes, text] : cases) {
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      LossyUtf8Decoder decoder;
      std::string out;
      decoder.Push(bytes.substr(0, cut), out);
      decoder.Push(bytes.substr(cut), out);
      decoder.Finish(out);
      EXPECT_EQ(out, text) << ::testing::PrintToString(bytes) << " cut at " << cut;
    }
  }
}

TEST(ByteLevelTest, MapsEveryByteToItsOwnCharacterAndBack) {
  EXPECT_EQ(ByteLevelCharacter(' '), 0x120U);
  EXPECT_EQ(ByteLevelCharacter('\n'), 0x10AU);
  EXPECT_EQ(ByteLevelCharacter('A'), static_cast<char32_t>('A'));
  EXPECT_EQ(ByteLevelCharacter(0xAD), 0x143U);
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(ByteLevelByte(ByteLevelCharacter(static_cast<unsigned char>(byte))), byte);
  }
  EXPECT_EQ(ByteLevelByte(' '), std::nullopt);
  EXPECT_EQ(ByteLevelByte(0x144), std::nullopt);
  EXPECT_EQ(ByteLevelTokenBytes("Ġhi"), " hi");
  EXPECT_EQ(ByteLevelTokenBytes("Ġ世"), "Ġ世");  // not of the alphabet: itself
}

TEST(RegexTest, TranslatesWhatOnigurumaMeansOtherwise) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(\p{L}+|\p{N}{1,3})", R"(\p{L}+|\p{N}{1,3})"},
      {R"((?m:.)(?i:x)(?mi))", R"((?s:.)(?i:x)(?si))"},
      {R"((?<name>a)(?=b)(?!c)(?:d))", R"((?<name>a)(?=b)(?!c)(?:d))"},
      {R"(\u4e00[\u0041])", R"(\x{4e00}[\x{0041}])"},
      {R"(\h[\h])", R"([0-9A-Fa-f][0-9A-Fa-f])"},
      {R"([]a][^]a][[:alpha:]\]])", R"([\]a][^\]a][[:alpha:]\]])"},
  };
  for (const auto& [pattern, expected] : cases) {
    const auto translated = TranslateOnigurumaPattern(pattern);
    ASSERT_TRUE(translated.ok()) << translated.status().message();
    EXPECT_EQ(*translated, expected);
  }
  for (const char* pattern : {"[a[b]]", "[a&&b]", "a{1,2}+", "[\\W]", "[a", "\\", "\\u12", "[[:alpha", "[\\"}) {
    EXPECT_FALSE(TranslateOnigurumaPattern(pattern).ok()) << pattern;
  }
}

TEST(RegexTest, SpansCoverTheText) {
  const auto regex = Regex::Compile("b*");
  ASSERT_TRUE(regex.ok());
  RegexScratch scratch;
  std::vector<MatchSpan> spans;
  ASSERT_TRUE(regex->FindAll("abbc", scratch, spans).ok());
  std::vector<std::tuple<size_t, size_t, bool>> found;
  for (const MatchSpan& span : spans) found.emplace_back(span.begin, span.end, span.is_match);
  // The empty match at 3 stands directly behind a match, so it does not count.
  EXPECT_THAT(found, ElementsAre(std::tuple(0, 0, true), std::tuple(0, 1, false), std::tuple(1, 3, true),
                                 std::tuple(3, 4, false), std::tuple(4, 4, true)));
}

TEST(NormalizationTest, OrdersLongRunsOfMarks) {
  // U+0323 (class 220) goes before U+0301 (class 230); quadratic sorting of a million would not end.
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += "\u0301\u0323";
  const std::string normalized = NormalizeUnicode(text, NormalizationForm::kNfd);
  EXPECT_EQ(normalized.substr(0, 5), "a\u0323\u0323");
  EXPECT_EQ(normalized.substr(normalized.size() - 4), "\u0301\u0301");
  EXPECT_EQ(normalized.size(), text.size());
  EXPECT_EQ(NormalizeUnicode("e\u0301 \u1100\u1161 ﬁ", NormalizationForm::kNfc), "é 가 ﬁ");
  EXPECT_EQ(NormalizeUnicode("ﬁ é", NormalizationForm::kNfkd), "fi e\u0301");
}

TEST(Base64Test, DecodesAndRefuses) {
  EXPECT_EQ(DecodeBase64(""), "");
  EXPECT_EQ(DecodeBase64("YQ=="), "a");
  EXPECT_EQ(DecodeBase64("YWI="), "ab");
  EXPECT_EQ(DecodeBase64("YWJj"), "abc");
  for (const char* text : {"Y", "YQ=", "Y===", "YQ==YQ==", "Y Q=", "=AAA"}) EXPECT_EQ(DecodeBase64(text), std::nullopt);
}

TEST(PrecompiledCharsmapTest, FollowsNoOffsetOutOfItsTables) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int round = 0; round < 500; ++round) {
    // 16 bytes of trie (the base64 of the four size bytes and two more), then random units and replacements.
    std::string base64 = "EAAAAAAA";
    for (int i = 0; i < 64; ++i) base64 += kDigits[random() % 64];
    const auto map = PrecompiledCharsmap::Decode(base64);
    const std::string text = "abc é 世界 e\u0301";
    EXPECT_FALSE(FindInvalidUtf8(map.ok() ? map->Normalize(text) : text));
  }
}

}  // namespace
}  // namespace milwright
