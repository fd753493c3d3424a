// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/gpus.h"

#include <cstddef>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "runtime/base/check.h"

namespace pushpull {

std::vector<std::string> VisibleGpus(const std::map<std::string, std::string>& environment,
                                     const std::string& driver_folder) {
  std::vector<std::string> gpus;
  if (const auto listed = environment.find("CUDA_VISIBLE_DEVICES"); listed != environment.end()) {
    for (const absl::string_view gpu : absl::StrSplit(listed->second, ',')) {
      // As CUDA reads it: up to the first that is none.
      if (gpu.empty() || gpu.front() == '-') break;
      gpus.emplace_back(gpu);
    }
    return gpus;
  }
  std::error_code error;
  for (std::filesystem::directory_iterator it(driver_folder, error), end; !error && it != end;
       it.increment(error)) {
    gpus.push_back(absl::StrCat(gpus.size()));
  }
  return gpus;
}

std::string GpusOfWorker(const std::vector<std::string>& gpus, int gpus_per_worker, int worker) {
  const auto count = static_cast<size_t>(gpus_per_worker);
  PUSHPULL_CHECK(count >= 1 && count <= gpus.size());
  std::vector<std::string> taken;
  for (size_t i = 0; i < count; ++i) {
    taken.push_back(gpus[(static_cast<size_t>(worker) * count + i) % gpus.size()]);
  }
  return absl::StrJoin(taken, ",");
}

}  // namespace pushpull
