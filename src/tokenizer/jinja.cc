#include "tokenizer/jinja.h"

#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_parser.h"
#include "tokenizer/json_reader.h"

namespace milwright {
namespace {

/// Whether arrays and objects nest at most `levels` deep; recurses no deeper than that.
bool NestsAtMost(const nlohmann::ordered_json& json, int levels) {
  if (!json.is_structured()) return true;
  if (levels == 0) return false;
  for (const auto& element : json) {
    if (!NestsAtMost(element, levels - 1)) return false;
  }
  return true;
}

}  // namespace

struct JinjaTemplate::Impl {
  std::string name;
  jinja::Block block;
};

Result<JinjaTemplate> JinjaTemplate::Parse(std::string_view source, std::string_view name) {
  auto impl = std::make_shared<Impl>();
  impl->name = name;
  Result<jinja::Block> block = jinja::ParseTemplate(source);
  if (!block.ok()) return block.status().WithContext(name);
  impl->block = *std::move(block);
  return JinjaTemplate(std::move(impl));
}

Result<std::string> JinjaTemplate::Render(const Variables& variables, const std::tm& now,
                                          const JinjaLimits& limits) const {
  jinja::Budget budget(limits.steps, limits.bytes);
  std::vector<std::pair<std::string, jinja::Value>> values;
  for (const auto& [name, json] : variables) {
    if (!NestsAtMost(json, kMaxJsonDepth)) {
      return Status(ErrorCode::kUsage, impl_->name + ": \"" + name + "\" is nested too deep");
    }
    Result<jinja::Value> value = jinja::FromJson(json, budget);
    if (!value.ok()) return value.status().WithContext(impl_->name + ": \"" + name + "\"");
    values.emplace_back(name, *std::move(value));
  }
  jinja::Interpreter interpreter(budget, now);
  Result<std::string> text = interpreter.Render(impl_->block, std::move(values));
  if (!text.ok()) return text.status().WithContext(impl_->name);
  return text;
}

}  // namespace milwright
