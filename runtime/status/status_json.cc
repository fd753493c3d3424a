// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/status_json.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/string_view.h"
#include <nlohmann/json.hpp>

#include "runtime/consistency/view.h"
#include "runtime/metrics/sync_phase.h"

namespace pushpull {
namespace {

using nlohmann::json;

json ServersJson(const JobStatus& status) {
  json servers = json::array();
  for (const ServerStatus& server : status.servers) {
    servers.push_back({{"index", server.server.value()},
                       {"alive", server.is_alive},
                       {"data", server.data_address},
                       {"metrics", server.metrics_address},
                       {"pid", server.pid},
                       {"rack", server.rack},
                       {"bytes", server.stats.bytes_owned},
                       {"version", server.stats.highest_version.value()}});
  }
  return servers;
}

json WorkersJson(const JobStatus& status) {
  json workers = json::array();
  for (const WorkerStatus& worker : status.workers) {
    workers.push_back({{"index", worker.worker.value()},
                       {"alive", worker.is_alive},
                       {"member", worker.is_member},
                       {"state", std::string(StateOf(worker))},
                       {"left_out", worker.left_out},
                       {"metrics", worker.metrics_address},
                       {"pid", worker.pid},
                       {"rack", worker.rack},
                       {"step", worker.step.value()},
                       {"joined_seconds", worker.joined_seconds},
                       {"activity", ToString(worker.activity)},
                       {"lateness_seconds", worker.lateness_seconds}});
  }
  return workers;
}

json CulpritsJson(const JobStatus& status) {
  json culprits = json::array();
  for (const Culprit& culprit : status.culprits) {
    culprits.push_back({{"kind", std::string(NameOf(culprit.kind))},
                        {"member", MemberOf(culprit)},
                        {"seconds", culprit.seconds},
                        {"share", culprit.share},
                        {"text", ToString(culprit)}});
  }
  return culprits;
}

json StallJson(const std::optional<Stall>& stall) {
  if (!stall) return nullptr;
  json missing = json::array();
  for (const WorkerId worker : stall->missing) missing.push_back(worker.value());
  return {{"step", stall->step.value()},
          {"tensor", stall->tensor},
          {"workers", missing},
          {"seconds", stall->seconds}};
}

json LossesJson(const JobStatus& status) {
  json losses = json::array();
  const size_t stride = status.losses.size() / kLossesShown + 1;
  for (size_t i = 0; i < status.losses.size(); ++i) {
    if (i % stride != 0 && i + 1 != status.losses.size()) continue;
    const LossPoint& point = status.losses[i];
    losses.push_back({{"step", point.step.value()}, {"loss", NumberOrNull(point.loss)}});
  }
  return losses;
}

}  // namespace

json NumberOrNull(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

json ResizesJson(const JobStatus& status) {
  json resizes = json::array();
  for (const ResizeStatus& resize : status.resizes) {
    resizes.push_back({{"step", resize.step.value()},
                       {"from", resize.from},
                       {"to", resize.to},
                       {"settled", resize.is_settled},
                       {"seconds", resize.seconds},
                       {"pause_seconds", resize.pause_seconds},
                       {"moved_bytes", resize.moved_bytes}});
  }
  return resizes;
}

json PhasesJson(const JobStatus& status) {
  json phases = json::object();
  for (size_t i = 0; i < kSyncPhaseCount; ++i)
    phases[std::string(kSyncPhaseNames[i])] = status.phase_seconds[i].At(0.5);
  return phases;
}

json StatusJson(const JobStatus& status) {
  json state_losses = json::array();
  for (const StateLoss& loss : status.state_losses) state_losses.push_back(ToString(loss));
  json results = json::object();
  for (const auto& [name, value] : status.results) results[name] = NumberOrNull(value);
  return {{"job", status.job},
          {"phase", std::string(NameOf(status.phase))},
          {"failure", status.failure},
          {"term", status.term.value()},
          {"epoch", status.epoch.counter},
          {"view", status.view},
          {"mode", std::string(NameOf(status.consistency.mode))},
          {"mode_text", Describe(status.consistency)},
          {"mode_problem", status.mode_problem},
          {"staleness", status.consistency.staleness},
          {"backup_workers", status.consistency.backup_workers},
          {"gated", status.consistency.gated},
          {"mode_changing", status.is_mode_changing},
          {"batch", status.batch},
          {"global_batch", status.global_batch},
          {"noise_scale", status.noise_scale},
          {"servers_wanted", status.desired_servers},
          {"workers_wanted", status.desired_workers},
          {"shards_moving", status.shards_moving},
          {"shards_in_one_rack", status.shards_in_one_rack},
          {"state_losses", state_losses},
          {"resizes", ResizesJson(status)},
          {"culprits", CulpritsJson(status)},
          {"stalled", status.stall ? ToString(*status.stall) : ""},
          {"stall", StallJson(status.stall)},
          {"step", status.step.value()},
          {"samples", status.samples},
          {"uneven_steps", status.uneven_steps},
          {"contributors", {{"min", status.contributors_min}, {"max", status.contributors_max}}},
          {"seconds", status.seconds},
          {"bytes",
           {{"pushed", status.bytes_pushed},
            {"pulled", status.bytes_pulled},
            {"replicated", status.bytes_replicated}}},
          {"resends", status.resends},
          {"sync",
           {{"p50_seconds", status.sync_seconds.At(0.5)},
            {"p99_seconds", status.sync_seconds.At(0.99)},
            {"phases", PhasesJson(status)}}},
          {"checkpoint",
           {{"step", status.checkpoint.step.value()},
            {"saved", status.checkpoint.saved},
            {"failures", status.checkpoint.failures},
            {"failure", status.checkpoint.failure},
            {"problem", status.checkpoint.problem},
            {"is_saving", status.checkpoint.finished < status.checkpoint.requested},
            {"seconds", status.checkpoint.seconds}}},
          {"losses", LossesJson(status)},
          {"results", results},
          {"servers", ServersJson(status)},
          {"workers", WorkersJson(status)}};
}

json PointsJson(const StatusHistory& history, double since) {
  json lists = {{"time", json::array()},
                {"step", json::array()},
                {"sync_seconds", json::array()},
                {"samples_per_second", json::array()},
                {"pushed_per_second", json::array()},
                {"pulled_per_second", json::array()},
                {"replicated_per_second", json::array()},
                {"loss", json::array()}};
  json phases = json::object();
  for (const absl::string_view name : kSyncPhaseNames) phases[std::string(name)] = json::array();
  for (const HistoryPoint& point : history.points()) {
    if (point.time <= since) continue;
    lists["time"].push_back(point.time);
    lists["step"].push_back(point.step.value());
    const auto mean = [&point](double seconds) {
      return point.syncs == 0 ? json(nullptr) : NumberOrNull(seconds);
    };
    lists["sync_seconds"].push_back(mean(point.sync_seconds));
    lists["samples_per_second"].push_back(point.samples_per_second);
    lists["pushed_per_second"].push_back(point.pushed_per_second);
    lists["pulled_per_second"].push_back(point.pulled_per_second);
    lists["replicated_per_second"].push_back(point.replicated_per_second);
    lists["loss"].push_back(NumberOrNull(point.loss));
    for (size_t i = 0; i < kSyncPhaseCount; ++i)
      phases[std::string(kSyncPhaseNames[i])].push_back(mean(point.phase_seconds[i]));
  }
  lists["phases"] = std::move(phases);
  return lists;
}

json EventsJson(const StatusHistory& history) {
  json events = json::array();
  for (const HistoryEvent& event : history.events()) {
    events.push_back({{"time", event.time},
                      {"step", event.step.value()},
                      {"kind", NameOf(event.kind)},
                      {"text", event.text}});
  }
  return events;
}

std::string Dump(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

}  // namespace pushpull
