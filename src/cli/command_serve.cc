#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <iostream>

#include "cli/commands.h"
#include "cli/engine_options.h"
#include "serve/http_server.h"
#include "serve/service.h"

namespace milwright::cli {
namespace {

using namespace std::chrono_literals;

/// Answers in the making may take this long after the first signal; a second one ends them at once.
constexpr auto kDrainTime = 10s;

/// SIGINT and SIGTERM as something to wait for instead of a handler. Threads made afterwards do not get them either.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  void Wait() const {
    int signal = 0;
    sigwait(&set_, &signal);
  }
  [[nodiscard]] bool Pending() const {
    const timespec none{};
    return sigtimedwait(&set_, nullptr, &none) > 0;
  }

 private:
  sigset_t set_{};
};

Status Run(const ServeArguments& arguments) {
  const StopSignals signals;
  ServiceOptions options;
  options.sessions = arguments.sessions;
  options.parallel = std::min(arguments.parallel, arguments.sessions);
  options.queue = arguments.queue;
  options.max_tokens_limit = arguments.max_tokens_limit;
  HttpOptions http;
  http.host = arguments.host;
  http.port = arguments.port;
  http.request_bytes = arguments.request_bytes;
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Service> service,
                      Service::Open(arguments.path, ReadEngineLoader(arguments.engine), options));
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server, HttpServer::Start(*service, http));
  std::cout << fmt::format("serving {} on http://{}:{}", service->model_name(), http.host, server->port()) << std::endl;
  signals.Wait();
  std::cerr << "finishing what is in the making; interrupt again to stop at once\n";
  service->BeginShutdown();
  const auto deadline = std::chrono::steady_clock::now() + kDrainTime;
  while (!service->Drain(50ms) && !signals.Pending() && std::chrono::steady_clock::now() < deadline) {
  }
  service->Abort();
  server->Stop();
  return Status::Ok();
}

}  // namespace

int Serve(const ServeArguments& arguments) {
  const Status status = Run(arguments);
  return status.ok() ? kFine : Fail(status);
}

}  // namespace milwright::cli
