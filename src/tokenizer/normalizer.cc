#include "tokenizer/normalizer.h"

#include <fmt/format.h>

#include <functional>
#include <utility>
#include <vector>

#include "tokenizer/byte_level.h"
#include "tokenizer/precompiled_charsmap.h"
#include "tokenizer/text_pattern.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_normalization.h"

namespace milwright {
namespace {

/// A normalizer that rewrites the whole text and keeps its first character where it was.
class TextNormalizer : public Normalizer {
 public:
  using Rewrite = std::function<std::string(std::string_view)>;
  explicit TextNormalizer(Rewrite rewrite) : rewrite_(std::move(rewrite)) {}

  Status Apply(NormalizedText& piece) const override {
    piece.text = rewrite_(piece.text);
    return Status::Ok();
  }

 private:
  Rewrite rewrite_;
};

Result<std::unique_ptr<Normalizer>> MakeRewriter(TextNormalizer::Rewrite rewrite) {
  return std::unique_ptr<Normalizer>(std::make_unique<TextNormalizer>(std::move(rewrite)));
}

Result<std::unique_ptr<Normalizer>> MakeForm(NormalizationForm form) {
  return MakeRewriter([form](std::string_view text) { return NormalizeUnicode(text, form); });
}

std::string Lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) AppendLowercase(NextCodePoint(text, position), out);
  return out;
}

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}

  Status Apply(NormalizedText& piece) const override {
    const std::string& text = piece.text;
    size_t begin = 0;
    while (left_ && begin < text.size()) {
      size_t next = begin;
      if (!IsWhitespace(NextCodePoint(text, next))) break;
      begin = next;
    }
    size_t end = text.size();
    while (right_ && end > begin) {
      size_t previous = end;
      if (!IsWhitespace(PreviousCodePoint(text, end, previous))) break;
      end = previous;
    }
    if (begin > 0) piece.at_origin = false;
    piece.text = text.substr(begin, end - begin);
    return Status::Ok();
  }

 private:
  bool left_;
  bool right_;
};

/// Keeps the characters for which `map` gives a character.
class FilterNormalizer : public Normalizer {
 public:
  using Map = bool (*)(char32_t& c);
  explicit FilterNormalizer(Map map) : map_(map) {}

  Status Apply(NormalizedText& piece) const override {
    std::string out;
    out.reserve(piece.text.size());
    for (size_t position = 0; position < piece.text.size();) {
      char32_t c = NextCodePoint(piece.text, position);
      if (map_(c)) {
        AppendUtf8(c, out);
      } else if (out.empty()) {
        piece.at_origin = false;
      }
    }
    piece.text = std::move(out);
    return Status::Ok();
  }

 private:
  Map map_;
};

bool KeepUnlessMark(char32_t& c) { return !IsMark(c); }

/// SentencePiece's "nmt" rule: control characters go, separators and zero-width characters become spaces.
bool MapNmt(char32_t& c) {
  if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) {
    return false;
  }
  if (c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
      c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD) {
    c = ' ';
  }
  return true;
}

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Status Apply(NormalizedText& piece) const override {
    RegexScratch scratch;
    std::vector<MatchSpan> spans;
    MW_RETURN_IF_ERROR(pattern_.FindAll(piece.text, scratch, spans));
    std::string out;
    out.reserve(piece.text.size());
    for (const MatchSpan& span : spans) {
      const std::string_view part = std::string_view(piece.text).substr(span.begin, span.end - span.begin);
      if (!span.is_match) {
        out += part;
        continue;
      }
      // The replacement counts as coming from the last character that it replaces.
      const bool one_character = !part.empty() && part.size() == Utf8Length(part[0]);
      if (span.begin == 0 && !part.empty() && (content_.empty() || !one_character)) piece.at_origin = false;
      out += content_;
    }
    piece.text = std::move(out);
    return Status::Ok();
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}

  Status Apply(NormalizedText& piece) const override {
    for (const auto& step : steps_) MW_RETURN_IF_ERROR(step->Apply(piece));
    return Status::Ok();
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

Result<std::unique_ptr<Normalizer>> MakeSequenceNormalizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const std::vector<JsonReader> members, reader.Array("normalizers"));
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (const JsonReader& member : members) {
    MW_ASSIGN_OR_RETURN(std::unique_ptr<Normalizer> step, MakeNormalizer(member));
    steps.push_back(std::move(step));
  }
  return std::unique_ptr<Normalizer>(std::make_unique<SequenceNormalizer>(std::move(steps)));
}

Result<std::unique_ptr<Normalizer>> MakePrependNormalizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(std::string prefix, reader.String("prepend"));
  return MakeRewriter([prefix = std::move(prefix)](std::string_view text) {
    return text.empty() ? std::string() : prefix + std::string(text);
  });
}

Result<std::unique_ptr<Normalizer>> MakeReplaceNormalizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::FromJson(reader, "pattern"));
  MW_ASSIGN_OR_RETURN(std::string content, reader.String("content"));
  return std::unique_ptr<Normalizer>(std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content)));
}

Result<std::unique_ptr<Normalizer>> MakeStripNormalizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const bool left, reader.Bool("strip_left"));
  MW_ASSIGN_OR_RETURN(const bool right, reader.Bool("strip_right"));
  return std::unique_ptr<Normalizer>(std::make_unique<StripNormalizer>(left, right));
}

Result<std::unique_ptr<Normalizer>> MakePrecompiledNormalizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const std::string base64, reader.String("precompiled_charsmap"));
  Result<PrecompiledCharsmap> map = PrecompiledCharsmap::Decode(base64);
  if (!map.ok()) return reader.Error(fmt::format("precompiled_charsmap {}", map.status().message()));
  return MakeRewriter([map = *std::move(map)](std::string_view text) { return map.Normalize(text); });
}

Result<std::unique_ptr<Normalizer>> MakeByteLevelNormalizer(const JsonReader&) {
  return MakeRewriter([](std::string_view text) {
    std::string out;
    AppendByteLevel(text, out);
    return out;
  });
}

using NormalizerMaker = Result<std::unique_ptr<Normalizer>> (*)(const JsonReader&);
constexpr std::pair<std::string_view, NormalizerMaker> kNormalizerMakers[] = {
    {"NFC", [](const JsonReader&) { return MakeForm(NormalizationForm::kNfc); }},
    {"NFD", [](const JsonReader&) { return MakeForm(NormalizationForm::kNfd); }},
    {"NFKC", [](const JsonReader&) { return MakeForm(NormalizationForm::kNfkc); }},
    {"NFKD", [](const JsonReader&) { return MakeForm(NormalizationForm::kNfkd); }},
    {"Lowercase", [](const JsonReader&) { return MakeRewriter(Lowercase); }},
    {"StripAccents",
     [](const JsonReader&) -> Result<std::unique_ptr<Normalizer>> {
       return std::unique_ptr<Normalizer>(std::make_unique<FilterNormalizer>(KeepUnlessMark));
     }},
    {"Nmt",
     [](const JsonReader&) -> Result<std::unique_ptr<Normalizer>> {
       return std::unique_ptr<Normalizer>(std::make_unique<FilterNormalizer>(MapNmt));
     }},
    {"Strip", MakeStripNormalizer},
    {"Prepend", MakePrependNormalizer},
    {"Replace", MakeReplaceNormalizer},
    {"Precompiled", MakePrecompiledNormalizer},
    {"ByteLevel", MakeByteLevelNormalizer},
    {"Sequence", MakeSequenceNormalizer},
};

}  // namespace

Result<std::unique_ptr<Normalizer>> MakeNormalizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const std::string type, reader.String("type"));
  for (const auto& [name, make] : kNormalizerMakers) {
    if (name == type) return make(reader);
  }
  return reader.Error(fmt::format("is a normalizer of type \"{}\", which is not supported", type));
}

}  // namespace milwright
