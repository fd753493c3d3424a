// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/stats_proto.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pushpull/v1/control.pb.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// Quantiles has about 1,750 buckets from 1 ns to 1e6 s.
constexpr int kBucketEnd = 4096;

constexpr uint32_t kLastStatusCode = static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);

// Bytes of the UTF-8 sequence at the start of `text` (not empty), 0 where it is none. Overlong
// forms, surrogates and numbers above U+10FFFF are none (RFC 3629).
size_t SequenceBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t bytes = lead >= 0xC2 && lead < 0xE0   ? 2
                       : lead >= 0xE0 && lead < 0xF0 ? 3
                       : lead >= 0xF0 && lead < 0xF5 ? 4
                                                     : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) >= 0xA0) ||
      (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) >= 0x90)) {
    return 0;
  }
  return bytes;
}

}  // namespace

absl::Status CheckCount(absl::string_view what, int count, int max) {
  if (count <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": has ", count, " entries, at most ", max, " are taken"));
}

std::string ToWireText(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = SequenceBytes(text);
    if (bytes == 0) {
      result += '?';
      text.remove_prefix(1);
    } else {
      result.append(text.data(), bytes);
      text.remove_prefix(bytes);
    }
  }
  return result;
}

absl::Status StatusFromCode(uint32_t code, absl::string_view text) {
  if (code > kLastStatusCode) return absl::UnknownError(absl::StrCat("code ", code, ": ", text));
  return absl::Status(static_cast<absl::StatusCode>(code), text);
}

void ToProto(const absl::Status& status, v1::Status& out) {
  out.set_code(static_cast<uint32_t>(status.code()));
  out.set_text(ToWireText(status.message()));
}

void ToProto(Epoch epoch, v1::Epoch& out) {
  out.set_term(epoch.term.value());
  out.set_counter(epoch.counter);
}

void ToProto(const Consistency& consistency, v1::Consistency& out) {
  out.set_mode(static_cast<uint32_t>(consistency.mode));
  out.set_staleness(consistency.staleness);
  out.set_from_step(consistency.from_step.value());
  out.set_steps_skipped(consistency.steps_skipped);
  out.set_backup_workers(consistency.backup_workers);
  out.set_gated(consistency.gated);
}

void ToProto(const Quantiles& quantiles, v1::Quantiles& out) {
  for (const auto& [index, count] : quantiles.buckets()) {
    v1::Quantiles::Bucket& bucket = *out.add_buckets();
    bucket.set_index(index);
    bucket.set_count(count);
  }
}

void ToProto(const std::map<std::string, double>& results, ResultList& out) {
  for (const auto& [name, value] : results) {
    v1::Result& result = *out.Add();
    result.set_name(ToWireText(name));
    result.set_value(value);
  }
}

void ToProto(const LossPoint& point, v1::LossPoint& out) {
  out.set_step(point.step.value());
  out.set_loss(point.loss);
  out.set_samples(point.samples);
}

void ToProto(const ServerStats& stats, v1::ServerStats& out) {
  out.set_bytes_owned(stats.bytes_owned);
  out.set_chunks(stats.chunks);
  out.set_lowest_version(stats.lowest_version.value());
  out.set_highest_version(stats.highest_version.value());
  out.set_contributors_min(stats.contributors_min);
  out.set_contributors_max(stats.contributors_max);
  out.set_duplicates(stats.duplicates);
  out.set_bytes_replicated(stats.bytes_replicated);
  out.set_bytes_copied(stats.bytes_copied);
  if (stats.stall) ToProto(*stats.stall, *out.mutable_stall());
}

void ToProto(const Stall& stall, v1::Stall& out) {
  out.set_step(stall.step.value());
  out.set_tensor(ToWireText(stall.tensor));
  for (const WorkerId worker : stall.missing) out.add_missing(worker.value());
  out.set_seconds(stall.seconds);
}

void ToProto(const WorkerStats& stats, v1::WorkerStats& out) {
  out.set_step(stats.step.value());
  out.set_samples(stats.samples);
  out.set_bytes_pushed(stats.bytes_pushed);
  out.set_bytes_pulled(stats.bytes_pulled);
  out.set_resends(stats.resends);
  ToProto(stats.sync_seconds, *out.mutable_sync_seconds());
  for (const Quantiles& phase : stats.phase_seconds) ToProto(phase, *out.add_phase_seconds());
  for (const LossPoint& point : stats.losses) ToProto(point, *out.add_losses());
  ToProto(stats.results, *out.mutable_results());
  for (const Step step : stats.uneven_steps) out.add_uneven_steps(step.value());
}

absl::Status FromProto(const v1::Status& status) {
  return StatusFromCode(status.code(), status.text());
}

Epoch FromProto(const v1::Epoch& epoch) {
  return {.term = Term{epoch.term()}, .counter = epoch.counter()};
}

absl::StatusOr<Consistency> FromProto(const v1::Consistency& consistency) {
  const auto mode = static_cast<ConsistencyMode>(consistency.mode());
  if (consistency.mode() > 255 || !IsKnown(mode)) {
    return absl::InvalidArgumentError(absl::StrCat("mode ", consistency.mode(), " is not known"));
  }
  return Consistency{.mode = mode,
                     .staleness = consistency.staleness(),
                     .backup_workers = consistency.backup_workers(),
                     .gated = consistency.gated(),
                     .from_step = Step{consistency.from_step()},
                     .steps_skipped = consistency.steps_skipped()};
}

absl::StatusOr<Quantiles> FromProto(const v1::Quantiles& quantiles) {
  std::map<int32_t, uint64_t> buckets;
  for (const v1::Quantiles::Bucket& bucket : quantiles.buckets()) {
    if (bucket.index() < 0 || bucket.index() >= kBucketEnd) {
      return absl::InvalidArgumentError(
          absl::StrCat("quantiles: there is no bucket ", bucket.index()));
    }
    buckets[bucket.index()] += bucket.count();
  }
  return Quantiles::FromBuckets(std::move(buckets));
}

absl::StatusOr<std::map<std::string, double>> FromProto(const ResultList& results) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("results", results.size(), kWireResultsMax));
  std::map<std::string, double> values;
  for (const v1::Result& result : results) values[result.name()] = result.value();
  return values;
}

LossPoint FromProto(const v1::LossPoint& point) {
  return {.step = Step{point.step()}, .loss = point.loss(), .samples = point.samples()};
}

ServerStats FromProto(const v1::ServerStats& stats) {
  return {
      .bytes_owned = stats.bytes_owned(),
      .chunks = stats.chunks(),
      .lowest_version = Step{stats.lowest_version()},
      .highest_version = Step{stats.highest_version()},
      .contributors_min = stats.contributors_min(),
      .contributors_max = stats.contributors_max(),
      .duplicates = stats.duplicates(),
      .bytes_replicated = stats.bytes_replicated(),
      .bytes_copied = stats.bytes_copied(),
      .stall = stats.has_stall() ? std::optional<Stall>(FromProto(stats.stall())) : std::nullopt};
}

Stall FromProto(const v1::Stall& stall) {
  Stall result{.step = Step{stall.step()},
               .tensor = stall.tensor(),
               .missing = {},
               .seconds = stall.seconds()};
  for (const uint32_t worker : stall.missing()) {
    if (result.missing.size() < kWireWorkersMax) result.missing.emplace_back(worker);
  }
  return result;
}

absl::StatusOr<WorkerStats> FromProto(const v1::WorkerStats& stats) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("sync phases", stats.phase_seconds_size(), kSyncPhaseCount));
  PUSHPULL_RETURN_IF_ERROR(CheckCount("losses", stats.losses_size(), kWireLossesMax));
  PUSHPULL_RETURN_IF_ERROR(
      CheckCount("uneven steps", stats.uneven_steps_size(), WorkerStats::kUnevenStepsMax));
  WorkerStats result{.step = Step{stats.step()},
                     .samples = stats.samples(),
                     .bytes_pushed = stats.bytes_pushed(),
                     .bytes_pulled = stats.bytes_pulled(),
                     .resends = stats.resends(),
                     .sync_seconds = {},
                     .phase_seconds = {},
                     .losses = {},
                     .results = {},
                     .uneven_steps = {}};
  PUSHPULL_ASSIGN_OR_RETURN(result.sync_seconds, FromProto(stats.sync_seconds()));
  PUSHPULL_ASSIGN_OR_RETURN(result.results, FromProto(stats.results()));
  for (int i = 0; i < stats.phase_seconds_size(); ++i) {
    PUSHPULL_ASSIGN_OR_RETURN(result.phase_seconds[static_cast<size_t>(i)],
                              FromProto(stats.phase_seconds(i)));
  }
  for (const v1::LossPoint& point : stats.losses()) result.losses.push_back(FromProto(point));
  for (const uint64_t step : stats.uneven_steps()) result.uneven_steps.emplace_back(step);
  return result;
}

}  // namespace pushpull
