// SPDX-License-Identifier: Apache-2.0
//
// Calls to the API server: reads, writes and watches of objects of any kind. Every call has a
// deadline, passes the client-side rate limit, and is retried where that is safe (retry.h). The
// status code says what the caller should do; api_error.h has the table.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "operator/kube/cancellation.h"
#include "operator/kube/credentials.h"
#include "operator/kube/http_exchange.h"
#include "operator/kube/object.h"
#include "operator/kube/pausing_time.h"
#include "operator/kube/rate_limit.h"
#include "operator/kube/retry.h"
#include "operator/kube/watch_event.h"
#include "runtime/base/mutex.h"

namespace pushpull_operator {

// Returns until when a write may be in flight, or why writes are not allowed (kFailedPrecondition:
// not the leader). Called before each attempt of a write; the attempt ends at that time.
using WriteGuard = std::function<absl::StatusOr<pushpull::SteadyTime>()>;

struct ClientOptions {
  RateLimit rate_limit;
  WriteGuard may_write;  // empty: always
  // Called after each attempt, for metrics; `code` is 0 without a response. Thread-safe.
  std::function<void(absl::string_view verb, int code)> on_attempt;
  // Called with the date of each response (server_clock.h). Thread-safe; may be empty.
  std::function<void(std::chrono::sys_seconds)> on_date;
  // Called for each object of a list or watch that is skipped because it has no metadata or no
  // name; says why. Thread-safe; may be empty.
  std::function<void(const absl::Status&)> on_skipped;
  // A longer response is an error, except for pages of lists.
  size_t response_bytes_max = kResponseBytesMax;
};

// Which objects of a kind.
struct Selection {
  std::string object_namespace;  // empty: all
  std::string label_selector;    // "app.kubernetes.io/managed-by=pushpull-operator"
  std::string field_selector;
  // Objects are returned without spec, status and data.
  bool has_only_metadata = false;
};

// Receives the objects of a list. BeginListing is called before the first object, and again when
// the list restarts: drop everything received before.
class ListVisitor {
 public:
  virtual ~ListVisitor() = default;
  virtual void BeginListing() = 0;
  virtual void AddListed(Object object) = 0;
};

enum class DryRun { kNo, kYes };

struct DeleteOptions {
  // Precondition: the object still has this uid. Without a uid, a delete whose response was lost is
  // not retried: a new object may have the name by then.
  std::string uid;
  std::string resource_version;
  std::optional<std::chrono::seconds> grace;
  std::string propagation;  // "Background", "Foreground", "Orphan"; empty: the kind's default
};

struct WatchOptions {
  Selection selection;
  std::string resource_version;  // events after it
  // The server ends the watch after this time; the caller resumes it from the last version.
  std::chrono::seconds duration{300};
};

// Thread-safe; calls from different threads run concurrently, each on its own connection.
class KubeClient {
 public:
  // Timeout of an ordinary call.
  static constexpr std::chrono::seconds kCallTime{10};
  // Maximum number of objects in a page of a list.
  static constexpr int kPageObjects = 500;

  // `credentials` and `time` must outlive the client.
  KubeClient(Credentials& credentials, PausingTime& time, ClientOptions options);
  KubeClient(const KubeClient&) = delete;
  KubeClient& operator=(const KubeClient&) = delete;

  // The deadline of an ordinary call that begins now.
  pushpull::Deadline CallDeadline() const { return pushpull::Deadline(time_.Now() + kCallTime); }

  absl::StatusOr<Object> Get(const ResourceType& type,
                             const ObjectKey& key,
                             pushpull::Deadline deadline);

  absl::StatusOr<ObjectMeta> GetMeta(const ResourceType& type,
                                     const ObjectKey& key,
                                     pushpull::Deadline deadline);

  // Lists all objects of the selection in pages, as of one resource version, which is returned. A
  // list that expires between two pages restarts, the third time as one page. A page that exceeds
  // the limit of a response is requested again with half as many objects; a single object that
  // exceeds it is returned as metadata, with Object::problem.
  absl::StatusOr<std::string> List(const ResourceType& type,
                                   const Selection& selection,
                                   ListVisitor& visitor,
                                   pushpull::Deadline deadline);

  // `body` is the object as JSON. Retried only if the server did not execute it; after kUnavailable
  // or kDeadlineExceeded the object may exist. This and the writes below return metadata only.
  absl::StatusOr<ObjectMeta> Create(const ResourceType& type,
                                    const std::string& object_namespace,
                                    const std::string& body,
                                    DryRun dry_run,
                                    pushpull::Deadline deadline);

  // Replaces the object; `body` has the resource version that must be current (else kAborted).
  absl::StatusOr<Object> Replace(const ResourceType& type,
                                 const ObjectKey& key,
                                 const std::string& body,
                                 pushpull::Deadline deadline);

  absl::Status Delete(const ResourceType& type,
                      const ObjectKey& key,
                      const DeleteOptions& options,
                      pushpull::Deadline deadline);

  // Sets the fields that `body` has (JSON merge patch, RFC 7386) and leaves all others unchanged.
  // If it includes metadata.resourceVersion, only if that is current (else kAborted). `subresource`
  // is "status", "scale", or empty: the object itself.
  absl::StatusOr<ObjectMeta> MergePatch(const ResourceType& type,
                                        const ObjectKey& key,
                                        const std::string& body,
                                        const std::string& subresource,
                                        pushpull::Deadline deadline);

  // Server-side apply: sets and owns the fields of `body`, even those that other managers own, and
  // creates the object if it does not exist. Idempotent.
  absl::StatusOr<ObjectMeta> Apply(const ResourceType& type,
                                   const ObjectKey& key,
                                   const std::string& body,
                                   pushpull::Deadline deadline);

  // Calls `on_event` on this thread for each change after options.resource_version, until the
  // server ends the watch (OK), `on_event` returns an error, or it is cancelled. Not retried.
  //
  //   kOutOfRange                  the resource version is too old: list, then watch from there
  //   kUnavailable, kDataLoss, ..  the stream broke: watch from the last version received
  absl::Status Watch(const ResourceType& type,
                     const WatchOptions& options,
                     absl::FunctionRef<absl::Status(WatchEvent)> on_event,
                     const Cancellation& cancellation);

  // Ends all calls except watches with kCancelled; later calls return it at once.
  void Stop();

 private:
  struct ListPage;
  struct Verb;
  // Shared by all attempts of a call.
  struct Call {
    const char* verb;  // "create": for metrics and errors
    std::string what;  // "create pods default/mnist-server-0": for errors
    HttpRequest request;
    Repeat repeat = Repeat::kSafe;
  };

  // `target` is relative to the path prefix of the cluster's address.
  Call MakeCall(const Verb& verb,
                const ResourceType& type,
                const ObjectKey& key,
                const std::string& target,
                const std::string& body = "") const;
  absl::StatusOr<std::string> Send(const Call& call, pushpull::Deadline deadline);
  absl::StatusOr<Object> SendForObject(const Call& call, pushpull::Deadline deadline);
  absl::StatusOr<ObjectMeta> SendForMeta(Call call, pushpull::Deadline deadline);
  absl::Status AwaitRateLimit(const Call& call,
                              pushpull::Deadline deadline,
                              const Cancellation& cancellation) ABSL_LOCKS_EXCLUDED(mu_);
  // The response to one attempt; its status is the call's, and its code is 0 without a response.
  HttpResponse Try(const Call& call, pushpull::Deadline deadline);
  absl::Status StatusOf(const Call& call, const HttpResponse& response);
  absl::StatusOr<std::string> ListOnce(const ResourceType& type,
                                       const Selection& selection,
                                       int page_objects,
                                       ListVisitor& visitor,
                                       pushpull::Deadline deadline);
  // Calls `read`, which decodes the text and must not call this again. Long texts wait for each
  // other: decoded objects take many times the memory of their text.
  template <typename Read>
  auto OneLargeTextAtATime(absl::string_view text, Read read) ABSL_LOCKS_EXCLUDED(large_text_);
  // Passes the objects of a page to `visitor` one by one as they are decoded.
  absl::StatusOr<ListPage> ReadPage(const Call& call,
                                    const std::string& body,
                                    absl::string_view problem,
                                    ListVisitor& visitor);
  void TellSkipped(const Call& call, const absl::Status& why) const;
  double Jitter() ABSL_LOCKS_EXCLUDED(mu_);

  Credentials& credentials_;
  PausingTime& time_;
  const ClientOptions options_;
  HttpClient http_;
  Cancellation stopped_;

  pushpull::Mutex large_text_;  // guards no data: held while a long text is read
  pushpull::Mutex mu_;
  TokenBucket bucket_ ABSL_GUARDED_BY(mu_);
  std::minstd_rand random_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
