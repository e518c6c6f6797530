// The shapes of OpenAI's completion API: requests read and checked, answers and errors written.
#ifndef MILWRIGHT_SERVE_OPENAI_H_
#define MILWRIGHT_SERVE_OPENAI_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "llm/session.h"

namespace milwright {

/// JSON whose objects keep their order: templates print them.
using ApiJson = nlohmann::ordered_json;

/// An error as the API tells it: {"error": {"message", "type", "param", "code"}} with an HTTP status.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};  ///< the field at fault; empty: none
  std::string code = {};   ///< "context_length_exceeded", ...; empty: none
};
std::string FormatError(const ApiError& error);

/// A value, or an error for the client.
template <typename T>
using ApiResult = std::variant<T, ApiError>;

/// Parses the body of a request: a JSON object of UTF-8 text, no more than 64 deep, no object of more than 256 keys
/// (limits on what the parser and templates may be made to do).
ApiResult<ApiJson> ParseBody(std::string_view body);

/// What both completion endpoints take.
struct CompletionRequest {
  bool stream = false;
  bool include_usage = false;  ///< a last event with the usage
  std::optional<int64_t> max_tokens;
  GenerateOptions options;  ///< but for max_tokens
};

/// POST /v1/completions: one prompt, as text or as token ids.
struct TextRequest {
  CompletionRequest common;
  std::variant<std::string, std::vector<int64_t>> prompt;
  bool echo = false;
};
ApiResult<TextRequest> ReadTextRequest(const ApiJson& body);

/// POST /v1/chat/completions. `messages` has text contents only: lists of text parts are joined, the role "developer"
/// becomes "system".
struct ChatCompletionRequest {
  CompletionRequest common;
  ApiJson messages;
  ApiJson tools;            ///< null: none
  ApiJson template_kwargs;  ///< "chat_template_kwargs": variables for the template
};
ApiResult<ChatCompletionRequest> ReadChatRequest(const ApiJson& body);

/// POST /tokenize and /detokenize, as llama.cpp's server has them.
struct TokenizeRequest {
  std::string content;
  bool add_special = false;
};
ApiResult<TokenizeRequest> ReadTokenizeRequest(const ApiJson& body);
ApiResult<std::vector<int64_t>> ReadDetokenizeRequest(const ApiJson& body);

/// Writes an answer, whole or as server-sent events.
class CompletionWriter {
 public:
  CompletionWriter(bool chat, std::string id, std::string model, int64_t created)
      : chat_(chat), id_(std::move(id)), model_(std::move(model)), created_(created) {}

  /// The body of an answer that is not streamed.
  [[nodiscard]] std::string Whole(const std::string& text, const GenerateResult& result) const;
  /// Events: the start (the role of a chat), a piece of text, the end, the end of all events.
  [[nodiscard]] std::string Start() const;
  [[nodiscard]] std::string Piece(const std::string& text) const;
  [[nodiscard]] std::string End(const GenerateResult& result, bool include_usage) const;
  static std::string Done() { return "data: [DONE]\n\n"; }
  static std::string ErrorEvent(const ApiError& error) { return "data: " + FormatError(error) + "\n\n"; }

 private:
  [[nodiscard]] ApiJson Head(bool chunk) const;
  [[nodiscard]] std::string Event(ApiJson choice) const;

  bool chat_;
  std::string id_;
  std::string model_;
  int64_t created_;
};

/// Text of `json` with whatever is not UTF-8 replaced.
std::string FormatJson(const ApiJson& json);

}  // namespace milwright

#endif  // MILWRIGHT_SERVE_OPENAI_H_
