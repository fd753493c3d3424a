// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pushpull {
namespace {

// No pages can be removed, neither by truncation nor by holes, and no new writable mapping is made.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

absl::Status Failed(absl::string_view what) {
  return StatusFromErrno(errno, absl::StrCat(what, " shared memory"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Create(absl::string_view name,
                                                                   size_t num_bytes) {
  // Otherwise the kernel would try, and its OOM killer would kill processes.
  const auto machine =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (num_bytes == 0 || num_bytes > machine) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "take %d bytes of shared memory: this host has %d bytes of memory", num_bytes, machine));
  }
  FileDescriptor file(memfd_create(std::string(name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) return Failed("create");
  const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(num_bytes));
  if (error != 0)
    return StatusFromErrno(error, absl::StrCat("take ", num_bytes, " bytes of shared memory"));
  void* const memory = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return Failed("map");
  const std::span bytes(static_cast<std::byte*>(memory), num_bytes);
  std::shared_ptr<SharedMemory> made(new SharedMemory(std::move(file), bytes));
  if (fcntl(made->descriptor(), F_ADD_SEALS, kSeals) != 0) return Failed("seal");
  return made;
}

SharedMemory::~SharedMemory() {
  munmap(bytes_.data(), bytes_.size());
}

absl::StatusOr<std::shared_ptr<const AttachedMemory>> AttachedMemory::Attach(
    const FileDescriptor& file, size_t num_bytes) {
  struct stat found {};
  if (fstat(file.get(), &found) != 0) return Failed("stat");
  const auto size = static_cast<uint64_t>(found.st_size);
  const uint64_t allocated = static_cast<uint64_t>(found.st_blocks) * 512;
  const int seals = S_ISREG(found.st_mode) ? fcntl(file.get(), F_GET_SEALS) : -1;
  const bool is_sealed = seals >= 0 && (seals & kSeals) == kSeals;
  if (!is_sealed || num_bytes == 0 || size != num_bytes || allocated < num_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shared memory has %d bytes, %d of them allocated, %s; expected %d, sealed",
                        size,
                        allocated,
                        is_sealed ? "sealed" : "not sealed",
                        num_bytes));
  }
  void* const memory = mmap(nullptr, num_bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return Failed("map");
  return std::shared_ptr<const AttachedMemory>(
      new AttachedMemory(std::span(static_cast<const std::byte*>(memory), num_bytes)));
}

AttachedMemory::~AttachedMemory() {
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace pushpull
