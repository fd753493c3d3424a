// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_api_server.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <csignal>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include <httplib.h>

#include "runtime/base/check.h"
#include "runtime/base/file_descriptor.h"

namespace pushpull_operator {
namespace {

using Json = nlohmann::json;
using pushpull::Deadline;
using pushpull::FileDescriptor;
using pushpull::MutexLock;

constexpr std::chrono::seconds kPatience{10};

struct FreeSsl {
  void operator()(SSL* session) const { SSL_free(session); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using ContextPtr = std::unique_ptr<SSL_CTX, FreeSsl>;

ContextPtr MakeContext(const FakeServerTls& tls) {
  if (tls.certificate.empty()) return nullptr;
  ContextPtr context(SSL_CTX_new(TLS_server_method()));
  const auto reader = [](const std::string& pem) {
    return BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  };
  BIO* bio = reader(tls.certificate);
  X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  bio = reader(tls.private_key);
  EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  PUSHPULL_CHECK(SSL_CTX_use_certificate(context.get(), certificate) == 1);
  PUSHPULL_CHECK(SSL_CTX_use_PrivateKey(context.get(), key) == 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
  if (tls.client_authorities.empty()) return context;
  bio = reader(tls.client_authorities);
  X509* authority = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  PUSHPULL_CHECK(X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority) == 1);
  X509_free(authority);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return context;
}

// One blocking connection; stopping the server shuts the socket down.
class ServerStream final : public httplib::Stream {
 public:
  ServerStream(int fd, SSL_CTX* context) : fd_(fd) {
    if (context == nullptr) return;
    session_.reset(SSL_new(context));
    SSL_set_fd(session_.get(), fd);
    is_broken_ = SSL_accept(session_.get()) != 1;
  }

  // Sends nothing more: the client sees the connection close.
  void Drop() { is_broken_ = true; }
  bool is_broken() const { return is_broken_; }

  bool is_readable() const override { return !is_broken_; }
  bool is_writable() const override { return !is_broken_; }
  socket_t socket() const override { return fd_; }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { NoAddress(ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { NoAddress(ip, port); }

  ssize_t read(char* out, size_t bytes) override {
    if (is_broken_) return -1;
    return session_ != nullptr ? SSL_read(session_.get(), out, static_cast<int>(bytes))
                               : recv(fd_, out, bytes, 0);
  }
  ssize_t write(const char* data, size_t bytes) override {
    if (is_broken_) return -1;
    return session_ != nullptr ? SSL_write(session_.get(), data, static_cast<int>(bytes))
                               : send(fd_, data, bytes, MSG_NOSIGNAL);
  }

 private:
  static void NoAddress(std::string& ip, int& port) {
    ip.clear();
    port = 0;
  }

  const int fd_;
  std::unique_ptr<SSL, FreeSsl> session_;
  bool is_broken_ = false;
};

constexpr char kConnectionHeader[] = "X-Fake-Connection";

// The answer to a request for metadata only; a Status is sent complete.
nlohmann::json PartOf(const nlohmann::json& object) {
  if (object.value("kind", "") == "Status") return object;
  if (object.contains("items")) {
    Json list{{"kind", "PartialObjectMetadataList"}, {"metadata", object["metadata"]}};
    list["items"] = Json::array();
    for (const Json& item : object["items"]) list["items"].push_back(PartOf(item));
    return list;
  }
  return {{"kind", "PartialObjectMetadata"},
          {"metadata", object.value("metadata", nlohmann::json::object())}};
}

// The event of a watch with this selector; empty: none.
std::string EventText(const FakeObjectStore::Change& change, const std::string& selector) {
  const bool is_in = MatchesLabels(change.object, selector);
  const bool was_in = !change.before.is_null() && MatchesLabels(change.before, selector);
  if (!is_in && !was_in) return "";
  std::string event = change.event;
  if (event == "MODIFIED" && is_in != was_in) event = is_in ? "ADDED" : "DELETED";
  return Json{{"type", event}, {"object", change.object}}.dump() + "\n";
}

}  // namespace

// Accepts on one thread and serves each connection on its own thread.
class FakeApiServer::HttpServer final : private httplib::Server {
 public:
  HttpServer(FakeApiServer& owner, const FakeServerTls& tls)
      : owner_(owner), context_(MakeContext(tls)), stop_event_(eventfd(0, EFD_CLOEXEC)) {
    Listen();
    ServeOneFirst();
    const auto handler = [this](const httplib::Request& request, httplib::Response& response) {
      Answer(request, response);
    };
    Get(".*", handler).Post(".*", handler).Put(".*", handler);
    Patch(".*", handler).Delete(".*", handler);
    // SSL_write raises it when the client has closed the connection.
    if (context_ != nullptr) std::signal(SIGPIPE, SIG_IGN);
    thread_ = std::thread([this] { Accept(); });
  }

  ~HttpServer() override {
    eventfd_write(stop_event_.get(), 1);
    thread_.join();
    {
      MutexLock lock(mu_);
      for (const auto& [fd, stream] : streams_) ::shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : connections_) thread.join();
  }

  uint16_t port() const { return port_; }
  bool uses_tls() const { return context_ != nullptr; }
  int num_connections() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return num_connections_;
  }

 private:
  void Listen() {
    listener_ = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    PUSHPULL_CHECK(bind(listener_.get(), generic, size) == 0);
    PUSHPULL_CHECK(::listen(listener_.get(), 128) == 0);
    PUSHPULL_CHECK(getsockname(listener_.get(), generic, &size) == 0);
    port_ = ntohs(address.sin_port);
    svr_sock_ = listener_.get();  // without one the library takes the server for stopped
  }

  // The library fills static tables at its first request and is not instrumented, so the thread
  // sanitizer reports a race. Do it before there are threads.
  void ServeOneFirst() {
    constexpr absl::string_view kRequest = "GET / HTTP/1.1\r\n\r\n";
    httplib::detail::BufferStream stream;
    stream.write(kRequest.data(), kRequest.size());
    bool is_closed = false;
    process_request(stream, /*close_connection=*/true, is_closed, nullptr);
  }

  void Accept() {
    for (;;) {
      std::array<pollfd, 2> waiting{pollfd{listener_.get(), POLLIN, 0},
                                    pollfd{stop_event_.get(), POLLIN, 0}};
      poll(waiting.data(), waiting.size(), -1);
      if (waiting[1].revents != 0) return;
      FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd.is_open()) continue;
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      connections_.emplace_back([this, client = std::move(fd)] { Serve(client.get()); });
    }
  }

  void Serve(int fd) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      streams_[fd] = nullptr;
      ++num_connections_;
    }
    ServerStream stream(fd, context_.get());
    {
      MutexLock lock(mu_);
      streams_[fd] = &stream;
    }
    const auto mark = [fd](httplib::Request& request) {
      request.set_header(kConnectionHeader, absl::StrCat(fd));
    };
    bool is_closed = false;
    while (!is_closed && !stream.is_broken()) {
      if (!process_request(stream, /*close_connection=*/false, is_closed, mark)) break;
    }
    MutexLock lock(mu_);
    streams_.erase(fd);
    ::shutdown(fd, SHUT_RDWR);
  }

  ServerStream& StreamOf(const httplib::Request& request) ABSL_LOCKS_EXCLUDED(mu_) {
    int fd = -1;
    PUSHPULL_CHECK(absl::SimpleAtoi(request.get_header_value(kConnectionHeader), &fd));
    MutexLock lock(mu_);
    return *streams_.at(fd);
  }

  static FakeRequest FromLibrary(const httplib::Request& request) {
    const std::string authorization = request.get_header_value("Authorization");
    return {.method = request.method,
            .path = request.path,
            .query = {request.params.begin(), request.params.end()},
            .token = std::string(absl::StripPrefix(authorization, "Bearer ")),
            .content_type = request.get_header_value("Content-Type"),
            .body = request.body};
  }

  void Answer(const httplib::Request& request, httplib::Response& response) {
    const Outcome outcome = owner_.Handle(FromLibrary(request));
    if (outcome.fault.kind == Fault::Kind::kHang) owner_.AwaitStop();
    if (outcome.fault.kind != Fault::Kind::kNone && outcome.fault.kind != Fault::Kind::kAnswer) {
      StreamOf(request).Drop();
      return;
    }
    response.status = outcome.answer.code;
    if (outcome.fault.retry_after_seconds > 0) {
      response.set_header("Retry-After", absl::StrCat(outcome.fault.retry_after_seconds));
    }
    if (outcome.watcher == nullptr) {
      const bool is_meta_enough =
          absl::StrContains(request.get_header_value("Accept"), "as=Partial");
      const auto& body = outcome.answer.body;
      response.set_content((is_meta_enough ? PartOf(body) : body).dump(), "application/json");
      return;
    }
    response.set_chunked_content_provider(
        "application/json", [this, watcher = outcome.watcher](size_t, httplib::DataSink& sink) {
          const std::string text = owner_.NextOf(*watcher);
          if (text.empty()) {
            const MutexLock lock(end_mu_);
            sink.done();
          } else {
            sink.write(text.data(), text.size());
          }
          return true;
        });
  }

  FakeApiServer& owner_;
  const ContextPtr context_;
  const FileDescriptor stop_event_;
  FileDescriptor listener_;
  uint16_t port_ = 0;

  mutable pushpull::Mutex mu_;
  std::map<int, ServerStream*> streams_ ABSL_GUARDED_BY(mu_);  // null during the TLS handshake
  int num_connections_ ABSL_GUARDED_BY(mu_) = 0;

  // done() uses a static of the library, which is not instrumented: without this lock the thread
  // sanitizer reports a race.
  pushpull::Mutex end_mu_;

  std::vector<std::thread> connections_;  // of thread_, until it has been joined
  std::thread thread_;                    // last: it uses all of the above
};

FakeApiServer::FakeApiServer(const FakeServerTls& tls)
    : http_(std::make_unique<HttpServer>(*this, tls)) {}

FakeApiServer::~FakeApiServer() {
  {
    MutexLock lock(mu_);
    is_stopping_ = true;
    changed_.NotifyAll();
  }
  http_.reset();
}

ClusterAccess FakeApiServer::access() const {
  ClusterAccess access;
  access.server = {.host = "127.0.0.1", .port = http_->port(), .uses_tls = http_->uses_tls()};
  return access;
}

void FakeApiServer::InjectFaults(std::function<Fault(const FakeRequest&)> faults) {
  MutexLock lock(faults_mu_);
  faults_ = std::move(faults);
}

std::vector<FakeRequest> FakeApiServer::requests() const {
  MutexLock lock(mu_);
  return requests_;
}

int FakeApiServer::CountRequests(const std::string& method) const {
  MutexLock lock(mu_);
  int count = 0;
  for (const FakeRequest& request : requests_) {
    const std::string name = request.is_watch() ? "WATCH" : request.method;
    if (name == method) ++count;
  }
  return count;
}

int FakeApiServer::num_connections() const {
  return http_->num_connections();
}

Fault FakeApiServer::FaultOf(const FakeRequest& request) {
  MutexLock lock(faults_mu_);
  return faults_ ? faults_(request) : Fault{};
}

FakeApiServer::Outcome FakeApiServer::Handle(const FakeRequest& request) {
  Outcome outcome{.fault = FaultOf(request)};
  MutexLock lock(mu_);
  requests_.push_back(request);
  changed_.NotifyAll();
  switch (outcome.fault.kind) {
    case Fault::Kind::kDropBefore:
    case Fault::Kind::kHang:
      return outcome;
    case Fault::Kind::kAnswer:
      outcome.answer = Refusal(outcome.fault.code, "", "injected");
      if (!outcome.fault.cause.empty())
        outcome.answer.body["details"]["causes"] = {{{"reason", outcome.fault.cause}}};
      return outcome;
    case Fault::Kind::kNone:
    case Fault::Kind::kDropAfter:
      break;
  }
  if (request.is_watch()) {
    StartWatch(request, outcome);
  } else {
    outcome.answer = store_.Handle(request);
  }
  return outcome;
}

void FakeApiServer::StartWatch(const FakeRequest& request, Outcome& outcome) {
  auto watcher = std::make_shared<Watcher>();
  watcher->collection = request.path;
  const auto selector = request.query.find("labelSelector");
  if (selector != request.query.end()) watcher->label_selector = selector->second;
  const auto version = request.query.find("resourceVersion");
  if (version == request.query.end() || !absl::SimpleAtoi(version->second, &watcher->version)) {
    watcher->version = store_.version();
  }
  if (!store_.Remembers(watcher->version)) {
    // Like the real one: 200, then an ERROR event.
    const Json error = Refusal(410, "Expired", "too old resource version").body;
    watcher->extra.push_back(Json{{"type", "ERROR"}, {"object", error}}.dump() + "\n");
    watcher->end_version = watcher->version;
  }
  ++num_watches_;
  watchers_.push_back(watcher);
  outcome.watcher = std::move(watcher);
}

std::string FakeApiServer::NextOf(Watcher& watcher) {
  MutexLock lock(mu_);
  for (;;) {
    while (const FakeObjectStore::Change* change =
               store_.Next(watcher.collection, watcher.version)) {
      if (watcher.end_version && change->version > *watcher.end_version) break;
      watcher.version = change->version;
      std::string text = EventText(*change, watcher.label_selector);
      if (!text.empty()) return text;
    }
    if (!watcher.extra.empty()) {
      std::string text = std::move(watcher.extra.front());
      watcher.extra.pop_front();
      return text;
    }
    if (watcher.end_version || is_stopping_) return "";
    changed_.WaitUntil(mu_, Deadline::After(kPatience));
  }
}

void FakeApiServer::AwaitStop() {
  MutexLock lock(mu_);
  while (!is_stopping_) changed_.WaitUntil(mu_, Deadline::After(kPatience));
}

void FakeApiServer::Put(const ResourceType& type, const ObjectKey& key, Json object) {
  MutexLock lock(mu_);
  store_.Put(type, key, std::move(object));
  changed_.NotifyAll();
}

void FakeApiServer::Remove(const ResourceType& type, const ObjectKey& key) {
  MutexLock lock(mu_);
  store_.Remove(ObjectTarget(type, key));
  changed_.NotifyAll();
}

Json FakeApiServer::Find(const ResourceType& type, const ObjectKey& key) const {
  MutexLock lock(mu_);
  return store_.Find(ObjectTarget(type, key));
}

size_t FakeApiServer::CountObjects() const {
  MutexLock lock(mu_);
  return store_.size();
}

void FakeApiServer::Compact() {
  MutexLock lock(mu_);
  store_.Compact();
}

template <typename Visit>
void FakeApiServer::ForEachWatch(Visit visit) {
  MutexLock lock(mu_);
  for (const std::shared_ptr<Watcher>& watcher : watchers_) visit(*watcher);
  changed_.NotifyAll();
}

void FakeApiServer::EndWatches() {
  MutexLock lock(mu_);
  for (const std::shared_ptr<Watcher>& watcher : watchers_) watcher->end_version = store_.version();
  watchers_.clear();
  changed_.NotifyAll();
}

void FakeApiServer::SendBookmarks() {
  int64_t version = 0;
  {
    MutexLock lock(mu_);
    version = store_.version();
  }
  Json object;
  object["metadata"]["resourceVersion"] = absl::StrCat(version);
  const std::string frame = Json{{"type", "BOOKMARK"}, {"object", object}}.dump() + "\n";
  SendOnWatches(frame, frame.size());
}

void FakeApiServer::SendOnWatches(const std::string& text, size_t piece_bytes) {
  ForEachWatch([&](Watcher& watcher) {
    for (size_t i = 0; i < text.size(); i += piece_bytes) {
      watcher.extra.push_back(text.substr(i, piece_bytes));
    }
  });
}

bool FakeApiServer::AwaitWatches(int num_watches) {
  const Deadline deadline = Deadline::After(kPatience);
  MutexLock lock(mu_);
  while (num_watches_ < num_watches) {
    if (!changed_.WaitUntil(mu_, deadline)) return num_watches_ >= num_watches;
  }
  return true;
}

}  // namespace pushpull_operator
