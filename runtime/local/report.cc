// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/report.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <nlohmann/json.hpp>

#include "runtime/local/workdir.h"
#include "runtime/status/status_json.h"

namespace pushpull {
namespace {

// What the workers' programs reported under this name; nothing if they did not.
std::optional<double> ResultOf(const JobStatus& status, const std::string& name) {
  const auto it = status.results.find(name);
  return it == status.results.end() ? std::nullopt : std::optional<double>(it->second);
}

std::optional<double> FinalLoss(const JobStatus& status) {
  if (const auto result = ResultOf(status, "loss")) return result;
  return status.losses.empty() ? std::nullopt : std::optional<double>(status.losses.back().loss);
}

nlohmann::json StepOrNull(std::optional<Step> step) {
  if (!step) return nullptr;
  return step->value();
}

template <typename Id>
nlohmann::json Values(const std::vector<Id>& ids) {
  nlohmann::json values = nlohmann::json::array();
  for (const Id id : ids) values.push_back(id.value());
  return values;
}

nlohmann::json ToJson(const StateLoss& loss) {
  return {{"text", ToString(loss)},
          {"servers", Values(loss.servers)},
          {"shards", Values(loss.shards)},
          {"chunks", loss.chunks},
          {"repaired", loss.is_repaired},
          {"returned_shards", loss.returned},
          {"lowest_step", loss.lowest_version.value()},
          {"highest_step", loss.highest_version.value()},
          {"chunks_from_workers", loss.from_workers},
          {"chunks_from_checkpoint", loss.from_checkpoint},
          {"chunks_begun_anew", loss.reinitialized},
          {"chunks_outdated", loss.outdated},
          {"has_optimizer_state", loss.has_optimizer_state},
          {"optimizer_state_step", StepOrNull(loss.state_step)},
          {"seconds", loss.seconds}};
}

double SamplesPerSecond(const JobStatus& status) {
  return status.seconds > 0 ? static_cast<double>(status.samples) / status.seconds : 0;
}

// Without the workers released by a scale-down.
size_t NumWorkers(const JobStatus& status) {
  return static_cast<size_t>(
      std::ranges::count(status.workers, false, &WorkerStatus::was_released));
}

}  // namespace

std::string FormatReport(const RunOutcome& outcome) {
  const JobStatus& status = outcome.status;
  nlohmann::json losses = nlohmann::json::array();
  for (const LossPoint& point : status.losses)
    losses.push_back({{"step", point.step.value()}, {"loss", NumberOrNull(point.loss)}});
  nlohmann::json state_losses = nlohmann::json::array();
  for (const StateLoss& loss : status.state_losses) state_losses.push_back(ToJson(loss));
  nlohmann::json left_out = nlohmann::json::array();
  for (const auto& [worker, why] : outcome.left_out)
    left_out.push_back({{"worker", worker.value()}, {"why", why}});
  // Results of the program by name; these two are always present.
  nlohmann::json final;
  for (const auto& [name, value] : status.results) final[name] = NumberOrNull(value);
  final["loss"] = NumberOrNull(FinalLoss(status));
  final["accuracy"] = NumberOrNull(ResultOf(status, "accuracy"));
  const nlohmann::json report = {
      {"job", status.job},
      {"phase", outcome.has_succeeded ? "Succeeded" : "Failed"},
      {"failure", outcome.failure},
      {"seconds", outcome.seconds},
      {"training_seconds", status.seconds},
      {"steps", status.step.value()},
      {"samples", status.samples},
      {"batch", status.batch},
      {"global_batch", status.global_batch},
      {"noise_scale", status.noise_scale},
      {"workers", NumWorkers(status)},
      {"servers", status.servers.size()},
      {"restarts", outcome.restarts},
      {"epoch", status.epoch.counter},
      {"final", final},
      {"throughput", {{"samples_per_second", SamplesPerSecond(status)}}},
      {"sync",
       {{"p50_seconds", status.sync_seconds.At(0.5)},
        {"p99_seconds", status.sync_seconds.At(0.99)},
        {"phases", PhasesJson(status)}}},
      {"bytes",
       {{"pushed", status.bytes_pushed},
        {"pulled", status.bytes_pulled},
        {"replicated", status.bytes_replicated}}},
      {"resizes", ResizesJson(status)},
      {"state_losses", state_losses},
      {"left_out", left_out},
      {"checkpoint",
       {{"step", status.checkpoint.step.value()},
        {"saved", status.checkpoint.saved},
        {"failures", status.checkpoint.failures},
        {"restored_step", StepOrNull(status.checkpoint.restored_step)}}},
      {"losses", losses},
      {"contributors", {{"min", status.contributors_min}, {"max", status.contributors_max}}},
      {"uneven_steps", status.uneven_steps},
      {"history", PointsJson(outcome.history)},
      {"events", EventsJson(outcome.history)},
  };
  return Dump(report, 2) + "\n";
}

std::string FormatSummary(const RunOutcome& outcome, const std::string& log_folder) {
  const JobStatus& status = outcome.status;
  std::string text = absl::StrFormat(
      "%s: %s after %.1f s (training %.1f s), %d steps, %.0f samples/s, sync p50 %.2f ms",
      status.job,
      outcome.was_stopped     ? "stopped"
      : outcome.has_succeeded ? "succeeded"
                              : "failed",
      outcome.seconds,
      status.seconds,
      status.step.value(),
      SamplesPerSecond(status),
      status.sync_seconds.At(0.5) * 1e3);
  if (const auto accuracy = ResultOf(status, "accuracy")) {
    absl::StrAppendFormat(&text, "\ntest accuracy %.4f", *accuracy);
    if (const auto loss = FinalLoss(status)) absl::StrAppendFormat(&text, ", loss %.4f", *loss);
  }
  for (const StateLoss& loss : status.state_losses) {
    if (loss.returned < loss.shards.size()) absl::StrAppend(&text, "\nlost: ", ToString(loss));
  }
  for (const auto& [worker, why] : outcome.left_out)
    absl::StrAppend(&text, "\n", ToString(worker), " ", why);
  return absl::StrCat(text, "\nlogs: ", log_folder, "\n");
}

absl::Status ReportOutcome(const RunOutcome& outcome,
                           const std::string& log_folder,
                           const std::string& report_path) {
  std::fprintf(stderr, "%s", FormatSummary(outcome, log_folder).c_str());
  if (report_path.empty()) return absl::OkStatus();
  absl::Status written = WriteFileAtomically(report_path, FormatReport(outcome));
  if (!written.ok())
    std::fprintf(stderr, "pushpull: report: %s\n", std::string(written.message()).c_str());
  return written;
}

}  // namespace pushpull
