#include "tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tokenizer/byte_level.h"
#include "tokenizer/text_pattern.h"
#include "tokenizer/unicode.h"

namespace milwright {
namespace {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
    {"Removed", SplitBehavior::kRemoved},
    {"Isolated", SplitBehavior::kIsolated},
    {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
    {"MergedWithNext", SplitBehavior::kMergedWithNext},
    {"Contiguous", SplitBehavior::kContiguous},
};

Result<SplitBehavior> ReadBehavior(const JsonReader& reader, std::string_view fallback) {
  MW_ASSIGN_OR_RETURN(const std::string text, reader.StringOr("behavior", fallback));
  for (const auto& [name, behavior] : kBehaviors) {
    if (name == text) return behavior;
  }
  return reader.Error(fmt::format("has the unknown behavior \"{}\"", text));
}

/// Joins and drops spans as `behavior` says; what is left are the words.
void ApplyBehavior(SplitBehavior behavior, std::vector<MatchSpan>& spans) {
  size_t kept = 0;
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(spans, [](const MatchSpan& span) { return span.is_match; });
      return;
    case SplitBehavior::kContiguous:
    case SplitBehavior::kMergedWithPrevious:
      for (size_t i = 0; i < spans.size(); ++i) {
        const bool is_match = spans[i].is_match;
        const bool joins =
            behavior == SplitBehavior::kContiguous ? is_match == previous_match : is_match && !previous_match;
        if (joins && kept > 0) {
          spans[kept - 1].end = spans[i].end;
        } else {
          spans[kept++] = spans[i];
        }
        previous_match = is_match;
      }
      spans.resize(kept);
      return;
    case SplitBehavior::kMergedWithNext:
      // The same from the back: what is kept is gathered at the end of the vector.
      kept = spans.size();
      for (size_t i = spans.size(); i-- > 0;) {
        const bool is_match = spans[i].is_match;
        if (is_match && !previous_match && kept < spans.size()) {
          spans[kept].begin = spans[i].begin;
        } else {
          spans[--kept] = spans[i];
        }
        previous_match = is_match;
      }
      spans.erase(spans.begin(), spans.begin() + static_cast<ptrdiff_t>(kept));
      return;
  }
}

/// Cuts every word at the matches of a pattern.
class SplitPreTokenizer : public PreTokenizer {
 public:
  SplitPreTokenizer(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Status Apply(PreTokenizedText& text, RegexScratch& scratch) const override {
    std::vector<Word> words;
    words.reserve(text.text.size() / 4);
    std::vector<MatchSpan> spans;
    for (const Word& word : text.words) {
      spans.clear();
      MW_RETURN_IF_ERROR(pattern_.FindAll(text.Get(word), scratch, spans));
      if (invert_) {
        for (MatchSpan& span : spans) span.is_match = !span.is_match;
      }
      ApplyBehavior(behavior_, spans);
      for (const MatchSpan& span : spans) {
        if (span.begin == span.end) continue;
        words.push_back({word.begin + span.begin, word.begin + span.end, word.at_origin && span.begin == 0});
      }
    }
    text.words = std::move(words);
    return Status::Ok();
  }

 private:
  TextPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

/// Rewrites every word: `append(word, out)` appends the new form.
template <typename Append>
void RewriteWords(PreTokenizedText& text, Append append) {
  std::string rewritten;
  rewritten.reserve(text.text.size() + text.text.size() / 4);
  for (Word& word : text.words) {
    const size_t begin = rewritten.size();
    append(word, text.Get(word), rewritten);
    word.begin = begin;
    word.end = rewritten.size();
  }
  text.text = std::move(rewritten);
}

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, std::unique_ptr<PreTokenizer> split)
      : add_prefix_space_(add_prefix_space), split_(std::move(split)) {}

  Status Apply(PreTokenizedText& text, RegexScratch& scratch) const override {
    if (add_prefix_space_) {
      RewriteWords(text, [](const Word&, std::string_view word, std::string& out) {
        if (!word.starts_with(' ')) out += ' ';
        out += word;
      });
    }
    if (split_ != nullptr) MW_RETURN_IF_ERROR(split_->Apply(text, scratch));
    RewriteWords(text, [](const Word&, std::string_view word, std::string& out) { AppendByteLevel(word, out); });
    return Status::Ok();
  }

 private:
  bool add_prefix_space_;
  std::unique_ptr<PreTokenizer> split_;  ///< null: no regex
};

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(MetaspaceOptions options)
      : options_(std::move(options)),
        split_(TextPattern(options_.replacement), SplitBehavior::kMergedWithNext, /*invert=*/false) {}

  Status Apply(PreTokenizedText& text, RegexScratch& scratch) const override {
    RewriteWords(text, [&](const Word& word, std::string_view old, std::string& out) {
      const bool wants_prefix =
          options_.scheme == PrependScheme::kAlways || (options_.scheme == PrependScheme::kFirst && word.at_origin);
      if (wants_prefix && !old.starts_with(' ') && !old.starts_with(options_.replacement)) out += options_.replacement;
      for (const char c : old) {
        if (c == ' ') {
          out += options_.replacement;
        } else {
          out += c;
        }
      }
    });
    return options_.split ? split_.Apply(text, scratch) : Status::Ok();
  }

 private:
  MetaspaceOptions options_;
  SplitPreTokenizer split_;
};

class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}

  Status Apply(PreTokenizedText& text, RegexScratch& scratch) const override {
    for (const auto& step : steps_) MW_RETURN_IF_ERROR(step->Apply(text, scratch));
    return Status::Ok();
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

using MadePreTokenizer = Result<std::unique_ptr<PreTokenizer>>;

MadePreTokenizer MakeSplitter(TextPattern pattern, SplitBehavior behavior, bool invert) {
  return std::unique_ptr<PreTokenizer>(std::make_unique<SplitPreTokenizer>(std::move(pattern), behavior, invert));
}

MadePreTokenizer MakeSplitterByRegex(std::string_view pattern, SplitBehavior behavior, bool invert) {
  MW_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern));
  return MakeSplitter(TextPattern(std::move(regex)), behavior, invert);
}

MadePreTokenizer MakeSplitPreTokenizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::FromJson(reader, "pattern"));
  MW_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(reader, ""));
  MW_ASSIGN_OR_RETURN(const bool invert, reader.BoolOr("invert", false));
  return MakeSplitter(std::move(pattern), behavior, invert);
}

MadePreTokenizer MakeByteLevelPreTokenizer(const JsonReader& reader) {
  // GPT-2's own pattern (openai/gpt-2 encoder.py).
  constexpr std::string_view kPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  MW_ASSIGN_OR_RETURN(const bool add_prefix_space, reader.BoolOr("add_prefix_space", true));
  MW_ASSIGN_OR_RETURN(const bool use_regex, reader.BoolOr("use_regex", true));
  std::unique_ptr<PreTokenizer> split;
  if (use_regex) {
    MW_ASSIGN_OR_RETURN(split, MakeSplitterByRegex(kPattern, SplitBehavior::kIsolated, /*invert=*/false));
  }
  return std::unique_ptr<PreTokenizer>(std::make_unique<ByteLevelPreTokenizer>(add_prefix_space, std::move(split)));
}

MadePreTokenizer MakeMetaspacePreTokenizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(MetaspaceOptions options, MetaspaceOptions::FromJson(reader));
  return std::unique_ptr<PreTokenizer>(std::make_unique<MetaspacePreTokenizer>(std::move(options)));
}

MadePreTokenizer MakeWhitespacePreTokenizer(const JsonReader&) {
  return MakeSplitterByRegex(R"([\w\x{200c}\x{200d}]+|[^\w\s\x{200c}\x{200d}]+)", SplitBehavior::kRemoved,
                             /*invert=*/true);
}

MadePreTokenizer MakeDigitsPreTokenizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const bool individual, reader.BoolOr("individual_digits", false));
  return MakeSplitter(TextPattern(IsNumeric), individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                      /*invert=*/false);
}

MadePreTokenizer MakePunctuationPreTokenizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(reader, "Isolated"));
  return MakeSplitter(TextPattern(IsPunctuation), behavior, /*invert=*/false);
}

MadePreTokenizer MakeCharDelimiterSplitPreTokenizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(std::string delimiter, reader.String("delimiter"));
  if (delimiter.empty()) return reader.Error("has an empty delimiter");
  return MakeSplitter(TextPattern(std::move(delimiter)), SplitBehavior::kRemoved, /*invert=*/false);
}

MadePreTokenizer MakeSequencePreTokenizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const std::vector<JsonReader> members, reader.Array("pretokenizers"));
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (const JsonReader& member : members) {
    MW_ASSIGN_OR_RETURN(std::unique_ptr<PreTokenizer> step, MakePreTokenizer(member));
    steps.push_back(std::move(step));
  }
  return std::unique_ptr<PreTokenizer>(std::make_unique<SequencePreTokenizer>(std::move(steps)));
}

using PreTokenizerMaker = MadePreTokenizer (*)(const JsonReader&);
constexpr std::pair<std::string_view, PreTokenizerMaker> kPreTokenizerMakers[] = {
    {"ByteLevel", MakeByteLevelPreTokenizer},
    {"Split", MakeSplitPreTokenizer},
    {"Metaspace", MakeMetaspacePreTokenizer},
    {"Whitespace", MakeWhitespacePreTokenizer},
    {"WhitespaceSplit",
     [](const JsonReader&) { return MakeSplitter(TextPattern(IsWhitespace), SplitBehavior::kRemoved, false); }},
    {"Digits", MakeDigitsPreTokenizer},
    {"Punctuation", MakePunctuationPreTokenizer},
    {"CharDelimiterSplit", MakeCharDelimiterSplitPreTokenizer},
    {"Sequence", MakeSequencePreTokenizer},
};

}  // namespace

Result<MetaspaceOptions> MetaspaceOptions::FromJson(const JsonReader& reader) {
  MetaspaceOptions options;
  MW_ASSIGN_OR_RETURN(options.replacement, reader.String("replacement"));
  if (options.replacement.empty() || options.replacement.size() != Utf8Length(options.replacement[0])) {
    return reader.Error("needs one character as replacement");
  }
  MW_ASSIGN_OR_RETURN(const std::string scheme, reader.StringOr("prepend_scheme", "always"));
  if (scheme == "first") {
    options.scheme = PrependScheme::kFirst;
  } else if (scheme == "never") {
    options.scheme = PrependScheme::kNever;
  } else if (scheme != "always") {
    return reader.Error(fmt::format("has the unknown prepend_scheme \"{}\"", scheme));
  }
  // Files of before prepend_scheme say add_prefix_space instead.
  MW_ASSIGN_OR_RETURN(const bool add_prefix_space, reader.BoolOr("add_prefix_space", true));
  if (!add_prefix_space) {
    if (reader.Has("prepend_scheme") && options.scheme != PrependScheme::kNever) {
      return reader.Error(fmt::format("has add_prefix_space false but prepend_scheme \"{}\"", scheme));
    }
    options.scheme = PrependScheme::kNever;
  }
  MW_ASSIGN_OR_RETURN(options.split, reader.BoolOr("split", true));
  return options;
}

Result<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const std::string type, reader.String("type"));
  for (const auto& [name, make] : kPreTokenizerMakers) {
    if (name == type) return make(reader);
  }
  return reader.Error(fmt::format("is a pre-tokenizer of type \"{}\", which is not supported", type));
}

}  // namespace milwright
