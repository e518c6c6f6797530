// The server as a client meets it.
#include <httplib.h>

#include <cstdlib>
#include <fstream>
#include <latch>
#include <random>
#include <sstream>

#include "llm/session.h"
#include "serve/http_server.h"
#include "small_build.h"
#include "support/files.h"

namespace milwright {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

/// A field of /proc/self/status as a number: "VmRSS" (in kB), "Threads".
int64_t ProcessFigure(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1);
  }
  return -1;
}

bool WaitFor(const std::function<bool()>& condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

struct Streamed {
  std::string text;
  std::string finish;
  json usage;
  bool done = false;  ///< [DONE] came
};

/// The events of a stream put together.
Streamed ReadEvents(const std::string& body) {
  Streamed streamed;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    if (line == "data: [DONE]") {
      streamed.done = true;
      continue;
    }
    EXPECT_FALSE(streamed.done);
    const json event = json::parse(line.substr(6), nullptr, false);
    EXPECT_FALSE(event.is_discarded()) << line;
    if (event.contains("usage")) streamed.usage = event["usage"];
    for (const json& choice : event["choices"]) {
      if (choice.contains("text")) streamed.text += choice["text"].get<std::string>();
      if (choice.contains("delta")) streamed.text += choice["delta"].value("content", "");
      if (choice["finish_reason"].is_string()) streamed.finish = choice["finish_reason"];
    }
  }
  return streamed;
}

class HttpTest : public ::testing::Test {
  void TestBody() override {}  // an instance that is no test sends the first request

 protected:
#ifdef __SANITIZE_THREAD__
  /// Debian's libcpp-httplib is not instrumented: ThreadSanitizer does not see what guards its function-local statics
  /// and would report each as a race. Requests one after another make them before the threads that share them exist.
  static void SetUpTestSuite() {
    HttpTest first;
    first.Start();
    const char* streamed = R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "stream": true})";
    for (const char* body : {"{}", streamed}) EXPECT_TRUE(first.Post("/v1/chat/completions", body));
    first.TearDown();
  }
#endif
  void Start(ServiceOptions options = {}, HttpOptions http = {}) {
    auto service = Service::Open(testing::SmallBuild(), ReferenceEngine(), options);
    ASSERT_OK(service);
    service_ = *std::move(service);
    http.port = 0;
    auto server = HttpServer::Start(*service_, http);
    ASSERT_OK(server);
    server_ = *std::move(server);
  }
  void TearDown() override {
    if (service_ == nullptr) return;
    service_->BeginShutdown();
    service_->Abort();
    server_.reset();
  }
  std::unique_ptr<httplib::Client> Client() const {
    auto client = std::make_unique<httplib::Client>("127.0.0.1", server_->port());
    client->set_read_timeout(600s);  // a sanitizer's build answers 200 clients in minutes
    return client;
  }
  httplib::Result Post(const std::string& path, const std::string& body) const {
    return Client()->Post(path, body, "application/json");
  }
  bool IsIdle() const { return service_->generator().running() == 0 && service_->generator().queued() == 0; }

  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> server_;
};

std::string ChatBody(const json& messages, json more = json::object()) {
  more["messages"] = messages;
  more["temperature"] = 0;
  if (!more.contains("max_tokens")) more["max_tokens"] = 8;
  return more.dump();
}

TEST_F(HttpTest, AnswersWholeAndStreamed) {
  Start();
  const json messages = {{{"role", "user"}, {"content", "Good morrow, my lord."}}};
  const auto whole = Post("/v1/chat/completions", ChatBody(messages));
  ASSERT_TRUE(whole);
  ASSERT_EQ(whole->status, 200) << whole->body;
  const json answer = json::parse(whole->body);
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 8);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  const std::string text = answer["choices"][0]["message"]["content"];
  EXPECT_FALSE(text.empty());

  const auto streamed = Post("/v1/chat/completions",
                             ChatBody(messages, {{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  ASSERT_TRUE(streamed);
  EXPECT_EQ(streamed->get_header_value("Content-Type"), "text/event-stream");
  const Streamed events = ReadEvents(streamed->body);
  EXPECT_TRUE(events.done);
  EXPECT_EQ(events.text, text);
  EXPECT_EQ(events.finish, "length");
  const int64_t prompt_tokens = answer["usage"]["prompt_tokens"];
  EXPECT_EQ(events.usage["prompt_tokens"], prompt_tokens);
  EXPECT_EQ(events.usage["prompt_tokens_details"]["cached_tokens"], prompt_tokens - 1);

  // The conversation goes on: all but what the template puts between turns is there.
  json longer = messages;
  longer.push_back({{"role", "assistant"}, {"content", text}});
  longer.push_back({{"role", "user"}, {"content", "And then?"}});
  const auto next = Post("/v1/chat/completions", ChatBody(longer));
  ASSERT_TRUE(next);
  EXPECT_GE(json::parse(next->body)["usage"]["prompt_tokens_details"]["cached_tokens"], prompt_tokens - 4);
  EXPECT_EQ(service_->sessions().live(), 1U);

  // Completions: text or tokens, an echo, a stop string.
  const json by_text = json::parse(Post("/v1/completions", R"({"prompt": "ROMEO:", "temperature": 0})")->body);
  EXPECT_EQ(by_text["usage"]["completion_tokens"], 16);
  const json tokens = json::parse(Post("/tokenize", R"({"content": "ROMEO:", "add_special": true})")->body);
  const json by_tokens = json::parse(
      Post("/v1/completions", json{{"prompt", tokens["tokens"]}, {"temperature", 0}, {"echo", true}}.dump())->body);
  const std::string continued = by_text["choices"][0]["text"];
  EXPECT_EQ(by_tokens["choices"][0]["text"], "ROMEO:" + continued);
  EXPECT_EQ(json::parse(Post("/detokenize", tokens.dump())->body)["content"], "ROMEO:");
  const std::string stop = continued.substr(continued.size() / 2, 3);
  const json stopped =
      json::parse(Post("/v1/completions", json{{"prompt", "ROMEO:"}, {"temperature", 0}, {"stop", stop}}.dump())->body);
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(stopped["choices"][0]["text"], continued.substr(0, continued.find(stop)));

  // The same seed gives the same text.
  const std::string sampled = R"({"prompt": "ROMEO:", "temperature": 1.5, "top_p": 0.9, "seed": 7})";
  EXPECT_EQ(json::parse(Post("/v1/completions", sampled)->body)["choices"],
            json::parse(Post("/v1/completions", sampled)->body)["choices"]);
}

TEST_F(HttpTest, RefusesInTheApisShape) {
  HttpOptions http;
  http.request_bytes = 4096;
  Start({}, http);
  const auto expect = [](const httplib::Result& result, int status, const std::string& what) {
    ASSERT_TRUE(result) << what;
    EXPECT_EQ(result->status, status) << what << ": " << result->body;
    const json error = json::parse(result->body, nullptr, false);
    ASSERT_TRUE(error.is_object() && error.contains("error")) << result->body;
    for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(error["error"].contains(key)) << key;
  };
  expect(Client()->Get("/nothing"), 404, "no such path");
  expect(Client()->Get("/v1/completions"), 405, "GET of a POST");
  expect(Client()->Put("/health", "body", "text/plain"), 405, "PUT of a GET");
  expect(Post("/v1/completions", "{"), 400, "no JSON");
  expect(Post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": 4}]})"), 400, "wrong type");
  expect(Post("/v1/completions", R"({"prompt": [1024]})"), 400, "token outside the vocabulary");
  expect(Post("/v1/completions", json{{"prompt", std::vector<int>(160, 1)}}.dump()), 400, "too long for the context");
  expect(Post("/tokenize", std::string(5000, ' ')), 413, "too long");
  expect(Client()->Post("/tokenize", httplib::MultipartFormDataItems{{"a", "b", "", ""}}), 415, "multipart");
  expect(Client()->Get(("/" + std::string(9000, 'a')).c_str()), 414, "long address");
  const auto chunked = Client()->Post(
      "/tokenize",
      [](size_t offset, httplib::DataSink& sink) {
        const std::string part(1000, ' ');
        if (offset < 1000000) return sink.write(part.data(), part.size());
        sink.done();
        return true;
      },
      "application/json");
  if (chunked) expect(chunked, 413, "too long, length not told");
  const auto models = Client()->Get("/v1/models");
  ASSERT_TRUE(models);
  EXPECT_EQ(json::parse(models->body)["data"][0]["id"], "small");
  EXPECT_EQ(Client()->Head("/health")->status, 200);
}

// A body without end, and a header line without end: the connection goes, and the server lives.
TEST_F(HttpTest, BoundsTheBytesOfARequest) {
  HttpOptions http;
  http.request_bytes = 4096;
  Start({}, http);
  for (const char* head : {"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
                           "GET /health HTTP/1.1\r\nX: ", "GET /"}) {
    const int64_t before = ProcessFigure("VmRSS");
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::send(socket, head, std::strlen(head), MSG_NOSIGNAL);
    const std::string filler(1 << 16, 'a');
    size_t sent = 0;
    while (sent < (64U << 20)) {
      const ssize_t count = ::send(socket, filler.data(), filler.size(), MSG_NOSIGNAL);
      if (count <= 0) break;
      sent += static_cast<size_t>(count);
    }
    ::close(socket);
    EXPECT_LT(sent, 64U << 20) << head;
    EXPECT_LT(ProcessFigure("VmRSS") - before, 8 << 10) << head;
  }
  EXPECT_EQ(Client()->Get("/health")->status, 200);
}

// Endless answers: ignore_eos, as many tokens as the context has.
std::string LongBody(bool stream) {
  return json{{"prompt", "ROMEO:"}, {"temperature", 0}, {"max_tokens", 150}, {"ignore_eos", true}, {"stream", stream}}
      .dump();
}

TEST_F(HttpTest, QueueIsBounded) {
  ServiceOptions options;
  options.parallel = 1;
  options.sessions = 1;
  options.queue = 1;
  Start(options);
  // One client whose stream goes on until it is told to leave, and one that waits behind it.
  std::atomic<bool> leave = false;
  std::latch running(1);
  std::thread first([&] {
    bool started = false;
    auto client = Client();
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = LongBody(true);
    request.content_receiver = [&](const char*, size_t, uint64_t, uint64_t) {
      if (!std::exchange(started, true)) running.count_down();
      return !leave;
    };
    client->send(request);
    if (!started) running.count_down();
  });
  running.wait();
  std::thread second([&] { EXPECT_EQ(Post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})")->status, 200); });
  EXPECT_TRUE(WaitFor([&] { return service_->generator().queued() == 1; }));
  const auto refused = Post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429) << refused->body;
  EXPECT_EQ(refused->get_header_value("Retry-After"), "1");
  EXPECT_EQ(Client()->Get("/health")->status, 200);
  leave = true;
  first.join();
  second.join();
  EXPECT_TRUE(WaitFor([&] { return IsIdle(); }));
}

TEST_F(HttpTest, ShutdownFinishesOrEndsAnswers) {
  ServiceOptions options;
  options.parallel = 1;
  options.sessions = 1;
  Start(options);
  std::thread running([&] {
    const auto result = Post("/v1/completions", LongBody(true));
    ASSERT_TRUE(result);
    // Ended in mid-stream: an error event, no [DONE]. (Unless it was faster than the shutdown.)
    EXPECT_TRUE(result->body.find("shutting_down") != std::string::npos || ReadEvents(result->body).done);
  });
  EXPECT_TRUE(WaitFor([&] { return service_->generator().running() == 1; }));
  std::thread waiting([&] { EXPECT_EQ(Post("/v1/completions", LongBody(false))->status, 503); });
  EXPECT_TRUE(WaitFor([&] { return service_->generator().queued() == 1 || IsIdle(); }));
  service_->BeginShutdown();
  waiting.join();
  EXPECT_EQ(Post("/v1/completions", R"({"prompt": "a"})")->status, 503);
  EXPECT_EQ(Client()->Get("/health")->status, 503);
  service_->Drain(1ms);
  service_->Abort();
  EXPECT_TRUE(service_->Drain(5s));
  running.join();
  server_->Stop();
  EXPECT_EQ(server_->threads(), 0U);
  EXPECT_FALSE(Client()->Get("/health"));
}

TEST_F(HttpTest, PortInUseIsAnError) {
  Start();
  HttpOptions http;
  http.port = server_->port();
  const auto second = HttpServer::Start(*service_, http);
  EXPECT_EQ(second.status().code(), ErrorCode::kUsage);
  EXPECT_NE(second.status().message().find("cannot listen on"), std::string::npos) << second.status().message();
}

// ---- two hundred clients at once ----

json Conversation(size_t i) {
  static const std::array<const char*, 5> kOpenings = {"Good morrow, my lord.", "What news from the king?",
                                                       "Who goes there?", "I pray thee, speak.",
                                                       "Where is thy master \xC3\xA9l\xC3\xA8ve?"};
  json messages = {{{"role", "system"}, {"content", "A street in Verona. Enter two gentlemen."}},
                   {{"role", "user"}, {"content", kOpenings[i % kOpenings.size()]}}};
  if (i / kOpenings.size() % 2 == 1) {
    messages.push_back({{"role", "assistant"}, {"content", "I know not, sir."}});
    messages.push_back({{"role", "user"}, {"content", "Then be gone, number " + std::to_string(i) + "!"}});
  }
  return messages;
}

TEST_F(HttpTest, TwoHundredClientsAtOnce) {
  constexpr size_t kClients = 200;
  constexpr size_t kConversations = 20;
  constexpr uint64_t kSeed = 20261130;
  const int64_t threads_before = ProcessFigure("Threads");
  ServiceOptions options;
  options.sessions = 6;
  options.parallel = 3;
  options.queue = 180;  // fewer than clients: some are refused
  Start(options);

  // Each conversation alone, in a session of its own.
  std::vector<std::string> expected;
  {
    auto pipeline = Pipeline::Open(testing::SmallBuild(), ReferenceEngine());
    ASSERT_OK(pipeline);
    Session session(*std::move(pipeline));
    const auto tokenizer = Tokenizer::Load(testing::SmallBuild());
    const auto chat = ChatTemplate::Load(testing::SmallBuild());
    ASSERT_OK(tokenizer);
    ASSERT_OK(chat);
    for (size_t i = 0; i < kConversations; ++i) {
      ChatRequest request;
      request.messages = Conversation(i);
      const auto ids = tokenizer->Encode(*chat->Render(request), false);
      ASSERT_OK(ids);
      GenerateOptions greedy;
      greedy.max_tokens = 8;
      ASSERT_OK(session.Reset());
      const auto alone = Generate(session, *tokenizer, std::vector<int64_t>(ids->begin(), ids->end()), greedy);
      ASSERT_OK(alone);
      expected.push_back(alone->text);
    }
  }

  std::atomic<size_t> completed = 0, refused = 0, left = 0, wrong = 0, reused = 0;
  std::atomic<size_t> most_threads = 0, most_sessions = 0, most_queued = 0;
  const auto client = [&](size_t number, uint64_t seed) {
    std::mt19937_64 random(seed + number);
    const size_t conversation = random() % kConversations;
    const bool stream = random() % 2 == 0;
    const bool leaves = random() % 10 < 3;
    const size_t leaves_after = random() % 600;  // bytes of a stream, or milliseconds
    auto http = Client();
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/chat/completions";
    request.headers.emplace("Content-Type", "application/json");
    request.body = ChatBody(Conversation(conversation), {{"stream", stream}});
    std::string body;
    request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      body.append(data, size);
      return !(leaves && stream && body.size() > leaves_after);
    };
    if (leaves && !stream) http->set_read_timeout(std::chrono::milliseconds(1 + leaves_after));
    const auto result = http->send(request);
    if (!result) {
      ++left;
      if (!leaves) ++wrong;
      return;
    }
    if (result->status == 429) {
      ++refused;
      return;
    }
    ++completed;
    const json whole = stream ? json() : json::parse(body, nullptr, false);
    const std::string text =
        stream ? ReadEvents(body).text : whole["choices"][0]["message"]["content"].get<std::string>();
    if (result->status != 200 || text != expected[conversation]) {
      ++wrong;
      ADD_FAILURE() << "client " << number << " seed " << kSeed << " status " << result->status << ": '" << text
                    << "', alone '" << expected[conversation] << "'";
    }
    if (!stream && whole["usage"]["prompt_tokens_details"]["cached_tokens"] > 0) ++reused;
  };
  const auto round = [&](uint64_t seed) {
    std::vector<std::thread> clients;
    std::latch start(kClients);
    for (size_t i = 0; i < kClients; ++i) {
      clients.emplace_back([&, i] {
        start.arrive_and_wait();
        client(i, seed);
      });
    }
    std::atomic<bool> over = false;
    std::thread watch([&] {
      while (!over) {
        most_threads = std::max(most_threads.load(), server_->threads());
        most_sessions = std::max(most_sessions.load(), service_->sessions().live());
        most_queued = std::max(most_queued.load(), service_->generator().queued());
        std::this_thread::sleep_for(2ms);
      }
    });
    for (std::thread& thread : clients) thread.join();
    over = true;
    watch.join();
    EXPECT_TRUE(WaitFor([&] { return IsIdle() && service_->sessions().taken() == 0; }));
  };
  round(kSeed);
  const int64_t before = ProcessFigure("VmRSS");
  round(kSeed + kClients);
  const int64_t growth = ProcessFigure("VmRSS") - before;

  // What the first round made (sessions, threads' stacks, the allocator's arenas) serves the second: anything that
  // leaked with each of 200 requests, be it a copy of the caches (40 kB) alone, would show as 8 MB.
  constexpr int64_t kGrowthBound = 6 << 10;  // kB
  if (!testing::kSanitized) {                // whose own memory grows
    EXPECT_LT(growth, kGrowthBound);
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(completed, kClients / 2);
  EXPECT_GT(left, 0U);
  EXPECT_GT(reused, 0U);
  EXPECT_LE(most_queued, options.queue + options.parallel);
  EXPECT_LE(most_sessions, options.sessions);
  EXPECT_LE(most_threads, options.queue + options.parallel + 16);
  std::printf(
      "2 x %zu clients: %zu completed, %zu refused (429), %zu left early; at most %zu queued, %zu sessions, %zu "
      "connection threads; RSS +%ld kB in the second round\n",
      kClients, completed.load(), refused.load(), left.load(), most_queued.load(), most_sessions.load(),
      most_threads.load(), static_cast<long>(growth));
  service_->BeginShutdown();
  server_->Stop();
  EXPECT_EQ(server_->threads(), 0U);
  service_.reset();
  EXPECT_EQ(ProcessFigure("Threads"), threads_before);
}

// ---- clients of other makes ----

int Shell(const std::string& command, std::string& output) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return -1;
  std::array<char, 4096> buffer{};
  for (size_t count; (count = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) output.append(buffer.data(), count);
  return pclose(pipe);
}

TEST_F(HttpTest, ServesCurl) {
  std::string output;
  if (Shell("curl --version", output) != 0) GTEST_SKIP() << "curl is not installed";
  Start();
  output.clear();
  const std::string url = "http://127.0.0.1:" + std::to_string(server_->port());
  EXPECT_EQ(Shell("curl -sS --fail " + url + R"(/v1/chat/completions -H 'Content-Type: application/json' -d ')" +
                      ChatBody(Conversation(0)) + "'",
                  output),
            0)
      << output;
  EXPECT_EQ(json::parse(output)["choices"][0]["finish_reason"], "length") << output;
  output.clear();
  EXPECT_EQ(Shell("curl -sSN --fail --compressed " + url + R"(/v1/completions -d ')" + LongBody(true) + "'", output),
            0);
  EXPECT_TRUE(ReadEvents(output).done) << output;
}

// tests/oracles has the script; MILWRIGHT_ORACLES is a folder where `npm install` ran (scripts/oracles).
TEST_F(HttpTest, ServesOpenAisClient) {
  const char* folder = std::getenv("MILWRIGHT_ORACLES");
  if (folder == nullptr || !std::filesystem::exists(std::string(folder) + "/node_modules/openai")) {
    GTEST_SKIP() << "needs MILWRIGHT_ORACLES, a folder with the npm package 'openai' (scripts/oracles)";
  }
  Start();
  std::string output;
  EXPECT_EQ(Shell("node " + std::string(folder) +
                      "/openai_client.mjs http://127.0.0.1:" + std::to_string(server_->port()) + "/v1",
                  output),
            0)
      << output;
}

}  // namespace
}  // namespace milwright
