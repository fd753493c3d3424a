// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/kube/json_fields.h"
#include "runtime/base/host_port.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

using pushpull::Deadline;
using pushpull::MutexLock;
using pushpull::SteadyTime;

// As many as there are threads with calls at a time; further connections are closed after use.
constexpr size_t kIdleConnectionsMax = 8;
// Lists that expire this often have objects that change faster than pages can be read.
constexpr int kPagedListsMax = 2;

absl::Status WithContext(const absl::Status& status, absl::string_view what) {
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

const char* DryRunValue(DryRun dry_run) {
  return dry_run == DryRun::kYes ? "All" : "";
}

struct ListPage {
  std::string resource_version;
  std::string next;  // empty: the last page
};

// Hands the objects of one page on.
absl::StatusOr<ListPage> ReadPage(const std::string& body, ListVisitor& visitor) {
  std::optional<Json> json = ParseApiJson(body);
  const auto items = json.has_value() && json->is_object() ? json->find("items") : Json::iterator();
  if (!json.has_value() || !json->is_object() || items == json->end() ||
      !(items->is_array() || items->is_null())) {
    return absl::DataLossError("the API server sent no list");
  }
  if (items->is_array()) {
    for (Json& item : *items) {
      PUSHPULL_ASSIGN_OR_RETURN(Object object, DecodeObject(std::move(item)));
      visitor.Take(std::move(object));
    }
  }
  const Json* metadata = Find(*json, "metadata");
  if (metadata == nullptr)
    return absl::DataLossError("the API server sent a list without metadata");
  return ListPage{.resource_version = StringField(*metadata, "resourceVersion"),
                  .next = StringField(*metadata, "continue")};
}

std::string HostHeader(const ServerAddress& server) {
  return ToString(pushpull::HostPort{server.host, server.port});
}

}  // namespace

struct KubeClient::AttemptResult {
  Attempt attempt;
  absl::StatusOr<std::string> body = std::string();  // of an answer 2xx
};

KubeClient::KubeClient(Credentials& credentials, PausingTime& time, ClientOptions options)
    : credentials_(credentials),
      time_(time),
      options_(std::move(options)),
      host_header_(HostHeader(credentials.access().server)),
      bucket_(options_.rate_limit, time.Now()),
      random_(std::random_device()()) {}

KubeClient::~KubeClient() = default;

void KubeClient::Stop() {
  stopped_.Cancel();
}

double KubeClient::Jitter() {
  MutexLock lock(mu_);
  return std::uniform_real_distribution<double>(0, 1)(random_);
}

void KubeClient::Count(const Call& call, int code) const {
  if (options_.on_attempt) options_.on_attempt(call.verb, code);
}

Deadline KubeClient::SocketDeadline(SteadyTime when) const {
  return Deadline::After(when - time_.Now());
}

KubeClient::Call KubeClient::MakeCall(absl::string_view verb,
                                      absl::string_view method,
                                      const ResourceType& type,
                                      const ObjectKey& key) const {
  return {.verb = std::string(verb),
          .what = absl::StrCat(verb, " ", type.plural, " ", ToString(key)),
          .request = {.method = std::string(method)}};
}

absl::Status KubeClient::TakeTurn(const Call& call,
                                  Deadline deadline,
                                  const Cancellation& cancellation) {
  const SteadyTime now = time_.Now();
  if (now >= deadline.when()) {
    return absl::DeadlineExceededError(absl::StrCat(call.what, ": the deadline has passed"));
  }
  SteadyTime turn;
  {
    MutexLock lock(mu_);
    turn = bucket_.TakeTurn(now);
  }
  if (turn > deadline.when()) {
    return absl::DeadlineExceededError(
        absl::StrCat(call.what, ": its turn in the client's rate limit is after its deadline"));
  }
  if (cancellation.is_cancelled() || (turn > now && !time_.PauseUntil(turn, cancellation))) {
    return absl::CancelledError(absl::StrCat(call.what, ": cancelled"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Connection>> KubeClient::TakeConnection(const AccessNow& access,
                                                                       Deadline deadline) {
  for (;;) {
    std::unique_ptr<Connection> kept;
    {
      MutexLock lock(mu_);
      if (idle_.empty()) break;
      kept = std::move(idle_.back());
      idle_.pop_back();
    }
    if (kept->tls() == access.tls.get() && !kept->is_stale()) return kept;
  }
  return Connection::Open(
      credentials_.access().server, access.tls, {SocketDeadline(deadline.when()), &stopped_});
}

void KubeClient::KeepConnection(std::unique_ptr<Connection> connection) {
  MutexLock lock(mu_);
  if (idle_.size() < kIdleConnectionsMax) idle_.push_back(std::move(connection));
}

absl::StatusOr<HttpResponse> KubeClient::ExchangeGuarded(Connection& connection,
                                                         const Call& call,
                                                         const std::string& token,
                                                         Deadline deadline) {
  SteadyTime end = deadline.when();
  if (call.request.method != "GET" && options_.may_write) {
    PUSHPULL_ASSIGN_OR_RETURN(const SteadyTime until, options_.may_write());
    end = std::min(end, until);
  }
  return Exchange(
      connection, call.request, host_header_, token, nullptr, {SocketDeadline(end), &stopped_});
}

KubeClient::AttemptResult KubeClient::Try(const Call& call, Deadline deadline) {
  const AccessNow access = credentials_.Current();
  absl::StatusOr<std::unique_ptr<Connection>> connection = TakeConnection(access, deadline);
  if (!connection.ok()) return {.body = WithContext(connection.status(), call.what)};
  absl::StatusOr<HttpResponse> response =
      ExchangeGuarded(**connection, call, access.token, deadline);
  if (!response.ok()) {
    return {.attempt = {.was_sent = true}, .body = WithContext(response.status(), call.what)};
  }
  if (response->date.has_value() && options_.on_date) options_.on_date(*response->date);
  if (response->can_reuse_connection) KeepConnection(*std::move(connection));
  AttemptResult result{
      .attempt = {.was_sent = true, .code = response->code, .retry_after = response->retry_after}};
  if (response->code >= 200 && response->code < 300) {
    result.body = std::move(response->body);
    return result;
  }
  if (response->code == 401) credentials_.Distrust();
  ApiError error = DecodeApiError(response->code, response->body);
  if (!error.retry_after.has_value()) error.retry_after = response->retry_after;
  result.body = ToStatus(error, call.what);
  return result;
}

absl::StatusOr<std::string> KubeClient::Send(const Call& call, Deadline deadline) {
  for (int attempts = 1;; ++attempts) {
    PUSHPULL_RETURN_IF_ERROR(TakeTurn(call, deadline, stopped_));
    AttemptResult result = Try(call, deadline);
    Count(call, result.attempt.code);
    const absl::Status& status = result.body.status();
    // A refusal of our own, or the caller's time is over: not the server's failure.
    if (status.ok() || absl::IsCancelled(status) || absl::IsFailedPrecondition(status)) {
      return std::move(result.body);
    }
    const std::optional<pushpull::Duration> delay =
        DelayBeforeRetry(result.attempt, call.repeat, attempts, Jitter());
    const SteadyTime now = time_.Now();
    // A pause that leaves no time for another try only hides the reason.
    if (!delay.has_value() || now + *delay >= deadline.when()) return std::move(result.body);
    if (!time_.PauseUntil(now + *delay, stopped_)) {
      return absl::CancelledError(absl::StrCat(call.what, ": cancelled"));
    }
  }
}

absl::StatusOr<Object> KubeClient::SendForObject(const Call& call, Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::string body, Send(call, deadline));
  absl::StatusOr<Object> object = ParseObject(body);
  if (!object.ok()) return WithContext(object.status(), call.what);
  return object;
}

// Whoever makes or changes an object knows what else is in it.
absl::StatusOr<ObjectMeta> KubeClient::SendForMeta(Call call, Deadline deadline) {
  call.request.accept =
      "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
  PUSHPULL_ASSIGN_OR_RETURN(Object object, SendForObject(call, deadline));
  return std::move(object.meta);
}

absl::StatusOr<Object> KubeClient::Get(const ResourceType& type,
                                       const ObjectKey& key,
                                       Deadline deadline) {
  Call call = MakeCall("get", "GET", type, key);
  call.request.target = credentials_.access().path_prefix + ObjectTarget(type, key);
  return SendForObject(call, deadline);
}

absl::StatusOr<std::string> KubeClient::List(const ResourceType& type,
                                             const Selection& selection,
                                             ListVisitor& visitor,
                                             Deadline deadline) {
  for (int lists = 1;; ++lists) {
    const int page_objects = lists <= kPagedListsMax ? kPageObjects : 0;
    visitor.Begin();
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
  Call call = MakeCall("list", "GET", type, {.name = selection.object_namespace});
  ListPage page;
  do {
    call.request.target = WithQuery(
        credentials_.access().path_prefix + CollectionTarget(type, selection.object_namespace),
        {{"labelSelector", selection.label_selector},
         {"fieldSelector", selection.field_selector},
         {"limit", page_objects == 0 ? "" : absl::StrCat(page_objects)},
         {"continue", page.next}});
    PUSHPULL_ASSIGN_OR_RETURN(const std::string body, Send(call, deadline));
    absl::StatusOr<ListPage> read = ReadPage(body, visitor);
    if (!read.ok()) return WithContext(read.status(), call.what);
    page = *std::move(read);
  } while (!page.next.empty());
  return page.resource_version;
}

absl::StatusOr<ObjectMeta> KubeClient::Create(const ResourceType& type,
                                              const std::string& object_namespace,
                                              const std::string& body,
                                              DryRun dry_run,
                                              Deadline deadline) {
  Call call = MakeCall("create", "POST", type, {.name = object_namespace});
  call.request.target =
      WithQuery(credentials_.access().path_prefix + CollectionTarget(type, object_namespace),
                {{"fieldManager", options_.field_manager}, {"dryRun", DryRunValue(dry_run)}});
  call.request.content_type = "application/json";
  call.request.body = body;
  call.repeat = dry_run == DryRun::kYes ? Repeat::kSafe : Repeat::kUnsafe;
  return SendForMeta(std::move(call), deadline);
}

absl::StatusOr<Object> KubeClient::Replace(const ResourceType& type,
                                           const ObjectKey& key,
                                           const std::string& body,
                                           Deadline deadline) {
  Call call = MakeCall("replace", "PUT", type, key);
  call.request.target = WithQuery(credentials_.access().path_prefix + ObjectTarget(type, key),
                                  {{"fieldManager", options_.field_manager}});
  call.request.content_type = "application/json";
  call.request.body = body;
  return SendForObject(call, deadline);
}

absl::Status KubeClient::Delete(const ResourceType& type,
                                const ObjectKey& key,
                                const DeleteOptions& options,
                                Deadline deadline) {
  Call call = MakeCall("delete", "DELETE", type, key);
  call.request.target = credentials_.access().path_prefix + ObjectTarget(type, key);
  call.request.content_type = "application/json";
  call.request.body = DeleteBody(options);
  call.repeat = options.uid.empty() ? Repeat::kUnsafe : Repeat::kSafe;
  return Send(call, deadline).status();
}

absl::StatusOr<ObjectMeta> KubeClient::MergePatch(const ResourceType& type,
                                                  const ObjectKey& key,
                                                  const std::string& body,
                                                  const PatchOptions& options,
                                                  Deadline deadline) {
  Call call = MakeCall("patch", "PATCH", type, key);
  call.request.target = WithQuery(
      credentials_.access().path_prefix + ObjectTarget(type, key, options.subresource),
      {{"fieldManager", options_.field_manager}, {"dryRun", DryRunValue(options.dry_run)}});
  call.request.content_type = "application/merge-patch+json";
  call.request.body = body;
  return SendForMeta(std::move(call), deadline);
}

absl::StatusOr<ObjectMeta> KubeClient::Apply(const ResourceType& type,
                                             const ObjectKey& key,
                                             const std::string& body,
                                             const ApplyOptions& options,
                                             Deadline deadline) {
  Call call = MakeCall("apply", "PATCH", type, key);
  call.request.target = WithQuery(credentials_.access().path_prefix + ObjectTarget(type, key),
                                  {{"fieldManager", options_.field_manager},
                                   {"force", options.force == Force::kYes ? "true" : ""},
                                   {"dryRun", DryRunValue(options.dry_run)}});
  call.request.content_type = "application/apply-patch+yaml";  // JSON is YAML
  call.request.body = body;
  return SendForMeta(std::move(call), deadline);
}

}  // namespace pushpull_operator
