// The four Unicode normalization forms, in time linear in the text but for the sort of long runs of marks.
#ifndef MILWRIGHT_TOKENIZER_UNICODE_NORMALIZATION_H_
#define MILWRIGHT_TOKENIZER_UNICODE_NORMALIZATION_H_

#include <string>
#include <string_view>

namespace milwright {

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };

/// `text` (well-formed UTF-8) in normalization form `form` (Unicode Standard Annex 15).
std::string NormalizeUnicode(std::string_view text, NormalizationForm form);

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_UNICODE_NORMALIZATION_H_
