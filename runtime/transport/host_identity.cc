// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/host_identity.h"

#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <fstream>
#include <random>
#include <string>

namespace pushpull {

uint64_t HostIdentity() {
  std::string identity;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity;
  if (identity.empty()) {
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
  }
  // Clocks differ between time namespaces (time_namespaces(7)).
  std::array<char, 64> space{};
  if (readlink("/proc/self/ns/time", space.data(), space.size() - 1) > 0) identity += space.data();
  return XXH3_64bits(identity.data(), identity.size());
}

}  // namespace pushpull
