// The text form of compression formats.
#include <fmt/format.h>

#include <array>
#include <charconv>

#include "compress/compress.h"

namespace milwright {
namespace {

using Kind = CompressionFormat::Kind;
using Granularity = CompressionFormat::Granularity;

Status Bad(std::string_view text, std::string_view what) {
  return {ErrorCode::kUsage, fmt::format("compression '{}': {}; formats: int8, int4 with :tensor, :channel, :blockN "
                                         "and :asym; lut1, lut2, lut3, lut4, "
                                         "lut6, lut8 with :tensor, :groupN, :scale and :int8; sparse:SHARE; none",
                                         text, what)};
}

bool TakeNumber(std::string_view text, int64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && *number > 0;
}

}  // namespace

Result<CompressionFormat> ParseCompression(std::string_view text) {
  CompressionFormat format;
  std::string_view rest = text;
  const auto next = [&rest] {
    const size_t colon = rest.find(':');
    const std::string_view word = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
    return word;
  };
  const std::string_view head = next();
  int64_t number = 0;
  if (head == "none") {
    format.kind = Kind::kNone;
  } else if (head == "int8" || head == "int4") {
    format.kind = Kind::kLinear;
    format.bits = head == "int8" ? 8 : 4;
    format.granularity = head == "int8" ? Granularity::kChannel : Granularity::kBlock;
  } else if (head.starts_with("lut") && TakeNumber(head.substr(3), &number)) {
    constexpr std::array<int64_t, 6> kBits = {1, 2, 3, 4, 6, 8};
    if (std::find(kBits.begin(), kBits.end(), number) == kBits.end()) return Bad(text, "no table has that many bits");
    format.kind = Kind::kPalette;
    format.bits = static_cast<int>(number);
    format.granularity = Granularity::kTensor;
  } else if (head == "sparse") {
    format.kind = Kind::kSparse;
    const std::string_view share = next();
    const auto [end, error] = std::from_chars(share.data(), share.data() + share.size(), format.sparsity);
    if (error != std::errc() || end != share.data() + share.size() || !(format.sparsity > 0 && format.sparsity < 1)) {
      return Bad(text, "the share of zeros lies between 0 and 1");
    }
  } else {
    return Bad(text, "unknown format");
  }
  while (!rest.empty()) {
    const std::string_view word = next();
    const bool linear = format.kind == Kind::kLinear;
    const bool palette = format.kind == Kind::kPalette;
    if (word == "tensor" && (linear || palette)) {
      format.granularity = Granularity::kTensor;
    } else if (word == "channel" && linear) {
      format.granularity = Granularity::kChannel;
    } else if (word.starts_with("block") && linear && TakeNumber(word.substr(5), &number)) {
      format.granularity = Granularity::kBlock;
      format.block_size = number;
    } else if (word.starts_with("group") && palette && TakeNumber(word.substr(5), &number)) {
      format.granularity = Granularity::kChannel;
      format.block_size = number;
    } else if (word == "asym" && linear) {
      format.asymmetric = true;
    } else if (word == "scale" && palette) {
      format.channel_scale = true;
    } else if (word == "int8" && palette) {
      format.int8_table = true;
    } else {
      return Bad(text, fmt::format("'{}' does not belong there", word));
    }
  }
  return format;
}

std::string CompressionText(const CompressionFormat& format) {
  switch (format.kind) {
    case Kind::kNone:
      return "none";
    case Kind::kSparse:
      return fmt::format("sparse:{}", format.sparsity);
    case Kind::kLinear: {
      const std::string granularity = format.granularity == Granularity::kTensor ? "tensor"
                                      : format.granularity == Granularity::kChannel
                                          ? "channel"
                                          : fmt::format("block{}", format.block_size);
      return fmt::format("int{}:{}{}", format.bits, granularity, format.asymmetric ? ":asym" : "");
    }
    case Kind::kPalette: {
      const std::string granularity =
          format.granularity == Granularity::kTensor ? "tensor" : fmt::format("group{}", format.block_size);
      return fmt::format("lut{}:{}{}{}", format.bits, granularity, format.channel_scale ? ":scale" : "",
                         format.int8_table ? ":int8" : "");
    }
  }
  return {};
}

}  // namespace milwright
