// Chat templates: from a list of messages to the text that a model was trained on.
#ifndef MILWRIGHT_TOKENIZER_CHAT_TEMPLATE_H_
#define MILWRIGHT_TOKENIZER_CHAT_TEMPLATE_H_

#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "milwright/status.h"
#include "tokenizer/jinja.h"

namespace milwright {

/// What a chat is rendered from. Values keep the order of their keys, for templates print them as JSON.
struct ChatRequest {
  /// [{"role": "user", "content": "..."}, ...], as in OpenAI's API.
  nlohmann::ordered_json messages;
  /// [{"type": "function", "function": {...}}, ...], or null for none.
  nlohmann::ordered_json tools;
  /// Whether to end with the start of an answer.
  bool add_generation_prompt = true;
  /// More variables, an object: "enable_thinking", "documents", ... They win over the standard ones.
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
  /// The time that strftime_now tells; the local time if empty.
  std::optional<std::tm> now;
  /// The name of the template to use where there are several; empty: "tool_use" if there are tools and the model has
  /// such a template, else "default".
  std::string template_name;
};

/// The chat templates of a model.
class ChatTemplate {
 public:
  /// From a model folder: chat_template.jinja, or "chat_template" of tokenizer_config.json or of chat_template.json, a
  /// string or a list of {"name", "template"}; other names may come from additional_chat_templates/NAME.jinja. The
  /// tokens that the config names become variables (bos_token, eos_token, pad_token, unk_token).
  static Result<ChatTemplate> Load(const std::filesystem::path& folder);

  /// One template with these tokens.
  static Result<ChatTemplate> FromSource(std::string_view source, std::string_view bos_token,
                                         std::string_view eos_token);

  /// The text of the chat. Errors name the template and the line; an error of code kUsage is the template's own
  /// (raise_exception): it does not accept such messages.
  [[nodiscard]] Result<std::string> Render(const ChatRequest& request) const;

 private:
  ChatTemplate() = default;

  Status AddTemplate(const std::string& name, std::string_view source, std::string_view place);
  Status ReadTemplates(const nlohmann::json& config, const std::string& place);
  Status ReadTokens(const nlohmann::json& config, const std::string& place);
  [[nodiscard]] Result<const JinjaTemplate*> Choose(const ChatRequest& request) const;

  std::map<std::string, JinjaTemplate> templates_;
  std::map<std::string, std::string> tokens_;  ///< "bos_token": "<s>", ...
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_CHAT_TEMPLATE_H_
