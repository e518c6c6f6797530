// The compression function of SHA-256: a portable one, and the one that uses the processor's SHA instructions.
#ifndef MILWRIGHT_BASE_SHA256_COMPRESS_H_
#define MILWRIGHT_BASE_SHA256_COMPRESS_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace milwright {

/// Takes `blocks` blocks of 64 bytes into `state`.
using Sha256Compress = void (*)(std::array<uint32_t, 8>& state, const uint8_t* data, size_t blocks);

void Sha256CompressPortable(std::array<uint32_t, 8>& state, const uint8_t* data, size_t blocks);
/// The fast one; null where the processor has no SHA instructions.
Sha256Compress Sha256CompressInHardware();

}  // namespace milwright

#endif  // MILWRIGHT_BASE_SHA256_COMPRESS_H_
