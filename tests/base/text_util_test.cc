// SHA-256 and UTF-8.
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "base/utf8.h"

namespace milwright {
namespace {

std::string Sha256Of(std::string_view text, size_t piece) {
  Sha256 hash;
  for (size_t i = 0; i < text.size(); i += piece) hash.Update(text.substr(i, piece));
  return ToHex(hash.Finish());
}

// The vectors of FIPS 180-4's examples (NIST CSRC).
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(Sha256Of("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Of("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 7),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const std::string million(1'000'000, 'a');
  for (const size_t piece : {1U, 63U, 64U, 65U, 1'000'000U}) {
    EXPECT_EQ(Sha256Of(million, piece), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST(Utf8, KnowsValidText) {
  EXPECT_TRUE(IsUtf8("plain, \xC3\xA9, \xE2\x82\xAC, \xF0\x9F\x98\x80"));
  for (const char* bad :
       {"\x80", "\xC0\xAF", "\xC3", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "\xF0\x9F\x98"}) {
    EXPECT_FALSE(IsUtf8(bad));
  }
}

TEST(Utf8, CodePointsComeBack) {
  for (const uint32_t code_point : {0x41U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xFFFFU, 0x10000U, 0x10FFFFU}) {
    std::string text;
    ASSERT_TRUE(AppendUtf8(code_point, &text));
    EXPECT_TRUE(IsUtf8(text));
    size_t position = 0;
    EXPECT_EQ(DecodeUtf8(text, &position), code_point);
    EXPECT_EQ(position, text.size());
  }
  std::string text;
  EXPECT_FALSE(AppendUtf8(0xD800, &text));
  EXPECT_FALSE(AppendUtf8(0x110000, &text));
}

TEST(Utf8, MessagesStayOneLine) { EXPECT_EQ(EscapeForMessage("a\nb\xFF\xC3\xA9\x1B"), "a\\x0ab\\xff\xC3\xA9\\x1b"); }

}  // namespace
}  // namespace milwright
