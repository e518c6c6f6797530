#include "tokenizer/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tokenizer/byte_level.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text_pattern.h"
#include "tokenizer/unicode.h"

namespace milwright {
namespace {

/// A step that needs the whole token.
class WholeTokenStep : public DecodeStep {
 public:
  Status Part(std::string_view text) final {
    token_ += text;
    return Status::Ok();
  }
  Status EndToken() final {
    const std::string token = std::exchange(token_, {});
    return Token(token);
  }

 protected:
  virtual Status Token(std::string_view token) = 0;

  Status Emit(std::string_view token) {
    MW_RETURN_IF_ERROR(next().Part(token));
    return next().EndToken();
  }

 private:
  std::string token_;
};

/// Joins the tokens with spaces, as if all were one.
class JoinStep : public DecodeStep {
 public:
  Status Part(std::string_view text) override {
    if (std::exchange(between_, false)) MW_RETURN_IF_ERROR(next().Part(" "));
    return next().Part(text);
  }
  Status EndToken() override {
    between_ = true;
    return Status::Ok();
  }

 private:
  bool between_ = false;
};

/// Tokens of the byte-level alphabet: one token of all their bytes, as UTF-8.
class ByteLevelStep : public WholeTokenStep {
 public:
  Status Finish() override {
    std::string text;
    utf8_.Finish(text);
    MW_RETURN_IF_ERROR(Emit(text));
    return next().Finish();
  }

 protected:
  Status Token(std::string_view token) override {
    std::string text;
    utf8_.Push(ByteLevelTokenBytes(token), text);
    return text.empty() ? Status::Ok() : next().Part(text);
  }

 private:
  LossyUtf8Decoder utf8_;
};

/// Tokens "<0x41>" stand for bytes. A run of them that is UTF-8 becomes a token; of any other run, every byte becomes
/// U+FFFD. So the run must end before its text is certain.
class ByteFallbackStep : public WholeTokenStep {
 public:
  Status Finish() override {
    MW_RETURN_IF_ERROR(EndRun());
    return next().Finish();
  }

 protected:
  Status Token(std::string_view token) override {
    if (const std::optional<char> byte = ByteOf(token)) {
      run_ += *byte;
      return Status::Ok();
    }
    MW_RETURN_IF_ERROR(EndRun());
    return Emit(token);
  }

 private:
  static std::optional<char> ByteOf(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    int value = 0;
    for (const char c : token.substr(3, 2)) {
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        value = value * 16 + (c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value * 16 + (lower - 'a' + 10);
      } else {
        return std::nullopt;
      }
    }
    return static_cast<char>(value);
  }

  Status EndRun() {
    const std::string run = std::exchange(run_, {});
    if (run.empty()) return Status::Ok();
    if (!FindInvalidUtf8(run)) return Emit(run);
    for (size_t i = 0; i < run.size(); ++i) MW_RETURN_IF_ERROR(Emit(kReplacementCharacter));
    return Status::Ok();
  }

  std::string run_;
};

/// Makes one token of all.
class FuseStep : public DecodeStep {
 public:
  Status Part(std::string_view text) override { return next().Part(text); }
  Status EndToken() override { return Status::Ok(); }
  Status Finish() override {
    MW_RETURN_IF_ERROR(next().EndToken());
    return next().Finish();
  }
};

/// Removes up to `start` leading and `stop` trailing characters `content` of every token.
class StripStep : public DecodeStep {
 public:
  StripStep(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop), leading_(start) {}

  Status Part(std::string_view text) override {
    while (leading_ > 0 && text.starts_with(content_)) {
      text.remove_prefix(content_.size());
      --leading_;
    }
    if (text.empty()) return Status::Ok();
    leading_ = 0;
    held_ += text;
    // What may be the trailing characters stays behind.
    size_t end = held_.size();
    for (int64_t i = 0; i < stop_ && std::string_view(held_).substr(0, end).ends_with(content_); ++i) {
      end -= content_.size();
    }
    MW_RETURN_IF_ERROR(next().Part(std::string_view(held_).substr(0, end)));
    held_.erase(0, end);
    return Status::Ok();
  }

  Status EndToken() override {
    leading_ = start_;
    held_.clear();
    return next().EndToken();
  }

 private:
  std::string content_;  ///< one character
  int64_t start_;
  int64_t stop_;
  int64_t leading_;   ///< how many leading characters of the current token may still go
  std::string held_;  ///< trailing characters that go if the token ends here
};

/// Replaces a literal string within every token.
class ReplaceStringStep : public DecodeStep {
 public:
  ReplaceStringStep(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Status Part(std::string_view text) override {
    held_ += text;
    std::string out;
    size_t position = 0;
    for (size_t found = held_.find(pattern_); found != std::string::npos; found = held_.find(pattern_, position)) {
      out.append(held_, position, found - position);
      out += content_;
      position = found + pattern_.size();
    }
    // The longest end that may be the start of a match stays behind.
    const std::string_view rest = std::string_view(held_).substr(position);
    size_t keep = std::min(rest.size(), pattern_.size() - 1);
    while (!rest.ends_with(std::string_view(pattern_).substr(0, keep))) --keep;
    out += rest.substr(0, rest.size() - keep);
    held_ = rest.substr(rest.size() - keep);
    return out.empty() ? Status::Ok() : next().Part(out);
  }

  Status EndToken() override {
    if (!held_.empty()) MW_RETURN_IF_ERROR(next().Part(std::exchange(held_, {})));
    return next().EndToken();
  }

 private:
  std::string pattern_;  ///< not empty
  std::string content_;
  std::string held_;
};

class ReplaceRegexStep : public WholeTokenStep {
 public:
  ReplaceRegexStep(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

 protected:
  Status Token(std::string_view token) override {
    MW_ASSIGN_OR_RETURN(const std::string replaced, ReplaceAll(pattern_, token, content_));
    return Emit(replaced);
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

/// The replacement character becomes a space; in the first token it goes, unless none was prepended.
class MetaspaceStep : public DecodeStep {
 public:
  explicit MetaspaceStep(MetaspaceOptions options)
      : replacement_(std::move(options.replacement)), drop_(options.scheme != PrependScheme::kNever) {}

  Status Part(std::string_view text) override {
    std::string out;
    size_t position = 0;
    for (size_t found = text.find(replacement_); found != std::string_view::npos;
         found = text.find(replacement_, position)) {
      out += text.substr(position, found - position);
      if (!drop_) out += ' ';
      position = found + replacement_.size();
    }
    out += text.substr(position);
    return next().Part(out);
  }

  Status EndToken() override {
    drop_ = false;
    return next().EndToken();
  }

 private:
  std::string replacement_;
  bool drop_;
};

/// The end-of-word suffix becomes a space, but nothing in the last token; so one token is held back.
class BpeSuffixStep : public WholeTokenStep {
 public:
  explicit BpeSuffixStep(std::string suffix) : pattern_(TextPattern(std::move(suffix))) {}

  Status Finish() override {
    if (held_) MW_RETURN_IF_ERROR(EmitReplaced(*held_, ""));
    return next().Finish();
  }

 protected:
  Status Token(std::string_view token) override {
    const std::optional<std::string> previous = std::exchange(held_, std::string(token));
    return previous ? EmitReplaced(*previous, " ") : Status::Ok();
  }

 private:
  Status EmitReplaced(std::string_view token, std::string_view replacement) {
    MW_ASSIGN_OR_RETURN(const std::string replaced, ReplaceAll(pattern_, token, replacement));
    return Emit(replaced);
  }

  TextPattern pattern_;
  std::optional<std::string> held_;
};

using MadeDecoder = Result<std::vector<Decoder::StepMaker>>;

template <typename Step, typename... Args>
MadeDecoder MakeSteps(Args... args) {
  return std::vector<Decoder::StepMaker>{[args...] { return std::make_unique<Step>(args...); }};
}

MadeDecoder MakeStripDecoder(const JsonReader& reader) {
  constexpr int64_t kMaxCount = 1 << 20;
  MW_ASSIGN_OR_RETURN(const std::string content, reader.String("content"));
  if (content.empty() || Utf8Length(content[0]) != content.size())
    return reader.Error("needs one character as content");
  MW_ASSIGN_OR_RETURN(const int64_t start, reader.Int("start", 0, kMaxCount));
  MW_ASSIGN_OR_RETURN(const int64_t stop, reader.Int("stop", 0, kMaxCount));
  return MakeSteps<StripStep>(content, start, stop);
}

MadeDecoder MakeReplaceDecoder(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const TextPattern pattern, TextPattern::FromJson(reader, "pattern"));
  MW_ASSIGN_OR_RETURN(const std::string content, reader.String("content"));
  if (const std::string* literal = pattern.literal()) return MakeSteps<ReplaceStringStep>(*literal, content);
  return MakeSteps<ReplaceRegexStep>(pattern, content);
}

MadeDecoder MakeMetaspaceDecoder(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const MetaspaceOptions options, MetaspaceOptions::FromJson(reader));
  return MakeSteps<MetaspaceStep>(options);
}

MadeDecoder MakeBpeDecoder(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const std::string suffix, reader.StringOr("suffix", "</w>"));
  if (suffix.empty()) return reader.Error("has an empty suffix");
  return MakeSteps<BpeSuffixStep>(suffix);
}

MadeDecoder MakeDecoder(const JsonReader& reader);

MadeDecoder MakeSequenceDecoder(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const std::vector<JsonReader> members, reader.Array("decoders"));
  std::vector<Decoder::StepMaker> steps;
  for (const JsonReader& member : members) {
    MW_ASSIGN_OR_RETURN(const std::vector<Decoder::StepMaker> inner, MakeDecoder(member));
    steps.insert(steps.end(), inner.begin(), inner.end());
  }
  return steps;
}

using DecoderMaker = MadeDecoder (*)(const JsonReader&);
constexpr std::pair<std::string_view, DecoderMaker> kDecoderMakers[] = {
    {"ByteLevel", [](const JsonReader&) { return MakeSteps<ByteLevelStep>(); }},
    {"ByteFallback", [](const JsonReader&) { return MakeSteps<ByteFallbackStep>(); }},
    {"Fuse", [](const JsonReader&) { return MakeSteps<FuseStep>(); }},
    {"Strip", MakeStripDecoder},
    {"Replace", MakeReplaceDecoder},
    {"Metaspace", MakeMetaspaceDecoder},
    {"BPEDecoder", MakeBpeDecoder},
    {"Sequence", MakeSequenceDecoder},
};

MadeDecoder MakeDecoder(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const std::string type, reader.String("type"));
  for (const auto& [name, make] : kDecoderMakers) {
    if (name == type) return make(reader);
  }
  return reader.Error(fmt::format("is a decoder of type \"{}\", which is not supported", type));
}

}  // namespace

/// The end of the steps: collects text.
class DecodeRun::Sink : public DecodeStep {
 public:
  Status Part(std::string_view text) override {
    text_ += text;
    return Status::Ok();
  }
  Status EndToken() override { return Status::Ok(); }
  Status Finish() override { return Status::Ok(); }

  std::string Take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

Decoder::Decoder() : makers_{[] { return std::make_unique<JoinStep>(); }} {}

Result<Decoder> Decoder::FromJson(const JsonReader& reader) {
  Decoder decoder;
  MW_ASSIGN_OR_RETURN(decoder.makers_, MakeDecoder(reader));
  return decoder;
}

DecodeRun::DecodeRun(const Decoder& decoder) : sink_(std::make_shared<Sink>()) {
  for (const Decoder::StepMaker& make : decoder.makers_) {
    std::unique_ptr<DecodeStep> step = make();
    if (!steps_.empty()) steps_.back()->set_next(step.get());
    steps_.push_back(std::move(step));
  }
  if (!steps_.empty()) steps_.back()->set_next(sink_.get());
}

Status DecodeRun::Push(std::string_view token, std::string& out) {
  DecodeStep& first = steps_.empty() ? *sink_ : *steps_.front();
  MW_RETURN_IF_ERROR(first.Part(token));
  MW_RETURN_IF_ERROR(first.EndToken());
  out += sink_->Take();
  return Status::Ok();
}

Status DecodeRun::Finish(std::string& out) {
  DecodeStep& first = steps_.empty() ? *sink_ : *steps_.front();
  MW_RETURN_IF_ERROR(first.Finish());
  out += sink_->Take();
  return Status::Ok();
}

}  // namespace milwright
