#include "serve/http_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <list>

namespace milwright {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// Room for the request line, headers, and the frames of a chunked body beside the body itself.
constexpr size_t kHeadBytes = 64 << 10;
/// Connections beyond those whose answers run or wait: they hear that the queue is full, or ask for /health.
constexpr size_t kSpareConnections = 16;
/// How much is read and dropped behind a request that was refused unread.
constexpr size_t kLingerBytes = 4 << 20;
constexpr int kBacklog = 512;
constexpr Milliseconds kAcceptPoll{100};

/// Waits for `events` until `deadline`; the events that came.
short PollUntil(int socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now()).count();
    pollfd entry{socket, events, 0};
    const int count = poll(&entry, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (count > 0) return entry.revents;
    if (count == 0 || errno != EINTR) return 0;
  }
}

/// A connection's bytes, with limits on how many a request may have and how long they may take. (httplib's own stream
/// has no limit on the length of a header line or of a chunked body, nor on the time of a request.)
class Connection : public httplib::Stream {
 public:
  Connection(int socket, const HttpOptions& options) : socket_(socket), options_(options) {}

  void BeginRequest() {
    bytes_left_ = 2 * options_.request_bytes + kHeadBytes;
    read_deadline_ = Clock::now() + options_.read;
  }
  [[nodiscard]] bool HasBytes() const { return begin_ != end_; }
  /// Whether the other side has closed or reset the connection.
  [[nodiscard]] bool IsOpen() const {
    return (PollUntil(socket_, POLLRDHUP, Clock::now()) & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
  }
  /// What was not read of a request makes what follows unreadable.
  void CloseAfterReply() { close_ = true; }
  [[nodiscard]] bool closing() const { return close_; }
  /// Reads on for a moment: closing while the other side still sends would reset the connection, reply and all.
  void Linger() {
    ::shutdown(socket_, SHUT_WR);
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
    for (size_t total = 0; total < kLingerBytes && PollUntil(socket_, POLLIN, deadline) != 0;) {
      const ssize_t count = recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (count <= 0) return;
      total += static_cast<size_t>(count);
    }
  }

  [[nodiscard]] bool is_readable() const override {
    return HasBytes() || PollUntil(socket_, POLLIN, read_deadline_) != 0;
  }
  [[nodiscard]] bool is_writable() const override {
    return (PollUntil(socket_, POLLOUT, Clock::now() + options_.write) & POLLOUT) != 0 && IsOpen();
  }
  ssize_t read(char* to, size_t size) override {
    if (!HasBytes()) {
      if (bytes_left_ == 0 || PollUntil(socket_, POLLIN, read_deadline_) == 0) return -1;
      const ssize_t count = recv(socket_, buffer_.data(), std::min(buffer_.size(), bytes_left_), 0);
      if (count <= 0) return count;
      begin_ = 0;
      end_ = static_cast<size_t>(count);
      bytes_left_ -= end_;
    }
    const size_t count = std::min(size, end_ - begin_);
    std::memcpy(to, buffer_.data() + begin_, count);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, size_t size) override {
    if ((PollUntil(socket_, POLLOUT, Clock::now() + options_.write) & POLLOUT) == 0) return -1;
    return send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { Address(getpeername, ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { Address(getsockname, ip, port); }
  [[nodiscard]] socket_t socket() const override { return socket_; }

 private:
  void Address(int (*get)(int, sockaddr*, socklen_t*), std::string& ip, int& port) const {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> service{};
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (get(socket_, generic, &length) != 0) return;
    if (getnameinfo(generic, length, host.data(), host.size(), service.data(), service.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
      return;
    }
    ip = host.data();
    port = std::atoi(service.data());
  }

  int socket_;
  const HttpOptions& options_;
  std::array<char, 16384> buffer_{};
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t bytes_left_ = 0;
  Clock::time_point read_deadline_;
  bool close_ = false;
};

/// A thread for every connection that is open, up to a limit; threads stay for the next ones.
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  ConnectionThreads(size_t limit, std::atomic<size_t>& count) : limit_(limit), count_(count) {}
  ~ConnectionThreads() override { shutdown(); }

  void enqueue(std::function<void()> task) override {
    {
      // With as many waiting as are served, no more are accepted: they stay in the kernel's backlog.
      std::unique_lock guard(mutex_);
      taken_.wait(guard, [this] { return waiting_.size() < limit_; });
      waiting_.push_back(std::move(task));
      if (waiting_.size() > idle_ && threads_.size() < limit_) {
        threads_.emplace_back([this] { Work(); });
        ++count_;
      }
    }
    changed_.notify_one();
  }
  void shutdown() override {
    {
      const std::lock_guard guard(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    count_ -= threads_.size();
    threads_.clear();
  }

 private:
  void Work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock guard(mutex_);
        ++idle_;
        changed_.wait(guard, [this] { return !waiting_.empty() || stop_; });
        --idle_;
        if (waiting_.empty()) return;
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      taken_.notify_one();
      task();
    }
  }

  const size_t limit_;
  std::atomic<size_t>& count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable taken_;
  std::deque<std::function<void()>> waiting_;
  std::list<std::thread> threads_;
  size_t idle_ = 0;
  bool stop_ = false;
};

/// httplib's server over our connections.
class Listener : public httplib::Server {
 public:
  explicit Listener(const HttpOptions& options) : options_(options) {}

  /// Host names and all; the port, or -1.
  int Bind() {
    set_socket_options([](socket_t socket) {
      // Not SO_REUSEPORT, httplib's default: a second server on the same port shall fail.
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    const int port = options_.port == 0                           ? bind_to_any_port(options_.host)
                     : bind_to_port(options_.host, options_.port) ? options_.port
                                                                  : -1;
    if (port > 0) ::listen(svr_sock_, kBacklog);  // httplib's is 5
    return port;
  }
  void BeginStop() { stopping_ = true; }

 private:
  bool process_and_close_socket(socket_t socket) override {
    Connection connection(socket, options_);
    try {
      bool closed = false;
      while (!closed && !connection.closing() && WaitForRequest(connection)) {
        connection.BeginRequest();
        // Fields that httplib uses in clients only take the connection to the handlers.
        const auto setup = [&connection](httplib::Request& request) {
          request.progress = [&connection](uint64_t, uint64_t) { return connection.IsOpen(); };
          request.response_handler = [&connection](const httplib::Response&) {
            connection.CloseAfterReply();
            return true;
          };
          request.headers.erase("Accept-Encoding");  // no time goes into compressing short texts
          request.ranges.clear();
        };
        if (!process_request(connection, stopping_, closed, setup)) break;
        closed = closed || stopping_;
      }
    } catch (...) {  // out of memory, most likely: this connection ends, the others go on
    }
    if (connection.closing()) connection.Linger();
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return true;
  }

  bool WaitForRequest(const Connection& connection) const {
    if (connection.HasBytes()) return true;
    for (const Clock::time_point deadline = Clock::now() + options_.idle; Clock::now() < deadline && !stopping_;) {
      if (PollUntil(connection.socket(), POLLIN, Clock::now() + kAcceptPoll) != 0) return true;
    }
    return false;
  }

  const HttpOptions& options_;
  std::atomic<bool> stopping_ = false;
};

/// For replies to requests of which something is left unread.
void CloseAfterReply(const httplib::Request& request, httplib::Response& response) {
  request.response_handler(response);
  response.set_header("Connection", "close");
}

bool HasBody(const httplib::Request& request) {
  return request.has_header("Transfer-Encoding") || request.get_header_value<uint64_t>("Content-Length") > 0;
}

void Write(Reply reply, httplib::Response& response) {
  response.status = reply.status;
  if (reply.retry_after > 0) response.set_header("Retry-After", std::to_string(reply.retry_after));
  if (!reply.allow.empty()) response.set_header("Allow", reply.allow);
  if (!reply.events) {
    response.set_content(reply.body, "application/json");
    return;
  }
  response.set_header("Cache-Control", "no-cache");
  response.set_chunked_content_provider("text/event-stream",
                                        [events = std::move(reply.events)](size_t, httplib::DataSink& sink) {
                                          const std::optional<std::string> text = events();
                                          if (!text.has_value()) {
                                            sink.done();
                                            return true;
                                          }
                                          // An empty chunk would end the body.
                                          return text->empty() || sink.write(text->data(), text->size());
                                        });
}

}  // namespace

struct HttpServer::Impl {
  Impl(Service& to_serve, const HttpOptions& how) : service(to_serve), options(how), listener(options) {}

  void AddRoutes();
  void Post(const httplib::Request& request, httplib::Response& response, const httplib::ContentReader& reader);

  Service& service;
  const HttpOptions options;
  std::atomic<size_t> thread_count = 0;
  Listener listener;
  int port = -1;
  std::thread thread;
};

void HttpServer::Impl::AddRoutes() {
  listener.new_task_queue = [this] {
    const ServiceOptions& limits = service.options();
    return new ConnectionThreads(limits.queue + limits.parallel + kSpareConnections, thread_count);
  };
  listener.set_tcp_nodelay(true);
  listener.set_keep_alive_max_count(SIZE_MAX);  // what clients are told; Listener counts no requests
  listener.set_keep_alive_timeout(options.idle.count());
  // Everything but bodies is done before httplib looks for a handler.
  listener.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    const bool has_handler = std::ranges::any_of(Service::Routes(), [&](const Service::Route& route) {
      return route.method == "POST" && request.method == "POST" && route.path == request.path;
    });
    if (has_handler) return httplib::Server::HandlerResponse::Unhandled;
    if (HasBody(request)) CloseAfterReply(request, response);
    const std::string method = request.method == "HEAD" ? "GET" : request.method;
    Write(service.Handle(method, request.path, "", [&request] { return request.progress(0, 0); }), response);
    return httplib::Server::HandlerResponse::Handled;
  });
  for (const Service::Route& route : Service::Routes()) {
    if (route.method != "POST") continue;
    listener.Post(std::string(route.path),
                  [this](const httplib::Request& request, httplib::Response& response,
                         const httplib::ContentReader& reader) { Post(request, response, reader); });
  }
  // Errors that httplib finds itself have no body yet.
  listener.set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty() || response.status < 400) return;
    const std::string what = response.status == 414 ? "the address is too long" : "the request is not valid HTTP";
    response.set_content(FormatError({response.status, what}), "application/json");
  });
  listener.set_exception_handler([](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
    Write(Service::Error({500, "the server could not handle the request"}), response);
  });
}

void HttpServer::Impl::Post(const httplib::Request& request, httplib::Response& response,
                            const httplib::ContentReader& reader) {
  const auto refuse = [&](const ApiError& error) {
    CloseAfterReply(request, response);
    Write(Service::Error(error), response);
  };
  if (request.is_multipart_form_data()) return refuse({415, "the body must be application/json"});
  const ApiError too_large = {413, fmt::format("the body is longer than {} bytes", options.request_bytes)};
  if (request.get_header_value<uint64_t>("Content-Length") > options.request_bytes) return refuse(too_large);
  std::string body;
  bool too_long = false;
  const bool whole = reader([&](const char* data, size_t size) {
    too_long = size > options.request_bytes - body.size();
    if (!too_long) body.append(data, size);
    return !too_long;
  });
  if (too_long) return refuse(too_large);
  if (!whole) return refuse({400, "the body did not arrive whole"});
  Write(service.Handle("POST", request.path, body, [&request] { return request.progress(0, 0); }), response);
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() { Stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::Start(Service& service, const HttpOptions& options) {
  try {
    auto impl = std::make_unique<Impl>(service, options);
    impl->AddRoutes();
    errno = 0;
    impl->port = impl->listener.Bind();
    if (impl->port <= 0) {
      return Status(ErrorCode::kUsage, fmt::format("cannot listen on {}:{}: {}", options.host, options.port,
                                                   errno != 0 ? std::strerror(errno) : "no such address"));
    }
    impl->thread = std::thread([&listener = impl->listener] { listener.listen_after_bind(); });
    // Until it runs, httplib's stop() does nothing.
    while (!impl->listener.is_running()) std::this_thread::sleep_for(Milliseconds(1));
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
  } catch (const std::exception& error) {
    return Status(ErrorCode::kRuntime, fmt::format("cannot start the server: {}", error.what()));
  }
}

int HttpServer::port() const { return impl_->port; }

size_t HttpServer::threads() const { return impl_->thread_count; }

void HttpServer::Stop() {
  if (!impl_->thread.joinable()) return;
  impl_->listener.BeginStop();
  impl_->listener.stop();
  impl_->thread.join();
}

}  // namespace milwright
