#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <optional>
#include <utility>

#include "tokenizer/unicode.h"

namespace milwright {
namespace {

constexpr size_t kMaxPatternLength = size_t{64} << 10U;
constexpr size_t kMinJitStack = size_t{64} << 10U;
constexpr size_t kMaxJitStack = size_t{64} << 20U;

/// The members of a class escape that PCRE2 reads otherwise, to stand inside [...], and those of its complement.
struct ClassEscape {
  char letter;
  std::string_view members;
  std::string_view complement;
};

// White_Space without U+180E, which PCRE2 counts as a space; word characters as in Oniguruma's Unicode tables
// (Alphabetic, M, Nd, Pc), of which PCRE2 10.42 leaves out M and Pc; \h is a hexadecimal digit in Ruby.
constexpr ClassEscape kClassEscapes[] = {
    {'s', R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})",
     R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
     R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})"},
    {'w', R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})",
     ""},
    {'h', R"(0-9A-Fa-f)", R"(\x{0}-/:-@G-`g-\x{10ffff})"},
};

const ClassEscape* FindClassEscape(char letter) {
  for (const ClassEscape& escape : kClassEscapes) {
    if (escape.letter == (letter | 0x20)) return &escape;
  }
  return nullptr;
}

/// Walks an Oniguruma pattern and writes its PCRE2 form.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Run() {
    while (position_ < pattern_.size()) {
      const char c = pattern_[position_];
      if (c == '\\') {
        MW_RETURN_IF_ERROR(Escape(/*in_class=*/false));
      } else if (c == '[') {
        MW_RETURN_IF_ERROR(Class());
      } else if (c == '(' && Rest().starts_with("(?")) {
        InlineFlags();
      } else if (c == '}' && Rest().starts_with("}+")) {
        return Error("'}+' repeats the interval in Ruby and is possessive elsewhere");
      } else {
        Copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::string_view Rest() const { return pattern_.substr(position_); }

  void Copy(size_t count) {
    out_ += pattern_.substr(position_, count);
    position_ += count;
  }

  [[nodiscard]] Status Error(std::string_view message) const {
    return {ErrorCode::kUnreadable, fmt::format("pattern \"{}\" at byte {}: {}", pattern_, position_, message)};
  }

  Status Escape(bool in_class) {
    if (position_ + 1 == pattern_.size()) return Error("ends in a backslash");
    const char letter = pattern_[position_ + 1];
    if (letter == 'u') {
      out_ += fmt::format("\\x{{{}}}", pattern_.substr(position_ + 2, 4));
      position_ += 6;
      if (position_ > pattern_.size()) return Error("\\u needs four digits");
      return Status::Ok();
    }
    const ClassEscape* escape = FindClassEscape(letter);
    if (escape == nullptr) {
      Copy(2);
      const bool may_have_braces = letter == 'p' || letter == 'P' || letter == 'x';
      if (may_have_braces && Rest().starts_with('{')) Copy(Rest().find('}') + 1);  // PCRE2 complains if there is no }
      return Status::Ok();
    }
    const bool negated = letter < 'a';
    if (!in_class) {
      out_ += fmt::format("[{}{}]", negated ? "^" : "", escape->members);
    } else if (!negated) {
      out_ += escape->members;
    } else if (!escape->complement.empty()) {
      out_ += escape->complement;
    } else {
      return Error(fmt::format("\\{} inside a character class is not supported", letter));
    }
    position_ += 2;
    return Status::Ok();
  }

  Status Class() {
    Copy(1);
    if (Rest().starts_with('^')) Copy(1);
    if (Rest().starts_with(']')) {  // a literal bracket
      out_ += "\\]";
      ++position_;
    }
    while (position_ < pattern_.size()) {
      const char c = pattern_[position_];
      if (c == ']') {
        Copy(1);
        return Status::Ok();
      }
      if (c == '\\') {
        MW_RETURN_IF_ERROR(Escape(/*in_class=*/true));
      } else if (Rest().starts_with("[:")) {
        const size_t end = Rest().find(":]");
        if (end == std::string_view::npos) return Error("unterminated [: in a character class");
        Copy(end + 2);
      } else if (c == '[') {
        return Error("nested character classes are not supported");
      } else if (Rest().starts_with("&&")) {
        return Error("intersections of character classes are not supported");
      } else {
        Copy(1);
      }
    }
    return Error("unterminated character class");
  }

  /// "(?imx-imx:" or "(?imx)": Ruby's m lets the dot match newlines, which PCRE2 calls s. Other groups pass unchanged.
  void InlineFlags() {
    const size_t end = pattern_.find_first_not_of("imx-", position_ + 2);
    if (end == std::string_view::npos || (pattern_[end] != ':' && pattern_[end] != ')')) {
      Copy(2);
      return;
    }
    for (const char c : pattern_.substr(position_, end - position_)) out_ += c == 'm' ? 's' : c;
    position_ = end;
  }

  std::string_view pattern_;
  size_t position_ = 0;
  std::string out_;
};

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct CompileContextFree {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct MatchDataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct JitStackFree {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

std::string ErrorText(int code) {
  char buffer[256];
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(buffer), sizeof(buffer));
  return buffer;
}

}  // namespace

Result<std::string> TranslateOnigurumaPattern(std::string_view pattern) { return Translator(pattern).Run(); }

struct RegexScratch::Impl {
  std::unique_ptr<pcre2_match_data, MatchDataFree> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_jit_stack, JitStackFree> stack;  ///< made when the machine stack was too small
  std::unique_ptr<pcre2_match_context, MatchContextFree> context{pcre2_match_context_create(nullptr)};
};

RegexScratch::RegexScratch() : impl_(std::make_unique<Impl>()) {}
RegexScratch::~RegexScratch() = default;
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch& RegexScratch::operator=(RegexScratch&&) noexcept = default;

struct Regex::Impl {
  std::string pattern;
  std::unique_ptr<pcre2_code, CodeFree> code;

  /// The first match at or behind `from`, or nullopt.
  Result<std::optional<std::pair<size_t, size_t>>> Search(std::string_view text, size_t from,
                                                          RegexScratch::Impl& scratch) const {
    const auto match = [&] {
      return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK,
                         scratch.data.get(), scratch.context.get());
    };
    int count = match();
    if (count == PCRE2_ERROR_JIT_STACKLIMIT && scratch.stack == nullptr) {
      scratch.stack.reset(pcre2_jit_stack_create(kMinJitStack, kMaxJitStack, nullptr));
      pcre2_jit_stack_assign(scratch.context.get(), nullptr, scratch.stack.get());
      count = match();
    }
    if (count == PCRE2_ERROR_NOMATCH) return std::optional<std::pair<size_t, size_t>>();
    if (count < 0) {
      return Status(ErrorCode::kRuntime, fmt::format("pattern \"{}\" at byte {}: {}", pattern, from, ErrorText(count)));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch.data.get());
    return std::make_optional(std::pair<size_t, size_t>(range[0], range[1]));
  }
};

Result<Regex> Regex::Compile(std::string_view pattern) {
  MW_ASSIGN_OR_RETURN(const std::string translated, TranslateOnigurumaPattern(pattern));
  const std::unique_ptr<pcre2_compile_context, CompileContextFree> context(pcre2_compile_context_create(nullptr));
  pcre2_set_max_pattern_length(context.get(), kMaxPatternLength);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  auto impl = std::make_shared<Impl>();
  impl->pattern = pattern;
  impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                 &error_offset, context.get()));
  if (impl->code == nullptr) {
    return Status(ErrorCode::kUnreadable, fmt::format("pattern \"{}\": {} at byte {} of its PCRE2 form", pattern,
                                                      ErrorText(error), error_offset));
  }
  // Where the JIT is not available, or cannot do this pattern, pcre2_match interprets it.
  pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE);
  return Regex(std::move(impl));
}

Status Regex::FindAll(std::string_view text, RegexScratch& scratch, std::vector<MatchSpan>& spans) const {
  size_t from = 0;       // where the next search starts
  size_t covered = 0;    // the end of the last span
  bool matched = false;  // whether a match ends at `covered`
  while (from <= text.size()) {
    MW_ASSIGN_OR_RETURN(const auto match, impl_->Search(text, from, *scratch.impl_));
    if (!match) break;
    const auto [begin, end] = *match;
    if (begin == end && matched && begin == covered) {
      from += from < text.size() ? Utf8Length(text[from]) : 1;
      continue;
    }
    if (begin != covered) spans.push_back({covered, begin, false});
    spans.push_back({begin, end, true});
    from = covered = end;
    matched = true;
  }
  if (covered != text.size()) spans.push_back({covered, text.size(), false});
  return Status::Ok();
}

}  // namespace milwright
