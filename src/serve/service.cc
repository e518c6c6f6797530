#include "serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>

#include "llm/detect.h"
#include "serve/shared_engine.h"
#include "tokenizer/sampler.h"
#include "tokenizer/stop_strings.h"

namespace milwright {
namespace {

using namespace std::chrono_literals;

/// How long a waiting thread goes without asking whether the client is still there.
constexpr auto kAnswerPoll = 50ms;

const ApiError kShuttingDown = {503, "the server is shutting down", "", "shutting_down"};

ApiError FailureOf(const Answer& answer, Answer::Outcome outcome) {
  if (outcome == Answer::Outcome::kFailed) return {500, answer.status().message()};
  return kShuttingDown;
}

}  // namespace

Service::Service(Manifest manifest, Tokenizer tokenizer, std::string model, const ServiceOptions& options)
    : manifest_(std::move(manifest)),
      tokenizer_(std::move(tokenizer)),
      model_(std::move(model)),
      options_(options),
      created_(static_cast<int64_t>(std::time(nullptr))) {}

Result<std::unique_ptr<Service>> Service::Open(const std::string& folder, const EngineLoader& loader,
                                               const ServiceOptions& options) {
  if (options.parallel < 1 || options.parallel > options.sessions) {
    return Status(ErrorCode::kUsage, fmt::format("{} answers at a time need as many sessions, of which there are {}",
                                                 options.parallel, options.sessions));
  }
  MW_ASSIGN_OR_RETURN(Manifest manifest, OpenManifest(folder));
  MW_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load(folder));
  std::string model = std::filesystem::weakly_canonical(folder).filename();
  std::unique_ptr<Service> service(new Service(std::move(manifest), std::move(tokenizer), std::move(model), options));
  auto chat = ChatTemplate::Load(folder);
  if (chat.ok()) {
    service->template_ = *std::move(chat);
  } else {
    service->template_error_ = chat.status().message();
  }
  service->sessions_ = std::make_unique<SessionPool>(folder, ShareEngines(loader), options.sessions);
  // A folder that does not open shall say so now, not with the first request.
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Session> first, service->sessions_->Take({}));
  service->sessions_->Return(std::move(first));
  service->generator_ =
      std::make_unique<Generator>(service->tokenizer_, *service->sessions_, options.parallel, options.queue);
  return service;
}

std::span<const Service::Route> Service::Routes() {
  static constexpr std::array<Route, 6> kRoutes = {{
      {"GET", "/health", &Service::Health},
      {"GET", "/v1/models", &Service::Models},
      {"POST", "/v1/completions", &Service::Completions},
      {"POST", "/v1/chat/completions", &Service::ChatCompletions},
      {"POST", "/tokenize", &Service::Tokenize},
      {"POST", "/detokenize", &Service::Detokenize},
  }};
  return kRoutes;
}

Reply Service::Error(const ApiError& error) {
  Reply reply;
  reply.status = error.status;
  reply.body = FormatError(error);
  if (error.status == 429 || error.status == 503) reply.retry_after = 1;
  return reply;
}

Reply Service::Handle(std::string_view method, std::string_view path, std::string_view body,
                      const IsConnected& is_connected) {
  const Route* other_method = nullptr;
  for (const Route& route : Routes()) {
    if (route.path != path) continue;
    if (route.method == method) return (this->*route.handle)(body, is_connected);
    other_method = &route;
  }
  if (other_method != nullptr) {
    Reply reply = Error({405, fmt::format("{} takes {}", path, other_method->method)});
    reply.allow = other_method->method;
    return reply;
  }
  return Error({404, fmt::format("there is no {} {}", method, path), "", "not_found"});
}

Reply Service::Health(std::string_view, const IsConnected&) {
  Reply reply;
  reply.status = shutting_down_ ? 503 : 200;
  reply.body = FormatJson({{"status", shutting_down_ ? "shutting down" : "ok"},
                           {"sessions", sessions_->live()},
                           {"running", generator_->running()},
                           {"queued", generator_->queued()}});
  return reply;
}

Reply Service::Models(std::string_view, const IsConnected&) {
  const ApiJson model = {{"id", model_},
                         {"object", "model"},
                         {"created", created_},
                         {"owned_by", "milwright"},
                         {"context_length", manifest_.context_length}};
  Reply reply;
  reply.body = FormatJson({{"object", "list"}, {"data", ApiJson::array({model})}});
  return reply;
}

ApiResult<std::vector<int64_t>> Service::Encode(const std::string& text, bool special, const char* param) const {
  const auto ids = tokenizer_.Encode(text, special);
  if (!ids.ok()) return ApiError{400, ids.status().message(), param};
  return std::vector<int64_t>(ids->begin(), ids->end());
}

Reply Service::Tokenize(std::string_view body, const IsConnected&) {
  const auto json = ParseBody(body);
  if (const auto* error = std::get_if<ApiError>(&json)) return Error(*error);
  const auto request = ReadTokenizeRequest(std::get<ApiJson>(json));
  if (const auto* error = std::get_if<ApiError>(&request)) return Error(*error);
  const auto& [content, add_special] = std::get<TokenizeRequest>(request);
  const auto tokens = Encode(content, add_special, "content");
  if (const auto* error = std::get_if<ApiError>(&tokens)) return Error(*error);
  Reply reply;
  reply.body = FormatJson({{"tokens", std::get<std::vector<int64_t>>(tokens)}});
  return reply;
}

Reply Service::Detokenize(std::string_view body, const IsConnected&) {
  const auto json = ParseBody(body);
  if (const auto* error = std::get_if<ApiError>(&json)) return Error(*error);
  const auto request = ReadDetokenizeRequest(std::get<ApiJson>(json));
  if (const auto* error = std::get_if<ApiError>(&request)) return Error(*error);
  const auto& tokens = std::get<std::vector<int64_t>>(request);
  const auto text = tokenizer_.Decode({tokens.begin(), tokens.end()}, /*skip_special_tokens=*/false);
  if (!text.ok()) return Error({400, text.status().message(), "tokens"});
  Reply reply;
  reply.body = FormatJson({{"content", *text}});
  return reply;
}

Reply Service::Completions(std::string_view body, const IsConnected& is_connected) {
  const auto json = ParseBody(body);
  if (const auto* error = std::get_if<ApiError>(&json)) return Error(*error);
  auto parsed = ReadTextRequest(std::get<ApiJson>(json));
  if (const auto* error = std::get_if<ApiError>(&parsed)) return Error(*error);
  auto& request = std::get<TextRequest>(parsed);
  std::string echo;
  std::vector<int64_t> prompt;
  if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    if (request.echo) echo = *text;
    auto tokens = Encode(*text, /*special=*/true, "prompt");
    if (const auto* error = std::get_if<ApiError>(&tokens)) return Error(*error);
    prompt = std::get<std::vector<int64_t>>(std::move(tokens));
  } else {
    prompt = std::get<std::vector<int64_t>>(std::move(request.prompt));
    if (request.echo) {
      const auto text_of = tokenizer_.Decode({prompt.begin(), prompt.end()}, /*skip_special_tokens=*/false);
      if (!text_of.ok()) return Error({400, text_of.status().message(), "prompt"});
      echo = *text_of;
    }
  }
  constexpr int64_t kDefaultMaxTokens = 16;  // OpenAI's
  if (!request.common.max_tokens.has_value()) request.common.max_tokens = kDefaultMaxTokens;
  return Complete(std::move(request.common), std::move(prompt), /*chat=*/false, echo, is_connected);
}

Reply Service::ChatCompletions(std::string_view body, const IsConnected& is_connected) {
  const auto json = ParseBody(body);
  if (const auto* error = std::get_if<ApiError>(&json)) return Error(*error);
  auto parsed = ReadChatRequest(std::get<ApiJson>(json));
  if (const auto* error = std::get_if<ApiError>(&parsed)) return Error(*error);
  auto& request = std::get<ChatCompletionRequest>(parsed);
  if (!template_.has_value()) return Error({400, "the model has no chat template: " + template_error_});
  ChatRequest chat;
  chat.messages = std::move(request.messages);
  chat.tools = std::move(request.tools);
  chat.extra = std::move(request.template_kwargs);
  const auto text = template_->Render(chat);
  if (!text.ok()) return Error({400, text.status().message(), "messages"});
  auto tokens = Encode(*text, /*special=*/false, "messages");
  if (const auto* error = std::get_if<ApiError>(&tokens)) return Error(*error);
  return Complete(std::move(request.common), std::get<std::vector<int64_t>>(std::move(tokens)), /*chat=*/true, "",
                  is_connected);
}

Reply Service::Complete(CompletionRequest request, std::vector<int64_t> prompt, bool chat, const std::string& echo,
                        const IsConnected& is_connected) {
  const char* param = chat ? "messages" : "prompt";
  if (prompt.empty()) return Error({400, "the prompt has no tokens", param});
  const auto length = static_cast<int64_t>(prompt.size());
  if (length >= manifest_.context_length) {
    return Error(
        {400,
         fmt::format("the prompt of {} tokens leaves no room in the context of {}", length, manifest_.context_length),
         param, "context_length_exceeded"});
  }
  for (const int64_t token : prompt) {
    if (token >= manifest_.vocabulary) {
      return Error({400, fmt::format("token {} is outside the vocabulary of {}", token, manifest_.vocabulary), param});
    }
  }
  // A sampler that does not accept its options, or stop strings that are too long, are the client's fault.
  if (const auto sampler = Sampler::Create(request.options.sampling); !sampler.ok()) {
    return Error({400, sampler.status().message()});
  }
  if (const auto stop = StopStrings::Create(request.options.stop); !stop.ok()) {
    return Error({400, stop.status().message(), "stop"});
  }
  request.options.max_tokens =
      std::min(request.max_tokens.value_or(manifest_.context_length), options_.max_tokens_limit);
  const auto answer = std::make_shared<Answer>(std::move(prompt), std::move(request.options));
  switch (generator_->Submit(answer)) {
    case Generator::Refusal::kQueueFull:
      return Error(
          {429, fmt::format("{} requests are waiting already; try again later", options_.queue), "", "queue_full"});
    case Generator::Refusal::kShuttingDown:
      return Error(kShuttingDown);
    case Generator::Refusal::kNone:
      break;
  }
  const CompletionWriter writer(chat, fmt::format("{}-{}", chat ? "chatcmpl" : "cmpl", next_id_++), model_,
                                static_cast<int64_t>(std::time(nullptr)));
  // Waits for more text or the outcome; cancels when nobody waits for it any more.
  const auto wait = [answer, is_connected](std::string& text) {
    Answer::Outcome outcome = answer->Wait(kAnswerPoll, text);
    while (outcome == Answer::Outcome::kNone && text.empty()) {
      if (!is_connected()) answer->Cancel();
      outcome = answer->Wait(kAnswerPoll, text);
    }
    return outcome;
  };
  if (!request.stream) {
    std::string text = echo;
    std::string piece;
    Answer::Outcome outcome = Answer::Outcome::kNone;
    while (outcome == Answer::Outcome::kNone) {
      piece.clear();
      outcome = wait(piece);
      text += piece;
      if (!is_connected()) answer->Cancel();
    }
    if (outcome != Answer::Outcome::kFinished) return Error(FailureOf(*answer, outcome));
    Reply reply;
    reply.body = writer.Whole(text, answer->result());
    return reply;
  }
  // An answer that never starts can still be refused with a status of its own.
  std::string first;
  const Answer::Outcome early = wait(first);
  if (early != Answer::Outcome::kNone && early != Answer::Outcome::kFinished) {
    return Error(FailureOf(*answer, early));
  }
  Reply reply;
  // Whoever drops the stream before its end cancels the answer.
  const std::shared_ptr<Answer> held(answer.get(), [answer](Answer* dropped) { dropped->Cancel(); });
  reply.events = [answer = held, writer, wait, usage = request.include_usage, started = false, ended = false,
                  text = echo + first, outcome = early]() mutable -> std::optional<std::string> {
    if (ended) return std::nullopt;
    std::string events;
    if (!started) {
      events = writer.Start();
      started = true;
    } else if (outcome == Answer::Outcome::kNone) {
      outcome = wait(text);
    }
    if (!text.empty()) events += writer.Piece(text);
    text.clear();
    if (outcome == Answer::Outcome::kNone) return events;
    ended = true;
    if (outcome == Answer::Outcome::kFinished) {
      events += writer.End(answer->result(), usage) + CompletionWriter::Done();
    } else {
      events += CompletionWriter::ErrorEvent(FailureOf(*answer, outcome));
    }
    return events;
  };
  return reply;
}

}  // namespace milwright
