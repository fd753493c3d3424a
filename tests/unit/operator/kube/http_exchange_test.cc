// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/http_exchange.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <curl/curl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/mutex.h"

namespace pushpull_operator {
namespace {

using pushpull::Deadline;
using pushpull::FileDescriptor;
using pushpull::MutexLock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

// What a server says that closes a connection nobody uses.
const std::string kFarewell = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n";

// Serves connections one after another: reads a request, sends the next of the connection's
// answers, and closes the connection after the last one. Then it accepts no more. A farewell is
// sent without a request, when the test says so.
class ScriptedServer {
 public:
  using Answers = std::vector<std::string>;

  explicit ScriptedServer(std::vector<Answers> connections)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    PUSHPULL_CHECK(bind(listener_.get(), generic, size) == 0);
    PUSHPULL_CHECK(listen(listener_.get(), 8) == 0);
    PUSHPULL_CHECK(getsockname(listener_.get(), generic, &size) == 0);
    address_ = {.host = "127.0.0.1", .port = ntohs(address.sin_port), .uses_tls = false};
    thread_ = std::thread([this, script = std::move(connections)] { Serve(script); });
  }
  ~ScriptedServer() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  const ServerAddress& address() const { return address_; }
  int num_requests() {
    MutexLock lock(mu_);
    return num_requests_;
  }
  void LetFarewellGo() {
    MutexLock lock(mu_);
    may_say_farewell_ = true;
    changed_.NotifyAll();
  }
  bool AwaitClosed(int num_connections) {
    const Deadline deadline = Deadline::After(seconds(10));
    MutexLock lock(mu_);
    while (num_closed_ < num_connections) {
      if (!changed_.WaitUntil(mu_, deadline)) return num_closed_ >= num_connections;
    }
    return true;
  }

 private:
  void Serve(const std::vector<Answers>& connections) {
    for (const Answers& answers : connections) {
      FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd.is_open()) return;
      for (const std::string& answer : answers) {
        const bool is_due = answer == kFarewell ? AwaitFarewell() : ReadRequest(fd.get());
        if (!is_due) break;
        Send(fd.get(), answer);
      }
      fd.Reset();
      MutexLock lock(mu_);
      ++num_closed_;
      changed_.NotifyAll();
    }
  }

  bool AwaitFarewell() {
    const Deadline deadline = Deadline::After(seconds(10));
    MutexLock lock(mu_);
    while (!may_say_farewell_) {
      if (!changed_.WaitUntil(mu_, deadline)) return false;
    }
    return true;
  }

  // Requests of these tests have no body.
  bool ReadRequest(int fd) {
    std::string request;
    while (request.find("\r\n\r\n") == std::string::npos) {
      char byte = 0;
      if (recv(fd, &byte, 1, 0) != 1) return false;
      request += byte;
    }
    MutexLock lock(mu_);
    ++num_requests_;
    return true;
  }

  static void Send(int fd, const std::string& text) {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  }

  const FileDescriptor listener_;
  ServerAddress address_;
  pushpull::Mutex mu_;
  pushpull::CondVar changed_;
  int num_requests_ ABSL_GUARDED_BY(mu_) = 0;
  int num_closed_ ABSL_GUARDED_BY(mu_) = 0;
  bool may_say_farewell_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses all of the above
};

HttpResponse Send(HttpClient& client, const std::string& method, milliseconds time = seconds(20)) {
  const Cancellation never;
  return client.Exchange(
      {.method = method, .target = "/x"}, {}, nullptr, {Deadline::After(time), never});
}

absl::Status StatusAfter(const std::string& answer) {
  ScriptedServer server({{answer}});
  HttpClient client(server.address());
  return Send(client, "GET").status;
}

TEST(HttpExchangeTest, AnAnswerIsReadWithItsHeaders) {
  ScriptedServer server(
      {{"HTTP/1.1 429 Busy\r\nretry-after: 7\r\nContent-Length: 3\r\n"
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nno!"}});
  HttpClient client(server.address());

  const HttpResponse response = Send(client, "GET");

  ASSERT_TRUE(response.status.ok()) << response.status;
  EXPECT_EQ(response.code, 429);
  EXPECT_EQ(response.body, "no!");
  EXPECT_EQ(response.retry_after, seconds(7));
  EXPECT_EQ(response.date->time_since_epoch(), seconds(784'111'777));
}

TEST(HttpExchangeTest, AnIncompleteAnswerIsUnavailable) {
  for (const char* answer : {"",
                             "HTTP/1.1 200 OK\r\nContent-Len",
                             "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
                             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nshort",
                             "no HTTP at all\r\n\r\n"}) {
    const absl::Status status = StatusAfter(answer);

    EXPECT_TRUE(absl::IsUnavailable(status)) << answer << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("API server 127.0.0.1:"));
  }
}

TEST(HttpExchangeTest, HeadersAndBodiesAreBounded) {
  const std::string line = "A: " + std::string(1000, 'a') + "\r\n";
  std::string head = "HTTP/1.1 200 OK\r\n";
  while (head.size() <= kHeadBytesMax) head += line;

  EXPECT_TRUE(absl::IsResourceExhausted(StatusAfter(head)));
  EXPECT_TRUE(absl::IsResourceExhausted(
      StatusAfter("HTTP/1.1 200 OK\r\n\r\n" + std::string(kResponseBytesMax + 1, 'b'))));
}

TEST(HttpExchangeTest, ARedirectIsNotFollowed) {
  ScriptedServer server({{"HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n"}});
  HttpClient client(server.address());

  EXPECT_EQ(Send(client, "GET").code, 302);
  EXPECT_EQ(server.num_requests(), 1);
}

TEST(HttpExchangeTest, AProxyOfTheEnvironmentIsNotUsed) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  {
    ScriptedServer server({{kOk}});
    HttpClient client(server.address());

    EXPECT_TRUE(Send(client, "GET").status.ok());
  }
  unsetenv("http_proxy");  // NOLINT(concurrency-mt-unsafe): there is one thread
}

TEST(HttpExchangeTest, ASinkReceivesTheBodyAndCanStop) {
  ScriptedServer server({{kOk}, {kOk}});
  HttpClient client(server.address());
  const Cancellation never;
  std::string received;

  const HttpResponse streamed = client.Exchange({.method = "GET", .target = "/x"},
                                                {},
                                                [&received](absl::string_view piece) {
                                                  received.append(piece.data(), piece.size());
                                                  return absl::OkStatus();
                                                },
                                                {Deadline::After(seconds(20)), never});
  ASSERT_TRUE(server.AwaitClosed(1));
  const HttpResponse stopped =
      client.Exchange({.method = "GET", .target = "/x"},
                      {},
                      [](absl::string_view) { return absl::DataLossError("garbage"); },
                      {Deadline::After(seconds(20)), never});

  EXPECT_TRUE(streamed.status.ok()) << streamed.status;
  EXPECT_EQ(received, "ok");
  EXPECT_TRUE(streamed.body.empty());
  EXPECT_EQ(stopped.status, absl::DataLossError("garbage"));
}

TEST(HttpExchangeTest, AConnectionIsReusedUntilTheServerClosesIt) {
  ScriptedServer server({{kOk, kOk}, {kOk}});
  HttpClient client(server.address());

  EXPECT_TRUE(Send(client, "GET").status.ok());
  EXPECT_TRUE(Send(client, "POST").status.ok());
  ASSERT_TRUE(server.AwaitClosed(1));
  EXPECT_TRUE(Send(client, "POST").status.ok());
  EXPECT_EQ(server.num_requests(), 3);
}

TEST(HttpExchangeTest, AConnectionWithAFarewellIsNotUsedAgain) {
  ScriptedServer server({{kOk, kFarewell}, {kOk}});
  HttpClient client(server.address());
  ASSERT_TRUE(Send(client, "GET").status.ok());
  server.LetFarewellGo();
  ASSERT_TRUE(server.AwaitClosed(1));

  const HttpResponse answered = Send(client, "POST");

  EXPECT_TRUE(answered.status.ok()) << answered.status;
  EXPECT_EQ(answered.code, 200);
}

TEST(HttpExchangeTest, NoRequestIsSentTwice) {
  // When a reused connection ends without an answer, libcurl makes a new one for the same request.
  ScriptedServer server({{kOk, ""}, {}, {kOk}});
  HttpClient client(server.address());
  ASSERT_TRUE(Send(client, "GET").status.ok());

  const HttpResponse lost = Send(client, "POST");

  EXPECT_TRUE(absl::IsUnavailable(lost.status)) << lost.status;
  EXPECT_TRUE(lost.was_sent);
  EXPECT_EQ(server.num_requests(), 2);
  EXPECT_TRUE(Send(client, "POST").status.ok());
}

TEST(HttpExchangeTest, ARefusedConnectionHasSentNothing) {
  ServerAddress address;
  { address = ScriptedServer({}).address(); }
  HttpClient client(address);

  const HttpResponse refused = Send(client, "POST");

  EXPECT_TRUE(absl::IsUnavailable(refused.status)) << refused.status;
  EXPECT_FALSE(refused.was_sent);
}

// A server that accepts connections and stays silent, also during the TLS handshake.
class SilentServerTest : public testing::TestWithParam<bool> {
 protected:
  SilentServerTest() {
    address_.uses_tls = GetParam();
    auth_.tls = address_.uses_tls ? std::make_shared<const TlsMaterial>() : nullptr;
  }

  HttpResponse Send(const CallLimit& limit) {
    HttpClient client(address_);
    return client.Exchange({.method = "GET", .target = "/x"}, auth_, nullptr, limit);
  }

  ScriptedServer server_{{}};
  ServerAddress address_ = server_.address();
  RequestAuth auth_;
};

TEST_P(SilentServerTest, TheDeadlineEndsTheExchange) {
  const Cancellation never;

  const HttpResponse response = Send({Deadline::After(milliseconds(50)), never});

  EXPECT_TRUE(absl::IsDeadlineExceeded(response.status)) << response.status;
  EXPECT_EQ(response.was_sent, !address_.uses_tls);
}

TEST_P(SilentServerTest, ACancellationEndsTheExchange) {
  Cancellation cancellation;
  absl::Status status;
  std::thread call([&] { status = Send({Deadline::After(seconds(60)), cancellation}).status; });

  cancellation.Cancel();
  call.join();

  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

INSTANTIATE_TEST_SUITE_P(PlainAndTls, SilentServerTest, testing::Bool());

TEST(StatusFromCurlTest, CodesSayWhatTheCallerShouldDo) {
  const std::vector<std::pair<CURLcode, absl::StatusCode>> table = {
      {CURLE_OK, absl::StatusCode::kOk},
      {CURLE_OPERATION_TIMEDOUT, absl::StatusCode::kDeadlineExceeded},
      {CURLE_URL_MALFORMAT, absl::StatusCode::kInvalidArgument},
      {CURLE_SSL_CACERT_BADFILE, absl::StatusCode::kInvalidArgument},
      {CURLE_SSL_CERTPROBLEM, absl::StatusCode::kInvalidArgument},
      {CURLE_COULDNT_RESOLVE_HOST, absl::StatusCode::kUnavailable},
      {CURLE_COULDNT_CONNECT, absl::StatusCode::kUnavailable},
      {CURLE_SSL_CONNECT_ERROR, absl::StatusCode::kUnavailable},
      {CURLE_PEER_FAILED_VERIFICATION, absl::StatusCode::kUnavailable},
      {CURLE_GOT_NOTHING, absl::StatusCode::kUnavailable},
      {CURLE_PARTIAL_FILE, absl::StatusCode::kUnavailable},
      {CURLE_SEND_ERROR, absl::StatusCode::kUnavailable},
      {CURLE_RECV_ERROR, absl::StatusCode::kUnavailable},
      {CURLE_WEIRD_SERVER_REPLY, absl::StatusCode::kUnavailable},
      {CURLE_OUT_OF_MEMORY, absl::StatusCode::kUnavailable}};
  for (const auto& [code, expected] : table) {
    const absl::Status status = StatusFromCurl(code, "because");

    EXPECT_EQ(status.code(), expected) << curl_easy_strerror(code);
    EXPECT_THAT(std::string(status.message()), HasSubstr(code == CURLE_OK ? "" : ": because"));
  }
}

}  // namespace
}  // namespace pushpull_operator
