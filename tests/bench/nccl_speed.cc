// SPDX-License-Identifier: Apache-2.0
//
// Times all-reduces by NCCL between ranks of one GPU: one rank, and two and four where this NCCL
// lets ranks share a GPU (NCCL_MULTI_RANK_GPU_ENABLE=1). Every sum is checked. The same ranks then
// call NCCL directly, on a blocking communicator, one call after the other, as nccl-tests does.
//
//   nccl_speed [--mib N] [--rounds N] [--ranks N,...] [--json FILE]
//
// Exit codes: 0 done, 1 an error, a wrong sum or a speed below the wanted one, 2 wrong usage, 3
// there is no GPU or no NCCL. Ranks that NCCL refuses are a row that says so, not an error.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include <nlohmann/json.hpp>

#include "runtime/base/status_macros.h"
#include "runtime/collective/nccl/nccl_api.h"
#include "runtime/collective/nccl/nccl_communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/device_buffer.h"
#include "runtime/device/device_stream.h"
#include "runtime/device/staging_ring.h"

namespace pushpull {
namespace {

constexpr int kNothingToMeasure = 3;
constexpr int kWarmUps = 3;
constexpr std::chrono::seconds kLimit{60};
constexpr double kOfBareWanted = 0.95;  // the speed of direct calls

struct NcclArguments {
  uint64_t mib = 160;
  int rounds = 20;
  std::vector<uint32_t> ranks = {1, 2, 4};
  std::string json;
};

absl::StatusOr<NcclArguments> ParseNcclArguments(int argc, char** argv) {
  NcclArguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) return absl::InvalidArgumentError(absl::StrCat(flag, " needs a value"));
    const std::string value = argv[i + 1];
    bool is_known = flag == "--json";
    if (is_known) arguments.json = value;
    if (flag == "--mib") is_known = absl::SimpleAtoi(value, &arguments.mib) && arguments.mib > 0;
    if (flag == "--rounds")
      is_known = absl::SimpleAtoi(value, &arguments.rounds) && arguments.rounds > 0;
    if (flag == "--ranks") {
      arguments.ranks.clear();
      is_known = true;
      for (const auto& text : absl::StrSplit(value, ',')) {
        uint32_t ranks = 0;
        is_known = is_known && absl::SimpleAtoi(text, &ranks) && ranks > 0;
        arguments.ranks.push_back(ranks);
      }
    }
    if (!is_known)
      return absl::InvalidArgumentError(absl::StrCat("not understood: ", flag, " ", value));
  }
  return arguments;
}

struct Installation {
  std::shared_ptr<const NcclApi> nccl;
  std::shared_ptr<const Device> device;
};

absl::StatusOr<Installation> FindInstallation() {
  PUSHPULL_ASSIGN_OR_RETURN(std::shared_ptr<const DriverApi> driver, LoadDriverApi());
  PUSHPULL_ASSIGN_OR_RETURN(std::shared_ptr<const Device> device,
                            Device::Open(std::move(driver), 0));
  PUSHPULL_ASSIGN_OR_RETURN(std::shared_ptr<const NcclApi> nccl, LoadNcclApi());
  return Installation{std::move(nccl), std::move(device)};
}

// Rank i has i + 1 everywhere, so a sum is known; values that differ would be found as well.
absl::Status CheckSum(DeviceStream& stream, DeviceSpan<float> sum, uint32_t size) {
  PUSHPULL_ASSIGN_OR_RETURN(StagingRing staging, StagingRing::Create(stream, {}));
  std::vector<float> values(sum.size());
  PUSHPULL_RETURN_IF_ERROR(staging.ToHost(
      std::as_writable_bytes(std::span(values)), AsBytes(sum), Deadline::After(kLimit)));
  const uint32_t whole = size * (size + 1) / 2;
  const float expected = static_cast<float>(whole);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == expected) continue;
    return absl::DataLossError(
        absl::StrCat("element ", i, " of the sum is ", values[i], ", not ", expected));
  }
  return absl::OkStatus();
}

absl::Status SumOnce(NcclCommunicator& ranks, DeviceStream& stream, DeviceSpan<float> values) {
  PUSHPULL_ASSIGN_OR_RETURN(StagingRing staging, StagingRing::Create(stream, {}));
  const std::vector<float> own(values.size(), static_cast<float>(ranks.rank() + 1));
  PUSHPULL_RETURN_IF_ERROR(staging.ToDevice(
      AsWritableBytes(values), std::as_bytes(std::span(own)), Deadline::After(kLimit)));
  PUSHPULL_RETURN_IF_ERROR(
      ranks.AllReduce(stream, AsWritableBytes(values), ElementKind::kFloat32, ElementOp::kSum));
  PUSHPULL_RETURN_IF_ERROR(ranks.Wait(stream, Deadline::After(kLimit)));
  return CheckSum(stream, values, ranks.size());
}

// Median seconds of a call of `all_reduce` by this rank's events. It puts the call on the stream;
// `wait` waits for all of them.
template <typename Call, typename Wait>
absl::StatusOr<double> TimeCalls(const Installation& on,
                                 DeviceStream& stream,
                                 int rounds,
                                 const Call& all_reduce,
                                 const Wait& wait) {
  std::vector<DeviceEvent> events;
  for (int i = 0; i < kWarmUps + rounds; ++i) {
    if (i >= kWarmUps) {
      PUSHPULL_ASSIGN_OR_RETURN(DeviceEvent start, DeviceEvent::Create(on.device));
      PUSHPULL_RETURN_IF_ERROR(stream.Record(start));
      events.push_back(std::move(start));
    }
    PUSHPULL_RETURN_IF_ERROR(all_reduce());
  }
  PUSHPULL_ASSIGN_OR_RETURN(DeviceEvent end, DeviceEvent::Create(on.device));
  PUSHPULL_RETURN_IF_ERROR(stream.Record(end));
  events.push_back(std::move(end));
  PUSHPULL_RETURN_IF_ERROR(wait());
  std::vector<double> seconds;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    PUSHPULL_ASSIGN_OR_RETURN(const double took,
                              DeviceEvent::SecondsBetween(events[i], events[i + 1]));
    seconds.push_back(took);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

absl::Status CheckNccl(const Installation& on, NcclResult result, const char* call) {
  if (result == kNcclSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", on.nccl->get_error_string(result)));
}

// As nccl-tests: neither deadlines nor checks between the calls.
absl::StatusOr<double> TimeBareCalls(const Installation& on,
                                     const NcclGroup& group,
                                     int rounds,
                                     DeviceStream& stream,
                                     DeviceSpan<float> values) {
  const DeviceScope scope(*on.device);
  PUSHPULL_RETURN_IF_ERROR(scope.status());
  NcclConfig config{.blocking = 1};
  NcclComm ranks = nullptr;
  PUSHPULL_RETURN_IF_ERROR(CheckNccl(
      on,
      on.nccl->init_rank(
          &ranks, static_cast<int>(group.size), group.id, static_cast<int>(group.rank), &config),
      "ncclCommInitRankConfig"));
  const NcclArrays arrays = {.from = values.data(), .to = values.data(), .count = values.size()};
  absl::StatusOr<double> seconds = TimeCalls(
      on,
      stream,
      rounds,
      [&] {
        return CheckNccl(
            on, on.nccl->all_reduce(arrays, kNcclSum, ranks, stream.handle()), "ncclAllReduce");
      },
      [&] { return stream.Wait(Deadline::After(kLimit)); });
  PUSHPULL_RETURN_IF_ERROR(CheckNccl(on, on.nccl->abort(ranks), "ncclCommAbort"));
  return seconds;
}

struct NcclTimes {
  double seconds = 0;
  double bare_seconds = 0;
};

// `bare`: another group of the same ranks.
absl::StatusOr<NcclTimes> TimeRank(const Installation& on,
                                   const NcclGroup& group,
                                   const NcclGroup& bare,
                                   const NcclArguments& arguments) {
  PUSHPULL_ASSIGN_OR_RETURN(DeviceStream stream, DeviceStream::Create(on.device));
  PUSHPULL_ASSIGN_OR_RETURN(const DeviceBuffer buffer,
                            DeviceBuffer::Create(on.device, arguments.mib << 20));
  const DeviceSpan<float> values = buffer.As<float>();
  NcclTimes times;
  {
    PUSHPULL_ASSIGN_OR_RETURN(
        const std::unique_ptr<NcclCommunicator> ranks,
        NcclCommunicator::Connect(on.nccl, on.device, group, Deadline::After(kLimit)));
    PUSHPULL_RETURN_IF_ERROR(SumOnce(*ranks, stream, values));
    // Zeros, so that sums of sums stay finite.
    PUSHPULL_RETURN_IF_ERROR(stream.Fill(AsWritableBytes(values), 0));
    PUSHPULL_ASSIGN_OR_RETURN(
        times.seconds,
        TimeCalls(
            on,
            stream,
            arguments.rounds,
            [&] {
              return ranks->AllReduce(
                  stream, AsWritableBytes(values), ElementKind::kFloat32, ElementOp::kSum);
            },
            [&] { return ranks->Wait(stream, Deadline::After(kLimit)); }));
  }
  PUSHPULL_ASSIGN_OR_RETURN(times.bare_seconds,
                            TimeBareCalls(on, bare, arguments.rounds, stream, values));
  return times;
}

struct NcclRow {
  uint32_t ranks = 1;
  absl::Status status;
  NcclTimes times;  // of the slowest rank
};

NcclRow TimeRanks(const Installation& on, uint32_t size, const NcclArguments& arguments) {
  NcclRow row{.ranks = size};
  const absl::StatusOr<NcclId> id = NewNcclId(*on.nccl);
  const absl::StatusOr<NcclId> bare_id = NewNcclId(*on.nccl);
  row.status.Update(id.status());
  row.status.Update(bare_id.status());
  if (!row.status.ok()) return row;
  std::vector<absl::StatusOr<NcclTimes>> of_ranks(size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      of_ranks[rank] = TimeRank(on, {*id, rank, size}, {*bare_id, rank, size}, arguments);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::StatusOr<NcclTimes>& times : of_ranks) {
    if (!times.ok()) {
      row.status.Update(times.status());
      continue;
    }
    row.times.seconds = std::max(row.times.seconds, times->seconds);
    row.times.bare_seconds = std::max(row.times.bare_seconds, times->bare_seconds);
  }
  return row;
}

double OfBare(const NcclRow& row) {
  return row.times.bare_seconds / row.times.seconds;
}

// Ranks that share a GPU are refused by versions that do not have that.
bool IsRefused(const NcclRow& row) {
  return row.ranks > 1 && absl::IsInternal(row.status);
}

nlohmann::json ToJson(const Installation& on,
                      const NcclArguments& arguments,
                      const std::vector<NcclRow>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const NcclRow& row : rows) {
    list.push_back({{"ranks", row.ranks},
                    {"seconds_median", row.times.seconds},
                    {"bare_seconds_median", row.times.bare_seconds},
                    {"error", std::string(row.status.message())}});
  }
  return {{"device", on.device->properties().name},
          {"nccl", NcclVersionText(on.nccl->version)},
          {"mib", arguments.mib},
          {"rounds", arguments.rounds},
          {"rows", list}};
}

void PrintRows(const Installation& on,
               const NcclArguments& arguments,
               const std::vector<NcclRow>& rows) {
  absl::PrintF("NCCL %s: all-reduce of %d MiB, median of %d, slowest rank\n",
               NcclVersionText(on.nccl->version),
               arguments.mib,
               arguments.rounds);
  absl::PrintF("%-26s %10s %10s %8s  wanted\n", "what", "ms", "GB/s", "of bare");
  for (const NcclRow& row : rows) {
    const std::string name = absl::StrCat(row.ranks, row.ranks == 1 ? " rank" : " ranks, one GPU");
    if (!row.status.ok()) {
      absl::PrintF("%-26s %s\n", name, row.status.message());
      continue;
    }
    const double bytes = static_cast<double>(arguments.mib << 20);
    absl::PrintF("%-26s %10.3f %10.1f %8.2f  %.2f: %s\n",
                 name,
                 row.times.seconds * 1e3,
                 bytes / row.times.seconds / 1e9,
                 OfBare(row),
                 kOfBareWanted,
                 OfBare(row) >= kOfBareWanted ? "met" : "MISSED");
  }
}

int NcclMain(int argc, char** argv) {
  const absl::StatusOr<NcclArguments> arguments = ParseNcclArguments(argc, argv);
  if (!arguments.ok()) {
    std::cerr << "nccl_speed: " << arguments.status().message() << '\n';
    return 2;
  }
  const absl::StatusOr<Installation> on = FindInstallation();
  if (!on.ok()) {
    std::cerr << "nccl_speed: " << on.status().message() << '\n';
    return kNothingToMeasure;
  }
  std::vector<NcclRow> rows;
  int code = 0;
  for (const uint32_t ranks : arguments->ranks) {
    rows.push_back(TimeRanks(*on, ranks, *arguments));
    const NcclRow& row = rows.back();
    if (row.status.ok() ? OfBare(row) < kOfBareWanted : !IsRefused(row)) code = 1;
  }
  PrintRows(*on, *arguments, rows);
  if (arguments->json.empty()) return code;
  std::ofstream file(arguments->json);
  file << ToJson(*on, *arguments, rows).dump(1) << '\n';
  file.close();
  if (file) return code;
  std::cerr << "nccl_speed: cannot write " << arguments->json << '\n';
  return 1;
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  try {
    return pushpull::NcclMain(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
