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
#include "runtime/membership/job_status_proto.h"
#include "runtime/membership/stats_proto.h"
#include "runtime/tls/grpc_credentials.h"

namespace pushpull {
namespace {

constexpr size_t kQueuedMax = 1024;  // messages to one member
// Every member, and as many again that are being replaced.
constexpr size_t kSessionsMax = 2 * (kWireServersMax + kWireWorkersMax);
// A connection carries one session, or a few status calls.
constexpr int kCallsOfConnectionMax = 64;
constexpr std::chrono::seconds kCloseTime{2};

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// Told by a call what happens on it, on gRPC's threads.
class CallListener {
 public:
  virtual ~CallListener() = default;
  // The next message is read after ReadNext.
  virtual void OnIncoming(SessionId id, FromMember message) = 0;
  // The last one; the call deletes itself after it.
  virtual void OnCallDone(SessionId id, const absl::Status& why) = 0;
};

// One call of Session, owned by itself until OnDone. One read and one write are outstanding at
// most, and the next read waits until the last message was handled. Thread-safe.
class SessionCall final : public grpc::ServerBidiReactor<v1::FromMember, v1::ToMember> {
 public:
  SessionCall(SessionId id, grpc::CallbackServerContext& context, CallListener& listener)
      : id_(id), peer_(context.peer()), context_(context), listener_(listener) {
    StartSendInitialMetadata();  // tells the member that it has reached a coordinator
  }

  void ReadNext() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (!is_ending_) StartRead(&incoming_);
  }

  void Send(v1::ToMember message) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (is_ending_) return;
    if (outgoing_.size() >= kQueuedMax) {
      End(absl::ResourceExhaustedError("has stopped reading"));
      context_.TryCancel();
      return;
    }
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

  // Sends what is queued, then ends the call with `why`, an OK where it ends in order.
  void Close(absl::Status why) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    End(std::move(why));
  }

  void Abort() { context_.TryCancel(); }

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (!ok) return Close(absl::OkStatus());  // half-closed by the member, or the call is over
    absl::StatusOr<FromMember> message = FromProto(incoming_);
    incoming_.Clear();  // a report may be large, and the next message may be long in coming
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
  // The first reason counts.
  void End(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!is_ending_) why_ = std::move(why);
    is_ending_ = true;
    if (outgoing_.empty()) FinishOnce();
  }

  // Only when no write is outstanding.
  void FinishOnce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!is_finished_) Finish(ToGrpc(why_));
    is_finished_ = true;
  }

  const SessionId id_;
  const std::string peer_;
  grpc::CallbackServerContext& context_;
  CallListener& listener_;
  v1::FromMember incoming_;  // the outstanding read's, or that of the reaction to it
  Mutex mu_;
  std::deque<v1::ToMember> outgoing_ ABSL_GUARDED_BY(mu_);  // the first is being written
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  bool is_finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
};

// A call on its way to the executor and back. Its answer is the last reference's end, so that a
// task that an executor drops still ends the call.
template <typename Response>
class UnaryCall {
 public:
  UnaryCall(grpc::ServerUnaryReactor& reactor, Response& response)
      : reactor_(reactor), response_(response) {}
  UnaryCall(const UnaryCall&) = delete;
  UnaryCall& operator=(const UnaryCall&) = delete;
  ~UnaryCall() { reactor_.Finish(result_); }

  template <typename Answer>
  void Finish(const Answer& answer) {
    ToProto(answer, response_);
    result_ = grpc::Status::OK;
  }

 private:
  grpc::ServerUnaryReactor& reactor_;
  Response& response_;
  grpc::Status result_{grpc::StatusCode::UNAVAILABLE, "the coordinator is starting or ending"};
};

// Flips once. Thread-safe.
class Latch {
 public:
  void Open() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    is_open_ = true;
    changed_.NotifyAll();
  }
  void Wait() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    while (!is_open_) changed_.WaitUntil(mu_, Deadline::After(kCloseTime));
  }

 private:
  CondVar changed_;
  Mutex mu_;
  bool is_open_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

class CoordinatorService::Impl final : public v1::Coordinator::CallbackService,
                                       private CallListener {
 public:
  Impl(Executor& executor, const TlsFolder* tls)
      : executor_(executor),
        target_(std::make_shared<Target>(Target{.service = this})),
        credentials_(MakeServerCredentials(tls)) {}

  absl::StatusOr<uint16_t> Listen(const HostPort& listen) {
    PUSHPULL_RETURN_IF_ERROR(CheckCanListen(listen));
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kWireMessageBytesMax);
    // Without this two coordinators would share a port and each get half of the members.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsOfConnectionMax);
    // Members ask for a sign of life every few seconds (control_client.cc).
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    int port = 0;
    builder.AddListeningPort(ToString(listen), credentials_, &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0)
      return absl::UnavailableError(absl::StrCat("listen on ", ToString(listen), ": failed"));
    return static_cast<uint16_t>(port);
  }

  void Serve(SessionEvents& events) ABSL_LOCKS_EXCLUDED(mu_) {
    executor_.Post([target = target_, &events] { target->events = &events; });
    MutexLock lock(mu_);
    is_serving_ = true;
    for (const auto& [id, call] : calls_) call->ReadNext();
  }

  void Shutdown(Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      if (std::exchange(is_stopping_, true)) return;
    }
    Detach();
    {
      MutexLock lock(mu_);
      for (const auto& [id, call] : calls_) call->Close(absl::OkStatus());
    }
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + deadline.remaining());
    AwaitNoCalls();
  }

  void Send(SessionId session, const ToMember& message) ABSL_LOCKS_EXCLUDED(mu_) {
    v1::ToMember wire;
    ToProto(message, wire);
    MutexLock lock(mu_);
    const auto it = calls_.find(session);
    if (it != calls_.end()) it->second->Send(std::move(wire));
  }

  void Close(SessionId session) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      const auto it = calls_.find(session);
      if (it == calls_.end()) return;
      it->second->Close(absl::OkStatus());
    }
    executor_.Post([this_executor = &executor_, target = target_, session] {
      this_executor->RunAfter(kCloseTime, [target, session] {
        if (target->service != nullptr) target->service->Abort(session);
      });
    });
  }

  grpc::ServerBidiReactor<v1::FromMember, v1::ToMember>* Session(
      grpc::CallbackServerContext* context) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    const SessionId id{++last_session_};
    auto* call = new SessionCall(id, *context, *this);  // deletes itself
    calls_.emplace(id, call);
    if (is_stopping_) {
      call->Close(absl::UnavailableError("the coordinator is ending"));
    } else if (calls_.size() > kSessionsMax) {
      call->Close(absl::ResourceExhaustedError("too many sessions"));
    } else if (is_serving_) {
      call->ReadNext();
    }
    return call;
  }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* /*request*/,
                                      v1::JobStatus* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    executor_.Post(
        [call = std::make_shared<UnaryCall<v1::JobStatus>>(*reactor, *response), target = target_] {
          if (target->events != nullptr) call->Finish(target->events->GetStatus());
        });
    return reactor;
  }

  grpc::ServerUnaryReactor* Resize(grpc::CallbackServerContext* context,
                                   const v1::ResizeRequest* request,
                                   v1::Status* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    executor_.Post([call = std::make_shared<UnaryCall<v1::Status>>(*reactor, *response),
                    size = FromProto(*request),
                    target = target_] {
      if (target->events != nullptr) call->Finish(target->events->Resize(size));
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* SaveCheckpoint(grpc::CallbackServerContext* context,
                                           const v1::SaveCheckpointRequest* /*request*/,
                                           v1::SaveCheckpointResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    executor_.Post(
        [call = std::make_shared<UnaryCall<v1::SaveCheckpointResponse>>(*reactor, *response),
         target = target_] {
          if (target->events != nullptr) call->Finish(target->events->SaveCheckpoint());
        });
    return reactor;
  }

  grpc::ServerUnaryReactor* SetMode(grpc::CallbackServerContext* context,
                                    const v1::SetModeRequest* request,
                                    v1::Status* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    ModeChange change;
    if (request->has_mode()) change.mode = static_cast<ConsistencyMode>(request->mode());
    if (request->has_staleness()) change.staleness = request->staleness();
    if (request->has_backup_workers()) change.backup_workers = request->backup_workers();
    if (request->has_gated()) change.gated = request->gated();
    executor_.Post([call = std::make_shared<UnaryCall<v1::Status>>(*reactor, *response),
                    change,
                    target = target_] {
      if (target->events != nullptr) call->Finish(target->events->SetMode(change));
    });
    return reactor;
  }

 private:
  // Where posted tasks find the service and whom it tells. Confined to the executor; both are null
  // once the service shuts down.
  struct Target {
    Impl* service = nullptr;
    SessionEvents* events = nullptr;
  };

  void OnIncoming(SessionId id, FromMember message) override {
    executor_.Post([target = target_, id, incoming = std::move(message)]() mutable {
      if (target->events == nullptr) return;
      target->events->OnMessage(id, std::move(incoming));
      if (target->service != nullptr) target->service->ReadNext(id);
    });
  }

  void OnCallDone(SessionId id, const absl::Status& why) override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      calls_.erase(id);
      changed_.NotifyAll();
    }
    executor_.Post([target = target_, id, why] {
      if (target->events != nullptr) target->events->OnClosed(id, why);
    });
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

  // The server has already seen every call to its end; this makes it known to this thread.
  void AwaitNoCalls() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    while (!calls_.empty()) changed_.WaitUntil(mu_, Deadline::After(kCloseTime));
  }

  // After it no task touches the service or the events. An executor that has stopped drops the
  // task, which opens the latch as well.
  void Detach() {
    auto latch = std::make_shared<Latch>();
    // Opens where the task ends, run or not.
    std::shared_ptr<void> opener(nullptr, [latch](void*) { latch->Open(); });
    executor_.Post([target = target_, held = std::move(opener)] { *target = {}; });
    latch->Wait();
  }

  Executor& executor_;
  const std::shared_ptr<Target> target_;
  const std::shared_ptr<grpc::ServerCredentials> credentials_;  // outlives the server
  CondVar changed_;
  Mutex mu_;
  std::map<SessionId, SessionCall*> calls_ ABSL_GUARDED_BY(mu_);  // each until its OnDone
  uint64_t last_session_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_serving_ ABSL_GUARDED_BY(mu_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<grpc::Server> server_;  // last: its end waits for all calls
};

absl::StatusOr<std::unique_ptr<CoordinatorService>> CoordinatorService::Listen(
    const std::string& listen, Executor& executor, const TlsFolder* tls) {
  PUSHPULL_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(listen));
  auto impl = std::make_unique<Impl>(executor, tls);
  PUSHPULL_ASSIGN_OR_RETURN(address.port, impl->Listen(address));
  return std::unique_ptr<CoordinatorService>(
      new CoordinatorService(std::move(impl), ToString(address)));
}

CoordinatorService::CoordinatorService(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}

CoordinatorService::~CoordinatorService() {
  impl_->Shutdown(Deadline::After(kCloseTime));
}

void CoordinatorService::Serve(SessionEvents& events) {
  impl_->Serve(events);
}

void CoordinatorService::Shutdown(Deadline deadline) {
  impl_->Shutdown(deadline);
}

void CoordinatorService::Send(SessionId session, ToMember message) {
  impl_->Send(session, message);
}

void CoordinatorService::Close(SessionId session) {
  impl_->Close(session);
}

}  // namespace pushpull
