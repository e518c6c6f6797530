// Requests of the API: what is read, and what is refused.
#include "serve/openai.h"

#include <gtest/gtest.h>

namespace milwright {
namespace {

template <typename T>
ApiError ErrorOf(ApiResult<T> (*read)(const ApiJson&), const std::string& body) {
  const auto json = ParseBody(body);
  if (const auto* error = std::get_if<ApiError>(&json)) return *error;
  const auto result = read(std::get<ApiJson>(json));
  const auto* error = std::get_if<ApiError>(&result);
  return error != nullptr ? *error : ApiError{200, "", ""};
}

TEST(OpenAi, ReadsAChat) {
  const auto json = ParseBody(R"({"model": "any", "messages": [
      {"role": "developer", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "tool_calls": []}],
      "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "seed": -3, "stop": "x", "max_tokens": 5,
      "max_completion_tokens": 7, "stream": true, "stream_options": {"include_usage": true}, "user": "ignored",
      "tools": [{"type": "function"}], "n": 1, "logprobs": false, "stop_sequence": 3})");
  const auto parsed = ReadChatRequest(std::get<ApiJson>(json));
  const auto* error = std::get_if<ApiError>(&parsed);
  ASSERT_EQ(error, nullptr) << error->message;
  const auto& request = std::get<ChatCompletionRequest>(parsed);
  EXPECT_EQ(request.messages.dump(), R"([{"role":"system","content":"Be brief."},{"role":"user","content":"ab"},)"
                                     R"({"role":"assistant","content":"","tool_calls":[]}])");
  EXPECT_EQ(request.tools.size(), 1U);
  EXPECT_TRUE(request.common.stream);
  EXPECT_TRUE(request.common.include_usage);
  EXPECT_EQ(request.common.max_tokens, 7);
  EXPECT_EQ(request.common.options.stop, std::vector<std::string>{"x"});
  const SamplingOptions& sampling = request.common.options.sampling;
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.seed, static_cast<uint64_t>(-3));
}

TEST(OpenAi, RefusesWhatItCannotDo) {
  struct Case {
    const char* body;
    const char* param;
  };
  for (const Case& c : {
           Case{R"({})", "prompt"},
           {R"({"prompt": null})", "prompt"},
           {R"({"prompt": 3})", "prompt"},
           {R"({"prompt": ["a", "b"]})", "prompt"},
           {R"({"prompt": [1, -2]})", "prompt"},
           {R"({"prompt": [1, 99999999999999999999]})", "prompt"},
           {R"({"prompt": {"a": 1}})", "prompt"},
           {R"({"prompt": "a", "model": 4})", "model"},
           {R"({"prompt": "a", "stream": 1})", "stream"},
           {R"({"prompt": "a", "stream_options": []})", "stream_options"},
           {R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens"},
           {R"({"prompt": "a", "max_tokens": 18446744073709551615})", "max_tokens"},
           {R"({"prompt": "a", "temperature": -1})", "temperature"},
           {R"({"prompt": "a", "temperature": "1"})", "temperature"},
           {R"({"prompt": "a", "top_p": 1.1})", "top_p"},
           {R"({"prompt": "a", "stop": ["", "b"]})", "stop"},
           {R"({"prompt": "a", "stop": 7})", "stop"},
           {R"({"prompt": "a", "logit_bias": {"x": 1}})", "logit_bias"},
           {R"({"prompt": "a", "logit_bias": {"1": 101}})", "logit_bias"},
           {R"({"prompt": "a", "logit_bias": 5})", "logit_bias"},
           {R"({"prompt": "a", "n": 2})", "n"},
           {R"({"prompt": "a", "logprobs": 1})", "logprobs"},
           {R"({"prompt": "a", "suffix": "b"})", "suffix"},
       }) {
    const ApiError error = ErrorOf(ReadTextRequest, c.body);
    EXPECT_EQ(error.status, 400) << c.body;
    EXPECT_EQ(error.param, c.param) << c.body;
  }
  for (const char* messages :
       {"[]", "3", "[1]", "[{}]", R"([{"role": 1}])", R"([{"role": "user", "content": 5}])",
        R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])",
        R"([{"role": "user", "content": ["a"]}])", R"([{"role": "user", "content": [{"type": "text"}]}])"}) {
    const ApiError error = ErrorOf(ReadChatRequest, std::string(R"({"messages": )") + messages + "}");
    EXPECT_EQ(error.param, "messages") << messages;
  }
  EXPECT_EQ(ErrorOf(ReadChatRequest, R"({"messages": [{"role": "user"}], "response_format": {"type": "json"}})").param,
            "response_format");
  EXPECT_EQ(ErrorOf(ReadTokenizeRequest, R"({"content": ["a"]})").param, "content");
  EXPECT_EQ(ErrorOf(ReadDetokenizeRequest, R"({"tokens": [1, "a"]})").param, "tokens");
  EXPECT_EQ(ErrorOf(ReadDetokenizeRequest, R"({"tokens": [4294967296]})").param, "tokens");
}

TEST(OpenAi, BoundsTheJson) {
  const auto status = [](const std::string& body) {
    const auto json = ParseBody(body);
    return std::holds_alternative<ApiError>(json) ? std::get<ApiError>(json).status : 200;
  };
  EXPECT_EQ(status("{\"a\": " + std::string(60, '[') + std::string(60, ']') + "}"), 200);
  EXPECT_EQ(status("{\"a\": " + std::string(1 << 20, '[')), 400);
  std::string keys = "{\"k\": 0";
  for (int i = 0; i < 100000; ++i) keys += ",\"" + std::to_string(i) + "\": 0";
  EXPECT_EQ(status(keys + "}"), 400);
  EXPECT_EQ(status("{\"a\": \"[[[{{{:::" + std::string(1000, '{') + "\\\"\"}"), 200);
  EXPECT_EQ(status("{\"a\": \"\xff\"}"), 400);
  EXPECT_EQ(status("{\"a\": 1e999}"), 400);
  EXPECT_EQ(status("{\"a\": \"\\ud800\"}"), 400);
  for (const char* body : {"", "[]", "nonsense", "{", "{\"a\": 1} x", "]]]", "\"", "\\"}) EXPECT_EQ(status(body), 400);
}

TEST(OpenAi, WritesErrors) {
  EXPECT_EQ(FormatError({429, "full", "", "queue_full"}),
            R"({"error":{"message":"full","type":"rate_limit_error","param":null,"code":"queue_full"}})");
  EXPECT_EQ(FormatError({400, "bad \xff", "n"}),
            "{\"error\":{\"message\":\"bad \xEF\xBF\xBD\",\"type\":\"invalid_request_error\",\"param\":\"n\",\"code\":"
            "null}}");
}

TEST(OpenAi, PenalizesTheAnswerOnly) {
  const auto json = ParseBody(R"({"prompt": "a", "frequency_penalty": 1, "presence_penalty": 0.5,
                                  "logit_bias": {"2": -100, "5000": 1}})");
  auto parsed = ReadTextRequest(std::get<ApiJson>(json));
  LogitsProcessor processor = std::get<TextRequest>(parsed).common.options.processors.at(0);
  std::vector<float> logits(4, 0);
  EXPECT_TRUE(processor(std::vector<int32_t>{1, 1}, logits).ok());
  EXPECT_EQ(logits, (std::vector<float>{0, 0, -100, 0}));
  logits.assign(4, 0);
  EXPECT_TRUE(processor(std::vector<int32_t>{1, 1, 3, 3, 0}, logits).ok());
  EXPECT_EQ(logits, (std::vector<float>{-1.5F, 0, -100, -2.5F}));
}

}  // namespace
}  // namespace milwright
