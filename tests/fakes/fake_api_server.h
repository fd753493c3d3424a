// SPDX-License-Identifier: Apache-2.0
//
// An API server that speaks real HTTP on loopback, over TLS where a test asks for it: the objects
// of fake_object_store.h, watches with bookmarks and 410, and faults. They are injected by a
// function that looks at each request, so that a test says in one place which calls fail, and on
// which side of the write.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/kube/cluster_access.h"
#include "operator/kube/resource.h"
#include "runtime/base/mutex.h"
#include "tests/fakes/fake_object_store.h"

namespace pushpull_operator {

struct Fault {
  enum class Kind {
    kNone,
    kDropBefore,  // the connection ends, nothing was done
    kDropAfter,   // it was done, and the connection ends
    kAnswer,      // answers `code`, nothing was done
    kHang,        // answers nothing until the server stops
  };
  Kind kind = Kind::kNone;
  int code = 0;
  int retry_after_seconds = 0;  // 0: none
};

// PEM. With client authorities, clients without a certificate of theirs are refused.
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

  // Where it is; without any credentials.
  ClusterAccess access() const;

  // Called for each request before anything is done, on the server's threads, one at a time. May do
  // what others do (below), as if they had come first.
  void InjectFaults(std::function<Fault(const FakeRequest&)> faults)
      ABSL_LOCKS_EXCLUDED(faults_mu_);

  std::vector<FakeRequest> requests() const ABSL_LOCKS_EXCLUDED(mu_);
  // "GET", "POST", ..., and "WATCH", which do not count as GET.
  int CountRequests(const std::string& method) const ABSL_LOCKS_EXCLUDED(mu_);
  // Connections accepted so far.
  int num_connections() const ABSL_LOCKS_EXCLUDED(mu_);

  // --- What others do, past HTTP -----------------------------------------------------------------

  // Creates or replaces; sets uid, resourceVersion, name and namespace.
  void Put(const ResourceType& type, const ObjectKey& key, nlohmann::json object)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(const ResourceType& type, const ObjectKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  // Null where there is none.
  nlohmann::json Find(const ResourceType& type, const ObjectKey& key) const
      ABSL_LOCKS_EXCLUDED(mu_);
  size_t CountObjects() const ABSL_LOCKS_EXCLUDED(mu_);

  // Forgets all history: a watch or a page from an older version gets 410.
  void Compact() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends every watch that is open, in order.
  void EndWatches() ABSL_LOCKS_EXCLUDED(mu_);
  // Sends a bookmark of the present version on every watch that is open.
  void SendBookmarks() ABSL_LOCKS_EXCLUDED(mu_);
  // Sends this text on every watch that is open, in pieces of `piece_bytes`.
  void SendOnWatches(const std::string& text, size_t piece_bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits up to 10 s for `num_watches` watches to have begun since the start.
  bool AwaitWatches(int num_watches) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class HttpServer;
  struct Watcher {
    std::string collection;
    std::string label_selector;
    int64_t version = 0;            // what happened up to it has been told
    std::deque<std::string> extra;  // to be told besides
    bool is_over = false;
  };
  struct Outcome {
    Fault fault;
    FakeAnswer answer;
    std::shared_ptr<Watcher> watcher;  // not null: the answer is a stream
  };

  Outcome Handle(const FakeRequest& request) ABSL_LOCKS_EXCLUDED(faults_mu_, mu_);
  Fault FaultOf(const FakeRequest& request) ABSL_LOCKS_EXCLUDED(faults_mu_, mu_);
  void StartWatch(const FakeRequest& request, Outcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next bytes of a watch; empty: it is over.
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
