#include "base/sha256.h"

#include <algorithm>

#include "base/sha256_compress.h"

namespace milwright {
namespace {

Sha256Compress BestCompress() {
  static const Sha256Compress best =
      Sha256CompressInHardware() != nullptr ? Sha256CompressInHardware() : Sha256CompressPortable;
  return best;
}

}  // namespace

void Sha256::Update(std::span<const std::byte> bytes) {
  length_ += bytes.size();
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  if (filled_ > 0) {
    const size_t take = std::min(left, block_.size() - filled_);
    std::copy_n(p, take, block_.begin() + static_cast<std::ptrdiff_t>(filled_));
    filled_ += take;
    p += take;
    left -= take;
    if (filled_ < block_.size()) return;
    BestCompress()(state_, block_.data(), 1);
    filled_ = 0;
  }
  const size_t blocks = left / block_.size();
  BestCompress()(state_, p, blocks);
  p += blocks * block_.size();
  left -= blocks * block_.size();
  std::copy_n(p, left, block_.begin());
  filled_ = left;
}

Sha256Digest Sha256::Finish() {
  const uint64_t bits = length_ * 8;
  std::array<uint8_t, 72> tail = {0x80};
  // Pad to 56 bytes modulo 64, then the length in bits, big endian.
  const size_t padding = (filled_ < 56 ? 56 : 120) - filled_;
  for (size_t i = 0; i < 8; ++i) tail[padding + i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  Update(std::as_bytes(std::span(tail.data(), padding + 8)));
  Sha256Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

std::string ToHex(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

}  // namespace milwright
