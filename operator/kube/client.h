// SPDX-License-Identifier: Apache-2.0
//
// Calls to the API server: reads, writes and watches of objects of any kind. Every call has a
// deadline, takes its turn in the rate limit, and is tried again where that cannot do harm
// (retry.h). A status says what the caller should do; api_error.h has the table.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "operator/kube/cancellation.h"
#include "operator/kube/connection.h"
#include "operator/kube/credentials.h"
#include "operator/kube/http_exchange.h"
#include "operator/kube/object.h"
#include "operator/kube/pausing_time.h"
#include "operator/kube/rate_limit.h"
#include "operator/kube/resource.h"
#include "operator/kube/retry.h"
#include "operator/kube/watch_event.h"
#include "runtime/base/mutex.h"

namespace pushpull_operator {

// Until when a write may be under way, or why there may be none (kFailedPrecondition: not the
// leader). Asked right before the bytes of each try of a write; the try ends at that time.
using WriteGuard = std::function<absl::StatusOr<pushpull::SteadyTime>()>;

struct ClientOptions {
  RateLimit rate_limit;
  std::string field_manager = "pushpull-operator";
  WriteGuard may_write;  // empty: always
  // Called after each try, for metrics; `code` is 0 without an answer. Thread-safe.
  std::function<void(absl::string_view verb, int code)> on_attempt;
  // Called with the date of each answer (server_clock.h). Thread-safe; may be empty.
  std::function<void(std::chrono::sys_seconds)> on_date;
};

// Which objects of a kind.
struct Selection {
  std::string object_namespace;  // empty: all
  std::string label_selector;    // "app.kubernetes.io/managed-by=pushpull-operator"
  std::string field_selector;
};

// Takes what a list finds. Begin comes before the first object, and again when the list has to
// start anew: then what was taken so far does not count.
class ListVisitor {
 public:
  virtual ~ListVisitor() = default;
  virtual void Begin() = 0;
  virtual void Take(Object object) = 0;
};

enum class DryRun { kNo, kYes };

struct DeleteOptions {
  // The object is deleted only if it still is this one. Without a uid a delete whose answer was
  // lost is not repeated: there may be a new object of the name by then.
  std::string uid;
  std::string resource_version;
  std::optional<std::chrono::seconds> grace;
  std::string propagation;  // "Background", "Foreground", "Orphan"; empty: the kind's own
};

struct PatchOptions {
  std::string subresource;  // "status", "scale"; empty: the object itself
  DryRun dry_run = DryRun::kNo;
};

enum class Force { kNo, kYes };

struct ApplyOptions {
  Force force = Force::kYes;  // takes over fields that others own
  DryRun dry_run = DryRun::kNo;
};

struct WatchOptions {
  Selection selection;
  std::string resource_version;  // events after it
  // The server ends the watch after this time; then it is started again where it was.
  std::chrono::seconds duration{300};
};

// Thread-safe; calls of different threads run side by side, each on a connection of its own.
class KubeClient {
 public:
  // Objects in a page of a list.
  static constexpr int kPageObjects = 500;

  // `credentials` and `time` must outlive the client.
  KubeClient(Credentials& credentials, PausingTime& time, ClientOptions options);
  ~KubeClient();
  KubeClient(const KubeClient&) = delete;
  KubeClient& operator=(const KubeClient&) = delete;

  absl::StatusOr<Object> Get(const ResourceType& type,
                             const ObjectKey& key,
                             pushpull::Deadline deadline);

  // All objects of the selection in pages, as of one resource version, which is returned. A list
  // that expires between two pages starts anew, the third time in one page.
  absl::StatusOr<std::string> List(const ResourceType& type,
                                   const Selection& selection,
                                   ListVisitor& visitor,
                                   pushpull::Deadline deadline);

  // `body` is the object as JSON. Never sent twice unless the server did nothing the first time:
  // after kUnavailable or kDeadlineExceeded the object may be there. Of this and of the changes
  // below the server answers with the metadata alone.
  absl::StatusOr<ObjectMeta> Create(const ResourceType& type,
                                    const std::string& object_namespace,
                                    const std::string& body,
                                    DryRun dry_run,
                                    pushpull::Deadline deadline);

  // Replaces the object; `body` has the resource version that it must still have (else kAborted).
  absl::StatusOr<Object> Replace(const ResourceType& type,
                                 const ObjectKey& key,
                                 const std::string& body,
                                 pushpull::Deadline deadline);

  absl::Status Delete(const ResourceType& type,
                      const ObjectKey& key,
                      const DeleteOptions& options,
                      pushpull::Deadline deadline);

  // Changes the fields that `body` has (JSON merge patch, RFC 7386) and leaves all others, known to
  // this program or not. With metadata.resourceVersion in it, only if it is the current one.
  absl::StatusOr<ObjectMeta> MergePatch(const ResourceType& type,
                                        const ObjectKey& key,
                                        const std::string& body,
                                        const PatchOptions& options,
                                        pushpull::Deadline deadline);

  // Server-side apply: makes the fields of `body` so, owns them, creates the object where there is
  // none. The same body twice changes nothing.
  absl::StatusOr<ObjectMeta> Apply(const ResourceType& type,
                                   const ObjectKey& key,
                                   const std::string& body,
                                   const ApplyOptions& options,
                                   pushpull::Deadline deadline);

  // Calls `on_event` on this thread for what happens after options.resource_version, until the
  // server ends the watch (OK), an error of `on_event` ends it, or it is cancelled. One try on a
  // connection of its own; the caller starts it again.
  //
  // kOutOfRange   the resource version is too old: list, then watch from there.
  // kUnavailable, kDataLoss, ...   the stream broke; nothing that was handed on is undone.
  absl::Status Watch(const ResourceType& type,
                     const WatchOptions& options,
                     absl::FunctionRef<absl::Status(WatchEvent)> on_event,
                     const Cancellation& cancellation);

  // Ends every call, with kCancelled; further ones end at once.
  void Stop();

 private:
  // What stays the same over the tries of one call.
  struct Call {
    std::string verb;  // "create": of metrics and errors
    std::string what;  // "pods default/mnist-server-0"
    HttpRequest request;
    Repeat repeat = Repeat::kSafe;
  };
  struct AttemptResult;

  absl::StatusOr<std::string> Send(const Call& call, pushpull::Deadline deadline);
  absl::StatusOr<Object> SendForObject(const Call& call, pushpull::Deadline deadline);
  absl::StatusOr<ObjectMeta> SendForMeta(Call call, pushpull::Deadline deadline);
  absl::Status TakeTurn(const Call& call,
                        pushpull::Deadline deadline,
                        const Cancellation& cancellation) ABSL_LOCKS_EXCLUDED(mu_);
  AttemptResult Try(const Call& call, pushpull::Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<HttpResponse> ExchangeGuarded(Connection& connection,
                                               const Call& call,
                                               const std::string& token,
                                               pushpull::Deadline deadline);
  // A kept connection with the present TLS context, or a new one.
  absl::StatusOr<std::unique_ptr<Connection>> TakeConnection(const AccessNow& access,
                                                             pushpull::Deadline deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  void KeepConnection(std::unique_ptr<Connection> connection) ABSL_LOCKS_EXCLUDED(mu_);
  Call MakeCall(absl::string_view verb,
                absl::string_view method,
                const ResourceType& type,
                const ObjectKey& key) const;
  absl::StatusOr<std::string> ListOnce(const ResourceType& type,
                                       const Selection& selection,
                                       int page_objects,
                                       ListVisitor& visitor,
                                       pushpull::Deadline deadline);
  // `when` is of time_, which a test may have moved; sockets know the machine's clock only.
  pushpull::Deadline SocketDeadline(pushpull::SteadyTime when) const;
  void Count(const Call& call, int code) const;
  double Jitter() ABSL_LOCKS_EXCLUDED(mu_);

  Credentials& credentials_;
  PausingTime& time_;
  const ClientOptions options_;
  const std::string host_header_;
  Cancellation stopped_;

  pushpull::Mutex mu_;
  TokenBucket bucket_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Connection>> idle_ ABSL_GUARDED_BY(mu_);
  std::minstd_rand random_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
