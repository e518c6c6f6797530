// Regular expressions of tokenizer.json, which are written for Oniguruma (Ruby syntax), on PCRE2 with its JIT.
#ifndef MILWRIGHT_TOKENIZER_REGEX_H_
#define MILWRIGHT_TOKENIZER_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"

namespace milwright {

/// A half-open byte range of a text, and whether it matched (or lies between matches).
struct MatchSpan {
  size_t begin;
  size_t end;
  bool is_match;
};

/// The Oniguruma `pattern` in PCRE2 syntax with the same meaning. The two differ in \s, \w, \h and \u, in what (?m)
/// means, and in nested character classes and set intersection, which PCRE2 lacks: those are errors.
Result<std::string> TranslateOnigurumaPattern(std::string_view pattern);

/// Memory that matching needs; keep one per thread and reuse it.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(RegexScratch&&) noexcept;
  RegexScratch& operator=(RegexScratch&&) noexcept;

 private:
  friend class Regex;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A compiled pattern; immutable, so threads may share it.
class Regex {
 public:
  /// Compiles `pattern` (Oniguruma syntax, Unicode classes, ^ and $ match at every line as in Ruby).
  static Result<Regex> Compile(std::string_view pattern);

  /// Appends spans that cover `text` (well-formed UTF-8) in order: the leftmost matches that do not overlap, and what
  /// lies between them. An empty match directly behind a match is skipped; others give empty spans. Fails when the
  /// pattern backtracks past PCRE2's match limit.
  Status FindAll(std::string_view text, RegexScratch& scratch, std::vector<MatchSpan>& spans) const;

 private:
  struct Impl;
  explicit Regex(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_REGEX_H_
