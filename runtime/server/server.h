// SPDX-License-Identifier: Apache-2.0
//
// The server role: listens for workers, follows the coordinator, and hands both to its lanes. The
// data path is in lane.h.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/membership/reconnecting_session.h"
#include "runtime/membership/session.h"
#include "runtime/server/lane_group.h"
#include "runtime/server/server_metrics.h"
#include "runtime/transport/channel.h"

namespace pushpull {

struct ServerOptions {
  ServerId server;
  Incarnation incarnation;
  std::string job;                      // workers of another job are refused
  std::string listen;                   // host:port for workers; port 0 takes a free one
  std::string advertise_host;           // what workers connect to; empty: the host of `listen`
  std::string metrics_address;          // for the status; may be empty
  double weight = 1;                    // share of the parameters, relative to other servers
  std::string rack;                     // of this host; empty: unknown
  std::function<Duration()> busy_time;  // of all lanes, since the start; may be empty
  FaultPoint fault_point;               // for tests
  // Another server is asked again after this long without an answer.
  Duration ask_again_after = std::chrono::milliseconds(50);
  // How long a leaving server waits for a coordinator: without one nobody takes its shards, and
  // when the whole job is deleted none comes.
  Duration leaves_alone_after = std::chrono::seconds(20);
  ReconnectingSessionOptions session;
};

// Everything a server uses and does not own; all of it outlives the server.
struct ServerDependencies {
  Executor& control;
  Transport& transport;  // its lanes are the server's lanes
  SessionConnector& coordinator;
  ServerMetrics& metrics;
  Executor& disk;  // where reading and writing checkpoints may block
  FileSystem& files;
};

// Thread-confined to the control executor, Start and the destructor included.
class Server final : public SessionHandler, public ChannelAcceptor {
 public:
  // Called once, on the control executor: OK if the job ended normally, otherwise why it ended.
  using EndHandler = std::function<void(const absl::Status&)>;

  // Listens and registers with the coordinator. kAlreadyExists: the port is in use.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options,
                                                       ServerDependencies dependencies,
                                                       Log log,
                                                       EndHandler on_end);
  ~Server() override;

  // Drains: asks the coordinator, and each later one, to move this server's shards to others. Keeps
  // serving meanwhile; the end handler is called with OK once the server holds nothing, or has had
  // no coordinator for options.leaves_alone_after. A server that no coordinator has ever welcomed
  // waits only 2 s.
  void Leave();

  const std::string& data_address() const { return data_address_; }
  // Registered with the coordinator. Thread-safe.
  bool is_ready() const { return is_ready_.load(std::memory_order_relaxed); }

  void OnMessage(ToMember message) override;
  void OnClosed(const absl::Status& why) override;

  absl::Status Admit(const Hello& hello) override;
  void OnChannel(const Hello& hello, std::unique_ptr<Channel> channel) override;
  void OnRejected(const absl::Status& why) override;

 private:
  Server(ServerOptions options, ServerDependencies dependencies, Log log, EndHandler on_end);

  void On(const Welcome& message);
  void On(const InstallTensors& message);
  void On(const SetReplicas& message);
  void On(const Handover& message);
  void On(const SetServers& message);
  void On(const ProposeView& message);
  void On(const ActivateView& message);
  void On(const Capture& message);
  void On(const EndCapture& message);
  void On(const Restore& message);
  void On(const RebuildShard& message);
  void On(const Stop& message);
  void On(const Collect& message);
  // Meant for workers.
  void On(const HoldSteps&) {}
  void On(const ResumeSteps&) {}
  void On(const TensorsRegistered&) {}
  void On(const Release&) {}
  void On(const CollectCopies&) {}
  void On(const OfferCopies&) {}
  void On(const TraceSteps&) {}
  void On(const StopRing&) {}
  void On(const FormRing&) {}
  void On(const SetGroup&) {}
  void On(const StepWaits&) {}

  // Posts tasks to this server from any thread; they are dropped once it has ended.
  std::function<void(std::function<void(Server&)>)> Poster() const;
  // Answers a request of a session, unless another session has begun since.
  void Reply(uint64_t generation, FromMember message);

  void BeginCapture(const Capture& message);
  using ChunkDelivery = std::function<absl::Status(RestoredChunk)>;
  ChunkDelivery DeliverTo(std::function<void(Lane&, RestoredChunk)> take);
  void SendHeartbeat();
  void EndIfAlone();
  void SendStats();
  void UpdateBusyRatio();
  bool MayLogStranger();
  void End(const absl::Status& status);

  const ServerOptions options_;
  const ServerDependencies dependencies_;
  const Log log_;
  EndHandler on_end_;  // empty once called
  std::string data_address_;
  std::atomic<bool> is_ready_ = false;
  std::atomic<SteadyTime::rep> logs_strangers_at_ = std::numeric_limits<SteadyTime::rep>::min();

  Duration heartbeat_ = std::chrono::seconds(1);
  Executor::TimerId timer_ = 0;
  SteadyTime busy_since_;
  Duration busy_before_{0};
  std::shared_ptr<CheckpointWriter> writer_;
  std::shared_ptr<const std::vector<PlacedTensor>> tensors_;
  std::optional<LaneGroup> lanes_;
  std::unique_ptr<Listener> listener_;
  DesiredSize desired_;
  bool is_leaving_ = false;
  std::optional<SteadyTime> alone_since_;  // while it leaves
  std::optional<ReconnectingSession> session_;
  std::shared_ptr<Server*> self_;  // posted tasks hold it weakly; it ends with the server
};

}  // namespace pushpull
