// SPDX-License-Identifier: Apache-2.0
//
// Gradients that travel as a codec's bytes, in whole simulated jobs: what is added is what the
// codec has left of them, also where frames are lost and servers die, for what is sent again is the
// same.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tensor/codec.h"
#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kWorkers = 3;
// Two chunks, less than one, and too few values for a codec to save anything.
const std::vector<int64_t> kSizes = {300'000, 1000, 3};
constexpr Codec kAll[] = {
    Codec::kFloat16, Codec::kBFloat16, Codec::kInt8, Codec::kTopK, Codec::kOneBit};

SimJobOptions Options(uint32_t servers, uint32_t replication, uint64_t seed) {
  return DeterministicSim(kWorkers, servers, replication, seed);
}

float GradientOf(uint64_t step, uint32_t worker, size_t i) {
  return 0.01F * static_cast<float>((step * 31 + worker * 17 + i * 7) % 101) - 0.43F;
}

// Workers whose gradients have another value at each place.
class Trainer {
 public:
  Trainer(SimJob& job, Codec codec, OptimizerKind kind, Reduction reduction) : job_(job) {
    for (size_t t = 0; t < kSizes.size(); ++t) {
      TensorSpec spec = SimTensor("t" + std::to_string(t), kSizes[t], kind, reduction);
      spec.codec = codec;
      specs_.push_back(spec);
    }
  }

  absl::Status Start() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      job_.StartWorker(w).Join();
      values_.emplace_back();
      for (const int64_t size : kSizes) values_[w].emplace_back(static_cast<size_t>(size), 0.0F);
      std::vector<TensorRegistration> registrations;
      for (size_t t = 0; t < specs_.size(); ++t)
        registrations.push_back({.spec = specs_[t], .value = values_[w][t]});
      pending.push_back(job_.worker(w).Register(registrations));
    }
    gradients_ = values_;
    return job_.WaitAll(pending);
  }

  std::vector<std::shared_ptr<PendingOperation>> Begin() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      for (size_t t = 0; t < specs_.size(); ++t) {
        std::vector<float>& gradient = gradients_[w][t];
        for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = GradientOf(step_, w, i);
        auto handle = job_.worker(w).PushPull(specs_[t].name, gradient, values_[w][t], {});
        EXPECT_TRUE(handle.ok()) << handle.status();
        if (handle.ok()) pending.push_back(*handle);
      }
    }
    ++step_;
    return pending;
  }

  absl::Status Steps(uint64_t count) {
    absl::Status done;
    for (uint64_t i = 0; i < count && done.ok(); ++i) done = job_.WaitAll(Begin());
    return done;
  }

  std::vector<std::vector<float>>& gradients(uint32_t worker) { return gradients_[worker]; }
  const std::vector<std::vector<float>>& values(uint32_t worker) const { return values_[worker]; }

 private:
  SimJob& job_;
  std::vector<TensorSpec> specs_;
  uint64_t step_ = 0;
  std::vector<std::vector<std::vector<float>>> values_;
  std::vector<std::vector<std::vector<float>>> gradients_;
};

// Of what a worker has kept back until a step, and its gradient of the step, what the codec sends
// of a chunk, as a server adds it; the rest goes to `kept`.
void SendPart(
    Codec codec, uint64_t seed, std::span<float> part, std::span<float> kept, bool is_encoded) {
  if (!is_encoded) return;
  std::vector<std::byte> encoded(EncodedBytes(codec, part.size()));
  if (HasMemory(codec)) {
    for (size_t i = 0; i < part.size(); ++i) kept[i] = part[i] += kept[i];
  }
  Encode(codec, part, seed, encoded);
  EXPECT_TRUE(Decode(codec, encoded, part).ok());
  for (size_t i = 0; i < part.size(); ++i) kept[i] -= part[i];
}

// What a server adds in a step of a worker's gradient.
std::vector<float> Left(Codec codec, uint32_t worker, uint64_t last_step, size_t tensor) {
  constexpr size_t kChunkValues = 65'536;
  uint64_t first_chunk = 0;
  for (size_t t = 0; t < tensor; ++t)
    first_chunk += (static_cast<size_t>(kSizes[t]) + kChunkValues - 1) / kChunkValues;
  std::vector<float> all(static_cast<size_t>(kSizes[tensor]));
  std::vector<float> kept(all.size(), 0.0F);
  for (uint64_t step = HasMemory(codec) ? 0 : last_step; step <= last_step; ++step) {
    for (size_t i = 0; i < all.size(); ++i) all[i] = GradientOf(step, worker, i);
    uint64_t chunk = first_chunk;
    for (size_t first = 0; first < all.size(); first += kChunkValues, ++chunk) {
      const size_t count = std::min(kChunkValues, all.size() - first);
      SendPart(codec,
               RoundingSeed(worker, step, chunk),
               std::span(all).subspan(first, count),
               std::span(kept).subspan(first, count),
               EncodedBytes(codec, count) < count * sizeof(float));
    }
  }
  return all;
}

std::vector<std::vector<float>> Undisturbed(Codec codec, uint64_t steps) {
  SimJob job(Options(2, 0, 1));
  Trainer trainer(job, codec, OptimizerKind::kAdam, Reduction::kMean);
  EXPECT_TRUE(trainer.Start().ok());
  EXPECT_TRUE(trainer.Steps(steps).ok());
  return trainer.values(0);
}

TEST(SimCodecTest, TheSumIsThatOfWhatTheCodecLeaves) {
  for (const Codec codec : kAll) {
    SCOPED_TRACE(ToString(codec));
    SimJob job(Options(2, 0, 1));
    Trainer trainer(job, codec, OptimizerKind::kSum, Reduction::kSum);
    ASSERT_TRUE(trainer.Start().ok());
    ASSERT_TRUE(trainer.Steps(3).ok());
    for (size_t t = 0; t < kSizes.size(); ++t) {
      std::vector<float> sum(static_cast<size_t>(kSizes[t]), 0.0F);
      for (uint32_t w = 0; w < kWorkers; ++w) {
        const std::vector<float> left = Left(codec, w, 2, t);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] = w == 0 ? left[i] : sum[i] + left[i];
      }
      EXPECT_EQ(trainer.values(1)[t], sum) << "tensor " << t;
    }
  }
}

TEST(SimCodecTest, BytesAreCountedAsTheyTravel) {
  const auto bytes_pushed = [](Codec codec) {
    SimJob job(Options(1, 0, 1));
    Trainer trainer(job, codec, OptimizerKind::kSgd, Reduction::kMean);
    EXPECT_TRUE(trainer.Start().ok());
    const std::string before = job.WorkerMetricsText(0);
    EXPECT_TRUE(trainer.Steps(1).ok());
    const auto read = [](const std::string& text) {
      const std::string series = "pushpull_push_bytes_total{channel=\"inproc\"} ";
      const size_t at = text.find(series);
      return at == std::string::npos ? 0 : std::stod(text.substr(at + series.size()));
    };
    return read(job.WorkerMetricsText(0)) - read(before);
  };
  const double plain = bytes_pushed(Codec::kNone);
  if (plain == 0) GTEST_SKIP() << "no series of this channel";
  EXPECT_NEAR(bytes_pushed(Codec::kFloat16) / plain, 0.5, 0.001);
  EXPECT_NEAR(bytes_pushed(Codec::kInt8) / plain, 0.254, 0.001);
  EXPECT_NEAR(bytes_pushed(Codec::kTopK) / plain, 0.015, 0.001);
  EXPECT_NEAR(bytes_pushed(Codec::kOneBit) / plain, 0.033, 0.001);
}

TEST(SimCodecTest, FramesThatAreLostTwistedOrDoubledChangeNothing) {
  for (const Codec codec : kAll) {
    const auto expected = Undisturbed(codec, 8);
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(ToString(codec) + " seed " + std::to_string(seed));
      SimJobOptions options = Options(3, 0, seed);
      options.network.faults.loss = 0.1;
      options.network.faults.duplication = 0.1;
      SimJob job(options);
      Trainer trainer(job, codec, OptimizerKind::kAdam, Reduction::kMean);
      ASSERT_TRUE(trainer.Start().ok());
      ASSERT_TRUE(trainer.Steps(8).ok());
      EXPECT_EQ(trainer.values(2), expected);
    }
  }
}

TEST(SimCodecTest, AServerThatDiesInAStepChangesNothing) {
  for (const Codec codec : {Codec::kFloat16, Codec::kInt8, Codec::kTopK}) {
    const auto expected = Undisturbed(codec, 6);
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(ToString(codec) + " seed " + std::to_string(seed));
      SimJob job(Options(3, 1, seed));
      Trainer trainer(job, codec, OptimizerKind::kAdam, Reduction::kMean);
      ASSERT_TRUE(trainer.Start().ok());
      ASSERT_TRUE(trainer.Steps(2).ok());
      const auto pending = trainer.Begin();
      job.scheduler().RunFor(std::chrono::microseconds(700 * seed));
      job.KillServer(static_cast<uint32_t>(seed % 3));
      ASSERT_TRUE(job.WaitAll(pending).ok());
      ASSERT_TRUE(trainer.Steps(3).ok());
      EXPECT_EQ(trainer.values(1), expected);
    }
  }
}

TEST(SimCodecTest, AValueThatIsTooLargeEndsTheJobAndIsCounted) {
  SimJob job(Options(1, 0, 1));
  TensorSpec spec = SimTensor("w", 100, OptimizerKind::kSgd, Reduction::kMean);
  spec.codec = Codec::kFloat16;
  SimTrainer trainer(job, {spec});
  ASSERT_TRUE(trainer.Start(kWorkers).ok());
  ASSERT_TRUE(trainer.StepAll(kWorkers, [](uint32_t) { return 60'000.0F; }).ok());

  const absl::Status status =
      trainer.StepAll(kWorkers, [](uint32_t worker) { return worker == 1 ? 70'000.0F : 1.0F; });

  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor \"w\""));
  EXPECT_THAT(job.Status().failure, HasSubstr("worker-1"));
  EXPECT_THAT(job.Status().failure, HasSubstr("not finite as fp16"));
  EXPECT_THAT(job.WorkerMetricsText(1), HasSubstr("pushpull_codec_overflows_total 100"));
  EXPECT_THAT(job.WorkerMetricsText(0), HasSubstr("pushpull_codec_overflows_total 0"));
}

// Steps of a simulated job take no longer with a codec, and no shorter: it does not pay.
TEST(SimCodecTest, ASlowCodecIsBypassedUnlessDeterministic) {
  for (const bool is_deterministic : {false, true}) {
    SCOPED_TRACE(is_deterministic);
    SimJobOptions options = Options(1, 0, 1);
    options.network.faults.delay_max = {};
    options.settings.deterministic = is_deterministic;
    options.bypasses_codecs = true;
    SimJob job(options);
    TensorSpec spec = SimTensor("w", 1000, OptimizerKind::kSum, Reduction::kSum);
    spec.codec = Codec::kBFloat16;
    SimTrainer trainer(job, {spec});
    ASSERT_TRUE(trainer.Start(kWorkers).ok());
    for (int i = 0; i < 40; ++i)
      ASSERT_TRUE(trainer.StepAll(kWorkers, [](uint32_t) { return 1.001F; }).ok());
    // 1.001 in 8 bits is 1.
    EXPECT_EQ(trainer.value(0)[0], is_deterministic ? 3.0F : 1.001F + 1.001F + 1.001F);
  }
}

TEST(SimCodecTest, WorkersMustAgreeOnTheCodec) {
  SimJob job(Options(1, 0, 1));
  std::vector<float> value(100, 0.0F);
  std::vector<std::shared_ptr<PendingOperation>> pending;
  std::vector<TensorRegistration> registrations(kWorkers);
  for (uint32_t w = 0; w < kWorkers; ++w) {
    job.StartWorker(w).Join();
    TensorSpec spec = SimTensor("w", 100, OptimizerKind::kSgd, Reduction::kMean);
    spec.codec = w == 2 ? Codec::kBFloat16 : Codec::kFloat16;
    registrations[w] = {.spec = spec, .value = value};
    pending.push_back(job.worker(w).Register({&registrations[w], 1}));
  }
  const absl::Status status = job.Wait(pending[2]);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("codec bf16 and fp16"));
}

}  // namespace
}  // namespace pushpull
