// SPDX-License-Identifier: Apache-2.0
//
// All-reduce of an array of float32 by MPI, in calls of some bytes each, as `pushpull bench
// collective` does it. Prints the seconds of each repeat, the slowest rank's. Compiled and run by
// tests/bench/collectives.py.
//
//   mpirun -n 2 mpi_allreduce BYTES CALL_BYTES REPEATS
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  const size_t count = std::strtoull(argv[1], nullptr, 10) / sizeof(float);
  const size_t call = std::strtoull(argv[2], nullptr, 10) / sizeof(float);
  const int repeats = std::atoi(argv[3]);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> values(count);
  for (int i = 0; i <= repeats; ++i) {
    std::fill(values.begin(), values.end(), static_cast<float>(rank + 1));
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (size_t at = 0; at < count; at += call) {
      MPI_Allreduce(MPI_IN_PLACE,
                    values.data() + at,
                    static_cast<int>(std::min(call, count - at)),
                    MPI_FLOAT,
                    MPI_SUM,
                    MPI_COMM_WORLD);
    }
    double seconds = MPI_Wtime() - begin;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0 && i > 0) std::printf("%.9f\n", seconds);
  }
  MPI_Finalize();
  return 0;
}
