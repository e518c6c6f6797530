#include "tokenizer/text_pattern.h"

#include "tokenizer/unicode.h"

namespace milwright {
namespace {

/// Appends what covers `text`: the matches [begin, end) as `next(from)` finds them, and what lies between.
template <typename Next>
void Cover(std::string_view text, Next next, std::vector<MatchSpan>& spans) {
  size_t covered = 0;
  for (std::pair<size_t, size_t> match = next(0); match.first < text.size(); match = next(covered)) {
    if (match.first != covered) spans.push_back({covered, match.first, false});
    spans.push_back({match.first, match.second, true});
    covered = match.second;
  }
  if (covered != text.size()) spans.push_back({covered, text.size(), false});
}

}  // namespace

Result<TextPattern> TextPattern::FromJson(const JsonReader& reader, std::string_view key) {
  MW_ASSIGN_OR_RETURN(const JsonReader pattern, reader.Get(key));
  if (pattern.Has("String")) {
    MW_ASSIGN_OR_RETURN(std::string literal, pattern.String("String"));
    if (literal.empty()) return pattern.Error("is an empty string");
    return TextPattern(std::move(literal));
  }
  if (pattern.Has("Regex")) {
    MW_ASSIGN_OR_RETURN(const std::string source, pattern.String("Regex"));
    Result<Regex> regex = Regex::Compile(source);
    if (!regex.ok()) return regex.status().WithContext(pattern.where());
    return TextPattern(*std::move(regex));
  }
  return pattern.Error("must be {\"String\": ...} or {\"Regex\": ...}");
}

Status TextPattern::FindAll(std::string_view text, RegexScratch& scratch, std::vector<MatchSpan>& spans) const {
  if (const Regex* regex = std::get_if<Regex>(&pattern_)) return regex->FindAll(text, scratch, spans);
  if (const std::string* literal = std::get_if<std::string>(&pattern_)) {
    Cover(
        text,
        [&](size_t from) {
          const size_t begin = text.find(*literal, from);
          return std::pair<size_t, size_t>(begin, begin + literal->size());
        },
        spans);
    return Status::Ok();
  }
  const auto matches = std::get<CharacterClass>(pattern_);
  Cover(
      text,
      [&](size_t from) {
        size_t end = from;
        while (end < text.size()) {
          const size_t begin = end;
          if (matches(NextCodePoint(text, end))) return std::pair<size_t, size_t>(begin, end);
        }
        return std::pair<size_t, size_t>(text.size(), text.size());
      },
      spans);
  return Status::Ok();
}

Result<std::string> ReplaceAll(const TextPattern& pattern, std::string_view text, std::string_view replacement) {
  RegexScratch scratch;
  std::vector<MatchSpan> spans;
  MW_RETURN_IF_ERROR(pattern.FindAll(text, scratch, spans));
  std::string out;
  out.reserve(text.size());
  for (const MatchSpan& span : spans) {
    out += span.is_match ? replacement : text.substr(span.begin, span.end - span.begin);
  }
  return out;
}

}  // namespace milwright
