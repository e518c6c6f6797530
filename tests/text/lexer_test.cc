#include "text/lexer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace milwright {
namespace {

TEST(Lexer, QuotedTextComesBack) {
  const uint64_t seed = 7;
  std::mt19937 random(seed);
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 12, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const std::string quoted = Quote(text);
    Lexer lexer(quoted, "");
    ASSERT_TRUE(lexer.Start().ok()) << quoted;
    ASSERT_EQ(lexer.current().kind, TokenKind::kString);
    ASSERT_EQ(lexer.next().kind, TokenKind::kEnd) << quoted;
    ASSERT_EQ(Unescape(lexer.current().text), text) << "seed " << seed << ": " << quoted;
  }
}

TEST(Lexer, QuoteKeepsUtf8AndEscapesTheRest) {
  EXPECT_EQ(Quote("a\"b\\c\n\t\r"), R"("a\"b\\c\n\t\r")");
  EXPECT_EQ(Quote("größe 日本 😀"), "\"größe 日本 😀\"");
  EXPECT_EQ(Quote(std::string_view("\x00\x1f\x7f", 3)), R"("\x00\x1f\x7f")");
  EXPECT_EQ(Quote("\xff\xc3("), R"("\xff\xc3(")");                        // no UTF-8
  EXPECT_EQ(Quote("\xed\xa0\x80\xc0\xaf"), R"("\xed\xa0\x80\xc0\xaf")");  // a surrogate, and an overlong '/'
}

TEST(Lexer, Identifiers) {
  EXPECT_TRUE(IsIdentifier("var_3@main"));
  EXPECT_TRUE(IsIdentifier("_"));
  EXPECT_FALSE(IsIdentifier(""));
  EXPECT_FALSE(IsIdentifier("3x"));
  EXPECT_FALSE(IsIdentifier("a.b"));
}

TEST(Lexer, ErrorsShowLineAndCaret) {
  const std::string_view text = "first\n\tsecond grö ße x\r\nthird";
  const Lexer lexer(text, "m.mil");
  EXPECT_EQ(lexer.ErrorAt(text.find('x'), "no x").message(),
            "m.mil:2:16: error: no x\n second grö ße x\n               ^");
  EXPECT_EQ(lexer.ErrorAt(0, "here").message(), "m.mil:1:1: error: here\nfirst\n^");
  EXPECT_EQ(lexer.ErrorAt(text.size(), "at the end").message(), "m.mil:3:6: error: at the end\nthird\n     ^");
  EXPECT_EQ(lexer.ErrorAt(5, "line end").message(), "m.mil:1:6: error: line end\nfirst\n     ^");
}

TEST(Lexer, LongLinesAreCutToAWindow) {
  const std::string text = std::string(500, 'a') + "?" + std::string(500, 'b');
  const std::string expected = "<text>:1:501: error: here\n..." + std::string(80, 'a') + "?" + std::string(79, 'b') +
                               "...\n" + std::string(83, ' ') + "^";
  EXPECT_EQ(Lexer(text, "").ErrorAt(500, "here").message(), expected);
}

TEST(Lexer, CommentsAndBlanksAreSkipped) {
  Lexer lexer("// one\n /* two\n * three */ word // four", "");
  ASSERT_TRUE(lexer.Start().ok());
  EXPECT_TRUE(lexer.current().IsWord("word"));
  EXPECT_EQ(lexer.next().kind, TokenKind::kEnd);
}

}  // namespace
}  // namespace milwright
