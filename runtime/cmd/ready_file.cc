// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd/ready_file.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

namespace pushpull {

void ReportReady(int fd, const RoleAddresses& addresses) {
  if (fd < 0) return;
  const nlohmann::json line = {
      {"control", addresses.control}, {"data", addresses.data}, {"metrics", addresses.metrics}};
  const std::string text = line.dump() + "\n";
  [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
  close(fd);
}

}  // namespace pushpull
