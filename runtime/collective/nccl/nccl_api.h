// SPDX-License-Identifier: Apache-2.0
//
// The NCCL functions in use, as a table. The library is opened at run time by its name or path: one
// build works with the library of a PyTorch installation, a wheel, or the system. Tests fill the
// table with a stand-in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/device/cuda/driver_api.h"

// The tag is that of NCCL's header, so that communicators from other code fit.
struct ncclComm;

namespace pushpull {

using NcclComm = ncclComm*;

enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
  kNcclTimeout = 8,
};

enum NcclType : int {
  kNcclInt8 = 0,
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclInt64 = 4,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBFloat16 = 9,
};

enum NcclOp : int {
  kNcclSum = 0,
  kNcclProduct = 1,
  kNcclMax = 2,
  kNcclMin = 3,
  kNcclMean = 4,
};

// What the ranks of one communicator have in common: the first creates it, and the others receive
// it by any means.
struct NcclId {
  std::array<char, 128> bytes{};
};

// The beginning of ncclConfig_t that every version since 2.14 has; because of `version`, the fields
// after it keep the library's defaults.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

// The arrays of a collective, in memory of the GPU.
struct NcclArrays {
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;  // as the function counts: for AllGather and ReduceScatter, per rank
  NcclType type = kNcclFloat32;
};

constexpr int kNcclShrinkAbort = 1;

struct NcclApi {
  int version = 0;  // 23203 is 2.32.3

  std::function<const char*(NcclResult)> get_error_string;
  std::function<const char*(NcclComm)> get_last_error;
  std::function<NcclResult(NcclId*)> get_unique_id;
  std::function<NcclResult(NcclComm*, int size, NcclId, int rank, NcclConfig*)> init_rank;
  std::function<NcclResult(NcclComm, NcclResult*)> get_async_error;
  std::function<NcclResult(NcclComm)> abort;

  std::function<NcclResult(const NcclArrays&, NcclOp, NcclComm, CuStream)> all_reduce;
  std::function<NcclResult(const NcclArrays&, NcclOp, NcclComm, CuStream)> reduce_scatter;
  std::function<NcclResult(const NcclArrays&, NcclComm, CuStream)> all_gather;
  std::function<NcclResult(const NcclArrays&, int root, NcclComm, CuStream)> broadcast;

  // Empty if the version has none: before 2.27.
  std::function<NcclResult(
      NcclComm, int* lost, int num_lost, NcclComm* next, NcclConfig*, int flags)>
      shrink;
  // Empty if the version has none; they are newer than shrink.
  std::function<NcclResult(NcclComm, NcclId*)> get_grow_id;
  std::function<NcclResult(NcclComm, int size, const NcclId*, int rank, NcclComm*, NcclConfig*)>
      grow;
};

constexpr const char* kNcclLibrary = "libnccl.so.2";

// Opens the library, which stays open until the process ends, and looks the functions up.
//
// kFailedPrecondition: there is no such library, or it is older than 2.14, the first whose calls
// can be aborted; the text says what to do.
absl::StatusOr<std::shared_ptr<const NcclApi>> LoadNcclApi(const std::string& path = kNcclLibrary);

// "2.32.3"
std::string NcclVersionText(int version);

}  // namespace pushpull
