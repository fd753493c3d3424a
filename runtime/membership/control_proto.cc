// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/control_proto.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pushpull/v1/control.pb.h"

#include "runtime/base/status_macros.h"
#include "runtime/membership/repair_proto.h"
#include "runtime/membership/replica_set_proto.h"
#include "runtime/membership/stats_proto.h"
#include "runtime/shard/chunk.h"

namespace pushpull {
namespace {

constexpr int kTensorsMax = 1 << 20;
constexpr int kDimsMax = 32;
constexpr int kFilesOfCaptureMax = 4096;  // one for each lane
constexpr int kChunksOfTensorMax = static_cast<int>(kTableBytesMax / kChunkBytes);

// ---- structs to messages ----

void Write(const TensorSpec& spec, v1::TensorSpec& out) {
  out.set_name(ToWireText(spec.name));
  for (const int64_t dim : spec.dims) out.add_dims(dim);
  out.set_dtype(static_cast<uint32_t>(spec.dtype));
  out.set_reduction(static_cast<uint32_t>(spec.reduction));
  out.set_codec(static_cast<uint32_t>(spec.codec));
  v1::Optimizer& optimizer = *out.mutable_optimizer();
  optimizer.set_kind(static_cast<uint32_t>(spec.optimizer.kind));
  optimizer.set_learning_rate(spec.optimizer.learning_rate);
  optimizer.set_momentum(spec.optimizer.momentum);
  optimizer.set_nesterov(spec.optimizer.nesterov);
  optimizer.set_weight_decay(spec.optimizer.weight_decay);
  optimizer.set_beta1(spec.optimizer.beta1);
  optimizer.set_beta2(spec.optimizer.beta2);
  optimizer.set_epsilon(spec.optimizer.epsilon);
}

uint64_t Milliseconds(Duration duration) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

// More would overflow the nanoseconds of a Duration.
Duration FromMilliseconds(uint64_t milliseconds) {
  return std::chrono::milliseconds(std::min<uint64_t>(milliseconds, 1'000'000'000));
}

void Write(const PlacedTensor& tensor, v1::PlacedTensor& out) {
  out.set_id(tensor.id.value());
  Write(tensor.spec, *out.mutable_spec());
  out.set_first_chunk(tensor.first_chunk.value());
  for (const ShardId shard : tensor.shards) out.add_shards(shard.value());
}

void Write(const View& view, v1::View& out) {
  out.set_number(view.number);
  for (const ViewMember& member : view.members) {
    v1::ViewMember& entry = *out.add_members();
    entry.set_worker(member.worker.value());
    entry.set_incarnation(member.incarnation.value());
    entry.set_from_step(member.from_step.value());
    if (member.end_step) entry.set_end_step(member.end_step->value());
    entry.set_is_released(member.is_released);
  }
  ToProto(view.consistency, *out.mutable_consistency());
}

void Write(const RegisterServer& message, v1::FromMember& out) {
  v1::FromMember::RegisterServer& wire = *out.mutable_register_server();
  wire.set_server(message.server.value());
  wire.set_incarnation(message.incarnation.value());
  wire.set_data_address(ToWireText(message.data_address));
  wire.set_metrics_address(ToWireText(message.metrics_address));
  wire.set_lanes(message.lanes);
  wire.set_weight(message.weight);
  wire.set_pid(message.pid);
  wire.set_promised(message.promised.value());
}

void Write(const RegisterWorker& message, v1::FromMember& out) {
  v1::FromMember::RegisterWorker& wire = *out.mutable_register_worker();
  wire.set_worker(message.worker.value());
  wire.set_incarnation(message.incarnation.value());
  wire.set_metrics_address(ToWireText(message.metrics_address));
  wire.set_pid(message.pid);
  wire.set_promised(message.promised.value());
  wire.set_is_member(message.is_member);
}

void Write(const RegisterTensors& message, v1::FromMember& out) {
  v1::FromMember::RegisterTensors& wire = *out.mutable_register_tensors();
  for (const TensorSpec& spec : message.tensors) Write(spec, *wire.add_tensors());
}

void Write(const TensorsInstalled& message, v1::FromMember& out) {
  out.mutable_tensors_installed()->set_table_version(message.table_version);
}

void Write(const ViewAnswer& message, v1::FromMember& out) {
  v1::FromMember::ViewAnswer& wire = *out.mutable_view_answer();
  wire.set_number(message.number);
  wire.set_is_accepted(message.is_accepted);
  wire.set_lowest_free_step(message.lowest_free_step.value());
}

void Write(const Promise& promise, v1::FromMember::Promise& out) {
  ToProto(promise.shard, promise.entry, *out.mutable_entry());
  out.set_seq(promise.seq);
  out.set_is_full(promise.is_full);
}

void Write(const Promises& message, v1::FromMember& out) {
  v1::FromMember::Promises& wire = *out.mutable_promises();
  for (const Promise& promise : message.promises) Write(promise, *wire.add_promises());
}

void Write(const MemberCaughtUp& message, v1::FromMember& out) {
  v1::FromMember::MemberCaughtUp& wire = *out.mutable_member_caught_up();
  wire.set_shard(message.shard.value());
  ToProto(message.epoch, *wire.mutable_epoch());
  wire.set_member(message.member.value());
}

void Write(const HandedOver& message, v1::FromMember& out) {
  ToProto(message.shard, message.entry, *out.mutable_handed_over()->mutable_entry());
}

void Write(const StepsHeld& message, v1::FromMember& out) {
  v1::FromMember::StepsHeld& wire = *out.mutable_steps_held();
  wire.set_round(message.round);
  wire.set_next_step(message.next_step.value());
  wire.set_is_drained(message.is_drained);
}

void Write(const Heartbeat& message, v1::FromMember& out) {
  v1::FromMember::Heartbeat& wire = *out.mutable_heartbeat();
  if (const auto* server = std::get_if<ServerStats>(&message.stats)) {
    ToProto(*server, *wire.mutable_server());
  } else {
    ToProto(std::get<WorkerStats>(message.stats), *wire.mutable_worker());
  }
}

void Write(const Leave& message, v1::FromMember& out) {
  v1::FromMember::Leave& wire = *out.mutable_leave();
  wire.set_end_step(message.end_step.value());
  wire.set_is_released(message.is_released);
  ToProto(message.stats, *wire.mutable_stats());
}

void Write(const AskToLeave& /*message*/, v1::FromMember& out) {
  out.mutable_ask_to_leave();
}

void Write(const Failure& message, v1::FromMember& out) {
  ToProto(message.status, *out.mutable_failure()->mutable_status());
}

void Write(const ChunkFileSummary& file, v1::CheckpointFile& out) {
  out.set_name(ToWireText(file.name));
  out.set_bytes(file.bytes);
  out.set_checksum(file.checksum);
  for (const ChunkPlace& place : file.chunks) {
    v1::CheckpointFile::Chunk& chunk = *out.add_chunks();
    chunk.set_chunk(place.chunk.value());
    chunk.set_version(place.version.value());
    chunk.set_offset(place.offset);
    chunk.set_bytes(place.bytes);
    chunk.set_checksum(place.checksum);
  }
}

void Write(const Captured& message, v1::FromMember& out) {
  v1::FromMember::Captured& wire = *out.mutable_captured();
  wire.set_attempt(message.attempt);
  ToProto(message.status, *wire.mutable_status());
  wire.set_highest_version(message.highest_version.value());
  for (const ChunkFileSummary& file : message.files) Write(file, *wire.add_files());
}

void Write(const Restored& message, v1::FromMember& out) {
  ToProto(message.status, *out.mutable_restored()->mutable_status());
}

void Write(const WantedSize& wanted, v1::WantedSize& out) {
  out.set_revision(wanted.revision);
  out.set_servers(wanted.servers);
  out.set_workers(wanted.workers);
}

void Write(const ServerReport& message, v1::FromMember& out) {
  v1::FromMember::ServerReport& wire = *out.mutable_server_report();
  wire.set_term(message.term.value());
  for (const PlacedTensor& tensor : message.tensors) Write(tensor, *wire.add_tensors());
  for (const auto& [shard, replicas] : message.entries)
    ToProto(shard, replicas, *wire.add_entries());
  for (const Promise& promise : message.promises) Write(promise, *wire.add_promises());
  Write(message.active, *wire.mutable_active());
  if (message.proposed) Write(*message.proposed, *wire.mutable_proposed());
  Write(message.wanted, *wire.mutable_wanted());
}

void Write(const WorkerReport& message, v1::FromMember& out) {
  v1::FromMember::WorkerReport& wire = *out.mutable_worker_report();
  wire.set_term(message.term.value());
  for (const auto& [shard, replicas] : message.entries)
    ToProto(shard, replicas, *wire.add_entries());
  wire.set_step(message.step.value());
  Write(message.wanted, *wire.mutable_wanted());
}

void Write(const Welcome& message, v1::ToMember& out) {
  v1::ToMember::Welcome& wire = *out.mutable_welcome();
  wire.set_term(message.term.value());
  wire.set_job(ToWireText(message.settings.job));
  wire.set_workers(message.settings.workers);
  wire.set_servers(message.settings.servers);
  wire.set_deterministic(message.settings.deterministic);
  wire.set_non_finite(static_cast<uint32_t>(message.settings.non_finite));
  wire.set_heartbeat_milliseconds(message.heartbeat_milliseconds);
  wire.set_stall_milliseconds(Milliseconds(message.settings.stall));
  wire.set_coordinator_patience_milliseconds(Milliseconds(message.settings.coordinator_patience));
  wire.set_keeps_copies(message.settings.keeps_copies);
  wire.set_replication(message.settings.replication);
  wire.set_scale_by_staleness(message.settings.scale_by_staleness);
  wire.set_divides_samples(message.settings.divides_samples);
  wire.set_global_batch(message.settings.global_batch);
}

void Write(const InstallTensors& message, v1::ToMember& out) {
  v1::ToMember::InstallTensors& wire = *out.mutable_install_tensors();
  wire.set_table_version(message.table_version);
  for (const PlacedTensor& tensor : message.tensors) Write(tensor, *wire.add_tensors());
}

void Write(const SetReplicas& message, v1::ToMember& out) {
  v1::ToMember::SetReplicas& wire = *out.mutable_set_replicas();
  for (const auto& [shard, replicas] : message.entries)
    ToProto(shard, replicas, *wire.add_entries());
  wire.set_are_first(message.are_first);
}

void Write(const Handover& message, v1::ToMember& out) {
  v1::ToMember::Handover& wire = *out.mutable_handover();
  ToProto(message.current, *wire.mutable_current());
  ToProto(message.shard, message.next, *wire.mutable_next());
}

void Write(const SetServers& message, v1::ToMember& out) {
  v1::ToMember::SetServers& wire = *out.mutable_set_servers();
  for (const ServerEndpoint& server : message.servers) {
    v1::ToMember::ServerEndpoint& entry = *wire.add_servers();
    entry.set_server(server.server.value());
    entry.set_incarnation(server.incarnation.value());
    entry.set_data_address(ToWireText(server.data_address));
    entry.set_lanes(server.lanes);
  }
  Write(message.wanted, *wire.mutable_wanted());
}

void Write(const ProposeView& message, v1::ToMember& out) {
  Write(message.view, *out.mutable_propose_view()->mutable_view());
}

void Write(const ActivateView& message, v1::ToMember& out) {
  Write(message.view, *out.mutable_activate_view()->mutable_view());
}

void Write(const HoldSteps& message, v1::ToMember& out) {
  v1::ToMember::HoldSteps& wire = *out.mutable_hold_steps();
  wire.set_round(message.round);
  if (message.until) wire.set_until(message.until->value());
}

void Write(const ResumeSteps& message, v1::ToMember& out) {
  out.mutable_resume_steps()->set_round(message.round);
}

void Write(const TensorsRegistered& message, v1::ToMember& out) {
  v1::ToMember::TensorsRegistered& wire = *out.mutable_tensors_registered();
  for (const PlacedTensor& tensor : message.tensors) Write(tensor, *wire.add_tensors());
  wire.set_start_step(message.start_step.value());
  wire.set_is_fresh(message.is_fresh);
}

void Write(const Release& message, v1::ToMember& out) {
  out.mutable_release()->set_is_released(message.is_released);
}

void Write(const Stop& message, v1::ToMember& out) {
  ToProto(message.status, *out.mutable_stop()->mutable_status());
  out.mutable_stop()->set_term(message.term.value());
}

void Write(const Collect& message, v1::ToMember& out) {
  out.mutable_collect()->set_term(message.term.value());
}

void Write(const Capture& message, v1::ToMember& out) {
  v1::ToMember::Capture& wire = *out.mutable_capture();
  wire.set_attempt(message.attempt);
  wire.set_step(message.step.value());
  wire.set_versions(static_cast<uint32_t>(message.versions));
  wire.set_is_last(message.is_last);
  wire.set_folder(ToWireText(message.folder));
}

void Write(const EndCapture& message, v1::ToMember& out) {
  out.mutable_end_capture()->set_attempt(message.attempt);
}

void Write(const Restore& message, v1::ToMember& out) {
  v1::ToMember::Restore& wire = *out.mutable_restore();
  wire.set_folder(ToWireText(message.folder));
  wire.set_sequence(message.sequence);
  for (const ShardId shard : message.shards) wire.add_shards(shard.value());
  if (message.version) wire.set_version(message.version->value());
}

void Write(const ShardCopies& message, v1::FromMember& out) {
  ToProto(message, *out.mutable_shard_copies());
}

void Write(const Rebuilt& message, v1::FromMember& out) {
  ToProto(message, *out.mutable_rebuilt());
}

void Write(const CollectCopies& message, v1::ToMember& out) {
  ToProto(message, *out.mutable_collect_copies());
}

void Write(const OfferCopies& message, v1::ToMember& out) {
  ToProto(message, *out.mutable_offer_copies());
}

void Write(const RebuildShard& message, v1::ToMember& out) {
  ToProto(message, *out.mutable_rebuild_shard());
}

// ---- messages to structs ----

absl::Status NotKnown(absl::string_view what, uint64_t value) {
  return absl::InvalidArgumentError(absl::StrCat(what, " ", value, " is not known"));
}

// The enumerator of a number from the wire, whose type has IsKnown.
template <typename Enum>
absl::StatusOr<Enum> ReadEnum(absl::string_view what, uint32_t value) {
  if (value > 255 || !IsKnown(static_cast<Enum>(value))) return NotKnown(what, value);
  return static_cast<Enum>(value);
}

absl::StatusOr<TensorSpec> Read(const v1::TensorSpec& wire) {
  PUSHPULL_RETURN_IF_ERROR(
      CheckCount(absl::StrCat("dims of tensor ", wire.name()), wire.dims_size(), kDimsMax));
  TensorSpec spec{
      .name = wire.name(), .dims = {wire.dims().begin(), wire.dims().end()}, .optimizer = {}};
  PUSHPULL_ASSIGN_OR_RETURN(spec.dtype, ReadEnum<DType>("dtype", wire.dtype()));
  PUSHPULL_ASSIGN_OR_RETURN(spec.reduction, ReadEnum<Reduction>("reduction", wire.reduction()));
  // A later version's, which this program could not add up.
  PUSHPULL_ASSIGN_OR_RETURN(
      spec.codec, ReadEnum<Codec>(absl::StrCat("tensor ", wire.name(), ": codec"), wire.codec()));
  const v1::Optimizer& optimizer = wire.optimizer();
  PUSHPULL_ASSIGN_OR_RETURN(spec.optimizer.kind,
                            ReadEnum<OptimizerKind>("optimizer", optimizer.kind()));
  spec.optimizer.learning_rate = optimizer.learning_rate();
  spec.optimizer.momentum = optimizer.momentum();
  spec.optimizer.nesterov = optimizer.nesterov();
  spec.optimizer.weight_decay = optimizer.weight_decay();
  spec.optimizer.beta1 = optimizer.beta1();
  spec.optimizer.beta2 = optimizer.beta2();
  spec.optimizer.epsilon = optimizer.epsilon();
  return spec;
}

absl::StatusOr<PlacedTensor> Read(const v1::PlacedTensor& wire) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount(
      absl::StrCat("shards of tensor ", wire.id()), wire.shards_size(), kChunksOfTensorMax));
  PlacedTensor tensor{.id = TensorId{wire.id()},
                      .spec = {},
                      .first_chunk = ChunkId{wire.first_chunk()},
                      .shards = {}};
  PUSHPULL_ASSIGN_OR_RETURN(tensor.spec, Read(wire.spec()));
  for (const uint32_t value : wire.shards()) {
    PUSHPULL_ASSIGN_OR_RETURN(const ShardId shard, ShardFromProto(value));
    tensor.shards.push_back(shard);
  }
  return tensor;
}

template <typename Tensor, typename Wire>
absl::StatusOr<std::vector<Tensor>> ReadTensors(
    const google::protobuf::RepeatedPtrField<Wire>& tensors) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("tensors", tensors.size(), kTensorsMax));
  std::vector<Tensor> result;
  for (const Wire& wire : tensors) {
    PUSHPULL_ASSIGN_OR_RETURN(Tensor tensor, Read(wire));
    result.push_back(std::move(tensor));
  }
  return result;
}

absl::StatusOr<View> Read(const v1::View& wire) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("members of a view", wire.members_size(), kWireWorkersMax));
  View view{.number = wire.number(), .members = {}};
  for (const v1::ViewMember& member : wire.members()) {
    const WorkerId worker{member.worker()};
    if (!view.members.empty() && worker <= view.members.back().worker) {
      return absl::InvalidArgumentError(absl::StrCat(
          "view ", wire.number(), ": ", ToString(worker), " is out of order or there twice"));
    }
    view.members.push_back(
        {.worker = worker,
         .incarnation = Incarnation{member.incarnation()},
         .from_step = Step{member.from_step()},
         .end_step = member.has_end_step() ? std::optional<Step>(member.end_step()) : std::nullopt,
         .is_released = member.is_released()});
  }
  if (!wire.has_consistency()) return view;
  PUSHPULL_ASSIGN_OR_RETURN(view.consistency, FromProto(wire.consistency()));
  return view;
}

absl::StatusOr<FromMember> Read(const v1::FromMember::RegisterServer& wire) {
  return RegisterServer{.server = ServerId{wire.server()},
                        .incarnation = Incarnation{wire.incarnation()},
                        .data_address = wire.data_address(),
                        .metrics_address = wire.metrics_address(),
                        .lanes = wire.lanes(),
                        .weight = wire.weight(),
                        .pid = wire.pid(),
                        .promised = Term{wire.promised()}};
}

absl::StatusOr<FromMember> Read(const v1::FromMember::RegisterWorker& wire) {
  return RegisterWorker{.worker = WorkerId{wire.worker()},
                        .incarnation = Incarnation{wire.incarnation()},
                        .metrics_address = wire.metrics_address(),
                        .pid = wire.pid(),
                        .promised = Term{wire.promised()},
                        .is_member = wire.is_member()};
}

absl::StatusOr<FromMember> Read(const v1::FromMember::RegisterTensors& wire) {
  RegisterTensors message;
  PUSHPULL_ASSIGN_OR_RETURN(message.tensors, ReadTensors<TensorSpec>(wire.tensors()));
  return message;
}

absl::StatusOr<FromMember> Read(const v1::FromMember::TensorsInstalled& wire) {
  return TensorsInstalled{.table_version = wire.table_version()};
}

absl::StatusOr<std::vector<Promise>> ReadPromises(
    const google::protobuf::RepeatedPtrField<v1::FromMember::Promise>& promises) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("promises", promises.size(), static_cast<int>(kShardCount)));
  std::vector<Promise> result;
  for (const v1::FromMember::Promise& promise : promises) {
    PUSHPULL_ASSIGN_OR_RETURN(auto replicas, FromProto(promise.entry()));
    result.push_back({.shard = replicas.first,
                      .entry = std::move(replicas.second),
                      .seq = promise.seq(),
                      .is_full = promise.is_full()});
  }
  return result;
}

WantedSize Read(const v1::WantedSize& wire) {
  return {.revision = wire.revision(), .servers = wire.servers(), .workers = wire.workers()};
}

absl::StatusOr<FromMember> Read(const v1::FromMember::Promises& wire) {
  Promises message;
  PUSHPULL_ASSIGN_OR_RETURN(message.promises, ReadPromises(wire.promises()));
  return message;
}

absl::StatusOr<FromMember> Read(const v1::FromMember::ServerReport& wire) {
  ServerReport message;
  message.term = Term{wire.term()};
  PUSHPULL_ASSIGN_OR_RETURN(message.tensors, ReadTensors<PlacedTensor>(wire.tensors()));
  PUSHPULL_ASSIGN_OR_RETURN(message.entries, FromProto(wire.entries()));
  PUSHPULL_ASSIGN_OR_RETURN(message.promises, ReadPromises(wire.promises()));
  PUSHPULL_ASSIGN_OR_RETURN(message.active, Read(wire.active()));
  if (wire.has_proposed()) {
    PUSHPULL_ASSIGN_OR_RETURN(message.proposed, Read(wire.proposed()));
  }
  message.wanted = Read(wire.wanted());
  return message;
}

absl::StatusOr<FromMember> Read(const v1::FromMember::WorkerReport& wire) {
  WorkerReport message{.term = Term{wire.term()},
                       .entries = {},
                       .step = Step{wire.step()},
                       .wanted = Read(wire.wanted())};
  PUSHPULL_ASSIGN_OR_RETURN(message.entries, FromProto(wire.entries()));
  return message;
}

absl::StatusOr<FromMember> Read(const v1::FromMember::MemberCaughtUp& wire) {
  PUSHPULL_ASSIGN_OR_RETURN(const ShardId shard, ShardFromProto(wire.shard()));
  return MemberCaughtUp{
      .shard = shard, .epoch = FromProto(wire.epoch()), .member = ServerId{wire.member()}};
}

absl::StatusOr<FromMember> Read(const v1::FromMember::HandedOver& wire) {
  PUSHPULL_ASSIGN_OR_RETURN(auto replicas, FromProto(wire.entry()));
  return HandedOver{.shard = replicas.first, .entry = std::move(replicas.second)};
}

absl::StatusOr<FromMember> Read(const v1::FromMember::StepsHeld& wire) {
  return StepsHeld{
      .round = wire.round(), .next_step = Step{wire.next_step()}, .is_drained = wire.is_drained()};
}

absl::StatusOr<FromMember> Read(const v1::FromMember::ViewAnswer& wire) {
  return ViewAnswer{.number = wire.number(),
                    .is_accepted = wire.is_accepted(),
                    .lowest_free_step = Step{wire.lowest_free_step()}};
}

absl::StatusOr<FromMember> Read(const v1::FromMember::Heartbeat& wire) {
  if (wire.has_server()) return Heartbeat{.stats = FromProto(wire.server())};
  if (!wire.has_worker()) return absl::InvalidArgumentError("heartbeat: has no statistics");
  PUSHPULL_ASSIGN_OR_RETURN(WorkerStats stats, FromProto(wire.worker()));
  return Heartbeat{.stats = std::move(stats)};
}

absl::StatusOr<FromMember> Read(const v1::FromMember::Leave& wire) {
  PUSHPULL_ASSIGN_OR_RETURN(WorkerStats stats, FromProto(wire.stats()));
  return Leave{.end_step = Step{wire.end_step()},
               .stats = std::move(stats),
               .is_released = wire.is_released()};
}

absl::StatusOr<FromMember> Read(const v1::FromMember::Failure& wire) {
  return Failure{.status = FromProto(wire.status())};
}

ChunkFileSummary Read(const v1::CheckpointFile& wire) {
  ChunkFileSummary file{
      .name = wire.name(), .bytes = wire.bytes(), .checksum = wire.checksum(), .chunks = {}};
  file.chunks.reserve(static_cast<size_t>(wire.chunks_size()));
  for (const v1::CheckpointFile::Chunk& chunk : wire.chunks()) {
    file.chunks.push_back({.chunk = ChunkId{chunk.chunk()},
                           .version = Step{chunk.version()},
                           .offset = chunk.offset(),
                           .bytes = chunk.bytes(),
                           .checksum = chunk.checksum()});
  }
  return file;
}

absl::StatusOr<FromMember> Read(const v1::FromMember::Captured& wire) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("files of a capture", wire.files_size(), kFilesOfCaptureMax));
  Captured message{.attempt = wire.attempt(),
                   .status = FromProto(wire.status()),
                   .highest_version = Step{wire.highest_version()},
                   .files = {}};
  for (const v1::CheckpointFile& file : wire.files()) message.files.push_back(Read(file));
  return message;
}

absl::StatusOr<FromMember> Read(const v1::FromMember::Restored& wire) {
  return Restored{.status = FromProto(wire.status())};
}

absl::StatusOr<ToMember> Read(const v1::ToMember::Welcome& wire) {
  if (wire.non_finite() > static_cast<uint32_t>(NonFinitePolicy::kDrop))
    return NotKnown("policy for values that are not finite", wire.non_finite());
  return Welcome{.term = Term{wire.term()},
                 .settings = {.job = wire.job(),
                              .workers = wire.workers(),
                              .servers = wire.servers(),
                              .replication = wire.replication(),
                              .divides_samples = wire.divides_samples(),
                              .global_batch = wire.global_batch(),
                              .deterministic = wire.deterministic(),
                              .non_finite = static_cast<NonFinitePolicy>(wire.non_finite()),
                              .scale_by_staleness = wire.scale_by_staleness(),
                              .stall = FromMilliseconds(wire.stall_milliseconds()),
                              .keeps_copies = wire.keeps_copies(),
                              .coordinator_patience =
                                  FromMilliseconds(wire.coordinator_patience_milliseconds())},
                 .heartbeat_milliseconds = wire.heartbeat_milliseconds()};
}

absl::StatusOr<ToMember> Read(const v1::ToMember::InstallTensors& wire) {
  InstallTensors message{.table_version = wire.table_version(), .tensors = {}};
  PUSHPULL_ASSIGN_OR_RETURN(message.tensors, ReadTensors<PlacedTensor>(wire.tensors()));
  return message;
}

absl::StatusOr<ToMember> Read(const v1::ToMember::SetReplicas& wire) {
  SetReplicas message;
  PUSHPULL_ASSIGN_OR_RETURN(message.entries, FromProto(wire.entries()));
  message.are_first = wire.are_first();
  return message;
}

absl::StatusOr<ToMember> Read(const v1::ToMember::Handover& wire) {
  PUSHPULL_ASSIGN_OR_RETURN(auto replicas, FromProto(wire.next()));
  return Handover{.shard = replicas.first,
                  .current = FromProto(wire.current()),
                  .next = std::move(replicas.second)};
}

absl::StatusOr<ToMember> Read(const v1::ToMember::SetServers& wire) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("servers", wire.servers_size(), kWireServersMax));
  SetServers message;
  for (const v1::ToMember::ServerEndpoint& server : wire.servers()) {
    message.servers.push_back({.server = ServerId{server.server()},
                               .incarnation = Incarnation{server.incarnation()},
                               .data_address = server.data_address(),
                               .lanes = server.lanes()});
  }
  message.wanted = Read(wire.wanted());
  return message;
}

absl::StatusOr<ToMember> Read(const v1::ToMember::ProposeView& wire) {
  ProposeView message;
  PUSHPULL_ASSIGN_OR_RETURN(message.view, Read(wire.view()));
  return message;
}

absl::StatusOr<ToMember> Read(const v1::ToMember::ActivateView& wire) {
  ActivateView message;
  PUSHPULL_ASSIGN_OR_RETURN(message.view, Read(wire.view()));
  return message;
}

absl::StatusOr<ToMember> Read(const v1::ToMember::HoldSteps& wire) {
  HoldSteps message{.round = wire.round(), .until = std::nullopt};
  if (wire.has_until()) message.until = Step{wire.until()};
  return message;
}

absl::StatusOr<ToMember> Read(const v1::ToMember::ResumeSteps& wire) {
  return ResumeSteps{.round = wire.round()};
}

absl::StatusOr<ToMember> Read(const v1::ToMember::TensorsRegistered& wire) {
  TensorsRegistered message{
      .tensors = {}, .start_step = Step{wire.start_step()}, .is_fresh = wire.is_fresh()};
  PUSHPULL_ASSIGN_OR_RETURN(message.tensors, ReadTensors<PlacedTensor>(wire.tensors()));
  return message;
}

absl::StatusOr<ToMember> Read(const v1::ToMember::Release& wire) {
  return Release{.is_released = wire.is_released()};
}

absl::StatusOr<ToMember> Read(const v1::ToMember::Stop& wire) {
  return Stop{.status = FromProto(wire.status()), .term = Term{wire.term()}};
}

absl::StatusOr<ToMember> Read(const v1::ToMember::Collect& wire) {
  return Collect{.term = Term{wire.term()}};
}

absl::StatusOr<ToMember> Read(const v1::ToMember::Capture& wire) {
  if (wire.versions() != static_cast<uint32_t>(ChunkVersions::kOfOneStep) &&
      wire.versions() != static_cast<uint32_t>(ChunkVersions::kOfEachChunk)) {
    return NotKnown("kind of versions", wire.versions());
  }
  return Capture{.attempt = wire.attempt(),
                 .step = Step{wire.step()},
                 .versions = static_cast<ChunkVersions>(wire.versions()),
                 .is_last = wire.is_last(),
                 .folder = wire.folder()};
}

absl::StatusOr<ToMember> Read(const v1::ToMember::EndCapture& wire) {
  return EndCapture{.attempt = wire.attempt()};
}

absl::StatusOr<ToMember> Read(const v1::ToMember::Restore& wire) {
  PUSHPULL_RETURN_IF_ERROR(
      CheckCount("shards to restore", wire.shards_size(), static_cast<int>(kShardCount)));
  Restore message{.folder = wire.folder(), .sequence = wire.sequence(), .shards = {}};
  if (wire.has_version()) message.version = Step{wire.version()};
  for (const uint32_t value : wire.shards()) {
    PUSHPULL_ASSIGN_OR_RETURN(const ShardId shard, ShardFromProto(value));
    message.shards.push_back(shard);
  }
  return message;
}

}  // namespace

void ToProto(const FromMember& message, v1::FromMember& out) {
  std::visit([&out](const auto& alternative) { Write(alternative, out); }, message);
}

void ToProto(const ToMember& message, v1::ToMember& out) {
  std::visit([&out](const auto& alternative) { Write(alternative, out); }, message);
}

absl::StatusOr<FromMember> FromProto(const v1::FromMember& message) {
  switch (message.message_case()) {
    case v1::FromMember::kRegisterServer:
      return Read(message.register_server());
    case v1::FromMember::kRegisterWorker:
      return Read(message.register_worker());
    case v1::FromMember::kRegisterTensors:
      return Read(message.register_tensors());
    case v1::FromMember::kTensorsInstalled:
      return Read(message.tensors_installed());
    case v1::FromMember::kViewAnswer:
      return Read(message.view_answer());
    case v1::FromMember::kPromises:
      return Read(message.promises());
    case v1::FromMember::kMemberCaughtUp:
      return Read(message.member_caught_up());
    case v1::FromMember::kHandedOver:
      return Read(message.handed_over());
    case v1::FromMember::kStepsHeld:
      return Read(message.steps_held());
    case v1::FromMember::kHeartbeat:
      return Read(message.heartbeat());
    case v1::FromMember::kLeave:
      return Read(message.leave());
    case v1::FromMember::kAskToLeave:
      return AskToLeave{};
    case v1::FromMember::kFailure:
      return Read(message.failure());
    case v1::FromMember::kCaptured:
      return Read(message.captured());
    case v1::FromMember::kRestored:
      return Read(message.restored());
    case v1::FromMember::kServerReport:
      return Read(message.server_report());
    case v1::FromMember::kWorkerReport:
      return Read(message.worker_report());
    case v1::FromMember::kShardCopies:
      return FromProto(message.shard_copies());
    case v1::FromMember::kRebuilt:
      return FromProto(message.rebuilt());
    case v1::FromMember::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("message of a member: has no known kind");
}

absl::StatusOr<ToMember> FromProto(const v1::ToMember& message) {
  switch (message.message_case()) {
    case v1::ToMember::kWelcome:
      return Read(message.welcome());
    case v1::ToMember::kInstallTensors:
      return Read(message.install_tensors());
    case v1::ToMember::kSetReplicas:
      return Read(message.set_replicas());
    case v1::ToMember::kHandover:
      return Read(message.handover());
    case v1::ToMember::kSetServers:
      return Read(message.set_servers());
    case v1::ToMember::kProposeView:
      return Read(message.propose_view());
    case v1::ToMember::kActivateView:
      return Read(message.activate_view());
    case v1::ToMember::kHoldSteps:
      return Read(message.hold_steps());
    case v1::ToMember::kResumeSteps:
      return Read(message.resume_steps());
    case v1::ToMember::kTensorsRegistered:
      return Read(message.tensors_registered());
    case v1::ToMember::kRelease:
      return Read(message.release());
    case v1::ToMember::kStop:
      return Read(message.stop());
    case v1::ToMember::kCapture:
      return Read(message.capture());
    case v1::ToMember::kEndCapture:
      return Read(message.end_capture());
    case v1::ToMember::kRestore:
      return Read(message.restore());
    case v1::ToMember::kCollect:
      return Read(message.collect());
    case v1::ToMember::kCollectCopies:
      return FromProto(message.collect_copies());
    case v1::ToMember::kOfferCopies:
      return FromProto(message.offer_copies());
    case v1::ToMember::kRebuildShard:
      return FromProto(message.rebuild_shard());
    case v1::ToMember::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("message of the coordinator: has no known kind");
}

}  // namespace pushpull
