// SPDX-License-Identifier: Apache-2.0
//
// The stand-in of NCCL as a shared library with NCCL's names, beside that of the driver: for
// programs that open libnccl.so.2.
#include <cstdarg>
#include <cstddef>
#include <memory>

#include "runtime/collective/nccl/nccl_api.h"
#include "tests/fakes/fake_libcuda.h"
#include "tests/fakes/fake_nccl.h"

namespace pushpull {
namespace {

const NcclApi& StandInNccl() {
  // Never ended: as the driver's.
  static const auto& api =
      *new std::shared_ptr<const NcclApi>((*new FakeNccl(StandInDriver())).api());
  return *api;
}

// ncclAllReduce and its like have seven parameters, all of them words: a call passes them in the
// same places as those of a function with a list (fake_libcuda.cc).
struct ReduceCall {
  NcclArrays arrays;
  int op_or_root = 0;
  NcclComm comm = nullptr;
  CuStream stream = nullptr;
};

ReduceCall ReadCall(const void* from, std::va_list rest) {
  ReduceCall call;
  call.arrays.from = from;
  call.arrays.to = va_arg(rest, void*);
  call.arrays.count = va_arg(rest, size_t);
  call.arrays.type = static_cast<NcclType>(va_arg(rest, int));
  call.op_or_root = va_arg(rest, int);
  call.comm = va_arg(rest, NcclComm);
  call.stream = va_arg(rest, CuStream);
  return call;
}

}  // namespace
}  // namespace pushpull

using pushpull::CuStream;
using pushpull::NcclArrays;
using pushpull::NcclComm;
using pushpull::NcclConfig;
using pushpull::NcclId;
using pushpull::NcclOp;
using pushpull::NcclResult;
using pushpull::NcclType;
using pushpull::ReduceCall;
using pushpull::StandInNccl;

// NOLINTBEGIN(readability-identifier-naming): the names are NCCL's
extern "C" {

NcclResult ncclGetVersion(int* version) {
  *version = StandInNccl().version;
  return pushpull::kNcclSuccess;
}
const char* ncclGetErrorString(NcclResult result) {
  return StandInNccl().get_error_string(result);
}
const char* ncclGetLastError(NcclComm comm) {
  return StandInNccl().get_last_error(comm);
}
NcclResult ncclGetUniqueId(NcclId* id) {
  return StandInNccl().get_unique_id(id);
}
NcclResult ncclCommInitRankConfig(
    NcclComm* comm, int size, NcclId id, int rank, NcclConfig* config) {
  return StandInNccl().init_rank(comm, size, id, rank, config);
}
NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* state) {
  return StandInNccl().get_async_error(comm, state);
}
NcclResult ncclCommAbort(NcclComm comm) {
  return StandInNccl().abort(comm);
}
NcclResult ncclCommShrink(
    NcclComm comm, int* lost, int num_lost, NcclComm* next, NcclConfig* config, int flags) {
  return StandInNccl().shrink(comm, lost, num_lost, next, config, flags);
}
NcclResult ncclCommGetUniqueId(NcclComm comm, NcclId* id) {
  return StandInNccl().get_grow_id(comm, id);
}
NcclResult ncclCommGrow(
    NcclComm comm, int size, const NcclId* id, int rank, NcclComm* next, NcclConfig* config) {
  return StandInNccl().grow(comm, size, id, rank, next, config);
}

NcclResult ncclAllReduce(const void* from, ...) {
  std::va_list rest;
  va_start(rest, from);
  const ReduceCall call = pushpull::ReadCall(from, rest);
  va_end(rest);
  return StandInNccl().all_reduce(
      call.arrays, static_cast<NcclOp>(call.op_or_root), call.comm, call.stream);
}
NcclResult ncclReduceScatter(const void* from, ...) {
  std::va_list rest;
  va_start(rest, from);
  const ReduceCall call = pushpull::ReadCall(from, rest);
  va_end(rest);
  return StandInNccl().reduce_scatter(
      call.arrays, static_cast<NcclOp>(call.op_or_root), call.comm, call.stream);
}
NcclResult ncclAllGather(
    const void* from, void* to, size_t count, NcclType type, NcclComm comm, CuStream stream) {
  return StandInNccl().all_gather(NcclArrays{from, to, count, type}, comm, stream);
}
NcclResult ncclBroadcast(const void* from, ...) {
  std::va_list rest;
  va_start(rest, from);
  const ReduceCall call = pushpull::ReadCall(from, rest);
  va_end(rest);
  return StandInNccl().broadcast(call.arrays, call.op_or_root, call.comm, call.stream);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
