// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/runtime/transport/channel_rig.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/base/mutex.h"
#include "runtime/transport/grpc/grpc_transport.h"
#include "runtime/transport/tcp/tcp_transport.h"
#include "tests/fakes/fake_tls_folder.h"
#include "tests/fakes/inproc/inproc_transport.h"

namespace pushpull {
namespace {

constexpr Duration kTimeout = std::chrono::seconds(10);

// Two lanes for the server, one for the client.
template <typename TransportType>
class StreamRig final : public Rig {
 public:
  StreamRig(const TransportOptions& client, const TransportOptions& server)
      : client_({&client_loop_}, client), server_({&lane_0_, &lane_1_}, server) {}
  Transport& client() override { return client_; }
  Transport& server() override { return server_; }
  std::string listen_address() const override { return "127.0.0.1:0"; }
  std::string deserted_address() const override { return "127.0.0.1:1"; }

 private:
  EventLoop client_loop_{"client"};
  EventLoop lane_0_{"lane-0"};
  EventLoop lane_1_{"lane-1"};
  TransportType client_;
  TransportType server_;
};
using TcpRig = StreamRig<TcpTransport>;
using GrpcRig = StreamRig<GrpcTransport>;

// Both nodes are members of one job.
template <typename RigType>
class TlsRig final : public Rig {
 public:
  explicit TlsRig(TransportOptions options) {
    options.tls = tls_.get();
    rig_ = std::make_unique<RigType>(options, options);
  }
  Transport& client() override { return rig_->client(); }
  Transport& server() override { return rig_->server(); }
  std::string listen_address() const override { return rig_->listen_address(); }
  std::string deserted_address() const override { return rig_->deserted_address(); }

 private:
  const FakeTlsFolder folder_{MakeTlsFiles()};
  const std::unique_ptr<TlsFolder> tls_ = *TlsFolder::Open(folder_.path(), Log("test"));
  std::unique_ptr<RigType> rig_;
};

// Over shared memory, with what else `options` say.
class ShmRig final : public Rig {
 public:
  ShmRig(TransportOptions options, bool has_tls) {
    options.shm = &shm_;
    if (has_tls) {
      rig_ = std::make_unique<TlsRig<TcpRig>>(options);
    } else {
      rig_ = std::make_unique<TcpRig>(options, options);
    }
  }
  Transport& client() override { return rig_->client(); }
  Transport& server() override { return rig_->server(); }
  std::string listen_address() const override { return rig_->listen_address(); }
  std::string deserted_address() const override { return rig_->deserted_address(); }

 private:
  const TemporaryShmFolder folder_;
  const ShmFolder shm_{folder_.path(), "job", Log("test")};
  std::unique_ptr<Rig> rig_;
};

class InprocRig final : public Rig {
 public:
  explicit InprocRig(const InprocOptions& options)
      : network_(1, options),
        client_(network_, {&client_loop_}, "client"),
        server_(network_, {&lane_0_, &lane_1_}, "server") {}
  Transport& client() override { return client_; }
  Transport& server() override { return server_; }
  std::string listen_address() const override { return "server:0"; }
  std::string deserted_address() const override { return "server:1"; }

 private:
  InprocNetwork network_;
  EventLoop client_loop_{"client"};
  EventLoop lane_0_{"lane-0"};
  EventLoop lane_1_{"lane-1"};
  InprocTransport client_;
  InprocTransport server_;
};

TransportOptions ToStream(const RigOptions& options) {
  TransportOptions stream;
  stream.send_queue_frames_max = options.send_queue_frames_max;
  if (options.has_small_buffers) {
    stream.buffers = {.bytes = 4096, .bytes_on_host = 4096};
    stream.window_bytes = 4096;
  }
  return stream;
}

// One value from another thread.
template <typename T>
class Mailbox {
 public:
  void Put(T value) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    value_ = std::move(value);
    changed_.NotifyAll();
  }
  std::optional<T> Take(Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    while (!value_) {
      if (!changed_.WaitUntil(mu_, deadline) && !value_) return std::nullopt;
    }
    return std::exchange(value_, std::nullopt);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<T> value_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Rig> MakeTcpRig(const RigOptions& options) {
  return MakeTcpRig(ToStream(options), ToStream(options));
}

std::unique_ptr<Rig> MakeTlsRig(const RigOptions& options) {
  return std::make_unique<TlsRig<TcpRig>>(ToStream(options));
}

std::unique_ptr<Rig> MakeTcpRig(const TransportOptions& client, const TransportOptions& server) {
  return std::make_unique<TcpRig>(client, server);
}

std::unique_ptr<Rig> MakeShmRig(const RigOptions& options) {
  return std::make_unique<ShmRig>(ToStream(options), false);
}

std::unique_ptr<Rig> MakeShmTlsRig(const RigOptions& options) {
  return std::make_unique<ShmRig>(ToStream(options), true);
}

std::unique_ptr<Rig> MakeGrpcRig(const RigOptions& options) {
  return MakeGrpcRig(ToStream(options), ToStream(options));
}

std::unique_ptr<Rig> MakeGrpcRig(const TransportOptions& client, const TransportOptions& server) {
  return std::make_unique<GrpcRig>(client, server);
}

std::unique_ptr<Rig> MakeGrpcTlsRig(const RigOptions& options) {
  return std::make_unique<TlsRig<GrpcRig>>(ToStream(options));
}

std::unique_ptr<Rig> MakeInprocRig(const RigOptions& options) {
  InprocOptions inproc;
  inproc.send_queue_frames_max = options.send_queue_frames_max;
  if (options.has_small_buffers) inproc.window_bytes = 4096;
  return std::make_unique<InprocRig>(inproc);
}

std::vector<RigKind> AllRigKinds() {
  return {{"Tcp", &MakeTcpRig},
          {"Tls", &MakeTlsRig},
          {"Shm", &MakeShmRig, true},
          {"ShmTls", &MakeShmTlsRig, true},
          {"Grpc", &MakeGrpcRig, true},
          {"GrpcTls", &MakeGrpcTlsRig, true},
          {"Inproc", &MakeInprocRig}};
}

bool RunOn(Executor& executor, const std::function<void()>& task) {
  const auto done = std::make_shared<Mailbox<bool>>();
  executor.Post([task, done] {
    task();
    done->Put(true);
  });
  return done->Take(Deadline::After(kTimeout)).has_value();
}

ChannelPair::ChannelPair(std::unique_ptr<Rig> rig)
    : rig_(std::move(rig)), acceptor_(std::make_unique<RecordingAcceptor>(rig_->server())) {}

ChannelPair::~ChannelPair() {
  listener_.reset();
  while (std::shared_ptr<RecordedChannel> end = acceptor_->TakeChannel()) ends_.push_back(end);
  for (const std::shared_ptr<RecordedChannel>& end : ends_) Drop(*end);
}

void ChannelPair::Listen() {
  absl::StatusOr<std::unique_ptr<Listener>> listener =
      rig_->server().Listen(rig_->listen_address(), *acceptor_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  listener_ = *std::move(listener);
  address_ = listener_->address();
}

ConnectRequest ChannelPair::Request(uint32_t lane) const {
  return {
      .address = address_,
      .peer_name = "server-3",
      .hello = {.job = "job", .worker = WorkerId{7}, .incarnation = Incarnation{99}, .lane = lane},
      .local_lane = 0,
      .deadline = Deadline::After(kTimeout)};
}

absl::StatusOr<std::shared_ptr<RecordedChannel>> ChannelPair::Connect(
    ConnectRequest request, const std::function<void(FrameRecorder&)>& prepare) {
  using Outcome = absl::StatusOr<std::shared_ptr<RecordedChannel>>;
  const auto mailbox = std::make_shared<Mailbox<Outcome>>();
  const auto end = std::make_shared<RecordedChannel>(
      RecordedChannel{.hello = request.hello,
                      .executor = &rig_->client().lane(request.local_lane),
                      .recorder = std::make_unique<FrameRecorder>(),
                      .channel = nullptr});
  if (prepare) prepare(*end->recorder);
  const Deadline deadline(request.deadline.when() + kTimeout);
  rig_->client().Connect(std::move(request),
                         [mailbox, end](absl::StatusOr<std::unique_ptr<Channel>> channel) {
                           if (!channel.ok()) return mailbox->Put(channel.status());
                           end->channel = *std::move(channel);
                           end->channel->Start(*end->recorder);
                           mailbox->Put(end);
                         });
  std::optional<Outcome> outcome = mailbox->Take(deadline);
  if (!outcome) return absl::DeadlineExceededError("the transport did not call back");
  if (outcome->ok()) ends_.push_back(**outcome);
  return *std::move(outcome);
}

void ChannelPair::ConnectBoth(uint32_t lane, const std::function<void(FrameRecorder&)>& prepare) {
  absl::StatusOr<std::shared_ptr<RecordedChannel>> client = Connect(Request(lane), prepare);
  ASSERT_TRUE(client.ok()) << client.status();
  client_ = *std::move(client);
  server_ = acceptor_->WaitForChannel();
  ASSERT_NE(server_, nullptr);
  ends_.push_back(server_);
}

void ChannelPair::Drop(RecordedChannel& end) {
  RunOn(*end.executor, [&end] { end.channel.reset(); });
}

TemporaryShmFolder::TemporaryShmFolder() {
  EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_;
}

TemporaryShmFolder::~TemporaryShmFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryShmFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename());
  return names;
}

std::vector<std::byte> Pattern(size_t num_bytes, uint32_t seed) {
  std::vector<std::byte> bytes(num_bytes);
  uint32_t state = seed * 2654435761U + 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

OutgoingFrame PushFrame(uint64_t number, std::span<const std::byte> payload, uint8_t priority) {
  return {.header = {.type = FrameType::kPush, .priority = priority, .chunk = ChunkId{number}},
          .meta = {},
          .payload = {.bytes = payload, .owner = nullptr}};
}

void SendAll(RecordedChannel& from, std::vector<OutgoingFrame> frames) {
  const auto shared = std::make_shared<std::vector<OutgoingFrame>>(std::move(frames));
  ASSERT_TRUE(RunOn(*from.executor, [&from, shared] {
    for (OutgoingFrame& frame : *shared) from.channel->Send(std::move(frame));
  }));
}

void SendOne(RecordedChannel& from, OutgoingFrame frame) {
  std::vector<OutgoingFrame> frames;
  frames.push_back(std::move(frame));
  SendAll(from, std::move(frames));
}

}  // namespace pushpull
