// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/kube/json_fields.h"
#include "operator/kube/json_reader.h"
#include "operator/kube/watch_frames.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

using pushpull::Deadline;
using pushpull::MutexLock;
using pushpull::SteadyTime;

// If a list expires this often, its objects change faster than pages can be read.
constexpr int kPagedListsMax = 2;
// Objects decoded from a shorter text are small enough to decode many at once.
constexpr size_t kLargeTextBytes = size_t{256} << 10;
// How long a watch may take to connect, and the server to end it after its duration.
constexpr std::chrono::seconds kWatchSlack{30};

// An error of the API server already names the call.
absl::Status WithContext(const absl::Status& status, absl::string_view what) {
  if (status.ok() || ApiErrorOf(status).has_value()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

std::string DeleteBody(const DeleteOptions& options) {
  Json body{{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) {
    body["preconditions"]["resourceVersion"] = options.resource_version;
  }
  if (options.grace.has_value()) body["gracePeriodSeconds"] = options.grace->count();
  if (!options.propagation.empty()) body["propagationPolicy"] = options.propagation;
  return ToText(body);
}

// The media type of responses with metadata only, of one object or of a "List".
std::string MetadataOf(absl::string_view list) {
  constexpr absl::string_view kForm = ";g=meta.k8s.io;v=v1,application/json";
  return absl::StrCat("application/json;as=PartialObjectMetadata", list, kForm);
}
// For every write that sets fields.
constexpr std::pair<const char*, const char*> kFieldManager{"fieldManager", "pushpull-operator"};

// An error from the client's own limit, not from the server.
bool IsTooLarge(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && !ApiErrorOf(status).has_value();
}

// What to ask for in the next page of a list.
struct PageSize {
  int objects = 0;  // 0: all of them
  bool has_only_metadata = false;

  // After a page that was too large. False: it cannot be any smaller.
  bool Shrink() {
    if (has_only_metadata) return false;
    has_only_metadata = objects == 1;
    objects = objects == 0 ? KubeClient::kPageObjects : std::max(objects / 2, 1);
    return true;
  }
  // After a page that was read. A large object is mostly alone among small ones.
  void OnRead(size_t bytes, size_t bytes_max) {
    has_only_metadata = false;
    if (bytes < bytes_max / 4) objects = std::min(2 * objects, KubeClient::kPageObjects);
  }
};

}  // namespace

struct KubeClient::ListPage {
  std::string resource_version;
  std::string next;  // empty: the last page
};

// A call as metrics, errors and HTTP name it.
struct KubeClient::Verb {
  const char* name;
  const char* method;
  const char* content_type = "";
};

template <typename Read>
auto KubeClient::OneLargeTextAtATime(absl::string_view text, Read read) {
  if (text.size() <= kLargeTextBytes) return read();
  MutexLock turn(large_text_);
  return read();
}

KubeClient::KubeClient(Credentials& credentials, PausingTime& time, ClientOptions options)
    : credentials_(credentials),
      time_(time),
      options_(std::move(options)),
      http_(credentials.access().server, options_.response_bytes_max),
      bucket_(options_.rate_limit, time.Now()),
      random_(std::random_device()()) {}

void KubeClient::Stop() {
  stopped_.Cancel();
}

double KubeClient::Jitter() {
  MutexLock lock(mu_);
  return std::uniform_real_distribution<double>(0, 1)(random_);
}

KubeClient::Call KubeClient::MakeCall(const Verb& verb,
                                      const ResourceType& type,
                                      const ObjectKey& key,
                                      const std::string& target,
                                      const std::string& body) const {
  return {
      .verb = verb.name,
      .what = absl::StrCat(verb.name, " ", type.plural, key.name.empty() ? "" : " ", ToString(key)),
      .request = {.method = verb.method,
                  .target = credentials_.access().path_prefix + target,
                  .content_type = verb.content_type,
                  .body = body}};
}

absl::Status KubeClient::AwaitRateLimit(const Call& call,
                                        Deadline deadline,
                                        const Cancellation& cancellation) {
  const SteadyTime now = time_.Now();
  if (now >= deadline.when()) {
    return absl::DeadlineExceededError(absl::StrCat(call.what, ": the deadline has passed"));
  }
  SteadyTime turn;
  {
    MutexLock lock(mu_);
    turn = bucket_.Reserve(now);
  }
  if (turn > deadline.when()) {
    return absl::DeadlineExceededError(absl::StrCat(
        call.what, ": the client-side rate limit would delay the request beyond its deadline"));
  }
  if (cancellation.is_cancelled() || (turn > now && !time_.PauseUntil(turn, cancellation))) {
    return absl::CancelledError(absl::StrCat(call.what, ": cancelled"));
  }
  return absl::OkStatus();
}

// OK for a 2xx response.
absl::Status KubeClient::StatusOf(const Call& call, const HttpResponse& response) {
  if (!response.status.ok()) return WithContext(response.status, call.what);
  if (response.code >= 200 && response.code < 300) return absl::OkStatus();
  if (response.code == 401) credentials_.Invalidate();
  ApiError error = DecodeApiError(response.code, response.body);
  if (!error.retry_after.has_value()) error.retry_after = response.retry_after;
  return ToStatus(error, call.what);
}

HttpResponse KubeClient::Try(const Call& call, Deadline deadline) {
  SteadyTime end = deadline.when();
  if (call.request.method != "GET" && options_.may_write) {
    const absl::StatusOr<SteadyTime> until = options_.may_write();
    if (!until.ok()) return {.status = WithContext(until.status(), call.what)};
    end = std::min(end, *until);
  }
  // `end` is on the clock of time_, which a test may have moved; sockets know only the machine's
  // clock.
  HttpResponse response = http_.Exchange(call.request,
                                         credentials_.Current(),
                                         /*sink=*/nullptr,
                                         {Deadline::After(end - time_.Now()), stopped_});
  if (!response.status.ok()) {
    response.code = 0;
  } else if (response.date.has_value() && options_.on_date) {
    options_.on_date(*response.date);
  }
  response.status = StatusOf(call, response);
  return response;
}

absl::StatusOr<std::string> KubeClient::Send(const Call& call, Deadline deadline) {
  for (int attempts = 1;; ++attempts) {
    PUSHPULL_RETURN_IF_ERROR(AwaitRateLimit(call, deadline, stopped_));
    HttpResponse response = Try(call, deadline);
    if (options_.on_attempt) options_.on_attempt(call.verb, response.code);
    const absl::Status& status = response.status;
    if (status.ok()) return std::move(response.body);
    // Not the server's failure: refused by the write guard, or the client is stopping.
    if (absl::IsCancelled(status) || absl::IsFailedPrecondition(status)) return status;
    const std::optional<pushpull::Duration> delay =
        DelayBeforeRetry(response, call.repeat, attempts, Jitter());
    const SteadyTime now = time_.Now();
    // A pause that leaves no time for another attempt only hides the reason.
    if (!delay.has_value() || now + *delay >= deadline.when()) return status;
    if (!time_.PauseUntil(now + *delay, stopped_)) {
      return absl::CancelledError(absl::StrCat(call.what, ": cancelled"));
    }
  }
}

absl::StatusOr<Object> KubeClient::SendForObject(const Call& call, Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::string body, Send(call, deadline));
  absl::StatusOr<Object> object = ParseObject(body);
  if (!object.ok()) return WithContext(object.status(), call.what);
  // A part of the object that was not read must not cause a wrong write, or a missing one.
  if (!object->problem.empty())
    return absl::DataLossError(absl::StrCat(call.what, ": ", object->problem));
  return object;
}

// The caller of a write knows the rest of the object.
absl::StatusOr<ObjectMeta> KubeClient::SendForMeta(Call call, Deadline deadline) {
  call.request.accept = MetadataOf("");
  PUSHPULL_ASSIGN_OR_RETURN(const std::string body, Send(call, deadline));
  absl::StatusOr<Object> object = ParseObject(body);
  if (!object.ok()) return WithContext(object.status(), call.what);
  return std::move(object->meta);
}

absl::StatusOr<Object> KubeClient::Get(const ResourceType& type,
                                       const ObjectKey& key,
                                       Deadline deadline) {
  return SendForObject(MakeCall({"get", "GET"}, type, key, ObjectTarget(type, key)), deadline);
}

absl::StatusOr<ObjectMeta> KubeClient::GetMeta(const ResourceType& type,
                                               const ObjectKey& key,
                                               Deadline deadline) {
  return SendForMeta(MakeCall({"get", "GET"}, type, key, ObjectTarget(type, key)), deadline);
}

absl::StatusOr<std::string> KubeClient::List(const ResourceType& type,
                                             const Selection& selection,
                                             ListVisitor& visitor,
                                             Deadline deadline) {
  for (int lists = 1;; ++lists) {
    const int page_objects = lists <= kPagedListsMax ? kPageObjects : 0;
    visitor.BeginListing();
    absl::StatusOr<std::string> version =
        ListOnce(type, selection, page_objects, visitor, deadline);
    if (!absl::IsOutOfRange(version.status()) || page_objects == 0) return version;
  }
}

absl::StatusOr<std::string> KubeClient::ListOnce(const ResourceType& type,
                                                 const Selection& selection,
                                                 int page_objects,
                                                 ListVisitor& visitor,
                                                 Deadline deadline) {
  const size_t bytes_max = options_.response_bytes_max;
  PageSize size{.objects = page_objects};
  ListPage page;
  for (;;) {
    Call call = MakeCall({"list", "GET"},
                         type,
                         {.name = selection.object_namespace},
                         WithQuery(CollectionTarget(type, selection.object_namespace),
                                   {{"labelSelector", selection.label_selector},
                                    {"fieldSelector", selection.field_selector},
                                    {"limit", size.objects == 0 ? "" : absl::StrCat(size.objects)},
                                    {"continue", page.next}}));
    std::string problem;
    if (size.has_only_metadata || selection.has_only_metadata)
      call.request.accept = MetadataOf("List");
    if (size.has_only_metadata && !selection.has_only_metadata)
      problem = absl::StrCat("the object is larger than ", bytes_max >> 10, " KiB");
    const absl::StatusOr<std::string> body = Send(call, deadline);
    // With the same `continue`, the next page begins where this one would have.
    if (IsTooLarge(body.status()) && size.Shrink()) continue;
    PUSHPULL_RETURN_IF_ERROR(body.status());
    PUSHPULL_ASSIGN_OR_RETURN(
        page, OneLargeTextAtATime(*body, [&] { return ReadPage(call, *body, problem, visitor); }));
    size.OnRead(body->size(), bytes_max);
    if (page.next.empty()) return page.resource_version;
  }
}

absl::StatusOr<KubeClient::ListPage> KubeClient::ReadPage(const Call& call,
                                                          const std::string& body,
                                                          absl::string_view problem,
                                                          ListVisitor& visitor) {
  const auto take = [&](ReadValue read) {
    if (!problem.empty()) read.problem = std::string(problem);
    absl::StatusOr<Object> object = DecodeObject(std::move(read.json), std::move(read.problem));
    if (object.ok() && object->meta.key.name.empty())
      object = absl::DataLossError("the API server sent an object without a name");
    if (object.ok()) {
      visitor.AddListed(*std::move(object));
    } else {
      TellSkipped(call, object.status());
    }
  };
  const std::optional<Json> json = ReadEnvelope(body, "items", Holds::kList, take);
  const Json* items = json ? Find(*json, "items") : nullptr;
  if (items == nullptr || !(items->is_array() || items->is_null()))
    return absl::DataLossError(
        absl::StrCat(call.what, ": the API server sent an object that is not a list"));
  const Json* metadata = Find(*json, "metadata");
  if (metadata == nullptr)
    return absl::DataLossError(
        absl::StrCat(call.what, ": the API server sent a list without metadata"));
  return ListPage{.resource_version = StringField(*metadata, "resourceVersion"),
                  .next = StringField(*metadata, "continue")};
}

void KubeClient::TellSkipped(const Call& call, const absl::Status& why) const {
  if (options_.on_skipped) options_.on_skipped(WithContext(why, call.what));
}

absl::StatusOr<ObjectMeta> KubeClient::Create(const ResourceType& type,
                                              const std::string& object_namespace,
                                              const std::string& body,
                                              DryRun dry_run,
                                              Deadline deadline) {
  const bool is_dry = dry_run == DryRun::kYes;
  // A dry run is refused for an unknown field, which a real create would only drop.
  Call call = MakeCall({"create", "POST", "application/json"},
                       type,
                       {.name = object_namespace},
                       WithQuery(CollectionTarget(type, object_namespace),
                                 {kFieldManager,
                                  {"dryRun", is_dry ? "All" : ""},
                                  {"fieldValidation", is_dry ? "Strict" : ""}}),
                       body);
  call.repeat = is_dry ? Repeat::kSafe : Repeat::kUnsafe;
  return SendForMeta(std::move(call), deadline);
}

absl::StatusOr<Object> KubeClient::Replace(const ResourceType& type,
                                           const ObjectKey& key,
                                           const std::string& body,
                                           Deadline deadline) {
  const std::string target = WithQuery(ObjectTarget(type, key), {kFieldManager});
  return SendForObject(MakeCall({"replace", "PUT", "application/json"}, type, key, target, body),
                       deadline);
}

absl::Status KubeClient::Delete(const ResourceType& type,
                                const ObjectKey& key,
                                const DeleteOptions& options,
                                Deadline deadline) {
  Call call = MakeCall({"delete", "DELETE", "application/json"},
                       type,
                       key,
                       ObjectTarget(type, key),
                       DeleteBody(options));
  call.repeat = options.uid.empty() ? Repeat::kUnsafe : Repeat::kSafe;
  return Send(call, deadline).status();
}

absl::StatusOr<ObjectMeta> KubeClient::MergePatch(const ResourceType& type,
                                                  const ObjectKey& key,
                                                  const std::string& body,
                                                  const std::string& subresource,
                                                  Deadline deadline) {
  const std::string target = WithQuery(ObjectTarget(type, key, subresource), {kFieldManager});
  return SendForMeta(
      MakeCall({"patch", "PATCH", "application/merge-patch+json"}, type, key, target, body),
      deadline);
}

absl::StatusOr<ObjectMeta> KubeClient::Apply(const ResourceType& type,
                                             const ObjectKey& key,
                                             const std::string& body,
                                             Deadline deadline) {
  // JSON is YAML.
  return SendForMeta(
      MakeCall({"apply", "PATCH", "application/apply-patch+yaml"},
               type,
               key,
               WithQuery(ObjectTarget(type, key), {kFieldManager, {"force", "true"}}),
               body),
      deadline);
}

absl::Status KubeClient::Watch(const ResourceType& type,
                               const WatchOptions& options,
                               absl::FunctionRef<absl::Status(WatchEvent)> on_event,
                               const Cancellation& cancellation) {
  const std::string& object_namespace = options.selection.object_namespace;
  Call call = MakeCall({"watch", "GET"},
                       type,
                       {.name = object_namespace},
                       WithQuery(CollectionTarget(type, object_namespace),
                                 {{"watch", "true"},
                                  {"allowWatchBookmarks", "true"},
                                  {"labelSelector", options.selection.label_selector},
                                  {"fieldSelector", options.selection.field_selector},
                                  {"resourceVersion", options.resource_version},
                                  {"timeoutSeconds", absl::StrCat(options.duration.count())}}));
  if (options.selection.has_only_metadata) call.request.accept = MetadataOf("");
  PUSHPULL_RETURN_IF_ERROR(AwaitRateLimit(call, Deadline(time_.Now() + kWatchSlack), cancellation));
  WatchFrameSplitter splitter;
  const auto read = [&](absl::string_view frame) -> absl::Status {
    absl::StatusOr<WatchEvent> event = DecodeWatchEvent(frame);
    if (absl::IsInvalidArgument(event.status())) {
      TellSkipped(call, event.status());
      return absl::OkStatus();
    }
    PUSHPULL_RETURN_IF_ERROR(event.status());
    if (event->type == WatchEventType::kUnknown) return absl::OkStatus();
    if (event->type == WatchEventType::kError) return ToStatus(event->error, call.what);
    return on_event(*std::move(event));
  };
  const auto on_frame = [&](absl::string_view frame) {
    return OneLargeTextAtATime(frame, [&] { return read(frame); });
  };
  const HttpResponse response =
      http_.Exchange(call.request,
                     credentials_.Current(),
                     [&](absl::string_view piece) { return splitter.Feed(piece, on_frame); },
                     {Deadline::After(options.duration + kWatchSlack), cancellation});
  if (options_.on_attempt) options_.on_attempt(call.verb, response.status.ok() ? response.code : 0);
  return StatusOf(call, response);
}

}  // namespace pushpull_operator
