// Reading requests. Every field is checked for its type and range; fields that change nothing here ("user", "store",
// ...) are ignored; fields that would change the answer and are not supported are refused.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <random>

#include "serve/openai.h"

namespace milwright {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxKeys = 256;
constexpr size_t kMaxStops = 16;

/// Whether the brackets and keys of JSON text stay within the limits. Malformed text is left to the parser, which is
/// not recursive; but its objects are lists, in which every new key is searched for.
bool WithinLimits(std::string_view text) {
  std::vector<size_t> keys;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      keys.push_back(0);
      if (keys.size() > kMaxDepth) return false;
    } else if (c == '}' || c == ']') {
      if (!keys.empty()) keys.pop_back();
    } else if (c == ':' && !keys.empty() && ++keys.back() > kMaxKeys) {
      return false;
    }
  }
  return true;
}

/// Reads fields of an object; keeps the first error.
class Reader {
 public:
  explicit Reader(const ApiJson& json) : json_(json) {}

  /// The field, or null where it is absent or null, which the API takes for the same.
  const ApiJson* Find(const char* name) {
    const auto it = json_.find(name);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  void Fail(const char* name, const std::string& what) {
    if (!error_.has_value()) error_ = ApiError{400, fmt::format("'{}' {}", name, what), name};
  }

  double Number(const char* name, double otherwise, double low, double high) {
    const ApiJson* field = Find(name);
    if (field == nullptr) return otherwise;
    const double value = field->is_number() ? field->get<double>() : NAN;
    if (value >= low && value <= high) return value;
    Fail(name, fmt::format("must be a number from {} to {}", low, high));
    return otherwise;
  }
  std::optional<int64_t> Integer(const char* name, int64_t low, int64_t high) {
    const ApiJson* field = Find(name);
    if (field == nullptr) return std::nullopt;
    // Unsigned numbers above the signed range would wrap.
    const bool fits =
        field->is_number_integer() && !(field->is_number_unsigned() && field->get<uint64_t>() > uint64_t{INT64_MAX});
    if (fits && field->get<int64_t>() >= low && field->get<int64_t>() <= high) return field->get<int64_t>();
    Fail(name, fmt::format("must be an integer from {} to {}", low, high));
    return std::nullopt;
  }
  bool Flag(const char* name, bool otherwise = false) {
    const ApiJson* field = Find(name);
    if (field == nullptr) return otherwise;
    if (!field->is_boolean()) Fail(name, "must be true or false");
    return field->is_boolean() && field->get<bool>();
  }
  std::string Text(const char* name) {
    const ApiJson* field = Find(name);
    if (field == nullptr || !field->is_string()) {
      Fail(name, "must be a string");
      return {};
    }
    return field->get<std::string>();
  }
  /// Refuses fields that would change the answer in a way that is not supported.
  void Refuse(const char* name, bool refused, const char* only) {
    if (refused) Fail(name, fmt::format("is supported as {} only", only));
  }

  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }

 private:
  const ApiJson& json_;
  std::optional<ApiError> error_;
};

std::optional<std::vector<int64_t>> TokenArray(const ApiJson& json) {
  std::vector<int64_t> tokens;
  for (const ApiJson& token : json) {
    if (!token.is_number_integer()) return std::nullopt;
    const auto id = token.get<int64_t>();
    if (id < 0 || id > INT32_MAX) return std::nullopt;
    tokens.push_back(id);
  }
  return tokens;
}

std::vector<std::string> ReadStops(Reader& reader) {
  const ApiJson* field = reader.Find("stop");
  if (field == nullptr) return {};
  std::vector<std::string> stops;
  const ApiJson list = field->is_array() ? *field : ApiJson::array({*field});
  for (const ApiJson& one : list) {
    if (one.is_string() && !one.get_ref<const std::string&>().empty()) stops.push_back(one.get<std::string>());
  }
  if (stops.size() != list.size() || stops.size() > kMaxStops) {
    reader.Fail("stop", fmt::format("must be a string or at most {} strings, none of them empty", kMaxStops));
  }
  return stops;
}

/// frequency_penalty, presence_penalty and logit_bias: added to the logits, as OpenAI's API reference gives them.
std::optional<LogitsProcessor> ReadBiases(Reader& reader) {
  const double frequency = reader.Number("frequency_penalty", 0, -2, 2);
  const double presence = reader.Number("presence_penalty", 0, -2, 2);
  std::map<size_t, float> biases;
  if (const ApiJson* field = reader.Find("logit_bias"); field != nullptr) {
    bool valid = field->is_object();
    for (const auto& [key, value] : field->items()) {
      const bool digits = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      valid = valid && digits && value.is_number() && std::abs(value.get<double>()) <= 100;
      if (valid) biases[std::stoul(key)] = static_cast<float>(value.get<double>());
    }
    if (!valid) reader.Fail("logit_bias", "must be an object of token ids with numbers from -100 to 100");
  }
  if (frequency == 0 && presence == 0 && biases.empty()) return std::nullopt;
  // Only the answer's tokens are penalized: the first call tells how long the prompt is.
  return [frequency, presence, biases, prompt = std::optional<size_t>()](std::span<const int32_t> ids,
                                                                         std::span<float> logits) mutable {
    if (!prompt.has_value()) prompt = ids.size();
    std::map<size_t, int> counts;
    for (const int32_t id : ids.subspan(*prompt)) ++counts[static_cast<size_t>(id)];
    for (const auto& [id, count] : counts) {
      if (id < logits.size()) logits[id] -= static_cast<float>(frequency * count + presence);
    }
    for (const auto& [id, bias] : biases) {
      if (id < logits.size()) logits[id] += bias;
    }
    return Status::Ok();
  };
}

CompletionRequest ReadCommon(Reader& reader) {
  CompletionRequest request;
  if (reader.Find("model") != nullptr) reader.Text("model");  // whatever the name: there is one model
  request.stream = reader.Flag("stream");
  if (const ApiJson* field = reader.Find("stream_options"); field != nullptr) {
    if (!field->is_object()) reader.Fail("stream_options", "must be an object");
    const auto usage = field->find("include_usage");
    request.include_usage = field->is_object() && usage != field->end() && *usage == true;
  }
  request.max_tokens = reader.Integer("max_tokens", 0, INT32_MAX);
  if (const auto newer = reader.Integer("max_completion_tokens", 0, INT32_MAX)) request.max_tokens = newer;
  SamplingOptions& sampling = request.options.sampling;
  sampling.temperature = reader.Number("temperature", 1, 0, 2);
  sampling.top_p = reader.Number("top_p", 1, 0, 1);
  sampling.min_p = reader.Number("min_p", 0, 0, 1);
  sampling.top_k = static_cast<int32_t>(reader.Integer("top_k", -1, INT32_MAX).value_or(0));
  sampling.top_k = std::max(sampling.top_k, 0);  // -1 is "all" with some clients
  sampling.repetition_penalty = reader.Number("repetition_penalty", 1, 0.01, 100);
  const auto seed = reader.Integer("seed", INT64_MIN, INT64_MAX);
  sampling.seed = seed.has_value() ? static_cast<uint64_t>(*seed) : std::random_device{}();
  request.options.stop = ReadStops(reader);
  request.options.ignore_eos = reader.Flag("ignore_eos");
  if (auto biases = ReadBiases(reader)) request.options.processors.push_back(*std::move(biases));
  reader.Refuse("n", reader.Integer("n", 1, 128).value_or(1) != 1, "1");
  reader.Refuse("best_of", reader.Integer("best_of", 1, 128).value_or(1) != 1, "1");
  if (const ApiJson* field = reader.Find("logprobs"); field != nullptr) {
    reader.Refuse("logprobs", *field != false, "false");
  }
  return request;
}

/// A message's content as text; parts of other kinds than text are refused.
std::optional<std::string> ContentText(const ApiJson& content) {
  if (content.is_null()) return "";
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return std::nullopt;
  std::string text;
  for (const ApiJson& part : content) {
    const bool is_text = part.is_object() && part.value("type", ApiJson()) == "text" && part.contains("text") &&
                         part["text"].is_string();
    if (!is_text) return std::nullopt;
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

ApiJson ReadMessages(Reader& reader) {
  ApiJson messages = ApiJson::array();
  const ApiJson* field = reader.Find("messages");
  if (field == nullptr || !field->is_array() || field->empty()) {
    reader.Fail("messages", "must be a list of at least one message");
    return messages;
  }
  for (const ApiJson& one : *field) {
    const bool has_role = one.is_object() && one.contains("role") && one["role"].is_string();
    if (!has_role) {
      reader.Fail("messages", fmt::format("[{}] must be an object with a 'role'", messages.size()));
      return messages;
    }
    const auto text = ContentText(one.contains("content") ? one["content"] : ApiJson());
    if (!text.has_value()) {
      reader.Fail("messages", fmt::format("[{}]: 'content' must be text", messages.size()));
      return messages;
    }
    ApiJson message = one;
    if (message["role"] == "developer") message["role"] = "system";
    message["content"] = *text;
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace

ApiResult<ApiJson> ParseBody(std::string_view body) {
  if (!WithinLimits(body)) {
    return ApiError{
        400, fmt::format("the JSON is deeper than {} or has an object of more than {} keys", kMaxDepth, kMaxKeys)};
  }
  ApiJson json = ApiJson::parse(body, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return ApiError{400, "the body is not valid JSON in UTF-8"};
  if (!json.is_object()) return ApiError{400, "the body must be a JSON object"};
  return json;
}

ApiResult<TextRequest> ReadTextRequest(const ApiJson& body) {
  Reader reader(body);
  TextRequest request;
  request.common = ReadCommon(reader);
  request.echo = reader.Flag("echo");
  reader.Refuse("suffix", reader.Find("suffix") != nullptr, "null");
  const ApiJson* prompt = reader.Find("prompt");
  // A list of one prompt is the same as the prompt.
  if (prompt != nullptr && prompt->is_array() && prompt->size() == 1 && !prompt->front().is_number()) {
    prompt = &prompt->front();
  }
  if (prompt != nullptr && prompt->is_string()) {
    request.prompt = prompt->get<std::string>();
  } else if (const auto tokens = prompt != nullptr && prompt->is_array() ? TokenArray(*prompt) : std::nullopt) {
    request.prompt = *tokens;
  } else {
    reader.Fail("prompt", "must be one text, or one list of token ids");
  }
  if (reader.error().has_value()) return *reader.error();
  return request;
}

ApiResult<ChatCompletionRequest> ReadChatRequest(const ApiJson& body) {
  Reader reader(body);
  ChatCompletionRequest request;
  request.common = ReadCommon(reader);
  request.messages = ReadMessages(reader);
  if (const ApiJson* tools = reader.Find("tools"); tools != nullptr) {
    if (!tools->is_array()) reader.Fail("tools", "must be a list");
    if (tools->is_array() && !tools->empty()) request.tools = *tools;
  }
  request.template_kwargs = ApiJson::object();
  if (const ApiJson* kwargs = reader.Find("chat_template_kwargs"); kwargs != nullptr) {
    if (!kwargs->is_object()) reader.Fail("chat_template_kwargs", "must be an object");
    if (kwargs->is_object()) request.template_kwargs = *kwargs;
  }
  if (const ApiJson* format = reader.Find("response_format"); format != nullptr) {
    reader.Refuse("response_format", !format->is_object() || format->value("type", ApiJson()) != "text",
                  "{\"type\": \"text\"}");
  }
  if (reader.error().has_value()) return *reader.error();
  return request;
}

ApiResult<TokenizeRequest> ReadTokenizeRequest(const ApiJson& body) {
  Reader reader(body);
  TokenizeRequest request{reader.Text("content"), reader.Flag("add_special")};
  if (reader.error().has_value()) return *reader.error();
  return request;
}

ApiResult<std::vector<int64_t>> ReadDetokenizeRequest(const ApiJson& body) {
  const auto it = body.find("tokens");
  const auto tokens = it != body.end() && it->is_array() ? TokenArray(*it) : std::nullopt;
  if (!tokens.has_value()) return ApiError{400, "'tokens' must be a list of token ids", "tokens"};
  return *tokens;
}

}  // namespace milwright
