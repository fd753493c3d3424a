// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <nlohmann/json.hpp>

namespace pushpull {

std::string ToJson(const SyncOptions& options, const SyncSummary& summary, bool is_verified) {
  // Ordered, so that keys appear as docs/interfaces.md lists them.
  nlohmann::ordered_json json = {
      {"channel", options.channel},
      {"workers", options.workers},
      {"servers", options.servers},
      {"bytes", options.bytes},
      {"tensors", options.tensors},
      {"tls", options.has_tls},
      {"steps", options.steps},
      {"step_seconds",
       {{"p50", summary.p50_seconds}, {"p99", summary.p99_seconds}, {"mad", summary.mad_seconds}}},
      {"goodput_bytes_per_second", summary.goodput_bytes_per_second},
      {"wire_bytes_per_step", summary.wire_bytes_per_step},
      {"link_bytes_per_second", summary.link_bytes_per_second},
      {"link_cpu_seconds_per_gigabyte", summary.link_cpu_seconds_per_gigabyte},
      {"wire_over_link", summary.wire_over_link},
      {"cpu_seconds_per_gigabyte", summary.cpu_seconds_per_gigabyte},
      {"cpu_over_link", summary.cpu_over_link},
      {"messages_per_second", summary.messages_per_second},
      {"payload_checksum", options.has_payload_checksum},
      {"deterministic", options.is_deterministic},
      {"registered", options.is_registered},
      {"verified", is_verified},
      {"step_cpu_seconds", summary.step_cpu_seconds}};
  if (summary.round_trip_seconds > 0) json["round_trip_seconds"] = summary.round_trip_seconds;
  return json.dump(2) + "\n";
}

std::string ToText(const SyncOptions& options, const SyncSummary& summary, bool is_verified) {
  std::string text = absl::StrFormat(
      "%s%s%s%s, %d workers, %d servers, %d bytes (%s), %d steps, payload checksum %s: %s\n",
      options.channel,
      options.has_tls ? " with TLS" : "",
      options.is_deterministic ? ", deterministic" : "",
      options.is_registered ? ", registered" : "",
      options.workers,
      options.servers,
      options.bytes,
      options.tensors,
      options.steps,
      options.has_payload_checksum ? "on" : "off",
      is_verified ? "every sum is right" : "SUMS ARE WRONG");
  absl::StrAppendFormat(&text,
                        "step         p50 %.3f ms, p99 %.3f ms, MAD %.3f ms\n",
                        summary.p50_seconds * 1e3,
                        summary.p99_seconds * 1e3,
                        summary.mad_seconds * 1e3);
  absl::StrAppendFormat(&text,
                        "goodput      %.3f GB/s a worker, %.0f messages/s\n",
                        summary.goodput_bytes_per_second / 1e9,
                        summary.messages_per_second);
  absl::StrAppendFormat(&text,
                        "wire         %.1f MB a step, %.3f of the raw link's %.3f GB/s\n",
                        summary.wire_bytes_per_step / 1e6,
                        summary.wire_over_link,
                        summary.link_bytes_per_second / 1e9);
  absl::StrAppendFormat(&text,
                        "CPU          %.3f s/GB, %.3f of the raw link's %.3f s/GB\n",
                        summary.cpu_seconds_per_gigabyte,
                        summary.cpu_over_link,
                        summary.link_cpu_seconds_per_gigabyte);
  if (summary.round_trip_seconds > 0) {
    absl::StrAppendFormat(&text,
                          "round trip   %.1f us over a bare socket, the step is %.2f of it\n",
                          summary.round_trip_seconds * 1e6,
                          summary.p50_seconds / summary.round_trip_seconds);
  }
  return text;
}

}  // namespace pushpull
