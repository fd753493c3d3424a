// SPDX-License-Identifier: Apache-2.0
//
// Collectives and messages over the servers of a simulated job: equal results in every worker while
// the network loses frames, servers die and shards move, workers die and join. A failing case
// prints its seed and replays.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tensor/half_float.h"
#include "tests/fakes/seeds.h"
#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Exchange = std::shared_ptr<ExchangeOperation>;

// Several chunks, so that pieces go to all servers and lanes.
std::vector<TensorSpec> Tensors() {
  return {SimTensor("w", 1'000'000, OptimizerKind::kSgd, Reduction::kSum)};
}

ExchangeSpec SumOf(size_t values) {
  return {.op = ExchangeOp::kAllReduce, .type = ElementType::kFloat32, .bytes = values * 4};
}

Exchange Call(SimJob& job,
              uint32_t worker,
              const ExchangeSpec& spec,
              const std::vector<float>& values) {
  absl::StatusOr<Exchange> call = job.worker(worker).StartExchange(
      spec, std::as_bytes(std::span(values)), job.worker(worker).exchange_step());
  EXPECT_TRUE(call.ok()) << call.status();
  return *call;
}

std::shared_ptr<PendingOperation> PendingOf(const Exchange& exchange) {
  return {exchange, &exchange->pending};
}

std::vector<float> ValuesOf(const Exchange& exchange) {
  std::vector<float> values;
  for (const auto& result : exchange->results) {
    const size_t before = values.size();
    values.resize(before + result->num_bytes() / sizeof(float));
    std::ranges::copy(result->bytes(),
                      std::as_writable_bytes(std::span(values).subspan(before)).begin());
  }
  return values;
}

std::vector<WorkerId> Workers(std::vector<uint32_t> indices) {
  std::vector<WorkerId> workers;
  for (const uint32_t index : indices) workers.push_back(WorkerId{index});
  return workers;
}

// The same values from all workers 0 to `count` - 1; waits until all are done.
std::vector<Exchange> CallAll(SimJob& job, uint32_t count, const ExchangeSpec& spec) {
  std::vector<Exchange> calls;
  std::vector<std::shared_ptr<PendingOperation>> pending;
  for (uint32_t i = 0; i < count; ++i) {
    calls.push_back(Call(
        job, i, spec, std::vector<float>(spec.bytes / sizeof(float), static_cast<float>(i + 1))));
    pending.push_back(PendingOf(calls.back()));
  }
  EXPECT_TRUE(job.WaitAll(pending).ok());
  return calls;
}

TEST(SimExchangeTest, EveryWorkerGetsTheSumOfAll) {
  SimJob job({.settings = {.job = "sim", .workers = 3, .servers = 2}});
  SimTrainer trainer(job, Tensors());
  ASSERT_TRUE(trainer.Start(3).ok());

  for (const size_t values : {size_t{0}, size_t{1}, size_t{1'000'003}}) {
    for (const Exchange& call : CallAll(job, 3, SumOf(values))) {
      EXPECT_THAT(ValuesOf(call), AllOf(testing::SizeIs(values), Each(6.0F)));
      EXPECT_EQ(call->workers, Workers({0, 1, 2}));
    }
  }
}

TEST(SimExchangeTest, SumsOfFloat16AreRoundedOnce) {
  SimJob job({.settings = {.job = "sim", .workers = 3, .servers = 2}});
  SimTrainer trainer(job, Tensors());
  ASSERT_TRUE(trainer.Start(3).ok());
  constexpr size_t kValues = 300'001;  // several pieces, the last one of a few bytes

  std::vector<Exchange> calls;
  std::vector<std::shared_ptr<PendingOperation>> pending;
  for (const float value : {2048.0F, 1.0F, 1.0F}) {
    std::vector<std::byte> halves(2 * kValues);
    EncodeFloat16(std::vector<float>(kValues, value), halves);
    const ExchangeSpec spec{
        .op = ExchangeOp::kAllReduce, .type = ElementType::kFloat16, .bytes = halves.size()};
    WorkerNode& worker = job.worker(static_cast<uint32_t>(calls.size()));
    absl::StatusOr<Exchange> call = worker.StartExchange(spec, halves, worker.exchange_step());
    ASSERT_TRUE(call.ok()) << call.status();
    calls.push_back(*call);
    pending.push_back(PendingOf(*call));
  }
  ASSERT_TRUE(job.WaitAll(pending).ok());

  for (const Exchange& call : calls) {
    std::vector<float> sums;
    for (const auto& result : call->results) {
      std::vector<float> piece(result->num_bytes() / 2);
      DecodeFloat16(result->bytes(), piece);
      sums.insert(sums.end(), piece.begin(), piece.end());
    }
    EXPECT_THAT(sums, AllOf(testing::SizeIs(kValues), Each(2050.0F)));
  }
}

TEST(SimExchangeTest, ABarrierWaitsForTheLastWorker) {
  SimJob job({.settings = {.job = "sim", .workers = 2, .servers = 1}});
  SimTrainer trainer(job, Tensors());
  ASSERT_TRUE(trainer.Start(2).ok());

  const Exchange first = Call(job, 0, {.op = ExchangeOp::kBarrier}, {});
  job.scheduler().RunFor(std::chrono::seconds(30));
  EXPECT_FALSE(first->pending.is_done());
  const Exchange second = Call(job, 1, {.op = ExchangeOp::kBarrier}, {});

  EXPECT_TRUE(job.WaitAll({PendingOf(first), PendingOf(second)}).ok());
  const Exchange third = Call(job, 0, {.op = ExchangeOp::kBarrier}, {});
  job.scheduler().RunFor(std::chrono::seconds(4));
  const absl::Status late = third->pending.Wait(Deadline::After(Duration::zero()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late));
  EXPECT_THAT(
      std::string(late.message()),
      HasSubstr("barrier, step 0: not done in time; it waits for worker-1: not in the others' "
                "barrier"));
}

TEST(SimExchangeTest, ABarrierThatAWorkerDoesNotCallIsAStall) {
  SimJobOptions options{.settings = {.job = "sim", .workers = 3, .servers = 1}};
  options.settings.stall = std::chrono::seconds(4);
  SimJob job(options);
  SimTrainer trainer(job, Tensors());
  ASSERT_TRUE(trainer.Start(3).ok());

  const Exchange first = Call(job, 0, {.op = ExchangeOp::kBarrier}, {});
  const Exchange third = Call(job, 2, {.op = ExchangeOp::kBarrier}, {});
  ASSERT_TRUE(job.scheduler().RunUntil([&] { return job.Status().stall.has_value(); },
                                       std::chrono::seconds(6)));

  EXPECT_EQ(job.Status().stall->missing, std::vector{WorkerId{1}});
  EXPECT_EQ(job.Status().stall->collective, "barrier");
}

TEST(SimExchangeTest, DifferentCallsFailInEveryWorker) {
  SimJob job({.settings = {.job = "sim", .workers = 2, .servers = 2}});
  SimTrainer trainer(job, Tensors());
  ASSERT_TRUE(trainer.Start(2).ok());

  const Exchange sum = Call(job, 0, SumOf(300'000), std::vector<float>(300'000));
  const Exchange barrier = Call(job, 1, {.op = ExchangeOp::kBarrier}, {});
  const absl::Status of_sum = job.Wait(PendingOf(sum));
  const absl::Status of_barrier = job.Wait(PendingOf(barrier));

  for (const absl::Status& status : {of_sum, of_barrier}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("worker-0 calls all_reduce(sum) of 300000 float32 values"),
                      HasSubstr("worker-1 calls barrier")));
  }
  // The next calls are not affected.
  EXPECT_THAT(ValuesOf(CallAll(job, 2, SumOf(1)).at(1)), ElementsAre(3));
}

TEST(SimExchangeTest, AreRefusedInModesWithoutSteps) {
  SimJob job({.settings = {.job = "sim", .workers = 1, .servers = 1},
              .consistency = {.mode = SyncMode::kAsync}});
  SimTrainer trainer(job, Tensors());
  ASSERT_TRUE(trainer.Start(1).ok());

  const absl::Status refused = job.Wait(PendingOf(Call(job, 0, SumOf(1), {1})));

  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the job's mode is Async"));
}

TEST(SimExchangeTest, ADeadWorkerIsNotAwaited) {
  SimJob job({.settings = {.job = "sim", .workers = 3, .servers = 2}});
  SimTrainer trainer(job, Tensors());
  ASSERT_TRUE(trainer.Start(3).ok());

  const Exchange first = Call(job, 0, SumOf(500'000), std::vector<float>(500'000, 1));
  const Exchange second = Call(job, 1, SumOf(500'000), std::vector<float>(500'000, 10));
  job.KillWorker(2);

  ASSERT_TRUE(job.WaitAll({PendingOf(first), PendingOf(second)}).ok());
  EXPECT_THAT(ValuesOf(first), Each(11.0F));
  EXPECT_EQ(second->workers, Workers({0, 1}));
}

// A worker that dies at any moment of an exchange counts in all pieces or in none, and the others
// agree on that.
TEST(SimExchangeTest, ADeathInsideAnExchangeCountsEvenly) {
  const Seeds seeds = SeedsToRun(40);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    InprocOptions network;
    network.faults = {.delay_max = std::chrono::milliseconds(2)};
    SimJob job(
        {.settings = {.job = "sim", .workers = 3, .servers = 2}, .seed = seed, .network = network});
    SimTrainer trainer(job, Tensors());
    ASSERT_TRUE(trainer.Start(3).ok());

    std::vector<Exchange> calls;
    for (const float value : {1.0F, 10.0F, 100.0F}) {
      calls.push_back(Call(job,
                           static_cast<uint32_t>(calls.size()),
                           SumOf(600'000),
                           std::vector<float>(600'000, value)));
    }
    job.scheduler().RunFor(std::chrono::microseconds(random() % 8000));
    job.KillWorker(2);

    ASSERT_TRUE(job.WaitAll({PendingOf(calls[0]), PendingOf(calls[1])}).ok());
    const bool counts = calls[0]->workers.size() == 3;
    EXPECT_THAT(ValuesOf(calls[0]), Each(counts ? 111.0F : 11.0F));
    EXPECT_EQ(calls[0]->workers, calls[1]->workers);
    EXPECT_EQ(ValuesOf(calls[0]), ValuesOf(calls[1]));
  }
}

// The others go on meanwhile, and agree in every step without it, before and after their pushes.
TEST(SimExchangeTest, AJoinerTakesPartFromItsFirstStepOn) {
  SimJob job({.settings = {.job = "sim", .workers = 2, .servers = 2}});
  SimTrainer trainer(job, Tensors());
  ASSERT_TRUE(trainer.Start(2).ok());
  ASSERT_TRUE(job.ResizeWorkers(3).ok());

  const auto joined = trainer.StartOne(2);
  std::vector<Exchange> calls;
  for (bool is_pushing = false; !joined->is_done(); is_pushing = !is_pushing) {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    if (is_pushing) {
      pending = trainer.PushAll(2, [](uint32_t) { return 1.0F; });
    } else {
      calls = {Call(job, 0, SumOf(1), {1}), Call(job, 1, SumOf(1), {2})};
      for (const Exchange& call : calls) pending.push_back(PendingOf(call));
    }
    const auto is_done = [&] {
      return joined->is_done() ||
             std::ranges::all_of(pending, [](const auto& one) { return one->is_done(); });
    };
    ASSERT_TRUE(job.scheduler().RunUntil(is_done, std::chrono::minutes(5)));
    // The joiner has the values that this push has made, and others may not know it yet.
    if (is_pushing) {
      ASSERT_TRUE(job.WaitAll(pending).ok());
    }
    if (calls[0]->pending.is_done()) {
      EXPECT_EQ(calls[0]->workers, Workers({0, 1}));
    }
  }
  ASSERT_TRUE(job.Wait(joined).ok());
  EXPECT_GT(job.worker(2).start_step(), Step{0});
  EXPECT_EQ(job.worker(2).start_step(), job.worker(0).next_step());
  if (calls[0]->pending.is_done())
    calls = {Call(job, 0, SumOf(1), {1}), Call(job, 1, SumOf(1), {2})};
  const Exchange third = Call(job, 2, SumOf(1), {4});

  ASSERT_TRUE(job.WaitAll({PendingOf(calls[0]), PendingOf(calls[1]), PendingOf(third)}).ok());
  EXPECT_EQ(third->workers, Workers({0, 1, 2}));
  EXPECT_THAT(ValuesOf(calls[0]), ElementsAre(7));
}

// The message that a worker of a ring sends in a round.
std::vector<float> RingValues(uint32_t worker, int round, size_t size) {
  return std::vector<float>(size, static_cast<float>(worker * 100) + static_cast<float>(round));
}

// Every worker sends to the next one and receives from the one before, of known size or any.
struct Ring {
  Ring(SimJob& job, uint32_t workers, int in_round, size_t of_size, bool takes_any)
      : round(in_round), size(of_size) {
    for (uint32_t i = 0; i < workers; ++i) {
      const uint32_t next = (i + 1) % workers;
      ExchangeSpec spec{.op = ExchangeOp::kMessage,
                        .type = ElementType::kFloat32,
                        .bytes = size * sizeof(float),
                        .pair = MessagePair{WorkerId{i}, WorkerId{next}}};
      sent.push_back(Call(job, i, spec, RingValues(i, round, size)));
      if (takes_any) spec = {.op = ExchangeOp::kMessage, .pair = spec.pair, .takes_any = true};
      received.push_back(Call(job, next, spec, {}));
    }
  }
  // Once a sender is done, its receiver is.
  void ExpectOrder() const {
    for (size_t i = 0; i < sent.size(); ++i)
      EXPECT_TRUE(!sent[i]->pending.is_done() || received[i]->pending.is_done());
  }
  void ExpectValues() const {
    for (uint32_t i = 0; i < received.size(); ++i)
      EXPECT_EQ(ValuesOf(received[i]), RingValues(i, round, size)) << "from worker " << i;
  }

  int round;
  size_t size;
  std::vector<Exchange> sent;
  std::vector<Exchange> received;  // by sender
};

// Steps with exchanges and messages in between, of sizes from nothing to several pieces, while
// whatever can happen to servers and the network happens.
void RunSchedule(uint64_t seed, bool kills) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr uint32_t kWorkers = 3;
  std::mt19937_64 random(seed);
  InprocOptions network;
  network.faults = {.delay_max = std::chrono::milliseconds(2)};
  // On channels that lose nothing, nothing is sent again.
  if (seed % 2 == 0) {
    network.faults.loss = 0.05;
    network.faults.duplication = 0.05;
    network.faults.reordering = 0.1;
  }
  SimJob job({.settings = {.job = "sim", .workers = kWorkers, .servers = 3, .replication = 1},
              .seed = seed,
              .network = network});
  SimTrainer trainer(job, Tensors());
  ASSERT_TRUE(trainer.Start(kWorkers).ok());
  uint32_t servers = 3;

  for (int round = 0; round < 12; ++round) {
    const ExchangeSpec spec = SumOf(std::vector<size_t>{0, 2, 70'000, 400'000}[random() % 4]);
    std::vector<Exchange> calls(kWorkers);
    std::vector<uint32_t> order = {0, 1, 2};
    std::ranges::shuffle(order, random);
    for (const uint32_t worker : order) {
      const auto value = static_cast<float>(round + 1) * (worker == 0 ? 1e-3F : 1.7F);
      calls[worker] =
          Call(job, worker, spec, std::vector<float>(spec.bytes / sizeof(float), value));
      job.scheduler().RunFor(std::chrono::microseconds(random() % 4000));
    }
    const std::vector<size_t> sizes = {0, 2, 70'000, 400'000};
    const Ring ring(job, kWorkers, round, sizes[random() % 4], random() % 2 == 0);
    const std::vector<std::string> nodes = job.NodeNames();
    if (random() % 3 == 0) job.network().Break(nodes[random() % nodes.size()], nodes.back());
    if (kills && random() % 3 == 0) job.KillServer(static_cast<uint32_t>(random() % servers));
    if (!kills && random() % 3 == 0) {
      servers = 2 + static_cast<uint32_t>(random() % 3);
      ASSERT_TRUE(job.Resize(servers).ok());
    }

    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (const std::vector<Exchange>& exchanges : {calls, ring.sent, ring.received})
      for (const Exchange& call : exchanges) pending.push_back(PendingOf(call));
    const auto is_done = [&] {
      KeepServers(job, servers);
      ring.ExpectOrder();
      return std::ranges::all_of(pending, [](const auto& one) { return one->is_done(); }) &&
             IsWhole(job, servers);
    };
    ASSERT_TRUE(job.scheduler().RunUntil(is_done, std::chrono::minutes(5))) << "round " << round;
    ASSERT_TRUE(job.WaitAll(pending).ok());
    ring.ExpectValues();
    for (const Exchange& call : calls) {
      EXPECT_EQ(call->workers, Workers({0, 1, 2}));
      EXPECT_EQ(ValuesOf(call), ValuesOf(calls[0]));
    }
    if (spec.bytes > 0) {
      const auto scale = static_cast<float>(round + 1);
      EXPECT_EQ(ValuesOf(calls[0])[0], scale * 1e-3F + scale * 1.7F + scale * 1.7F);
    }
    const bool has_step = random() % 2 == 0;
    if (has_step) {
      ASSERT_TRUE(trainer.StepAll(kWorkers, [](uint32_t) { return 1.0F; }).ok());
    }
  }
}

TEST(SimExchangeTest, ServersDieAndFramesGetLost) {
  const Seeds seeds = SeedsToRun(12);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) RunSchedule(seed, true);
}

TEST(SimExchangeTest, ShardsMoveAndFramesGetLost) {
  const Seeds seeds = SeedsToRun(12);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) RunSchedule(seed, false);
}

}  // namespace
}  // namespace pushpull
