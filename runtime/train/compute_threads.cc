// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/compute_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace pushpull {

void SetComputeThreads(int threads) {
  at::set_num_threads(threads);
  at::set_num_interop_threads(1);
  // LibTorch sets the threads of OpenMP only. OpenBLAS may have its own, one a core, and whether
  // OpenBLAS is there at all is the system's choice of libblas.so.3.
  using SetThreads = void (*)(int);
  auto* const set_blas_threads =
      reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_blas_threads != nullptr) set_blas_threads(threads);
}

}  // namespace pushpull
