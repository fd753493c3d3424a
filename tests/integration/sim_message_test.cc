// SPDX-License-Identifier: Apache-2.0
//
// Messages between the workers of a simulated job, over its servers, as a program calls for them:
// each call is made again until it does not time out. A failing case prints its seed and replays.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/worker/worker_collectives.h"
#include "tests/fakes/seeds.h"
#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Received = absl::StatusOr<ReceivedMessage>;

const Deadline kNow = Deadline::After(Duration::zero());

class SimMessageTest : public testing::Test {
 protected:
  void Start(SimJobOptions options) {
    programs_.clear();
    trainer_.reset();
    const uint32_t workers = options.settings.workers;
    job_ = std::make_unique<SimJob>(std::move(options));
    trainer_ = std::make_unique<SimTrainer>(
        *job_,
        std::vector<TensorSpec>{SimTensor("w", 1'000'000, OptimizerKind::kSgd, Reduction::kSum)});
    ASSERT_TRUE(trainer_->Start(workers).ok());
    for (uint32_t i = 0; i < workers; ++i) Connect(i);
  }
  // Where the program of a process begins.
  void Connect(uint32_t worker) {
    programs_.resize(std::max<size_t>(programs_.size(), worker + 1));
    programs_[worker] = std::make_unique<WorkerCollectives>(job_->worker(worker));
  }
  Collectives& of(uint32_t worker) { return *programs_.at(worker); }
  SimJob& job() { return *job_; }
  SimTrainer& trainer() { return *trainer_; }

  // Makes the calls until none of them times out, or one does after five minutes.
  void Finish(const std::vector<std::function<bool()>>& calls) {
    std::vector<bool> is_done(calls.size());
    const auto all_done = [&] {
      for (size_t i = 0; i < calls.size(); ++i) is_done[i] = is_done[i] || calls[i]();
      return std::ranges::all_of(is_done, [](bool one) { return one; });
    };
    EXPECT_TRUE(job_->scheduler().RunUntil(all_done, std::chrono::minutes(5)));
  }
  std::function<bool()> Send(uint32_t worker,
                             uint32_t to,
                             const std::vector<float>& values,
                             absl::Status& result,
                             const std::string& label = "") {
    return [this, worker, to, &values, &result, label] {
      result = of(worker).Send(
          {.values = ValuesOf(std::span(values)), .to = WorkerId{to}, .label = label}, kNow);
      return !absl::IsDeadlineExceeded(result);
    };
  }
  std::function<bool()> Recv(uint32_t worker, uint32_t from, Received& result) {
    return [this, worker, from, &result] {
      result = of(worker).Recv({.from = WorkerId{from}}, kNow);
      return !absl::IsDeadlineExceeded(result.status());
    };
  }

  std::unique_ptr<SimJob> job_;
  std::unique_ptr<SimTrainer> trainer_;
  std::vector<std::unique_ptr<WorkerCollectives>> programs_;
};

std::vector<float> FloatsOf(const ReceivedMessage& message) {
  std::vector<float> values(message.bytes.size() / sizeof(float));
  std::ranges::copy(message.bytes, std::as_writable_bytes(std::span(values)).begin());
  return values;
}

TEST_F(SimMessageTest, AReceiverLearnsTypeSizeAndLabel) {
  Start({.settings = {.job = "sim", .workers = 2, .servers = 2}});

  for (const size_t size : {size_t{0}, size_t{1}, size_t{1'000'003}}) {
    const std::vector<float> values(size, 2.5F);
    absl::Status sent;
    Received received;
    Finish({Send(1, 0, values, sent, "of worker 1"), Recv(0, 1, received)});

    ASSERT_TRUE(sent.ok() && received.ok()) << sent << received.status();
    EXPECT_EQ(received->type, ElementType::kFloat32);
    EXPECT_EQ(received->label, "of worker 1");
    EXPECT_THAT(FloatsOf(*received), AllOf(SizeIs(size), Each(2.5F)));
  }
}

TEST_F(SimMessageTest, AReceiverLearnsThatValuesAreBfloat16) {
  Start({.settings = {.job = "sim", .workers = 2, .servers = 2}});
  const std::vector<uint16_t> values = {0x3f80, 0xc000, 0x7fc1};  // 1, -2 and a NaN
  absl::Status sent;
  Received received;
  const ConstArrayValues halves{ElementType::kBFloat16, std::as_bytes(std::span(values))};

  Finish({[&] {
            sent = of(1).Send({.values = halves, .to = WorkerId{0}}, kNow);
            return !absl::IsDeadlineExceeded(sent);
          },
          Recv(0, 1, received)});

  ASSERT_TRUE(sent.ok() && received.ok()) << sent << received.status();
  EXPECT_EQ(received->type, ElementType::kBFloat16);
  EXPECT_TRUE(std::ranges::equal(received->bytes, halves.bytes));
}

TEST_F(SimMessageTest, ASendReturnsWhenTheReceiverHasIt) {
  Start({.settings = {.job = "sim", .workers = 2, .servers = 2}});
  const std::vector<float> values(200'000, 1);
  absl::Status sent;
  Received received = absl::UnknownError("not called");
  const auto send = Send(0, 1, values, sent);

  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(send());
    job().scheduler().RunFor(std::chrono::milliseconds(100));
  }
  EXPECT_THAT(std::string(sent.message()),
              HasSubstr("message from worker-0 to worker-1 of 200000 float32 values, step 0: not "
                        "done in time; worker-1 has not received it yet, or a server does not "
                        "answer"));
  const auto receive = Recv(1, 0, received);
  EXPECT_FALSE(receive());
  ASSERT_TRUE(job().scheduler().RunUntil(send, std::chrono::minutes(1)));

  EXPECT_TRUE(receive());
  EXPECT_TRUE(received.ok() && sent.ok());
}

// Its pieces arrive in any order.
TEST_F(SimMessageTest, AGivenArrayIsFilled) {
  const Seeds seeds = SeedsToRun(20);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    SCOPED_TRACE(seed);
    InprocOptions network;
    network.faults = {.delay_max = std::chrono::milliseconds(2)};
    Start(
        {.settings = {.job = "sim", .workers = 2, .servers = 2}, .seed = seed, .network = network});
    const std::vector<float> values(400'000, 3);
    std::vector<float> into(400'000);
    absl::Status sent;
    Received received;

    Finish({Send(0, 1, values, sent, "filled"), [&] {
              received = of(1).Recv({.from = WorkerId{0}, .into = ValuesOf(std::span(into))}, kNow);
              return !absl::IsDeadlineExceeded(received.status());
            }});

    ASSERT_TRUE(received.ok()) << received.status();
    EXPECT_EQ(into, values);
    EXPECT_EQ(received->label, "filled");
    EXPECT_THAT(received->bytes, IsEmpty());
  }
}

TEST_F(SimMessageTest, OtherTypesOrSizesFailInBoth) {
  Start({.settings = {.job = "sim", .workers = 2, .servers = 2}});
  const std::vector<float> values(300'000, 1);
  std::vector<double> into(7);
  absl::Status sent;
  Received received;

  Finish({Send(0, 1, values, sent), [&] {
            received = of(1).Recv({.from = WorkerId{0}, .into = ValuesOf(std::span(into))}, kNow);
            return !absl::IsDeadlineExceeded(received.status());
          }});
  for (const absl::Status& status : {sent, received.status()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("worker-0 sends 300000 float32 values, worker-1 expects 7 float64"));
  }

  // The next one is not affected.
  Finish({Send(0, 1, values, sent), Recv(1, 0, received)});
  EXPECT_TRUE(sent.ok() && received.ok());
}

TEST_F(SimMessageTest, NoMessageGoesToOneselfOrNowhere) {
  Start({.settings = {.job = "sim", .workers = 2, .servers = 1}});
  const std::vector<float> values(1);
  absl::Status sent;
  Received received;

  EXPECT_TRUE(absl::IsInvalidArgument(of(0).Recv({.from = WorkerId{0}}, kNow).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(of(0).Recv({.from = WorkerId{1U << 20}}, kNow).status()));
  EXPECT_TRUE(Send(0, 1, values, sent, std::string(kMessageLabelBytesMax + 1, 'x'))());
  EXPECT_TRUE(absl::IsInvalidArgument(sent));
  Finish({Recv(0, 7, received)});
  EXPECT_TRUE(absl::IsNotFound(received.status()));
  EXPECT_THAT(std::string(received.status().message()),
              HasSubstr("worker-7 is not among the workers of this step"));
}

// One half fails, and the other one is done all the same.
TEST_F(SimMessageTest, ADeathFailsItsNeighboursInARing) {
  constexpr uint32_t kWorkers = 4;
  Start({.settings = {.job = "sim", .workers = kWorkers, .servers = 2}});
  const std::vector<float> values(100'000, 1);
  std::vector<Received> received(kWorkers, absl::UnknownError("not called"));
  std::vector<std::function<bool()>> calls;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    if (i == 2) continue;
    calls.push_back([&, i] {
      received[i] =
          of(i).SendRecv({.values = ValuesOf(std::span(values)), .to = WorkerId{(i + 1) % 4}},
                         {.from = WorkerId{(i + 3) % 4}},
                         kNow);
      return !absl::IsDeadlineExceeded(received[i].status());
    });
  }
  for (const auto& call : calls) EXPECT_FALSE(call());

  job().scheduler().RunFor(std::chrono::milliseconds(5));
  job().KillWorker(2);
  Finish(calls);

  EXPECT_THAT(FloatsOf(*received[0]), AllOf(SizeIs(values.size()), Each(1.0F)));
  for (const uint32_t neighbour : {1, 3}) {
    EXPECT_TRUE(absl::IsNotFound(received[neighbour].status()));
    EXPECT_THAT(std::string(received[neighbour].status().message()),
                HasSubstr("worker-2 is not among the workers of this step"));
  }
}

TEST_F(SimMessageTest, AReplacedWorkerBeginsWithTheNextStep) {
  Start({.settings = {.job = "sim", .workers = 2, .servers = 2}});
  const std::vector<float> values(10, 1);
  absl::Status sent;
  Received received;
  Finish({Send(0, 1, values, sent), Recv(1, 0, received)});
  ASSERT_TRUE(sent.ok() && received.ok());

  job().KillWorker(1);
  programs_[1] = nullptr;
  Finish({Send(0, 1, values, sent)});
  EXPECT_TRUE(absl::IsNotFound(sent));
  const auto joined = trainer().StartOne(1);
  ASSERT_TRUE(job().WaitAll(trainer().Push(0, 1)).ok());
  while (!joined->is_done()) ASSERT_TRUE(job().WaitAll(trainer().Push(0, 1)).ok());
  Connect(1);
  Finish({Send(0, 1, values, sent), Recv(1, 0, received)});

  EXPECT_TRUE(sent.ok()) << sent;
  EXPECT_TRUE(received.ok()) << received.status();
}

TEST_F(SimMessageTest, AnotherCallWaitsForTheOneUnderWay) {
  Start({.settings = {.job = "sim", .workers = 2, .servers = 1}});
  const std::vector<float> values(10, 1);
  absl::Status sent;
  EXPECT_FALSE(Send(0, 1, values, sent)());

  const absl::Status refused = of(0).Recv({.from = WorkerId{1}}, kNow).status();

  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is still under way: call that again"));
}

// A sender and a receiver die at any moment of a message of several pieces: nobody waits for ever.
TEST_F(SimMessageTest, ADeathInsideAMessageIsNoticed) {
  const Seeds seeds = SeedsToRun(30);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    InprocOptions network;
    network.faults = {.delay_max = std::chrono::milliseconds(2)};
    Start(
        {.settings = {.job = "sim", .workers = 2, .servers = 2}, .seed = seed, .network = network});
    const std::vector<float> values(600'000, 4);
    absl::Status sent;
    Received received;
    const auto send = Send(0, 1, values, sent);
    const auto receive = Recv(1, 0, received);
    send();
    receive();

    job().scheduler().RunFor(std::chrono::microseconds(random() % 12'000));
    const auto dead = static_cast<uint32_t>(random() % 2);
    job().KillWorker(dead);
    programs_[dead] = nullptr;
    Finish({dead == 0 ? receive : send});

    const absl::Status& of_other = dead == 0 ? received.status() : sent;
    EXPECT_TRUE(of_other.ok() || absl::IsNotFound(of_other)) << of_other;
    if (dead == 0 && received.ok()) {
      EXPECT_EQ(FloatsOf(*received), values);
    }
  }
}

}  // namespace
}  // namespace pushpull
