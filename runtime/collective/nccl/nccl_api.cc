// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/nccl/nccl_api.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr int kOldestVersion = 21400;

// As NCCL's header declares them; ncclUniqueId is passed by value.
using NcclReduce = NcclResult (*)(const void*, void*, size_t, NcclType, NcclOp, NcclComm, CuStream);
using NcclGather = NcclResult (*)(const void*, void*, size_t, NcclType, NcclComm, CuStream);
using NcclBroadcast =
    NcclResult (*)(const void*, void*, size_t, NcclType, int root, NcclComm, CuStream);

// Looks up functions; remembers the first missing one.
class NcclSymbols {
 public:
  explicit NcclSymbols(void* library) : library_(library) {}

  template <typename Function>
  Function Address(const char* symbol) {
    void* address = dlsym(library_, symbol);
    if (address == nullptr && missing_.empty()) missing_ = symbol;
    return reinterpret_cast<Function>(address);
  }

  template <typename Result, typename... Parameters>
  void Find(const char* symbol, std::function<Result(Parameters...)>& function) {
    function = Address<Result (*)(Parameters...)>(symbol);
  }

  // Stays empty if the library has none.
  template <typename Result, typename... Parameters>
  void FindIfThere(const char* symbol, std::function<Result(Parameters...)>& function) {
    function = reinterpret_cast<Result (*)(Parameters...)>(dlsym(library_, symbol));
  }

  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

void FindCalls(NcclSymbols& symbols, NcclApi& nccl) {
  symbols.Find("ncclGetErrorString", nccl.get_error_string);
  symbols.Find("ncclGetLastError", nccl.get_last_error);
  symbols.Find("ncclGetUniqueId", nccl.get_unique_id);
  symbols.Find("ncclCommInitRankConfig", nccl.init_rank);
  symbols.Find("ncclCommGetAsyncError", nccl.get_async_error);
  symbols.Find("ncclCommAbort", nccl.abort);
  symbols.FindIfThere("ncclCommShrink", nccl.shrink);
  symbols.FindIfThere("ncclCommGetUniqueId", nccl.get_grow_id);
  symbols.FindIfThere("ncclCommGrow", nccl.grow);
}

void FindCollectives(NcclSymbols& symbols, NcclApi& nccl) {
  const auto all_reduce = symbols.Address<NcclReduce>("ncclAllReduce");
  nccl.all_reduce = [all_reduce](const NcclArrays& a, NcclOp op, NcclComm comm, CuStream stream) {
    return all_reduce(a.from, a.to, a.count, a.type, op, comm, stream);
  };
  const auto scatter = symbols.Address<NcclReduce>("ncclReduceScatter");
  nccl.reduce_scatter = [scatter](const NcclArrays& a, NcclOp op, NcclComm comm, CuStream stream) {
    return scatter(a.from, a.to, a.count, a.type, op, comm, stream);
  };
  const auto gather = symbols.Address<NcclGather>("ncclAllGather");
  nccl.all_gather = [gather](const NcclArrays& a, NcclComm comm, CuStream stream) {
    return gather(a.from, a.to, a.count, a.type, comm, stream);
  };
  const auto broadcast = symbols.Address<NcclBroadcast>("ncclBroadcast");
  nccl.broadcast = [broadcast](const NcclArrays& a, int root, NcclComm comm, CuStream stream) {
    return broadcast(a.from, a.to, a.count, a.type, root, comm, stream);
  };
}

}  // namespace

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

absl::StatusOr<std::shared_ptr<const NcclApi>> LoadNcclApi(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the text is the thread's own in glibc
    const char* why = dlerror();
    return absl::FailedPreconditionError(
        absl::StrCat("no NCCL: ",
                     why == nullptr ? path : why,
                     ": install it (nvidia-nccl-cu13 or -cu12 of PyPI, or with PyTorch), and give "
                     "the path of its libnccl.so.2"));
  }
  NcclSymbols symbols(library);
  const auto get_version = symbols.Address<NcclResult (*)(int*)>("ncclGetVersion");
  auto nccl = std::make_shared<NcclApi>();
  if (get_version == nullptr || get_version(&nccl->version) != kNcclSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has no ncclGetVersion: it is no NCCL"));
  }
  FindCalls(symbols, *nccl);
  FindCollectives(symbols, *nccl);
  if (nccl->version < kOldestVersion || !symbols.missing().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     " is NCCL ",
                     NcclVersionText(nccl->version),
                     symbols.missing().empty() ? "" : absl::StrCat(" without ", symbols.missing()),
                     ": 2.14 or newer is needed"));
  }
  return std::shared_ptr<const NcclApi>(std::move(nccl));
}

}  // namespace pushpull
