// SPDX-License-Identifier: Apache-2.0
//
// All-reduce of an array of float32 by gloo over TCP, as `pushpull bench collective` does it.
// Rank 0 prints the seconds of each repeat, the slowest rank's. Compiled and run by
// tests/bench/collectives.py.
//
//   gloo_allreduce FOLDER RANK RANKS ring|bcube|ring_chunked|halving_doubling BYTES REPEATS
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

using Context = std::shared_ptr<gloo::rendezvous::Context>;

void Reduce(const Context& context, const std::string& algorithm, std::vector<float>& values) {
  gloo::AllreduceOptions options(context);
  options.setOutput(values.data(), values.size());
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  options.setAlgorithm(algorithm == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                            : gloo::AllreduceOptions::Algorithm::RING);
  gloo::allreduce(options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const int rank = std::atoi(argv[2]);
  const int ranks = std::atoi(argv[3]);
  const std::string algorithm = argv[4];
  std::vector<float> values(std::strtoull(argv[5], nullptr, 10) / sizeof(float));
  const int repeats = std::atoi(argv[6]);
  gloo::transport::tcp::attr address;
  address.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::FileStore store(argv[1]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);

  const std::vector<float*> pointers = {values.data()};
  std::unique_ptr<gloo::Algorithm> prepared;
  if (algorithm == "ring_chunked") {
    prepared = std::make_unique<gloo::AllreduceRingChunked<float>>(
        context, pointers, static_cast<int>(values.size()));
  } else if (algorithm == "halving_doubling") {
    prepared = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
        context, pointers, static_cast<int>(values.size()));
  }
  gloo::BarrierOptions barrier(context);
  for (int i = 0; i <= repeats; ++i) {
    std::fill(values.begin(), values.end(), static_cast<float>(rank + 1));
    gloo::barrier(barrier);
    const auto begin = std::chrono::steady_clock::now();
    if (prepared != nullptr) {
      prepared->run();
    } else {
      Reduce(context, algorithm, values);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::vector<double> slowest = {took.count()};
    gloo::AllreduceOptions options(context);
    options.setOutput(slowest.data(), slowest.size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::max<double>));
    gloo::allreduce(options);
    if (rank == 0 && i > 0) std::printf("%.9f\n", slowest[0]);
  }
  return 0;
}
