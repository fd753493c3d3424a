// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/session_service.h"

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <grpcpp/grpcpp.h>

#include "pushpull/v1/control.grpc.pb.h"

#include "runtime/base/host_port.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/membership/control_proto.h"
#include "runtime/tls/grpc_credentials.h"

namespace pushpull {
namespace {

constexpr size_t kQueuedToMemberMax = 1024;  // messages to one member
// All members, and as many replacements.
constexpr size_t kSessionsMax = 2 * (kWireServersMax + kWireWorkersMax);
// A connection carries one session, or a few status calls.
constexpr int kCallsOfConnectionMax = 64;
// A peer without a call has no reason to stay connected.
constexpr int kIdleConnectionMilliseconds = 10'000;
constexpr std::chrono::seconds kCloseTimeout{2};

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// Callbacks of a call, on gRPC's threads.
class CallListener {
 public:
  virtual ~CallListener() = default;
  // The next message is read only after ReadNext.
  virtual void OnIncoming(SessionId id, FromMember message) = 0;
  // The last callback; the call deletes itself after it.
  virtual void OnCallDone(SessionId id, const absl::Status& why) = 0;
};

// One call of Session. Owns itself until OnDone, as gRPC's reactors do. Thread-safe.
//
// Flow control: at most one read and one write are outstanding. The next read starts only after the
// executor has handled the last message, so a member that floods the coordinator is slowed down by
// HTTP/2; messages to a member that does not read are queued up to kQueuedToMemberMax.
//
// Order at the end: gRPC allows Finish only when no write is outstanding, and calls OnDone after
// the last reaction. So End drains the queue first, and FinishOnce runs once the queue is empty.
class SessionCall final : public grpc::ServerBidiReactor<v1::FromMember, v1::ToMember> {
 public:
  SessionCall(SessionId id,
              PeerIdentity identity,
              grpc::CallbackServerContext& context,
              CallListener& listener)
      : id_(id),
        peer_(context.peer()),
        identity_(std::move(identity)),
        context_(context),
        listener_(listener) {
    StartSendInitialMetadata();  // shows the member that a coordinator answers
  }

  void ReadNext() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (!is_ending_) StartRead(&incoming_);
  }

  void Send(v1::ToMember message) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (is_ending_) return;
    if (outgoing_.size() >= kQueuedToMemberMax) {
      End(absl::ResourceExhaustedError("has stopped reading"));
      context_.TryCancel();
      return;
    }
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

  // Sends what is queued, then ends the call with `why`, which is OK at the end of the job.
  void Close(absl::Status why) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    End(std::move(why));
  }

  void Abort() { context_.TryCancel(); }

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (!ok) return Close(absl::OkStatus());  // half-closed by the member, or the call is over
    absl::StatusOr<FromMember> message = FromProto(incoming_);
    incoming_.Clear();  // frees a large report: the next message may be long in coming
    if (message.ok()) message = Admit(*std::move(message));
    if (!message.ok()) return Close(message.status());
    listener_.OnIncoming(id_, *std::move(message));
  }

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (ok) {
      outgoing_.pop_front();
    } else {
      outgoing_.clear();
      End(absl::UnavailableError("connection lost"));
    }
    if (!outgoing_.empty()) {
      StartWrite(&outgoing_.front());
    } else if (is_ending_) {
      FinishOnce();
    }
  }

  void OnCancel() override ABSL_LOCKS_EXCLUDED(mu_) {
    Close(absl::UnavailableError("connection lost"));
  }

  void OnDone() override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::Status why;
    {
      MutexLock lock(mu_);
      why = why_.ok() ? absl::CancelledError("session ended") : why_;
    }
    listener_.OnCallDone(id_, absl::Status(why.code(), absl::StrCat(peer_, ": ", why.message())));
    delete this;
  }

 private:
  // A member cannot register as another one. Its later messages count as those of the member it
  // registered as.
  absl::StatusOr<FromMember> Admit(FromMember message) const {
    if (const auto* server = std::get_if<RegisterServer>(&message))
      PUSHPULL_RETURN_IF_ERROR(identity_.CheckIs(ToString(server->server)));
    if (const auto* worker = std::get_if<RegisterWorker>(&message))
      PUSHPULL_RETURN_IF_ERROR(identity_.CheckIs(ToString(worker->worker)));
    return message;
  }

  // The first reason wins.
  void End(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!is_ending_) why_ = std::move(why);
    is_ending_ = true;
    if (outgoing_.empty()) FinishOnce();
  }

  // Call only while no write is outstanding.
  void FinishOnce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!is_finished_) Finish(ToGrpc(why_));
    is_finished_ = true;
  }

  const SessionId id_;
  const std::string peer_;
  const PeerIdentity identity_;
  grpc::CallbackServerContext& context_;
  CallListener& listener_;
  v1::FromMember incoming_;  // used by the outstanding read, then by its reaction
  Mutex mu_;
  std::deque<v1::ToMember> outgoing_ ABSL_GUARDED_BY(mu_);  // the first is being written
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  bool is_finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
};

// Ends a unary call; owns itself until OnDone. After that, gRPC's thread destroys the response that
// the executor's thread has written. gRPC orders the two with atomics that the thread sanitizer
// does not see; the mutex orders them visibly. Without it each field of each status would be one
// more race to suppress.
class UnaryReactor final : public grpc::ServerUnaryReactor {
 public:
  void FinishWritten(const grpc::Status& result) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    Finish(result);
  }

  void OnDone() override ABSL_LOCKS_EXCLUDED(mu_) {
    { MutexLock lock(mu_); }
    delete this;
  }

 private:
  Mutex mu_;
};

// A unary call on its way to the executor and back. It answers when the last reference is released,
// so a task that a stopped executor drops still ends the call.
template <typename Response>
class UnaryCall {
 public:
  UnaryCall(UnaryReactor& reactor, Response& response) : reactor_(reactor), response_(response) {}
  UnaryCall(const UnaryCall&) = delete;
  UnaryCall& operator=(const UnaryCall&) = delete;
  ~UnaryCall() { reactor_.FinishWritten(result_); }

  template <typename Answer>
  void Finish(const Answer& answer) {
    ToProto(answer, response_);
    result_ = grpc::Status::OK;
  }

 private:
  UnaryReactor& reactor_;
  Response& response_;
  grpc::Status result_{grpc::StatusCode::UNAVAILABLE, "the coordinator is starting or ending"};
};

class GrpcCoordinatorService final : public CoordinatorService,
                                     public v1::Coordinator::CallbackService,
                                     private CallListener {
 public:
  GrpcCoordinatorService(Executor& executor, const TlsFolder* tls)
      : executor_(executor),
        target_(std::make_shared<Target>(Target{.service = this})),
        tls_(tls),
        credentials_(MakeServerCredentials(tls)) {}
  ~GrpcCoordinatorService() override { Shutdown(Deadline::After(kCloseTimeout)); }

  absl::Status Bind(HostPort listen) {
    PUSHPULL_RETURN_IF_ERROR(BindTo(listen).status());
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kWireMessageBytesMax);
    // Otherwise two coordinators could share a port, and each would get half the members.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Members do not compress; a stranger's 64 KiB could expand to 64 MiB.
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsOfConnectionMax);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kIdleConnectionMilliseconds);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionMilliseconds);
    // Every ping is answered, because gRPC's complaint about a ping too many takes 3 KiB, and there
    // is one for each ping read with it. A peer that reads no answers is not read from either.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    int port = 0;
    builder.AddListeningPort(ToString(listen), credentials_, &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0)
      return absl::UnavailableError(absl::StrCat("listen on ", ToString(listen), ": failed"));
    listen.port = static_cast<uint16_t>(port);
    address_ = ToString(listen);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void Serve(SessionEvents& events) override ABSL_LOCKS_EXCLUDED(mu_) {
    executor_.Post([target = target_, &events] { target->events = &events; });
    MutexLock lock(mu_);
    is_serving_ = true;
    for (const auto& [id, call] : calls_) call->ReadNext();
  }

  void Shutdown(Deadline deadline) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (server_ == nullptr) return;  // never bound
    {
      MutexLock lock(mu_);
      if (std::exchange(is_stopping_, true)) return;
    }
    Detach();
    {
      MutexLock lock(mu_);
      for (const auto& [id, call] : calls_) call->Close(absl::OkStatus());
    }
    server_->Shutdown(std::chrono::system_clock::now() + deadline.remaining());
    AwaitNoCalls();
  }

  void Send(SessionId session, ToMember message) override ABSL_LOCKS_EXCLUDED(mu_) {
    v1::ToMember wire;
    ToProto(message, wire);
    MutexLock lock(mu_);
    const auto it = calls_.find(session);
    if (it != calls_.end()) it->second->Send(std::move(wire));
  }

  void Close(SessionId session) override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      const auto it = calls_.find(session);
      if (it == calls_.end()) return;
      it->second->Close(absl::OkStatus());
    }
    executor_.Post([this_executor = &executor_, target = target_, session] {
      this_executor->RunAfter(kCloseTimeout, [target, session] {
        if (target->service != nullptr) target->service->Abort(session);
      });
    });
  }

  grpc::ServerBidiReactor<v1::FromMember, v1::ToMember>* Session(
      grpc::CallbackServerContext* context) override ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::StatusOr<PeerIdentity> peer = PeerOf(*context->auth_context(), tls_);
    MutexLock lock(mu_);
    const SessionId id{++last_session_};
    auto* call = new SessionCall(
        id, peer.value_or(PeerIdentity::Anybody()), *context, *this);  // deletes itself
    calls_.emplace(id, call);
    if (!peer.ok()) {
      call->Close(peer.status());
    } else if (is_stopping_) {
      call->Close(absl::UnavailableError("the coordinator is ending"));
    } else if (calls_.size() > kSessionsMax) {
      call->Close(absl::ResourceExhaustedError("too many sessions"));
    } else if (is_serving_) {
      call->ReadNext();
    }
    return call;
  }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::JobStatus* response) override {
    const absl::Status admitted = PeerOf(*context->auth_context(), tls_).status();
    return Answer(admitted, *response, [waiter = request->waiter()](SessionEvents& events) {
      return events.AnswerWaiter(waiter);
    });
  }

  grpc::ServerUnaryReactor* Resize(grpc::CallbackServerContext* context,
                                   const v1::ResizeRequest* request,
                                   v1::Status* response) override {
    return Answer(CheckManager(*context, "resize the job"),
                  *response,
                  [size = FromProto(*request)](SessionEvents& events) {
                    return size.ok() ? events.Resize(*size) : size.status();
                  });
  }

  grpc::ServerUnaryReactor* SaveCheckpoint(grpc::CallbackServerContext* context,
                                           const v1::SaveCheckpointRequest* /*request*/,
                                           v1::SaveCheckpointResponse* response) override {
    return Answer(CheckManager(*context, "save a checkpoint"),
                  *response,
                  [](SessionEvents& events) { return events.SaveCheckpoint(); });
  }

  grpc::ServerUnaryReactor* SetMode(grpc::CallbackServerContext* context,
                                    const v1::SetModeRequest* request,
                                    v1::Status* response) override {
    return Answer(CheckManager(*context, "set its mode"),
                  *response,
                  [change = FromProto(*request)](SessionEvents& events) {
                    return change.ok() ? events.SetMode(*change) : change.status();
                  });
  }

  grpc::ServerUnaryReactor* StartTrace(grpc::CallbackServerContext* context,
                                       const v1::TraceRequest* request,
                                       v1::StartTraceResponse* response) override {
    return Answer(
        CheckManager(*context, "trace it"),
        *response,
        [wanted = FromProto(*request)](SessionEvents& events) -> absl::StatusOr<uint64_t> {
          PUSHPULL_RETURN_IF_ERROR(wanted.status());
          return events.StartTrace(*wanted);
        });
  }

  grpc::ServerUnaryReactor* TakeTrace(grpc::CallbackServerContext* context,
                                      const v1::TakeTraceRequest* request,
                                      v1::TakeTraceResponse* response) override {
    return Answer(CheckManager(*context, "read its trace"),
                  *response,
                  [number = request->number(), from = request->from()](SessionEvents& events) {
                    return events.TakeTrace(number, from);
                  });
  }

 private:
  // How posted tasks find the service and its events. Confined to the executor; both are null after
  // Detach, because tasks may run after the service is destroyed.
  struct Target {
    GrpcCoordinatorService* service = nullptr;
    SessionEvents* events = nullptr;
  };

  // Whether the caller may control the job.
  absl::Status CheckManager(const grpc::CallbackServerContext& context, const char* what) const {
    PUSHPULL_ASSIGN_OR_RETURN(const PeerIdentity peer, PeerOf(*context.auth_context(), tls_));
    return peer.CheckManages(what);
  }

  // Calls `ask` with the events on the executor, and answers with its result, or with `admitted` if
  // that is an error.
  template <typename Response, typename Ask>
  grpc::ServerUnaryReactor* Answer(const absl::Status& admitted, Response& response, Ask ask) {
    auto* reactor = new UnaryReactor;
    if (!admitted.ok()) {
      reactor->Finish(ToGrpc(admitted));
      return reactor;
    }
    executor_.Post([call = std::make_shared<UnaryCall<Response>>(*reactor, response),
                    asking = std::move(ask),
                    target = target_] {
      if (target->events != nullptr) call->Finish(asking(*target->events));
    });
    return reactor;
  }

  void OnIncoming(SessionId id, FromMember message) override {
    executor_.Post([target = target_, id, incoming = std::move(message)]() mutable {
      if (target->events == nullptr) return;
      target->events->OnMessage(id, std::move(incoming));
      if (target->service != nullptr) target->service->ReadNext(id);
    });
  }

  void OnCallDone(SessionId id, const absl::Status& why) override ABSL_LOCKS_EXCLUDED(mu_) {
    executor_.Post([target = target_, id, why] {
      if (target->events != nullptr) target->events->OnClosed(id, why);
    });
    // Last: once no call is left, the service may be destroyed.
    MutexLock lock(mu_);
    calls_.erase(id);
    changed_.NotifyAll();
  }

  void ReadNext(SessionId session) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    const auto it = calls_.find(session);
    if (it != calls_.end()) it->second->ReadNext();
  }

  void Abort(SessionId session) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    const auto it = calls_.find(session);
    if (it != calls_.end()) it->second->Abort();
  }

  // server_->Shutdown has waited for every call, but OnCallDone may not have returned yet.
  void AwaitNoCalls() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    while (!calls_.empty()) changed_.WaitUntil(mu_, Deadline::After(kCloseTimeout));
  }

  // Afterwards no task touches the service or the events. Waits for the end of the posted task,
  // whether it ran or a stopped executor dropped it.
  void Detach() ABSL_LOCKS_EXCLUDED(mu_) {
    std::shared_ptr<void> on_end(nullptr, [this](void*) {
      MutexLock lock(mu_);
      is_detached_ = true;
      changed_.NotifyAll();
    });
    executor_.Post([target = target_, held = std::move(on_end)] { *target = {}; });
    MutexLock lock(mu_);
    while (!is_detached_) changed_.WaitUntil(mu_, Deadline::After(kCloseTimeout));
  }

  Executor& executor_;
  const std::shared_ptr<Target> target_;
  const TlsFolder* const tls_;
  const std::shared_ptr<grpc::ServerCredentials> credentials_;  // outlives the server
  CondVar changed_;
  Mutex mu_;
  std::map<SessionId, SessionCall*> calls_ ABSL_GUARDED_BY(mu_);  // until their OnDone
  uint64_t last_session_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_serving_ ABSL_GUARDED_BY(mu_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool is_detached_ ABSL_GUARDED_BY(mu_) = false;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;  // last: destroyed first, which waits for all calls
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorService>> CoordinatorService::Listen(
    const std::string& listen, Executor& executor, const TlsFolder* tls) {
  PUSHPULL_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(listen));
  auto service = std::make_unique<GrpcCoordinatorService>(executor, tls);
  PUSHPULL_RETURN_IF_ERROR(service->Bind(address));
  return service;
}

}  // namespace pushpull
