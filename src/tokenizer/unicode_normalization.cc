#include "tokenizer/unicode_normalization.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "tokenizer/unicode.h"

namespace milwright {
namespace {

bool Composes(NormalizationForm form) { return form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc; }
bool IsCompatibility(NormalizationForm form) {
  return form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd;
}

/// Characters that stay as they are and never combine with what stands before them. Below U+0300 everything is stable
/// under NFC; the Latin-1 letters decompose in the other forms. Unified ideographs never change.
bool IsPlain(char32_t c, NormalizationForm form) {
  if (c < (form == NormalizationForm::kNfc ? 0x300 : 0x80)) return true;
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF);
}

unsigned CombiningClass(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

/// Normalizes one stretch. utf8proc's own decomposition sorts marks by insertion, quadratic in their number, so the
/// canonical ordering is done here.
void NormalizeStretch(std::string_view text, NormalizationForm form, std::vector<utf8proc_int32_t>& buffer,
                      std::string& out) {
  auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  if (IsCompatibility(form)) options = static_cast<utf8proc_option_t>(options | UTF8PROC_COMPAT);
  buffer.clear();
  for (size_t position = 0; position < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(NextCodePoint(text, position));
    // 18 is the longest decomposition of one character (U+FDFA under NFKD).
    utf8proc_int32_t parts[32];
    int boundary_class = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(c, parts, 32, options, &boundary_class);
    if (count < 0 || count > 32) {
      buffer.push_back(c);
    } else {
      buffer.insert(buffer.end(), parts, parts + count);
    }
  }
  for (size_t i = 0; i < buffer.size();) {
    if (CombiningClass(buffer[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < buffer.size() && CombiningClass(buffer[end]) != 0) ++end;
    std::stable_sort(buffer.begin() + static_cast<ptrdiff_t>(i), buffer.begin() + static_cast<ptrdiff_t>(end),
                     [](utf8proc_int32_t a, utf8proc_int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    i = end;
  }
  auto length = static_cast<utf8proc_ssize_t>(buffer.size());
  if (Composes(form)) {
    const auto compose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    length = utf8proc_normalize_utf32(buffer.data(), length, compose);
  }
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    AppendUtf8(static_cast<char32_t>(buffer[static_cast<size_t>(i)]), out);
  }
}

}  // namespace

std::string NormalizeUnicode(std::string_view text, NormalizationForm form) {
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> buffer;
  size_t copied = 0;      // everything before is in `out`
  size_t last_plain = 0;  // where the last plain character starts: marks behind it may combine with it
  size_t position = 0;
  while (position < text.size()) {
    const size_t begin = position;
    if (IsPlain(NextCodePoint(text, position), form)) {
      last_plain = begin;
      continue;
    }
    // A stretch that may change: from the plain character before to the plain character behind.
    size_t end = position;
    while (end < text.size()) {
      size_t next = end;
      if (IsPlain(NextCodePoint(text, next), form)) break;
      end = next;
    }
    const size_t stretch = std::max(last_plain, copied);
    out += text.substr(copied, stretch - copied);
    NormalizeStretch(text.substr(stretch, end - stretch), form, buffer, out);
    copied = position = last_plain = end;
  }
  out += text.substr(copied);
  return out;
}

}  // namespace milwright
