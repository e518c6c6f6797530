#include "tokenizer/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/json_reader.h"

namespace milwright {
namespace {

constexpr std::string_view kDefaultName = "default";
constexpr std::string_view kToolName = "tool_use";

bool Exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

}  // namespace

Status ChatTemplate::AddTemplate(const std::string& name, std::string_view source, std::string_view place) {
  MW_ASSIGN_OR_RETURN(JinjaTemplate parsed, JinjaTemplate::Parse(source, place));
  templates_.insert_or_assign(name, std::move(parsed));
  return Status::Ok();
}

Status ChatTemplate::ReadTemplates(const nlohmann::json& config, const std::string& place) {
  const JsonReader reader(config, place);
  if (!reader.Has("chat_template")) return Status::Ok();
  MW_ASSIGN_OR_RETURN(const JsonReader value, reader.Get("chat_template"));
  if (!value.value().is_array()) {
    MW_ASSIGN_OR_RETURN(const std::string source, value.AsString());
    return AddTemplate(std::string(kDefaultName), source, value.where());
  }
  MW_ASSIGN_OR_RETURN(const std::vector<JsonReader> entries, reader.Array("chat_template"));
  for (const JsonReader& entry : entries) {
    MW_ASSIGN_OR_RETURN(const std::string name, entry.String("name"));
    MW_ASSIGN_OR_RETURN(const std::string source, entry.String("template"));
    MW_RETURN_IF_ERROR(AddTemplate(name, source, fmt::format("{} \"{}\"", value.where(), name)));
  }
  return Status::Ok();
}

Status ChatTemplate::ReadTokens(const nlohmann::json& config, const std::string& place) {
  const JsonReader reader(config, place);
  for (const std::string key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    if (!reader.Has(key)) continue;
    MW_ASSIGN_OR_RETURN(const JsonReader value, reader.Get(key));
    MW_ASSIGN_OR_RETURN(tokens_[key], value.value().is_object() ? value.String("content") : value.AsString());
  }
  return Status::Ok();
}

Result<ChatTemplate> ChatTemplate::Load(const std::filesystem::path& folder) {
  ChatTemplate chat;
  for (const std::string_view file : {"tokenizer_config.json", "chat_template.json"}) {
    const std::filesystem::path path = folder / file;
    if (!Exists(path)) continue;
    MW_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
    MW_ASSIGN_OR_RETURN(const nlohmann::json config, ParseJson(text, path.string()));
    MW_RETURN_IF_ERROR(chat.ReadTemplates(config, path.string()));
    if (file == "tokenizer_config.json") MW_RETURN_IF_ERROR(chat.ReadTokens(config, path.string()));
  }
  const std::filesystem::path file = folder / "chat_template.jinja";
  if (Exists(file)) {
    MW_ASSIGN_OR_RETURN(const std::string source, ReadTextFile(file));
    MW_RETURN_IF_ERROR(chat.AddTemplate(std::string(kDefaultName), source, file.string()));
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "additional_chat_templates", error)) {
    if (entry.path().extension() != ".jinja") continue;
    MW_ASSIGN_OR_RETURN(const std::string source, ReadTextFile(entry.path()));
    MW_RETURN_IF_ERROR(chat.AddTemplate(entry.path().stem().string(), source, entry.path().string()));
  }
  if (chat.templates_.empty()) {
    return Status(ErrorCode::kUnreadable,
                  fmt::format("{}: has no chat template (chat_template.jinja, or \"chat_template\" in "
                              "tokenizer_config.json): the model is not made for chat, use a plain prompt",
                              folder.string()));
  }
  return chat;
}

Result<ChatTemplate> ChatTemplate::FromSource(std::string_view source, std::string_view bos_token,
                                              std::string_view eos_token) {
  ChatTemplate chat;
  MW_RETURN_IF_ERROR(chat.AddTemplate(std::string(kDefaultName), source, "chat template"));
  chat.tokens_ = {{"bos_token", std::string(bos_token)}, {"eos_token", std::string(eos_token)}};
  return chat;
}

Result<const JinjaTemplate*> ChatTemplate::Choose(const ChatRequest& request) const {
  std::string name = request.template_name;
  if (name.empty()) {
    const bool has_tools = request.tools.is_array() && !request.tools.empty();
    name = has_tools && templates_.contains(std::string(kToolName)) ? kToolName : kDefaultName;
    if (!templates_.contains(name) && templates_.size() == 1) name = templates_.begin()->first;
  }
  const auto found = templates_.find(name);
  if (found != templates_.end()) return &found->second;
  std::string known;
  for (const auto& entry : templates_) known += (known.empty() ? "" : ", ") + entry.first;
  return Status(ErrorCode::kUsage, fmt::format("there is no chat template \"{}\"; there are: {}", name, known));
}

Result<std::string> ChatTemplate::Render(const ChatRequest& request) const {
  if (!request.messages.is_array()) return Status(ErrorCode::kUsage, "the messages must be an array");
  if (!request.extra.is_object()) return Status(ErrorCode::kUsage, "the extra variables must be an object");
  MW_ASSIGN_OR_RETURN(const JinjaTemplate* chosen, Choose(request));
  JinjaTemplate::Variables variables = {{"messages", request.messages},
                                        {"tools", request.tools},
                                        {"documents", nullptr},
                                        {"add_generation_prompt", request.add_generation_prompt}};
  for (const auto& [name, token] : tokens_) variables.emplace_back(name, token);
  for (const auto& [name, value] : request.extra.items()) variables.emplace_back(name, value);
  return chosen->Render(variables, request.now ? *request.now : LocalTime());
}

}  // namespace milwright
