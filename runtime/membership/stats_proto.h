// SPDX-License-Identifier: Apache-2.0
//
// Structs <-> proto/pushpull/v1/control.proto for the parts that control messages and the job's
// status share: texts, statuses, statistics. Generated types are only named here, so that nothing
// that includes this sees generated code.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <google/protobuf/repeated_ptr_field.h>

#include "runtime/base/quantiles.h"
#include "runtime/membership/control.h"

namespace pushpull {

namespace v1 {
class Epoch;
class LossPoint;
class Consistency;
class Quantiles;
class Result;
class ServerStats;
class Stall;
class Status;
class WorkerStats;
}  // namespace v1

using ResultList = google::protobuf::RepeatedPtrField<v1::Result>;

// Bounds on what a peer may send, far above what any job has: a list that is longer is an error
// before anything is built from it.
inline constexpr int kWireServersMax = 1024;  // spec.servers.replicas
inline constexpr int kWireWorkersMax = 65536;
inline constexpr int kWireLossesMax = 65536;
inline constexpr int kWireResultsMax = 1024;
// A list of a million tensors or 16 Mi chunks stays far below; gRPC's own 4 MiB do not hold it.
inline constexpr int kWireMessageBytesMax = 256 << 20;

// kInvalidArgument, "WHAT: has COUNT entries, at most MAX are taken", where there are more.
absl::Status CheckCount(absl::string_view what, int count, int max);

// The text with every byte that is no valid UTF-8 replaced by '?': protobuf refuses to parse a
// string field that is not UTF-8, and one odd byte in an error text must not end a session.
std::string ToWireText(absl::string_view text);

// A status of gRPC or of a message; both use the numbers of google.rpc.Code, as absl does. A number
// that is none becomes kUnknown.
absl::Status StatusFromCode(uint32_t code, absl::string_view text);

void ToProto(const absl::Status& status, v1::Status& out);
void ToProto(Epoch epoch, v1::Epoch& out);
void ToProto(const Consistency& consistency, v1::Consistency& out);
void ToProto(const Quantiles& quantiles, v1::Quantiles& out);
void ToProto(const std::map<std::string, double>& results, ResultList& out);
void ToProto(const LossPoint& point, v1::LossPoint& out);
void ToProto(const Stall& stall, v1::Stall& out);
void ToProto(const ServerStats& stats, v1::ServerStats& out);
void ToProto(const WorkerStats& stats, v1::WorkerStats& out);

// Every FromProto of the module: kInvalidArgument says what is wrong with the message; the peer
// that sent it is broken, so end its session.
//
absl::Status FromProto(
    const v1::Status& status);  // the status that was sent, never an error of ours
Epoch FromProto(const v1::Epoch& epoch);
absl::StatusOr<Consistency> FromProto(const v1::Consistency& consistency);
absl::StatusOr<Quantiles> FromProto(const v1::Quantiles& quantiles);
absl::StatusOr<std::map<std::string, double>> FromProto(const ResultList& results);
LossPoint FromProto(const v1::LossPoint& point);
Stall FromProto(const v1::Stall& stall);
ServerStats FromProto(const v1::ServerStats& stats);
absl::StatusOr<WorkerStats> FromProto(const v1::WorkerStats& stats);

}  // namespace pushpull
