// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/runtime/membership/control_samples.h"

namespace pushpull {
namespace {

Quantiles SampleQuantiles() {
  return Quantiles::FromBuckets({{3, 7}, {1500, 2}});
}

WorkerActivity SampleActivity() {
  return {.phase = WorkerPhase::kPulling,
          .seconds = 1.5,
          .step = Step{11},
          .subject = "w",
          .servers = {ServerId{1}},
          .peer = WorkerId{3}};
}

WorkerStats SampleWorkerStats() {
  WorkerStats stats;
  stats.step = Step{12};
  stats.steps_made = 20;
  stats.is_ending = true;
  stats.samples = 13;
  stats.bytes_pushed = 14;
  stats.bytes_pulled = 15;
  stats.resends = 16;
  stats.sync_seconds = SampleQuantiles();
  stats.phase_seconds.fill(SampleQuantiles());
  stats.losses = {{.step = Step{1}, .loss = 0.5, .samples = 64}};
  stats.losses_end = 17;
  stats.results = {{"accuracy", 0.875}};
  stats.uneven_steps = {Step{3}, Step{11}};
  stats.costs = {
      .steps = 17, .step_seconds = 2.5, .own_seconds = 1.5, .wait_seconds = 0.5, .links = {}};
  stats.costs.links = {
      {.server = ServerId{1}, .bytes = 18, .link_seconds = 0.25, .server_seconds = 0.125}};
  stats.activity = SampleActivity();
  stats.batch = 19;
  return stats;
}

RingMark SampleRingMark() {
  return {.made_in = {.term = Term{2}, .counter = 3}, .step = Step{4}};
}

Captured SampleCaptured() {
  return {.attempt = 11,
          .status = absl::AbortedError("a chunk has reached version 9"),
          .highest_version = Step{9},
          .files = {{.name = "server-00001-lane-00-000000000000000b.chunks",
                     .bytes = 4096,
                     .checksum = ~uint64_t{1},
                     .chunks = {{.chunk = ChunkId{3},
                                 .version = Step{8},
                                 .offset = 64,
                                 .bytes = 1024,
                                 .checksum = ~uint64_t{2}}}}}};
}

RingStopped SampleRingStopped() {
  return {.epoch = {.term = Term{2}, .counter = 3}, .mark = SampleRingMark()};
}

RingNews SampleRingNews() {
  return {.epoch = {.term = Term{2}, .counter = 3},
          .status = absl::UnavailableError("rank 1 is gone")};
}

TraceReport SampleTraceReport() {
  return {.number = 7,
          .worker = WorkerId{1},
          .clocks = {{.server = ServerId{2}, .offset_ns = -3}},
          .tensors = {{.name = "w", .first_chunk = ChunkId{4}}},
          .pushes = {{.server = ServerId{2},
                      .chunk = ChunkId{4},
                      .step = Step{5},
                      .ready = 6,
                      .taken_up = 7,
                      .encode_ns = 8,
                      .sent = 9,
                      .received = 10,
                      .applied = 11,
                      .received_at = 12,
                      .server_queue_ns = 13,
                      .sum_ns = 14,
                      .wait_ns = 15,
                      .optimize_ns = 16,
                      .replicate_ns = 17,
                      .published_at = 18}},
          .spans = {{.name = "forward", .begin = 19, .end = 20}},
          .left_out = 21,
          .is_last = true};
}

Stall SampleStall() {
  return {.step = Step{4},
          .tensor = "w",
          .missing = {WorkerId{1}, WorkerId{3}},
          .seconds = 10.5,
          .waiting = {WorkerId{2}},
          .detail = "worker-1: computing for 11.0 s",
          .collective = "barrier"};
}

ServerStats SampleServerStats() {
  return {.bytes_owned = 1,
          .chunks = 2,
          .lowest_version = Step{3},
          .highest_version = Step{4},
          .contributors_min = 5,
          .contributors_max = 6,
          .duplicates = 8,
          .bytes_replicated = 9,
          .bytes_copied = 10,
          .stall = SampleStall(),
          .busy_seconds = 11.5,
          .batch = 96,
          .gradient_squares = 0.25,
          .gradient_variance = 64.5};
}

StateLoss SampleStateLoss() {
  return {.servers = {ServerId{1}},
          .shards = {ShardId{5}, ShardId{1023}},
          .chunks = 3,
          .is_waiting = true,
          .is_repaired = true,
          .returned = 1,
          .lowest_version = Step{4},
          .highest_version = Step{5},
          .from_workers = 1,
          .from_checkpoint = 1,
          .reinitialized = 1,
          .outdated = 1,
          .has_optimizer_state = true,
          .state_step = Step{3},
          .seconds = 1.5};
}

TensorSpec SampleTensorSpec() {
  return {
      .name = "layer.weight",
      .dims = {784, 10},
      .dtype = DType::kFloat32,
      .reduction = Reduction::kMax,
      .optimizer = {.kind = OptimizerKind::kAdamW,
                    .learning_rate = 0.1,
                    .momentum = 0.9,
                    .nesterov = true,
                    .weight_decay = 0.01,
                    .beta1 = 0.8,
                    .beta2 = 0.99,
                    .epsilon = 1e-6},
      .codec = Codec::kInt8,
      .clip_norm = 1.5,
      .rows = RowSpec{.init = RowInit::kNormal, .scale = 0.25, .seed = 77, .evict_after = 1000}};
}

PlacedTensor SamplePlacedTensor() {
  return {.id = TensorId{4},
          .spec = SampleTensorSpec(),
          .first_chunk = ChunkId{9},
          .shards = {ShardId{1023}, ShardId{1}}};
}

View SampleView() {
  return {.number = 3,
          .members = {{.worker = WorkerId{1},
                       .incarnation = Incarnation{77},
                       .from_step = Step{5},
                       .end_step = Step{6},
                       .is_released = true,
                       .group = 13},
                      {.worker = WorkerId{2},
                       .incarnation = Incarnation{78},
                       .from_step = Step{7},
                       .end_step = Step{8},
                       .is_released = true,
                       .group = 14}},
          .consistency = {.mode = SyncMode::kBounded,
                          .staleness = 9,
                          .backup_workers = 12,
                          .gated = true,
                          .from_step = Step{10},
                          .steps_skipped = 11}};
}

SetGroup SampleSetGroup() {
  return {.members = {{.worker = WorkerId{1},
                       .incarnation = Incarnation{77},
                       .from_step = Step{5},
                       .address = "127.0.0.1:7181"},
                      {.worker = WorkerId{2},
                       .incarnation = Incarnation{78},
                       .from_step = Step{6},
                       .address = "grpc://127.0.0.1:7182"}}};
}

StepWaits SampleStepWaits() {
  return {.missing = {WorkerId{2}, WorkerId{3}},
          .what = "no gradient of tensor \"w\"",
          .step = Step{4}};
}

ReplicaSet SampleReplicaSet() {
  return {.epoch = {.term = Term{2}, .counter = 3},
          .primary = ServerId{1},
          .followers = {ServerId{2}, ServerId{3}},
          .learners = {ServerId{4}}};
}

CheckpointStatus SampleCheckpointStatus() {
  return {.step = Step{19},
          .saved = 20,
          .failures = 21,
          .failure = "disk full",
          .requested = 22,
          .finished = 23,
          .succeeded = 24,
          .seconds = 2.5,
          .restored_step = Step{0},
          .problem = "read-only file system"};
}

Restore SampleRestore() {
  return {.folder = "/var/checkpoints/step-000000000008",
          .sequence = 12,
          .shards = {ShardId{5}, ShardId{1023}},
          .version = Step{0},
          .values_only = true};
}

// Of a job that failed and began again.
void SetRestart(JobStatus& status) {
  status.lost_server = ServerId{2};
  status.can_resume = true;
  status.failed_seconds = 1.5;
  status.began_step = Step{20};
  status.step_before = Step{35};
  status.steps_lost = 15;
}

}  // namespace

std::vector<FromMember> SampleFromMember() {
  return {
      RegisterServer{.server = ServerId{1},
                     .incarnation = Incarnation{2},
                     .data_address = "127.0.0.1:7171",
                     .metrics_address = "127.0.0.1:9464",
                     .lanes = 3,
                     .weight = 1.5,
                     .pid = 4,
                     .promised = Term{6},
                     .rack = "r1"},
      RegisterWorker{.worker = WorkerId{1},
                     .incarnation = Incarnation{~uint64_t{0}},
                     .metrics_address = "127.0.0.1:9465",
                     .pid = 5,
                     .promised = Term{7},
                     .is_member = true,
                     .ring_address = "127.0.0.1:7180",
                     .rack = "r2",
                     .group_address = "127.0.0.1:7181",
                     .node = "node-1"},
      RegisterTensors{.tensors = {SampleTensorSpec(), SampleTensorSpec()}},
      TensorsInstalled{.table_version = 7},
      Promises{.promises =
                   {{.shard = ShardId{5}, .entry = SampleReplicaSet(), .seq = 9, .is_full = true}}},
      CaughtUp{
          .shard = ShardId{5}, .epoch = {.term = Term{2}, .counter = 3}, .member = ServerId{4}},
      HandedOver{.shard = ShardId{5}, .entry = SampleReplicaSet()},
      ViewAnswer{.number = 8, .is_accepted = true, .lowest_free_step = Step{9}},
      StepsHeld{.round = 4, .next_step = Step{12}, .is_drained = true},
      Heartbeat{.stats = SampleServerStats()},
      Heartbeat{.stats = SampleWorkerStats()},
      Leave{.end_step = Step{10}, .stats = SampleWorkerStats(), .is_released = true},
      DrainRequest{},
      Failure{.status = absl::DataLossError("server-1: chunk 3 of w, step 4: NaN")},
      SampleCaptured(),
      Restored{.status = absl::DataLossError("server-1: wrong checksum")},
      ServerReport{
          .term = Term{2},
          .tensors = {SamplePlacedTensor()},
          .entries = {{ShardId{5}, SampleReplicaSet()}},
          .promises =
              {{.shard = ShardId{5}, .entry = SampleReplicaSet(), .seq = 9, .is_full = true}},
          .active = SampleView(),
          .proposed = SampleView(),
          .desired = {.revision = 3, .servers = 4, .workers = 5, .global_batch = 6}},
      WorkerReport{.term = Term{2},
                   .entries = {{ShardId{5}, SampleReplicaSet()}},
                   .step = Step{8},
                   .desired = {.revision = 3, .servers = 4, .workers = 5, .global_batch = 6}},
      ShardCopies{.round = 6,
                  .shard = ShardId{5},
                  .chunks = {{.chunk = ChunkId{3},
                              .kind = ChunkCopy::Kind::kInitial,
                              .version = Step{7},
                              .known = Step{8},
                              .checksum = ~uint64_t{3}}}},
      Rebuilt{.shard = ShardId{5},
              .entry = SampleReplicaSet(),
              .status = absl::DataLossError("worker-1 has changed it"),
              .has_optimizer_state = true,
              .state_step = Step{6},
              .state_problem = "no such folder"},
      SampleTraceReport(),
      SampleRingStopped(),
      SampleRingNews()};
}

std::vector<ToMember> SampleToMember() {
  return {
      Welcome{.term = Term{2},
              .settings = {.job = "fashion-mnist",
                           .workers = 3,
                           .servers = 2,
                           .replication = 1,
                           .global_batch = 96,
                           .deterministic = true,
                           .noise_scale = true,
                           .non_finite = NonFinitePolicy::kDrop,
                           .scale_by_staleness = true,
                           .stall = std::chrono::milliseconds(2500),
                           .keeps_copies = true,
                           .coordinator_timeout = std::chrono::seconds(420)},
              .heartbeat_milliseconds = 500},
      InstallTensors{.table_version = 2, .tensors = {SamplePlacedTensor()}},
      SetReplicas{.entries = {{ShardId{5}, SampleReplicaSet()}}, .are_first = true},
      Handover{.shard = ShardId{5},
               .current = {.term = Term{2}, .counter = 2},
               .next = SampleReplicaSet()},
      SetServers{.servers = {{.server = ServerId{1},
                              .incarnation = Incarnation{2},
                              .data_address = "127.0.0.1:7171",
                              .lanes = 2}},
                 .desired = {.revision = 3, .servers = 4, .workers = 5, .global_batch = 6}},
      ProposeView{.view = SampleView()},
      ActivateView{.view = SampleView()},
      HoldSteps{.round = 4, .until = Step{13}},
      ResumeSteps{.round = 4},
      TensorsRegistered{.tensors = {SamplePlacedTensor()}, .start_step = Step{3}, .is_fresh = true},
      Release{.is_released = true},
      Stop{.status = absl::UnavailableError("server-1 is lost"), .term = Term{2}},
      Capture{.attempt = 11,
              .step = Step{8},
              .versions = ChunkVersions::kOfEachChunk,
              .is_last = true,
              .folder = "/var/checkpoints",
              .part = 1,
              .parts = 2},
      EndCapture{.attempt = 11},
      SampleRestore(),
      Collect{.term = Term{2}},
      CollectCopies{.round = 6, .entries = {{ShardId{5}, SampleReplicaSet()}}},
      OfferCopies{.shard = ShardId{5}, .entry = SampleReplicaSet(), .chunks = {ChunkId{3}}},
      RebuildShard{.shard = ShardId{5},
                   .entry = SampleReplicaSet(),
                   .chunks = {{.chunk = ChunkId{3},
                               .source = RebuiltChunk::Source::kCheckpoint,
                               .version = Step{7},
                               .checksum = ~uint64_t{3}}},
                   .checkpoint = "/var/checkpoints/step-000000000007"},
      TraceSteps{.number = 7, .steps = 20, .pushes_max = 1000, .within = std::chrono::seconds(60)},
      StopRing{.epoch = {.term = Term{2}, .counter = 3}},
      FormRing{.epoch = {.term = Term{2}, .counter = 3},
               .workers = {{.worker = WorkerId{1}, .address = "127.0.0.1:7180", .rack = "r2"}},
               .token = {4, 5},
               .source = 6,
               .mark = SampleRingMark(),
               .copies = true,
               .is_fresh = true,
               .restore_from = "/var/checkpoints/step-000000000008",
               .values_only = true},
      SampleSetGroup(),
      SampleStepWaits()};
}

WorkerStatus SampleWorkerStatus() {
  return {.worker = WorkerId{1},
          .is_alive = true,
          .is_member = true,
          .has_left = true,
          .was_released = true,
          .metrics_address = "127.0.0.1:9465",
          .pid = 15,
          .step = Step{16},
          .joined_seconds = 17.5,
          .activity = SampleActivity(),
          .lateness_seconds = 0.5,
          .rack = "r2",
          .steps_made = 18,
          .left_out = "cannot join"};
}

JobStatus SampleJobStatus() {
  JobStatus status;
  status.job = "fashion-mnist";
  status.phase = JobPhase::kFailed;
  status.failure = "server-1 is lost";
  status.term = Term{2};
  status.epoch = {.term = Term{2}, .counter = 3};
  status.view = 4;
  status.desired_servers = 5;
  status.desired_workers = 6;
  status.batch = 112;
  status.global_batch = 128;
  status.noise_scale = 1234.5;
  status.shards_moving = 6;
  status.shards_in_one_rack = 7;
  status.step = Step{5};
  status.steps_made = 22;
  SetRestart(status);
  status.samples = 6;
  status.seconds = 7.5;
  status.bytes_pushed = 8;
  status.bytes_pulled = 9;
  status.bytes_replicated = 10;
  status.resends = 11;
  status.contributors_min = 12;
  status.contributors_max = 13;
  status.uneven_steps = 14;
  status.newest_uneven_steps = {Step{2}, Step{15}};
  status.sync_seconds = SampleQuantiles();
  status.phase_seconds.fill(SampleQuantiles());
  status.losses = {{.step = Step{1}, .loss = 2.5, .samples = 3}};
  status.results = {{"accuracy", 0.875}, {"loss", 0.25}};
  status.servers = {{.server = ServerId{1},
                     .is_alive = true,
                     .data_address = "127.0.0.1:7171",
                     .metrics_address = "127.0.0.1:9464",
                     .pid = 14,
                     .stats = SampleServerStats(),
                     .step_seconds = 0.25,
                     .rack = "r1"}};
  status.workers = {SampleWorkerStatus()};
  status.stall = SampleStall();
  status.culprits = {{.kind = CulpritKind::kLink,
                      .worker = WorkerId{1},
                      .server = ServerId{2},
                      .seconds = 0.5,
                      .share = 0.25}};
  status.resizes = {{.step = Step{17},
                     .from = 2,
                     .to = 4,
                     .is_settled = true,
                     .is_final = true,
                     .seconds = 1.5,
                     .pause_seconds = 0.25,
                     .moved_bytes = 18}};
  status.state_losses = {SampleStateLoss()};
  status.checkpoint = SampleCheckpointStatus();
  status.failure_exit_code = 3;
  status.consistency = {.mode = SyncMode::kBounded,
                        .staleness = 18,
                        .backup_workers = 21,
                        .gated = true,
                        .from_step = Step{19},
                        .steps_skipped = 20};
  status.is_mode_changing = true;
  status.mode_problem = "worker-1 did not come to the end of its step";
  return status;
}

}  // namespace pushpull
