// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/activity.h"

#include <algorithm>

#include "absl/algorithm/container.h"

#include "runtime/exchange/exchange.h"

namespace pushpull {
namespace {

void AddServer(ServerId server, std::vector<ServerId>& servers) {
  const bool has_room = servers.size() < WorkerActivity::kServersMax;
  if (has_room && !absl::c_linear_search(servers, server)) servers.push_back(server);
}

}  // namespace

// A job without servers has no chunks.
bool ActivityWatch::IsInRing(const RequestTable& chunks) const {
  return chunks.chunks().empty() && !tensors_.empty() && answered_at_ < pushed_at_;
}

std::optional<WorkerId> ActivityWatch::PeerOf(const ExchangeSpec& spec) const {
  if (!spec.pair) return std::nullopt;
  return spec.pair->from == worker_ ? spec.pair->to : spec.pair->from;
}

void ActivityWatch::SetTensors(const std::vector<PlacedTensor>& tensors) {
  tensors_.clear();
  for (const PlacedTensor& tensor : tensors) tensors_.push_back(tensor.spec.name);
}

void ActivityWatch::EnterPhase(WorkerPhase phase, SteadyTime now) {
  if (phase_ == phase || phase_ == WorkerPhase::kLeaving) return;
  phase_ = phase;
  since_ = now;
}

void ActivityWatch::OnBegun(SteadyTime now) {
  EnterPhase(WorkerPhase::kComputing, now);
}

void ActivityWatch::OnRequest(const TensorRequest& request, SteadyTime now) {
  if (request.type == FrameType::kPull) {
    pulled_tensor_ = request.tensor;
    pulled_at_ = now;
    return;
  }
  if (request.step != pushed_step_) pushed_count_ = 0;
  pushed_step_ = request.step;
  ++pushed_count_;
  pushed_tensor_ = request.tensor;
  pushed_at_ = now;
}

void ActivityWatch::OnExchange(const std::shared_ptr<ExchangeOperation>& operation,
                               SteadyTime now) {
  exchange_ = operation;
  exchanged_at_ = now;
}

WorkerActivity ActivityWatch::Current(const RequestTable& chunks, Step step, SteadyTime now) const {
  WorkerActivity activity{
      .phase = phase_, .seconds = 0, .step = step, .subject = {}, .servers = {}};
  SteadyTime since = since_;
  const auto name = [&](size_t tensor) {
    return tensor < tensors_.size() ? tensors_[tensor] : std::string();
  };
  if (phase_ != WorkerPhase::kComputing) {
    activity.seconds = ToSeconds(now - since);
    return activity;
  }
  std::vector<ServerId> pushed_to;
  std::vector<ServerId> pulled_from;
  for (const ClientChunk& chunk : chunks.chunks()) {
    if (chunk.push && !chunk.push->is_answered) AddServer(chunk.push->server, pushed_to);
    if (chunk.pull) AddServer(chunk.pull->server, pulled_from);
  }
  const bool has_pushed_all = pushed_count_ >= tensors_.size();
  const std::shared_ptr<const ExchangeOperation> exchange = exchange_.lock();
  if (exchange != nullptr && !exchange->pending.is_done()) {
    activity.phase = WorkerPhase::kInCollective;
    activity.subject = Describe(exchange->spec);
    activity.peer = PeerOf(exchange->spec);
    since = exchanged_at_;
  } else if (!pulled_from.empty()) {
    activity.phase = WorkerPhase::kPulling;
    activity.subject = name(pulled_tensor_);
    activity.servers = std::move(pulled_from);
    since = pulled_at_;
  } else if (has_pushed_all && (!pushed_to.empty() || IsInRing(chunks))) {
    activity.phase = WorkerPhase::kWaiting;
    activity.subject = name(pushed_tensor_);
    activity.servers = std::move(pushed_to);
    since = pushed_at_;
  } else {
    // Between two steps: since the last answer; within one: since the last push.
    if (pushed_count_ > 0) activity.subject = name(pushed_tensor_);
    since = std::max({since_, pushed_at_, has_pushed_all ? answered_at_ : SteadyTime{}});
  }
  activity.seconds = ToSeconds(now - since);
  return activity;
}

}  // namespace pushpull
