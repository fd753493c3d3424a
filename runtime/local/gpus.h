// SPDX-License-Identifier: Apache-2.0
//
// The GPUs of this machine, divided among the workers of `pushpull run`
// (spec.workers.gpusPerWorker).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace pushpull {

// What CUDA_VISIBLE_DEVICES of `environment` lists, or else 0 to n - 1 for the n GPUs in
// `driver_folder`, in which the driver has a folder for each. Empty: no GPU.
std::vector<std::string> VisibleGpus(const std::map<std::string, std::string>& environment,
                                     const std::string& driver_folder = "/proc/driver/nvidia/gpus");

// CUDA_VISIBLE_DEVICES of a worker: the next `gpus_per_worker` of `gpus` after those of the worker
// before it. Workers beyond the last GPU begin with the first again, and share. Requires
// 1 <= gpus_per_worker <= gpus.size().
std::string GpusOfWorker(const std::vector<std::string>& gpus, int gpus_per_worker, int worker);

}  // namespace pushpull
