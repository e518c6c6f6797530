#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/errors.h"
#include "ops/infer.h"
#include "passes/pass.h"

namespace milwright {

std::string PassArguments::String(std::string_view key, std::string_view fallback) const {
  const auto it = values_.find(key);
  return it != values_.end() ? it->second : std::string(fallback);
}

Result<int64_t> PassArguments::Int(std::string_view key, int64_t fallback) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return fallback;
  int64_t value = 0;
  const char* end = it->second.data() + it->second.size();
  const auto [rest, error] = std::from_chars(it->second.data(), end, value);
  if (error != std::errc() || rest != end) {
    return Status(ErrorCode::kUsage, fmt::format("option '{}' takes an integer, not '{}'", key, it->second));
  }
  return value;
}

std::vector<std::string> PassArguments::List(std::string_view key) const {
  std::vector<std::string> parts;
  std::string_view rest;
  const auto it = values_.find(key);
  if (it == values_.end()) return parts;
  rest = it->second;
  while (!rest.empty()) {
    const size_t plus = rest.find('+');
    parts.emplace_back(rest.substr(0, plus));
    rest = plus == std::string_view::npos ? std::string_view() : rest.substr(plus + 1);
  }
  return parts;
}

const Pass* FindPass(std::string_view name) {
  const auto passes = AllPasses();
  const auto it = std::ranges::find(passes, name, &Pass::name);
  return it != passes.end() ? &*it : nullptr;
}

namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Result<PassUse> ParseUse(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  PassUse use;
  use.pass = FindPass(name);
  if (use.pass == nullptr) {
    std::string known;
    for (const Pass& pass : AllPasses()) known += fmt::format("{}{}", known.empty() ? "" : ", ", pass.name);
    return Usage(fmt::format("there is no pass '{}'; the passes are: {}", name, known));
  }
  std::map<std::string, std::string, std::less<>> values;
  if (equals != std::string_view::npos) {
    for (const std::string_view pair : Split(text.substr(equals + 1), ';')) {
      const size_t colon = pair.find(':');
      if (colon == std::string_view::npos) {
        return Usage(fmt::format("pass '{}': options are written key:value, not '{}'", name, pair));
      }
      const std::string_view key = pair.substr(0, colon);
      const auto& options = use.pass->options;
      const bool known = std::ranges::any_of(
          options, [key](const PassOption& option) { return option.key == key || option.key == "*"; });
      if (!known) {
        std::string keys;
        for (const PassOption& option : options) keys += fmt::format("{}{}", keys.empty() ? "" : ", ", option.key);
        return Usage(
            fmt::format("pass '{}' has no option '{}'; it takes: {}", name, key, keys.empty() ? "none" : keys));
      }
      values.insert_or_assign(std::string(key), std::string(pair.substr(colon + 1)));
    }
  }
  for (const PassOption& option : use.pass->options) {
    if (option.required && option.key != "*" && !values.contains(option.key)) {
      return Usage(fmt::format("pass '{}' needs the option {}:{} ({})", name, option.key, option.value, option.about));
    }
  }
  use.arguments = PassArguments(std::move(values));
  return use;
}

}  // namespace

Result<std::vector<PassUse>> ParsePasses(std::string_view text) {
  std::vector<PassUse> uses;
  for (const std::string_view part : Split(text, ',')) {
    MW_ASSIGN_OR_RETURN(PassUse use, ParseUse(part));
    uses.push_back(std::move(use));
  }
  return uses;
}

Result<std::vector<PassResult>> RunPasses(ModelSpec& model, const std::vector<PassUse>& passes,
                                          const PassManagerOptions& options) {
  std::vector<PassResult> results;
  for (const PassUse& use : passes) {
    const auto start = std::chrono::steady_clock::now();
    ModelSpec work = model.Clone();
    PassResult result;
    result.name = use.pass->name;
    const std::string context = fmt::format("pass '{}'", use.pass->name);
    if (const Status status = use.pass->run(work, use.arguments, result.report); !status.ok()) {
      return status.WithContext(context);
    }
#ifdef NDEBUG
    const bool verify = options.verify_each;
#else
    const bool verify = true;
#endif
    if (verify) {
      if (const Status status = Verify(work.program); !status.ok()) {
        return Status(ErrorCode::kInternal, status.message()).WithContext(context + " left an invalid program");
      }
    }
    result.changed = Fingerprint(work.program) != Fingerprint(model.program) ||
                     !(work.description == model.description) ||
                     work.specification_version != model.specification_version;
    for (const std::string& assumption : result.report.assumptions) {
      std::string& recorded = work.description.metadata.user_defined["milwright.assumptions"];
      recorded += fmt::format("{}{}: {}", recorded.empty() ? "" : "\n", use.pass->name, assumption);
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (result.changed && options.on_changed) options.on_changed(*use.pass, model.program, work.program);
    model = std::move(work);
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace milwright
