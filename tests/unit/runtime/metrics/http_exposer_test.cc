// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/http_exposer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/host_port.h"

namespace pushpull {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpExposerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::map<std::string, HttpResource> resources;
    resources["/page.css"] = {.content_type = "text/css; charset=utf-8",
                              .content = [this] { return content_; }};
    absl::StatusOr<std::unique_ptr<HttpExposer>> started = HttpExposer::Start(
        {.listen = "127.0.0.1:0",
         .metrics =
             [this](MetricsFormat format) {
               return format == MetricsFormat::kOpenMetrics ? text_ + "# EOF\n" : text_;
             },
         .ready = [this] { return ready_; },
         .resources = std::move(resources),
         .names = {"x"}});
    ASSERT_TRUE(started.ok()) << started.status();
    exposer_ = *std::move(started);
  }

  FileDescriptor Connect() const {
    FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    where.sin_port = htons(ParseHostPort(exposer_->address())->port);
    EXPECT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
    return connection;
  }

  static void Send(const FileDescriptor& connection, const std::string& bytes) {
    [[maybe_unused]] const ssize_t sent =
        send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  // Everything until the exposer closes the connection.
  static std::string ReadAll(const FileDescriptor& connection) {
    std::string all;
    std::array<char, 4096> buffer;
    for (ssize_t count = 0; (count = read(connection.get(), buffer.data(), buffer.size())) > 0;)
      all.append(buffer.data(), static_cast<size_t>(count));
    return all;
  }

  // `more`: further lines of the request.
  std::string Ask(const std::string& method,
                  const std::string& path,
                  const std::string& more = "") const {
    const FileDescriptor connection = Connect();
    Send(connection, method + " " + path + " HTTP/1.1\r\nHost: x\r\n" + more + "\r\n");
    return ReadAll(connection);
  }
  std::string Get(const std::string& path) const { return Ask("GET", path); }

  // The first answer that is not 503, for 5 s.
  std::string GetOnceFree(const std::string& path) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    std::string answer = Get(path);
    while (answer.rfind("HTTP/1.1 503", 0) == 0 && std::chrono::steady_clock::now() < end)
      answer = Get(path);
    return answer;
  }

  std::string text_ = "pushpull_step 3\n";
  absl::Status ready_;
  HttpContent content_{.text = std::make_shared<const std::string>("body {}\n"), .etag = "v1"};
  std::unique_ptr<HttpExposer> exposer_;
};

TEST_F(HttpExposerTest, ServesTheMetricsText) {
  const std::string answer = Get("/metrics");

  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\npushpull_step 3\n"));
}

TEST_F(HttpExposerTest, IsAliveBeforeItIsReady) {
  ready_ = absl::UnavailableError("no view yet");

  EXPECT_THAT(Get("/livez"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get("/readyz"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Get("/readyz"), HasSubstr("no view yet"));
}

TEST_F(HttpExposerTest, IsReadyWhenTheRoleIs) {
  EXPECT_THAT(Get("/readyz"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpExposerTest, RejectsOtherPathsAndMethods) {
  const FileDescriptor connection = Connect();
  Send(connection, "DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n");

  EXPECT_THAT(ReadAll(connection), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Get("/"), StartsWith("HTTP/1.1 404"));
}

TEST_F(HttpExposerTest, CutsOffAnEndlessRequestAndServesTheNext) {
  const FileDescriptor connection = Connect();
  Send(connection, "GET /" + std::string(1 << 20, 'a'));
  const std::string answer = ReadAll(connection);

  EXPECT_THAT(answer, Not(HasSubstr(" 200 ")));
  EXPECT_THAT(Get("/livez"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpExposerTest, HangingClientsDoNotDelayOthers) {
  std::vector<FileDescriptor> hanging;
  for (int i = 0; i < 8; ++i) {
    hanging.push_back(Connect());
    Send(hanging.back(), "GET /metrics HTTP/1.1\r\n");
  }

  EXPECT_THAT(Get("/livez"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpExposerTest, SilentConnectionsDoNotDelayProbes) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(Connect());
  const auto begin = std::chrono::steady_clock::now();

  const std::string answer = Get("/livez");

  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST_F(HttpExposerTest, ASilentConnectionIsClosedAfterASecond) {
  const FileDescriptor silent = Connect();
  const auto begin = std::chrono::steady_clock::now();

  EXPECT_EQ(ReadAll(silent), "");

  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST_F(HttpExposerTest, ScrapesThatNobodyReadsAreBounded) {
  text_ = std::string(32 << 20, 'a');
  std::vector<FileDescriptor> scrapes;
  for (int i = 0; i < 2; ++i) {
    scrapes.push_back(Connect());
    Send(scrapes.back(), "GET /metrics HTTP/1.1\r\n\r\n");
    char first = 0;  // it is under way
    ASSERT_EQ(read(scrapes.back().get(), &first, 1), 1);
  }

  EXPECT_EQ(Get("/metrics").substr(0, 12), "HTTP/1.1 503");
  EXPECT_THAT(Get("/livez"), StartsWith("HTTP/1.1 200"));
  scrapes.clear();

  EXPECT_EQ(GetOnceFree("/metrics").substr(0, 12), "HTTP/1.1 200");
}

TEST_F(HttpExposerTest, AnswersHeadWithoutBody) {
  const FileDescriptor connection = Connect();
  Send(connection, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");

  const std::string answer = ReadAll(connection);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(HttpExposerTest, AResourceHasItsTypeAndWhatABrowserMayDoWithIt) {
  const std::string answer = Get("/page.css?v=2");

  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: text/css; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 8\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nETag: \"v1\"\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self';"));
  EXPECT_THAT(answer, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(answer, Not(HasSubstr("unsafe-inline")));
  EXPECT_THAT(answer, Not(HasSubstr("Access-Control-Allow-Origin")));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nbody {}\n"));
}

TEST_F(HttpExposerTest, AResourceThatTheClientHasIsNotSentAgain) {
  const std::string same = Ask("GET", "/page.css", "If-None-Match: W/\"v0\", \"v1\"\r\n");
  const std::string other = Ask("GET", "/page.css", "if-none-match: \"v0\"\r\n");

  EXPECT_THAT(same, StartsWith("HTTP/1.1 304"));
  EXPECT_THAT(same, EndsWith("\r\n\r\n"));
  EXPECT_THAT(other, StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpExposerTest, AResourceIsForRequestsToThisHostOnly) {
  const auto ask = [&](const std::string& path, const std::string& headers) {
    const FileDescriptor connection = Connect();
    Send(connection, "GET " + path + " HTTP/1.1\r\n" + headers + "\r\n");
    return ReadAll(connection);
  };

  for (const char* own : {"Host: localhost:9464\r\n", "host:127.0.0.1\r\n", "Host: X:80\r\n"})
    EXPECT_THAT(ask("/page.css", own), StartsWith("HTTP/1.1 200")) << own;
  for (const char* other : {"Host: evil.example:9464\r\n", "Host:\r\n", "Accept: */*\r\n"}) {
    const std::string answer = ask("/page.css", other);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 403")) << other;
    EXPECT_THAT(answer, HasSubstr("PUSHPULL_PAGE_HOSTS"));
  }
  EXPECT_THAT(ask("/page.css", "Host: evil.example\r\n"), HasSubstr("evil.example"));
  // What probes and scrapers ask for, by whatever name.
  EXPECT_THAT(ask("/livez", "Host: evil.example\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpExposerTest, AResourceIsReadOnly) {
  const std::string head = Ask("HEAD", "/page.css");

  EXPECT_THAT(head, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 8\r\n"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
  EXPECT_THAT(Ask("POST", "/page.css"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask("OPTIONS", "/page.css"), StartsWith("HTTP/1.1 405"));
}

TEST_F(HttpExposerTest, AResourceThatIsNotThereYetIsSaidToBe) {
  content_.text = nullptr;

  EXPECT_THAT(Get("/page.css"), StartsWith("HTTP/1.1 503"));
}

TEST_F(HttpExposerTest, ALargeResourceArrivesWhole) {
  content_.text = std::make_shared<const std::string>(8 << 20, 'a');

  const std::string answer = Get("/page.css");

  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4), *content_.text);
}

TEST_F(HttpExposerTest, SurvivesRandomBytes) {
  for (int round = 0; round < 20; ++round) {
    const FileDescriptor connection = Connect();
    std::string bytes(256, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 167 + 31);
    Send(connection, bytes + "\r\n\r\n");
  }

  EXPECT_THAT(Get("/livez"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpExposerTest, AScraperHasTheFormatThatItWants) {
  const std::string answer =
      Ask("GET", "/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0;"));
  EXPECT_THAT(answer, EndsWith("# EOF\n"));
}

TEST_F(HttpExposerTest, IsReadByFetchMetrics) {
  EXPECT_EQ(*FetchMetrics(exposer_->address()), text_);
}

TEST(FetchMetricsTest, NamesTheAddressThatDoesNotAnswer) {
  const absl::Status fetched = FetchMetrics("127.0.0.1:1").status();

  EXPECT_EQ(fetched.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(fetched.message()), HasSubstr("127.0.0.1:1"));
}

TEST(SeriesValueTest, MatchesTheWholeNameOfASeries) {
  const std::string body = "# HELP bytes x\nbytes_total 1\nbytes{a=\"b\"} 2.5\nbytes{a=\"c\"} 3\n";

  EXPECT_EQ(SeriesValue(body, "bytes{a=\"b\"}"), 2.5);
  EXPECT_EQ(SeriesValue(body, "bytes_total"), 1);
  EXPECT_EQ(SeriesValue(body, "bytes"), 0);
}

TEST_F(HttpExposerTest, APortInUseIsNamed) {
  const absl::StatusOr<std::unique_ptr<HttpExposer>> second =
      HttpExposer::Start({.listen = exposer_->address(),
                          .metrics = [](MetricsFormat) { return ""; },
                          .ready = absl::OkStatus});

  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(exposer_->address()));
}

TEST_F(HttpExposerTest, FreesItsPortWhenDestroyed) {
  const std::string address = exposer_->address();
  exposer_.reset();

  const absl::StatusOr<std::unique_ptr<HttpExposer>> second = HttpExposer::Start(
      {.listen = address, .metrics = [](MetricsFormat) { return ""; }, .ready = absl::OkStatus});

  EXPECT_TRUE(second.ok()) << second.status();
}

}  // namespace
}  // namespace pushpull
