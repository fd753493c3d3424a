// SPDX-License-Identifier: Apache-2.0
//
// How long the applies of one step wait because all chunks have just been captured for a
// checkpoint: the step after a capture against the steps before it, over 1 GiB of values and Adam's
// state, written to FOLDER meanwhile. Run by hand:
//
//   capture_wait FOLDER [MIB] [MILLISECONDS] [fresh]
//
// MILLISECONDS pass between capture and the next step, as compute time does. `fresh`: without the
// spare memory that a server prepares ahead.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/event_loop.h"
#include "runtime/server/checkpoint_writer.h"
#include "runtime/store/chunk_state.h"
#include "tests/bench/pause.h"

namespace pushpull {
namespace {

constexpr int kSteps = 5;

class Model {
 public:
  Model(uint64_t chunks, bool uses_spares)
      : uses_spares_(uses_spares), gradient_(kChunkBytes / sizeof(float), 0.5F) {
    optimizer_.kind = OptimizerKind::kAdam;
    optimizer_.learning_rate = 0.01;
    for (uint64_t i = 0; i < chunks; ++i) {
      chunks_.push_back(std::make_unique<ChunkState>(optimizer_, kChunkBytes));
      PUSHPULL_CHECK(chunks_.back()->Install(*HostBuffer::Zeroed(kChunkBytes)).ok());
    }
  }

  // Seconds that the applies of one step take together.
  double Step() {
    Duration total{0};
    for (const auto& chunk : chunks_) {
      const SteadyTime begin = std::chrono::steady_clock::now();
      PUSHPULL_CHECK(chunk->Apply(gradient_, 1, 0).ok());
      total += std::chrono::steady_clock::now() - begin;
    }
    return ToSeconds(total);
  }

  void Capture(CheckpointWriter& writer, uint64_t attempt) {
    if (uses_spares_) {
      std::vector<uint64_t> sizes;
      for (const auto& chunk : chunks_)
        sizes.insert(sizes.end(), {chunk->num_bytes(), chunk->state_bytes()});
      PUSHPULL_CHECK(spares_.Prepare(sizes).ok());
    }
    SpareBuffers& spares = uses_spares_ ? spares_ : none_;
    for (const auto& chunk : chunks_) {
      chunk->BeginCapture(spares);
    }
    for (size_t i = 0; i < chunks_.size(); ++i) {
      writer.Write(attempt,
                   0,
                   {.record = {.chunk = ChunkId{i}, .version = chunks_[i]->version()},
                    .value = chunks_[i]->value(),
                    .state = chunks_[i]->optimizer_state()});
    }
    writer.FinishLane(attempt, 0, [] {});
  }

 private:
  const bool uses_spares_;
  SpareBuffers spares_;
  SpareBuffers none_;
  OptimizerSpec optimizer_;
  std::vector<float> gradient_;
  std::vector<std::unique_ptr<ChunkState>> chunks_;
};

void Measure(const std::string& folder, uint64_t mib, Duration pause, bool uses_spares) {
  Model model(mib / 3, uses_spares);  // value and two moments
  std::vector<double> before;
  before.reserve(kSteps);
  for (int i = 0; i < kSteps; ++i) before.push_back(model.Step());
  std::sort(before.begin(), before.end());
  const double usual = before[before.size() / 2];

  PosixFileSystem files;
  EventLoop disk("pp-checkpoint");
  const auto writer =
      std::make_shared<CheckpointWriter>(ServerId{0}, 1, disk, files, [](const Captured& captured) {
        std::printf("written: %s\n", captured.status.ToString().c_str());
      });
  for (uint64_t attempt = 1; attempt <= 3; ++attempt) {
    writer->Begin({.attempt = attempt, .step = Step{attempt}, .folder = folder});
    model.Capture(*writer, attempt);
    Pause(pause);
    const double after = model.Step();
    std::printf("capture %lu: %.3f s for a step, %.3f s before: waited %.3f s\n",
                attempt,
                after,
                usual,
                after - usual);
    std::fflush(stdout);
  }
  disk.Stop();
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: capture_wait FOLDER [MIB] [MILLISECONDS] [fresh]\n");
    return 2;
  }
  const uint64_t mib = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1024;
  const long pause = argc > 3 ? std::strtol(argv[3], nullptr, 10) : 0;
  pushpull::Measure(argv[1], mib, std::chrono::milliseconds(pause), argc <= 4);
  return 0;
}
