#include "serve/openai.h"

namespace milwright {
namespace {

std::string_view ErrorType(int status) {
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

/// OpenAI knows two ends of a text; a full context is a limit on its length.
std::string_view FinishName(FinishReason reason) {
  return reason == FinishReason::kEos || reason == FinishReason::kStopString ? "stop" : "length";
}

ApiJson Usage(const GenerateResult& result) {
  const auto completion = static_cast<int64_t>(result.tokens.size());
  return {{"prompt_tokens", result.prompt.prompt},
          {"completion_tokens", completion},
          {"total_tokens", result.prompt.prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", result.prompt.reused}}}};
}

ApiJson OrNull(const std::string& text) { return text.empty() ? ApiJson() : ApiJson(text); }

}  // namespace

std::string FormatJson(const ApiJson& json) { return json.dump(-1, ' ', false, ApiJson::error_handler_t::replace); }

std::string FormatError(const ApiError& error) {
  return FormatJson({{"error",
                      {{"message", error.message},
                       {"type", ErrorType(error.status)},
                       {"param", OrNull(error.param)},
                       {"code", OrNull(error.code)}}}});
}

ApiJson CompletionWriter::Head(bool chunk) const {
  const char* object = !chat_ ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

std::string CompletionWriter::Whole(const std::string& text, const GenerateResult& result) const {
  ApiJson choice = {{"index", 0}};
  if (chat_) {
    choice["message"] = {{"role", "assistant"}, {"content", text}};
  } else {
    choice["text"] = text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = FinishName(result.finish);
  ApiJson json = Head(false);
  json["choices"] = ApiJson::array({choice});
  json["usage"] = Usage(result);
  return FormatJson(json);
}

std::string CompletionWriter::Event(ApiJson choice) const {
  ApiJson json = Head(true);
  json["choices"] = ApiJson::array({std::move(choice)});
  return "data: " + FormatJson(json) + "\n\n";
}

std::string CompletionWriter::Start() const {
  if (!chat_) return {};
  return Event({{"index", 0}, {"delta", {{"role", "assistant"}, {"content", ""}}}, {"finish_reason", nullptr}});
}

std::string CompletionWriter::Piece(const std::string& text) const {
  ApiJson choice = {{"index", 0}};
  if (chat_) {
    choice["delta"] = {{"content", text}};
  } else {
    choice["text"] = text;
  }
  choice["finish_reason"] = nullptr;
  return Event(std::move(choice));
}

std::string CompletionWriter::End(const GenerateResult& result, bool include_usage) const {
  ApiJson choice = {{"index", 0}};
  if (chat_) {
    choice["delta"] = ApiJson::object();
  } else {
    choice["text"] = "";
  }
  choice["finish_reason"] = FinishName(result.finish);
  std::string events = Event(std::move(choice));
  if (include_usage) {
    ApiJson json = Head(true);
    json["choices"] = ApiJson::array();
    json["usage"] = Usage(result);
    events += "data: " + FormatJson(json) + "\n\n";
  }
  return events;
}

}  // namespace milwright
