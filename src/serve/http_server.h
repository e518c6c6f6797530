// A service over HTTP/1.1.
#ifndef MILWRIGHT_SERVE_HTTP_SERVER_H_
#define MILWRIGHT_SERVE_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "milwright/status.h"
#include "serve/service.h"

namespace milwright {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                 ///< 0: any that is free
  size_t request_bytes = 1 << 20;  ///< longest body; longer ones are refused with 413
  std::chrono::seconds idle{5};    ///< a connection without a request is closed after this
  std::chrono::seconds read{30};   ///< a request must have arrived in this time
  std::chrono::seconds write{10};  ///< a client that takes nothing for this long is gone
};

/// Listens from Start until Stop or destruction, with a thread for each connection, no more than the service's queue
/// can hold and some to refuse the others. The only part that knows cpp-httplib; nothing it throws comes out.
class HttpServer {
 public:
  /// `service` outlives the server. kUsage: the address cannot be had.
  static Result<std::unique_ptr<HttpServer>> Start(Service& service, const HttpOptions& options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] int port() const;
  /// Threads that serve connections now.
  [[nodiscard]] size_t threads() const;
  /// Closes the listening socket, and every connection when its request is answered; waits for them. Shut the service
  /// down first, or this takes as long as its answers.
  void Stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace milwright

#endif  // MILWRIGHT_SERVE_HTTP_SERVER_H_
