// SPDX-License-Identifier: Apache-2.0
//
// An API server over real HTTP on loopback, with TLS if a test wants it: the objects of
// fake_object_store.h, watches with bookmarks and 410, and faults. A function injects faults by
// request, so that a test states in one place which calls fail, and on which side of the write.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/kube/cluster_access.h"
#include "operator/kube/object.h"
#include "runtime/base/mutex.h"
#include "tests/fakes/fake_object_store.h"

namespace pushpull_operator {

struct Fault {
  enum class Kind {
    kNone,
    kDropBefore,  // closes the connection without executing the request
    kDropAfter,   // executes the request, then closes the connection without an answer
    kAnswer,      // answers `code` without executing the request
    kHang,        // does not answer until the server stops
  };
  Kind kind = Kind::kNone;
  int code = 0;
  int retry_after_seconds = 0;  // 0: none
  std::string cause = {};       // of the answer, "NamespaceTerminating"; empty: none
};

// PEM. With client authorities, clients need a certificate signed by one of them.
struct FakeServerTls {
  std::string certificate;
  std::string private_key;
  std::string client_authorities;
};

// Thread-safe.
class FakeApiServer {
 public:
  FakeApiServer() : FakeApiServer(FakeServerTls{}) {}
  explicit FakeApiServer(const FakeServerTls& tls);
  ~FakeApiServer();
  FakeApiServer(const FakeApiServer&) = delete;
  FakeApiServer& operator=(const FakeApiServer&) = delete;

  // The address, without credentials.
  ClusterAccess access() const;

  // Called for each request before it is executed, on the server's threads, one at a time. May call
  // the functions below, as if another client had come first.
  void InjectFaults(std::function<Fault(const FakeRequest&)> faults)
      ABSL_LOCKS_EXCLUDED(faults_mu_);

  std::vector<FakeRequest> requests() const ABSL_LOCKS_EXCLUDED(mu_);
  // "GET", "POST", ..., and "WATCH"; watches do not count as GET.
  int CountRequests(const std::string& method) const ABSL_LOCKS_EXCLUDED(mu_);
  // Connections accepted so far.
  int num_connections() const ABSL_LOCKS_EXCLUDED(mu_);

  // --- Changes by other clients, without HTTP ----------------------------------------------------

  // Creates or replaces; sets uid, resourceVersion, name and namespace.
  void Put(const ResourceType& type, const ObjectKey& key, nlohmann::json object)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(const ResourceType& type, const ObjectKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  // Null if it does not exist.
  nlohmann::json Find(const ResourceType& type, const ObjectKey& key) const
      ABSL_LOCKS_EXCLUDED(mu_);
  size_t CountObjects() const ABSL_LOCKS_EXCLUDED(mu_);

  // Drops all history: a watch or a page from an older version gets 410.
  void Compact() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends every open watch in an orderly way: it sends what has changed until now, and nothing later.
  void EndWatches() ABSL_LOCKS_EXCLUDED(mu_);
  // Sends a bookmark of the current version on every open watch.
  void SendBookmarks() ABSL_LOCKS_EXCLUDED(mu_);
  // Sends this text on every open watch, in pieces of `piece_bytes`.
  void SendOnWatches(const std::string& text, size_t piece_bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits up to 10 s until `num_watches` watches have started in total.
  bool AwaitWatches(int num_watches) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class HttpServer;
  struct Watcher {
    std::string collection;
    std::string label_selector;
    int64_t version = 0;            // changes up to it were sent
    std::deque<std::string> extra;  // to be sent besides
    std::optional<int64_t> end_version;  // changes after it are not sent: the watch is over
  };
  struct Outcome {
    Fault fault;
    FakeAnswer answer;
    std::shared_ptr<Watcher> watcher;  // not null: the answer is a watch
  };

  Outcome Handle(const FakeRequest& request) ABSL_LOCKS_EXCLUDED(faults_mu_, mu_);
  Fault FaultOf(const FakeRequest& request) ABSL_LOCKS_EXCLUDED(faults_mu_, mu_);
  void StartWatch(const FakeRequest& request, Outcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next bytes of a watch; empty: it has ended.
  std::string NextOf(Watcher& watcher) ABSL_LOCKS_EXCLUDED(mu_);
  void AwaitStop() ABSL_LOCKS_EXCLUDED(mu_);
  template <typename Visit>
  void ForEachWatch(Visit visit) ABSL_LOCKS_EXCLUDED(mu_);

  // Held before mu_.
  pushpull::Mutex faults_mu_;
  std::function<Fault(const FakeRequest&)> faults_ ABSL_GUARDED_BY(faults_mu_);

  mutable pushpull::Mutex mu_;
  pushpull::CondVar changed_;
  std::vector<FakeRequest> requests_ ABSL_GUARDED_BY(mu_);
  FakeObjectStore store_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mu_);
  int num_watches_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::unique_ptr<HttpServer> http_;
};

}  // namespace pushpull_operator
