#include "base/sha256.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/sha256_compress.h"

namespace milwright {
namespace {

std::string HashOf(std::string_view text, size_t piece) {
  Sha256 hash;
  for (size_t at = 0; at < text.size(); at += piece) hash.Update(text.substr(at, piece));
  return ToHex(hash.Finish());
}

// FIPS 180-4's examples.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(HashOf("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HashOf("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HashOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 7),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const std::string million(1000000, 'a');
  for (const size_t piece : {1UL, 63UL, 64UL, 1000UL, 1000000UL}) {
    EXPECT_EQ(HashOf(million, piece), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0") << piece;
  }
}

TEST(Sha256, HardwareEqualsPortable) {
  const Sha256Compress fast = Sha256CompressInHardware();
  if (fast == nullptr) GTEST_SKIP() << "this processor has no SHA instructions";
  std::mt19937 random(7);
  for (size_t blocks = 0; blocks < 9; ++blocks) {
    std::vector<uint8_t> data(64 * blocks);
    for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
    std::array<uint32_t, 8> a, b;
    for (size_t i = 0; i < 8; ++i) a[i] = b[i] = random();
    fast(a, data.data(), blocks);
    Sha256CompressPortable(b, data.data(), blocks);
    EXPECT_EQ(a, b) << blocks;
  }
}

}  // namespace
}  // namespace milwright
