#include "text/number.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <system_error>

namespace milwright {
namespace {

// How the bits of a float type are split; the sign is the top bit.
struct FloatLayout {
  DataType type;
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // else the top exponent holds numbers too, and only all ones is NaN (fp8 e4m3fn)

  [[nodiscard]] uint64_t SignBit() const { return uint64_t{1} << (exponent_bits + mantissa_bits); }
  [[nodiscard]] uint64_t MantissaMask() const { return (uint64_t{1} << mantissa_bits) - 1; }
  [[nodiscard]] uint64_t TopExponent() const { return ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  /// The first magnitude beyond the largest finite one.
  [[nodiscard]] uint64_t BeyondFinite() const { return has_infinity ? TopExponent() : QuietNan(); }
  [[nodiscard]] uint64_t QuietNan() const {
    return has_infinity ? TopExponent() | (uint64_t{1} << (mantissa_bits - 1)) : TopExponent() | MantissaMask();
  }
  [[nodiscard]] bool IsNan(uint64_t bits) const {
    const uint64_t magnitude = bits & (SignBit() - 1);
    return has_infinity ? magnitude > TopExponent() : magnitude == QuietNan();
  }
};

constexpr std::array kLayouts = {
    FloatLayout{DataType::kFp16, 5, 10, true},    FloatLayout{DataType::kFp32, 8, 23, true},
    FloatLayout{DataType::kFp64, 11, 52, true},   FloatLayout{DataType::kBf16, 8, 7, true},
    FloatLayout{DataType::kFp8E4M3, 4, 3, false}, FloatLayout{DataType::kFp8E5M2, 5, 2, true},
};

const FloatLayout* LayoutOf(DataType dtype) {
  for (const FloatLayout& layout : kLayouts) {
    if (layout.type == dtype) return &layout;
  }
  return nullptr;
}

// The value of a finite bit pattern; exact, as every format here is contained in double.
double DecodeFinite(const FloatLayout& layout, uint64_t bits) {
  const uint64_t magnitude = bits & (layout.SignBit() - 1);
  const auto exponent = static_cast<int>(magnitude >> layout.mantissa_bits);
  const int bias = (1 << (layout.exponent_bits - 1)) - 1;
  uint64_t mantissa = magnitude & layout.MantissaMask();
  if (exponent != 0) mantissa |= uint64_t{1} << layout.mantissa_bits;
  const double value = std::ldexp(static_cast<double>(mantissa), std::max(exponent, 1) - bias - layout.mantissa_bits);
  return (bits & layout.SignBit()) != 0 ? -value : value;
}

// The nearest finite bit pattern, ties to even; an error when the value is beyond the largest finite one.
ParsedNumber EncodeFinite(const FloatLayout& layout, double value) {
  const uint64_t sign = std::signbit(value) ? layout.SignBit() : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return {sign, {}};
  const int smallest = 2 - (1 << (layout.exponent_bits - 1));  // exponent of the smallest normal number
  const int exponent = std::max(std::ilogb(magnitude), smallest);
  // In units of the last place the value is below 2^(mantissa_bits + 1), so the rounded integer is exact.
  const auto units = static_cast<uint64_t>(std::nearbyint(std::ldexp(magnitude, layout.mantissa_bits - exponent)));
  // Normal numbers carry their hidden bit in `units`, which adds the one that the exponent field lacks here.
  const int field = exponent - smallest;
  if (field >= (1 << layout.exponent_bits)) return {0, "is out of range"};
  const uint64_t bits = (static_cast<uint64_t>(field) << layout.mantissa_bits) + units;
  if (bits >= layout.BeyondFinite()) return {0, "is out of range"};
  return {sign | bits, {}};
}

// Text of `value` as C's "%a" gives it, with the shortest mantissa.
std::string FormatHex(double value) {
  std::array<char, 40> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::fabs(value), std::chars_format::hex);
  return fmt::format("{}0x{}", std::signbit(value) ? "-" : "",
                     std::string_view(buffer.data(), end.ptr - buffer.data()));
}

std::string FormatFloat(const FloatLayout& layout, uint64_t bits) {
  const uint64_t magnitude = bits & (layout.SignBit() - 1);
  const std::string_view sign = (bits & layout.SignBit()) != 0 ? "-" : "";
  if (layout.IsNan(bits)) {
    if (magnitude == layout.QuietNan()) return fmt::format("{}nan", sign);
    return fmt::format("nan({:#x})", bits & (layout.SignBit() | (layout.SignBit() - 1)));
  }
  if (layout.has_infinity && magnitude == layout.TopExponent()) return fmt::format("{}inf", sign);
  return FormatHex(DecodeFinite(layout, bits));
}

// What follows a "0x" prefix, or the text itself.
std::string_view WithoutHexPrefix(std::string_view text, bool* is_hex) {
  *is_hex = text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
  return *is_hex ? text.substr(2) : text;
}

template <typename T, typename... Format>
std::string_view ReadAll(std::string_view text, T* value, Format... format) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, format...);
  if (error == std::errc::result_out_of_range) return "is out of range";
  if (error != std::errc() || end != text.data() + text.size()) return "is not a number";
  return {};
}

ParsedNumber ParseFloat(const FloatLayout& layout, std::string_view text) {
  const bool negative = text.starts_with('-');
  std::string_view digits = text;
  if (negative || text.starts_with('+')) digits.remove_prefix(1);
  const uint64_t sign = negative ? layout.SignBit() : 0;
  if (digits == "nan") return {sign | layout.QuietNan(), {}};
  if (digits == "inf") {
    if (!layout.has_infinity) return {0, "does not exist in this type"};
    return {sign | layout.TopExponent(), {}};
  }
  bool is_hex = false;
  digits = WithoutHexPrefix(digits, &is_hex);
  // std::from_chars would take a second sign and the words "infinity" and "nan".
  const unsigned char first = digits.empty() ? 0 : static_cast<unsigned char>(digits.front());
  if (first != '.' && (is_hex ? std::isxdigit(first) : std::isdigit(first)) == 0) return {0, "is not a number"};
  const auto format = is_hex ? std::chars_format::hex : std::chars_format::general;
  if (layout.type == DataType::kFp32) {  // straight to float: no double rounding of decimals
    float value = 0;
    if (const auto error = ReadAll(digits, &value, format); !error.empty()) return {0, error};
    return {sign | std::bit_cast<uint32_t>(value), {}};
  }
  double value = 0;
  if (const auto error = ReadAll(digits, &value, format); !error.empty()) return {0, error};
  if (layout.type == DataType::kFp64) return {sign | std::bit_cast<uint64_t>(value), {}};
  ParsedNumber encoded = EncodeFinite(layout, value);
  encoded.bits |= sign;
  return encoded;
}

bool IsSigned(DataType dtype) {
  switch (dtype) {
    case DataType::kInt4:
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64:
      return true;
    default:
      return false;
  }
}

uint64_t LowMask(int bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

ParsedNumber ParseInteger(DataType dtype, std::string_view text) {
  const bool negative = text.starts_with('-');
  std::string_view digits = text;
  if (negative || text.starts_with('+')) digits.remove_prefix(1);
  bool is_hex = false;
  digits = WithoutHexPrefix(digits, &is_hex);
  uint64_t magnitude = 0;
  if (digits.starts_with('-')) return {0, "is not an integer"};
  if (const auto error = ReadAll(digits, &magnitude, is_hex ? 16 : 10); !error.empty()) {
    return {0, error == "is not a number" ? "is not an integer" : error};
  }
  const int width = BitWidth(dtype);
  const uint64_t limit = IsSigned(dtype) ? LowMask(width - 1) : LowMask(width);
  if (negative ? magnitude > (IsSigned(dtype) ? limit + 1 : 0) : magnitude > limit) return {0, "is out of range"};
  return {(negative ? ~magnitude + 1 : magnitude) & LowMask(width), {}};
}

}  // namespace

std::string FormatNumber(DataType dtype, uint64_t bits) {
  if (const FloatLayout* layout = LayoutOf(dtype); layout != nullptr) return FormatFloat(*layout, bits);
  if (dtype == DataType::kBool) return (bits & 0xFF) != 0 ? "true" : "false";
  const int width = BitWidth(dtype);
  const uint64_t low = bits & LowMask(width);
  if (!IsSigned(dtype)) return std::to_string(low);
  const uint64_t sign = uint64_t{1} << (width - 1);
  return std::to_string(static_cast<int64_t>((low ^ sign) - sign));
}

ParsedNumber ParseNumber(DataType dtype, std::string_view text) {
  if (const FloatLayout* layout = LayoutOf(dtype); layout != nullptr) return ParseFloat(*layout, text);
  if (dtype == DataType::kBool) {
    if (text == "true" || text == "1") return {1, {}};
    if (text == "false" || text == "0") return {0, {}};
    return {0, "is neither true nor false"};
  }
  return ParseInteger(dtype, text);
}

ParsedNumber ParseNanPattern(DataType dtype, std::string_view text) {
  const FloatLayout* layout = LayoutOf(dtype);
  if (layout == nullptr) return {0, "is not a number"};
  bool is_hex = false;
  const std::string_view digits = WithoutHexPrefix(text, &is_hex);
  uint64_t bits = 0;
  if (!is_hex || !ReadAll(digits, &bits, 16).empty() || (bits & ~(layout->SignBit() | (layout->SignBit() - 1))) != 0 ||
      !layout->IsNan(bits)) {
    return {0, "is not the bit pattern of a NaN"};
  }
  return {bits, {}};
}

}  // namespace milwright
