// SHA-256 (FIPS 180-4), for content identities: package ids and state snapshots.
#ifndef MILWRIGHT_BASE_SHA256_H_
#define MILWRIGHT_BASE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace milwright {

using Sha256Digest = std::array<uint8_t, 32>;

/// A hash that is fed piece by piece.
class Sha256 {
 public:
  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) { Update(std::as_bytes(std::span(text))); }
  /// The digest of everything fed so far; the object must not be used afterwards.
  Sha256Digest Finish();

 private:
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  size_t filled_ = 0;
  uint64_t length_ = 0;
};

/// Lower-case hexadecimal.
std::string ToHex(std::span<const uint8_t> bytes);

}  // namespace milwright

#endif  // MILWRIGHT_BASE_SHA256_H_
