// A small Jinja interpreter, for chat templates.
//
// It covers the statements if, for (with else, a condition, "recursive"), set (also of namespaces and as a block),
// macro, call, filter, with, break, continue, generation and raw; all expressions; and the filters, tests, methods and
// functions listed in the jinja_*.cc files. Semantics are those of Python's jinja2 3.1 in the sandbox that Hugging
// Face's `transformers` sets up: trim_blocks, lstrip_blocks, objects that cannot be changed. Integers have 64 bits.
#ifndef MILWRIGHT_TOKENIZER_JINJA_H_
#define MILWRIGHT_TOKENIZER_JINJA_H_

#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "milwright/status.h"

namespace milwright {

/// What one rendering may cost. The default is far above any chat template; it ends an endless one within seconds.
struct JinjaLimits {
  int64_t steps = 5'000'000;            ///< evaluated nodes and comparisons
  int64_t bytes = int64_t{512} << 20U;  ///< text and lists made, also on the way
};

/// A parsed template; immutable, copies share it.
class JinjaTemplate {
 public:
  /// `name` stands for the template in errors, which also name the line.
  static Result<JinjaTemplate> Parse(std::string_view source, std::string_view name);

  using Variables = std::vector<std::pair<std::string, nlohmann::ordered_json>>;

  /// Renders with `variables`; `now` is what strftime_now tells. raise_exception in the template gives an error of code
  /// kUsage.
  [[nodiscard]] Result<std::string> Render(const Variables& variables, const std::tm& now,
                                           const JinjaLimits& limits = {}) const;

 private:
  struct Impl;
  explicit JinjaTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_JINJA_H_
