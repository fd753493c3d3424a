// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/http_exchange.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include <curl/curl.h>

#include "operator/kube/api_error.h"
#include "operator/kube/bounded_append.h"
#include "operator/kube/server_clock.h"
#include "runtime/base/check.h"
#include "runtime/base/host_port.h"

namespace pushpull_operator {
namespace {

using pushpull::MutexLock;

// The number of threads that make calls at a time; further sessions are closed after use.
constexpr size_t kIdleSessionsMax = 8;
// For name resolution, TCP and TLS; a watch has no other limit below its duration.
constexpr long kConnectSecondsMax = 30;

struct Free {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct FreeMulti {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
using StringList = std::unique_ptr<curl_slist, Free>;

StringList MakeList(const std::vector<std::string>& lines) {
  StringList list;
  for (const std::string& line : lines) {
    curl_slist* longer = curl_slist_append(list.get(), line.c_str());
    PUSHPULL_CHECK(longer != nullptr);  // out of memory
    static_cast<void>(list.release());
    list.reset(longer);
  }
  return list;
}

// A server that vanishes without closing its connections (power loss) ends a watch after about 40
// s.
int DetectDeadPeer(void* /*data*/, curl_socket_t fd, curlsocktype /*purpose*/) {
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof(value));  // best effort
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 5);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
  return CURL_SOCKOPT_OK;
}

struct CurlMeaning {
  int code = CURLE_OK;
  absl::StatusCode status = absl::StatusCode::kUnavailable;
  absl::string_view what;
};
// All other codes become kUnavailable, in libcurl's words.
constexpr CurlMeaning kCurlMeanings[] = {
    {CURLE_OPERATION_TIMEDOUT,
     absl::StatusCode::kDeadlineExceeded,
     "no answer within the deadline"},
    {CURLE_URL_MALFORMAT, absl::StatusCode::kInvalidArgument, "the address is malformed"},
    {CURLE_SSL_CACERT_BADFILE,
     absl::StatusCode::kInvalidArgument,
     "the certificate authorities cannot be used"},
    {CURLE_SSL_CERTPROBLEM,
     absl::StatusCode::kInvalidArgument,
     "the client certificate cannot be used"},
    {.code = CURLE_COULDNT_CONNECT, .what = "cannot connect"},
    {.code = CURLE_PEER_FAILED_VERIFICATION, .what = "the server's certificate is not trusted"},
    {.code = CURLE_GOT_NOTHING, .what = "the connection was closed without an answer"},
    {.code = CURLE_PARTIAL_FILE, .what = "the answer is incomplete"},
};

// One request and its response, as libcurl's callbacks see them.
struct Transfer {
  CURL* easy = nullptr;
  const BodySink& sink;
  size_t body_bytes_max = 0;
  HttpResponse response;
  size_t head_bytes = 0;
  bool has_head = false;  // complete: libcurl takes truncated headers for a response
  std::array<char, CURL_ERROR_SIZE> details{};

  // Called right before the request is sent. When a reused connection ends without a response,
  // libcurl sends the request again, even a POST that may have been executed; here retry.h decides
  // that.
  static int OnRequest(void* self, char*, char*, int, int) {
    HttpResponse& response = static_cast<Transfer*>(self)->response;
    if (response.was_sent) {
      response.status = absl::UnavailableError("the connection was closed without an answer");
      return CURL_PREREQFUNC_ABORT;
    }
    response.was_sent = true;
    return CURL_PREREQFUNC_OK;
  }

  static size_t OnHeader(char* line, size_t /*one*/, size_t bytes, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    transfer.head_bytes += bytes;
    if (line[0] == '\r' || line[0] == '\n') transfer.has_head = transfer.Code() >= 200;
    if (transfer.head_bytes <= kHeadBytesMax) return bytes;
    transfer.response.status = absl::ResourceExhaustedError(
        absl::StrCat("the headers of the answer have more than ", kHeadBytesMax, " bytes"));
    return CURL_WRITEFUNC_ERROR;
  }

  static size_t OnBody(char* data, size_t /*one*/, size_t bytes, void* self) {
    return static_cast<Transfer*>(self)->Take({data, bytes}) ? bytes : CURL_WRITEFUNC_ERROR;
  }

  bool Take(absl::string_view piece) {
    if (sink != nullptr && Code() == 200) {
      response.status = sink(piece);
    } else if (response.body.size() + piece.size() > body_bytes_max) {
      response.status = absl::ResourceExhaustedError(
          absl::StrCat("the answer has more than ", body_bytes_max, " bytes"));
    } else {
      BoundedAppend(piece, body_bytes_max, response.body);
    }
    return response.status.ok();
  }

  int Code() const {
    long code = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    return static_cast<int>(code);
  }

  // Empty if the response has no such header.
  absl::string_view Header(const char* name) const {
    curl_header* header = nullptr;
    const CURLHcode found = curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &header);
    return found == CURLHE_OK ? header->value : "";
  }

  // The other form, a date, is not used by Kubernetes.
  std::optional<std::chrono::seconds> RetryAfter() const {
    int64_t seconds = 0;
    if (!absl::SimpleAtoi(Header("Retry-After"), &seconds) || seconds < 0) return std::nullopt;
    return std::chrono::seconds(std::min(seconds, kRetryAfterSecondsMax));
  }
};

}  // namespace

absl::Status StatusFromCurl(int code, absl::string_view details) {
  if (code == CURLE_OK) return absl::OkStatus();
  CurlMeaning meaning{.what = curl_easy_strerror(static_cast<CURLcode>(code))};
  for (const CurlMeaning& known : kCurlMeanings) {
    if (known.code == code) meaning = known;
  }
  return absl::Status(meaning.status,
                      absl::StrCat(meaning.what, details.empty() ? "" : ": ", details));
}

// An easy handle for one request after another, and the multi handle that drives it and keeps its
// connection open in between.
class HttpClient::Session {
 public:
  Session(const ServerAddress& server,
          size_t body_bytes_max,
          std::shared_ptr<const TlsMaterial> tls)
      : address_(ToString(pushpull::HostPort{server.host, server.port})),
        body_bytes_max_(body_bytes_max),
        tls_(std::move(tls)) {
    PUSHPULL_CHECK(easy_ != nullptr && multi_ != nullptr);
    const std::string& name =
        server.uses_tls && !server.tls_name.empty() ? server.tls_name : server.host;
    const std::string authority = ToString(pushpull::HostPort{name, server.port});
    Set(CURLOPT_URL, absl::StrCat(server.uses_tls ? "https://" : "http://", authority).c_str());
    if (name != server.host) {
      connect_to_ = MakeList({absl::StrCat(authority, ":", address_)});
      Set(CURLOPT_CONNECT_TO, connect_to_.get());
    }
    Set(CURLOPT_PROTOCOLS_STR, "http,https");
    Set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    Set(CURLOPT_PROXY, "");
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_CONNECTTIMEOUT, kConnectSecondsMax);
    // A name lookup that outlasts the deadline is abandoned, not waited for.
    Set(CURLOPT_QUICK_EXIT, 1L);
    Set(CURLOPT_SOCKOPTFUNCTION, &DetectDeadPeer);
    Set(CURLOPT_PREREQFUNCTION, &Transfer::OnRequest);
    Set(CURLOPT_HEADERFUNCTION, &Transfer::OnHeader);
    Set(CURLOPT_WRITEFUNCTION, &Transfer::OnBody);
    if (tls_ != nullptr) SetTls();
  }

  const TlsMaterial* tls() const { return tls_.get(); }

  // Whether nothing has arrived since the last response. Before they close an idle connection,
  // servers say so, in TLS and some in HTTP, and libcurl considers a socket with bytes to read
  // alive: the next request would be lost.
  bool IsQuiet() const {
    if (socket_ == CURL_SOCKET_BAD) return true;  // libcurl opens a new connection
    pollfd look{.fd = socket_, .events = POLLIN};
    return poll(&look, 1, 0) == 0;
  }

  HttpResponse Exchange(const HttpRequest& request,
                        const std::string& token,
                        const BodySink& sink,
                        const CallLimit& limit) {
    Transfer transfer{.easy = easy_.get(), .sink = sink, .body_bytes_max = body_bytes_max_};
    const StringList headers = SetRequest(request, token);
    Set(CURLOPT_ERRORBUFFER, transfer.details.data());
    Set(CURLOPT_PREREQDATA, &transfer);
    Set(CURLOPT_HEADERDATA, &transfer);
    Set(CURLOPT_WRITEDATA, &transfer);
    const absl::Status ended = Perform(transfer, limit);
    HttpResponse& response = transfer.response;
    if (response.status.ok() && !ended.ok()) {
      response.status =
          absl::Status(ended.code(), absl::StrCat("API server ", address_, ": ", ended.message()));
    }
    response.code = transfer.Code();
    response.retry_after = transfer.RetryAfter();
    response.date = ParseHttpDate(transfer.Header("Date"));
    return std::move(response);
  }

 private:
  // The next exchange returns the first error.
  template <typename Value>
  void Set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(easy_.get(), option, value);
    if (setup_ == CURLE_OK) setup_ = code;
  }

  void SetBlob(CURLoption option, const std::string& pem) {
    if (pem.empty()) return;
    curl_blob blob{.data = const_cast<char*>(pem.data()),  // not written: tls_ outlives the handle
                   .len = pem.size(),
                   .flags = CURL_BLOB_NOCOPY};
    Set(option, &blob);
  }

  void SetTls() {
    Set(CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2});  // or later
    if (tls_->check == ServerCheck::kSkip) {
      Set(CURLOPT_SSL_VERIFYPEER, 0L);
      Set(CURLOPT_SSL_VERIFYHOST, 0L);
    } else if (!tls_->authorities.empty()) {
      SetBlob(CURLOPT_CAINFO_BLOB, tls_->authorities);
      Set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));  // these authorities and no others
    }
    SetBlob(CURLOPT_SSLCERT_BLOB, tls_->certificate);
    SetBlob(CURLOPT_SSLKEY_BLOB, tls_->private_key);
  }

  // The list must live until the exchange is over.
  StringList SetRequest(const HttpRequest& request, const std::string& token) {
    std::vector<std::string> lines = {absl::StrCat("Host: ", address_),
                                      absl::StrCat("Accept: ", request.accept),
                                      "User-Agent: pushpull-operator",
                                      "Expect:"};  // no round trip before a large body
    // An empty one removes libcurl's own.
    lines.push_back(absl::StrCat(
        "Content-Type:", request.content_type.empty() ? "" : " ", request.content_type));
    if (!token.empty()) lines.push_back(absl::StrCat("Authorization: Bearer ", token));
    StringList headers = MakeList(lines);
    Set(CURLOPT_HTTPHEADER, headers.get());
    Set(CURLOPT_REQUEST_TARGET, request.target.c_str());
    if (request.method == "GET") {
      Set(CURLOPT_HTTPGET, 1L);
    } else {
      Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
      Set(CURLOPT_POSTFIELDS, request.body.data());
    }
    Set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    return headers;
  }

  absl::Status Perform(Transfer& transfer, const CallLimit& limit) {
    if (setup_ != CURLE_OK) return StatusFromCurl(setup_, "");
    curl_multi_add_handle(multi_.get(), easy_.get());
    absl::Status status = Drive(limit);
    int num_left = 0;
    const CURLMsg* message = curl_multi_info_read(multi_.get(), &num_left);
    if (message != nullptr) {
      const bool is_cut = message->data.result == CURLE_OK && !transfer.has_head;
      status = StatusFromCurl(is_cut ? CURLE_PARTIAL_FILE : message->data.result,
                              transfer.details.data());
    }
    curl_easy_getinfo(
        easy_.get(), CURLINFO_ACTIVESOCKET, &socket_);  // known to the multi handle only
    curl_multi_remove_handle(multi_.get(),
                             easy_.get());  // closes the connection of an open transfer
    return status;
  }

  // Returns OK once libcurl has a result.
  absl::Status Drive(const CallLimit& limit) {
    curl_waitfd cancelled{.fd = limit.cancellation.fd(), .events = CURL_WAIT_POLLIN, .revents = 0};
    for (;;) {
      int num_running = 0;
      CURLMcode code = curl_multi_perform(multi_.get(), &num_running);
      if (code == CURLM_OK && num_running == 0) return absl::OkStatus();
      if (limit.cancellation.is_cancelled()) return absl::CancelledError("cancelled");
      if (limit.deadline.has_passed()) return StatusFromCurl(CURLE_OPERATION_TIMEDOUT, "");
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit.deadline.remaining());
      const auto longest = std::chrono::milliseconds(std::chrono::hours(1));
      const auto wait = static_cast<int>(std::min(left, longest).count());
      if (code == CURLM_OK) code = curl_multi_poll(multi_.get(), &cancelled, 1, wait, nullptr);
      if (code != CURLM_OK) return absl::InternalError(curl_multi_strerror(code));
    }
  }

  const std::string address_;
  const size_t body_bytes_max_;
  const std::shared_ptr<const TlsMaterial> tls_;
  StringList connect_to_;
  const std::unique_ptr<CURLM, FreeMulti> multi_{curl_multi_init()};
  const std::unique_ptr<CURL, Free> easy_{curl_easy_init()};
  CURLcode setup_ = CURLE_OK;
  curl_socket_t socket_ = CURL_SOCKET_BAD;  // of the last exchange, if its connection is kept
};

HttpClient::HttpClient(const ServerAddress& server, size_t body_bytes_max)
    : server_(server), body_bytes_max_(body_bytes_max) {
  static const CURLcode initialized = curl_global_init(CURL_GLOBAL_DEFAULT);  // once per process
  PUSHPULL_CHECK(initialized == CURLE_OK);
}

HttpClient::~HttpClient() = default;

HttpResponse HttpClient::Exchange(const HttpRequest& request,
                                  const RequestAuth& auth,
                                  const BodySink& sink,
                                  const CallLimit& limit) {
  std::unique_ptr<Session> session;
  {
    MutexLock lock(mu_);
    std::erase_if(
        idle_, [&](const auto& idle) { return idle->tls() != auth.tls.get() || !idle->IsQuiet(); });
    if (!idle_.empty()) {
      session = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (session == nullptr) session = std::make_unique<Session>(server_, body_bytes_max_, auth.tls);
  HttpResponse response = session->Exchange(request, auth.token, sink, limit);
  MutexLock lock(mu_);
  if (response.status.ok() && idle_.size() < kIdleSessionsMax) {
    idle_.push_back(std::move(session));
  }
  return response;
}

}  // namespace pushpull_operator
