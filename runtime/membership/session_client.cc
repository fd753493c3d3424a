// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/session_client.h"

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include <grpcpp/grpcpp.h>

#include "pushpull/v1/control.grpc.pb.h"

#include "runtime/base/mutex.h"
#include "runtime/membership/control_client.h"
#include "runtime/membership/control_proto.h"
#include "runtime/tls/grpc_credentials.h"

namespace pushpull {
namespace {

// A quarter of an hour of heartbeats: a coordinator that far behind will not recover.
constexpr size_t kQueuedMax = 1024;
constexpr std::chrono::seconds kFlushTimeout{1};

// One call of Coordinator.Session. gRPC calls the reactions on its own threads; they hand their
// results to the executor.
//
// Flow control: at most one read and one write are outstanding. The next read starts only after the
// executor has handled the last message, so a flood stays in the kernel's buffers.
//
// Order at the end: gRPC calls OnDone only after all reads and writes have ended and the hold is
// removed. The hold is removed after the last read, which fails once the call is over. So whatever
// ends the call (the destructor, Fail) must also keep a read outstanding, or OnDone would never be
// called.
class GrpcSession final : public Session,
                          private grpc::ClientBidiReactor<v1::FromMember, v1::ToMember> {
 public:
  GrpcSession(const ControlTarget& target,
              Duration connect_timeout,
              Executor& executor,
              SessionHandler& handler)
      : target_(target),
        executor_(executor),
        state_(std::make_shared<State>(State{.session = this, .handler = handler})),
        timer_(executor.RunAfter(connect_timeout, [this] { OnConnectTimeout(); })),
        stub_(v1::Coordinator::NewStub(MakeControlChannel(target, connect_timeout))) {
    stub_->async()->Session(&context_, this);
    // Reads and writes are started outside of reactions, which gRPC permits only under a hold.
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  // Sends what is queued, half-closes, and waits for the end of the call; cancels it if the
  // coordinator takes longer than kFlushTimeout.
  ~GrpcSession() override {
    state_->session = nullptr;
    executor_.Cancel(timer_);
    {
      MutexLock lock(mu_);
      is_closing_ = true;
      if (outgoing_.empty() && !has_ended_) StartWritesDone();
      StartReading();  // until the end of the call; what still arrives is dropped
    }
    while (!AwaitDone(Deadline::After(kFlushTimeout))) context_.TryCancel();
  }

  void Send(FromMember message) override ABSL_LOCKS_EXCLUDED(mu_) {
    v1::FromMember wire;
    ToProto(message, wire);
    MutexLock lock(mu_);
    if (is_closing_ || has_ended_) return;
    if (outgoing_.size() >= kQueuedMax) {
      Fail(absl::ResourceExhaustedError("has stopped reading"));
      return;
    }
    outgoing_.push_back(std::move(wire));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

 private:
  // Confined to the executor. Posted tasks hold it, because they may run after the session is
  // destroyed.
  struct State {
    GrpcSession* session = nullptr;  // null: destroyed
    SessionHandler& handler;
    bool is_connected = false;
  };

  void OnConnectTimeout() ABSL_LOCKS_EXCLUDED(mu_) {
    if (state_->is_connected) return;
    MutexLock lock(mu_);
    Fail(absl::UnavailableError("gave no answer"));
  }

  void ReadNext() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    StartReading();
  }

  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) executor_.Post([state = state_] { state->is_connected = true; });
  }

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (!ok) {
      MutexLock lock(mu_);
      is_reading_ = false;
      has_ended_ = true;
      RemoveHold();
      return;
    }
    absl::StatusOr<ToMember> message = FromProto(incoming_);
    incoming_.Clear();  // frees a large table: the next message may be long in coming
    {
      MutexLock lock(mu_);
      is_reading_ = false;
      if (!message.ok()) Fail(message.status());
      if (!message.ok() || is_closing_) {
        StartReading();
        return;
      }
    }
    executor_.Post([state = state_, incoming = *std::move(message)]() mutable {
      if (state->session == nullptr) return;
      state->handler.OnMessage(std::move(incoming));
      if (state->session != nullptr) state->session->ReadNext();
    });
  }

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (!ok) {
      outgoing_.clear();  // the call is over; OnDone has the reason
      return;
    }
    outgoing_.pop_front();
    if (!outgoing_.empty()) {
      StartWrite(&outgoing_.front());
    } else if (is_closing_) {
      StartWritesDone();
    }
  }

  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    absl::Status why = failure_;
    if (why.ok())
      why = StatusFromCode(static_cast<uint32_t>(status.error_code()), status.error_message());
    // To the member, a session that the coordinator closed with OK is lost as well.
    if (why.ok()) why = absl::UnavailableError("ended the session");
    executor_.Post([state = state_, why, target = target_] {
      if (state->session == nullptr) return;
      const absl::Status reason =
          state->is_connected ? why : ExplainNoAnswer(why, target.tls != nullptr);
      state->handler.OnClosed(
          {reason.code(), absl::StrCat("coordinator at ", target.address, ": ", reason.message())});
    });
    is_done_ = true;
    changed_.NotifyAll();
  }

  void StartReading() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (is_reading_ || has_ended_) return;
    is_reading_ = true;
    StartRead(&incoming_);
  }

  // The first reason wins.
  void Fail(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (failure_.ok()) failure_ = std::move(why);
    context_.TryCancel();
    StartReading();
  }

  bool AwaitDone(Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    while (!is_done_) {
      if (!changed_.WaitUntil(mu_, deadline)) return is_done_;
    }
    return true;
  }

  const ControlTarget target_;
  Executor& executor_;
  const std::shared_ptr<State> state_;
  const Executor::TimerId timer_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  grpc::ClientContext context_;
  v1::ToMember incoming_;  // used by the outstanding read, then by its reaction
  CondVar changed_;
  Mutex mu_;
  std::deque<v1::FromMember> outgoing_ ABSL_GUARDED_BY(mu_);  // the first is being written
  bool is_reading_ ABSL_GUARDED_BY(mu_) = true;
  bool has_ended_ ABSL_GUARDED_BY(mu_) = false;   // the last read has ended
  bool is_closing_ ABSL_GUARDED_BY(mu_) = false;  // by this side
  bool is_done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

GrpcSessionConnector::GrpcSessionConnector(std::string address,
                                           const TlsFolder* tls,
                                           Duration connect_timeout)
    : address_(std::move(address)), tls_(tls), connect_timeout_(connect_timeout) {}

std::unique_ptr<Session> GrpcSessionConnector::Connect(Executor& executor,
                                                       SessionHandler& handler) {
  return std::make_unique<GrpcSession>(
      ControlTarget{.address = address_, .tls = CurrentIdentity(tls_)},
      connect_timeout_,
      executor,
      handler);
}

}  // namespace pushpull
