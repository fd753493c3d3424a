// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads, each with a stream of one device. On a GPU several ranks share it, which NCCL
// allows from some version on and only where NCCL_MULTI_RANK_GPU_ENABLE=1 is set.
#include "runtime/collective/nccl/nccl_communicator.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/staging_ring.h"
#include "tests/fakes/fake_cuda_driver.h"
#include "tests/fakes/fake_nccl.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::chrono::seconds kPatience{30};
constexpr std::chrono::milliseconds kShort{30};

Deadline Soon() {
  return Deadline::After(kPatience);
}

// What a rank has: a communicator, a stream, and arrays on the device.
class Rank {
 public:
  Rank(std::shared_ptr<const Device> device, DeviceStream stream)
      : device_(std::move(device)),
        stream_(std::move(stream)),
        staging_(*StagingRing::Create(stream_, {})) {}

  DeviceStream& stream() { return stream_; }

  DeviceSpan<float> Upload(const std::vector<float>& values) {
    auto buffer = DeviceBuffer::Create(device_, values.size() * sizeof(float));
    EXPECT_EQ(absl::OkStatus(), buffer.status());
    buffers_.push_back(*std::move(buffer));
    const DeviceSpan<float> span = buffers_.back().As<float>();
    EXPECT_EQ(absl::OkStatus(),
              staging_.ToDevice(AsWritableBytes(span), std::as_bytes(std::span(values)), Soon()));
    return span;
  }

  std::vector<float> Download(DeviceSpan<float> span) {
    std::vector<float> values(span.size());
    EXPECT_EQ(absl::OkStatus(),
              staging_.ToHost(std::as_writable_bytes(std::span(values)), AsBytes(span), Soon()));
    return values;
  }

 private:
  std::shared_ptr<const Device> device_;
  DeviceStream stream_;
  std::vector<DeviceBuffer> buffers_;
  StagingRing staging_;
};

using Body = std::function<void(Rank& rank, NcclCommunicator& ranks)>;

// Parameter: "stand_in" or "gpu".
class NcclOnDeviceTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "gpu") {
      auto driver = LoadDriverApi();
      if (!driver.ok()) GTEST_SKIP() << driver.status();
      auto nccl = LoadNcclApi();
      if (!nccl.ok()) GTEST_SKIP() << nccl.status();
      driver_ = *driver;
      nccl_ = *nccl;
    } else {
      fake_driver_ = std::make_unique<FakeCudaDriver>();
      fake_nccl_ = std::make_unique<FakeNccl>(*fake_driver_);
      driver_ = fake_driver_->api();
      nccl_ = fake_nccl_->api();
      ASSERT_EQ(absl::OkStatus(), InitializeDriver(*driver_).status());
    }
    device_ = *Device::Open(driver_, 0);
  }

  void TearDown() override {
    device_.reset();
    if (fake_nccl_ == nullptr) return;
    EXPECT_THAT(fake_nccl_->violations(), IsEmpty());
    EXPECT_EQ(fake_nccl_->num_left(), 0U);
    EXPECT_THAT(fake_driver_->violations(), IsEmpty());
    EXPECT_THAT(fake_driver_->leftovers(), IsEmpty());
  }

  // Runs `body` in a thread for each of so many ranks. False, with the test skipped, where this
  // NCCL lets no ranks share a GPU.
  bool RunRanks(uint32_t size, const Body& body) {
    const auto id = NewNcclId(*nccl_);
    EXPECT_EQ(absl::OkStatus(), id.status());
    std::vector<absl::Status> connected(size);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < size; ++i) {
      threads.emplace_back([&, i] {
        Rank rank(device_, *DeviceStream::Create(device_));
        auto ranks = NcclCommunicator::Connect(nccl_, device_, {*id, i, size}, Soon());
        connected[i] = ranks.status();
        if (ranks.ok()) body(rank, **ranks);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : connected) {
      if (status.ok()) continue;
      if (size > 1 && fake_nccl_ == nullptr) refused_ = status;
      if (refused_.ok()) ADD_FAILURE() << status;
      return false;
    }
    return true;
  }

  std::unique_ptr<FakeCudaDriver> fake_driver_;
  std::unique_ptr<FakeNccl> fake_nccl_;
  std::shared_ptr<const DriverApi> driver_;
  std::shared_ptr<const NcclApi> nccl_;
  std::shared_ptr<const Device> device_;
  absl::Status refused_;
};

INSTANTIATE_TEST_SUITE_P(Nccl,
                         NcclOnDeviceTest,
                         testing::Values("stand_in", "gpu"),
                         [](const auto& parameter) { return std::string(parameter.param); });

std::vector<float> CountFrom(uint32_t rank, size_t size) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = static_cast<float>(i % 1000 + rank);
  return values;
}

TEST_P(NcclOnDeviceTest, EveryRankGetsTheSumAndTheMean) {
  for (const uint32_t size : {1U, 2U, 4U}) {
    const bool has_run = RunRanks(size, [&](Rank& rank, NcclCommunicator& ranks) {
      const DeviceSpan<float> sum = rank.Upload(CountFrom(ranks.rank(), 10'007));
      const DeviceSpan<float> mean = rank.Upload(CountFrom(ranks.rank(), 8));
      EXPECT_EQ(absl::OkStatus(),
                ranks.AllReduce(
                    rank.stream(), AsWritableBytes(sum), ElementKind::kFloat32, ElementOp::kSum));
      EXPECT_EQ(absl::OkStatus(),
                ranks.AllReduce(
                    rank.stream(), AsWritableBytes(mean), ElementKind::kFloat32, ElementOp::kMean));
      EXPECT_EQ(absl::OkStatus(), ranks.Wait(rank.stream(), Soon()));

      const float of_ranks = static_cast<float>(size * (size - 1) / 2);
      const auto ranks_float = static_cast<float>(size);
      EXPECT_EQ(rank.Download(sum)[10'006], 6 * ranks_float + of_ranks) << size;
      EXPECT_EQ(rank.Download(mean)[7], 7 + of_ranks / ranks_float) << size;
    });
    if (!has_run && !refused_.ok()) GTEST_SKIP() << "ranks on one GPU: " << refused_;
  }
}

TEST_P(NcclOnDeviceTest, PiecesAreScatteredAndGathered) {
  for (const uint32_t size : {1U, 2U, 4U}) {
    const bool has_run = RunRanks(size, [&](Rank& rank, NcclCommunicator& ranks) {
      const size_t num_elements = 100 * size;
      const DeviceSpan<float> values = rank.Upload(CountFrom(0, num_elements));
      EXPECT_EQ(
          absl::OkStatus(),
          ranks.ReduceScatter(
              rank.stream(), AsWritableBytes(values), ElementKind::kFloat32, ElementOp::kSum));
      EXPECT_EQ(absl::OkStatus(), ranks.AllGather(rank.stream(), AsWritableBytes(values)));
      EXPECT_EQ(absl::OkStatus(), ranks.Wait(rank.stream(), Soon()));

      std::vector<float> expected = CountFrom(0, num_elements);
      for (float& value : expected) value *= static_cast<float>(size);
      EXPECT_EQ(rank.Download(values), expected) << size;
    });
    if (!has_run && !refused_.ok()) GTEST_SKIP() << "ranks on one GPU: " << refused_;
  }
}

TEST_P(NcclOnDeviceTest, EveryRankGetsTheRootsValues) {
  const bool has_run = RunRanks(2, [&](Rank& rank, NcclCommunicator& ranks) {
    const DeviceSpan<float> values = rank.Upload(CountFrom(10 * ranks.rank(), 33));
    EXPECT_EQ(absl::OkStatus(), ranks.Broadcast(rank.stream(), AsWritableBytes(values), 1));
    EXPECT_EQ(absl::OkStatus(), ranks.Wait(rank.stream(), Soon()));

    EXPECT_EQ(rank.Download(values), CountFrom(10, 33));
  });
  if (!has_run && !refused_.ok()) GTEST_SKIP() << "ranks on one GPU: " << refused_;
}

TEST_P(NcclOnDeviceTest, WhatDoesNotFitIsRefusedAndBreaksNothing) {
  RunRanks(1, [&](Rank& rank, NcclCommunicator& ranks) {
    const DeviceSpan<float> values = rank.Upload({1, 2, 3});
    const DeviceSpan<std::byte> bytes = AsWritableBytes(values);

    const absl::Status op =
        ranks.AllReduce(rank.stream(), bytes, ElementKind::kFloat32, ElementOp::kAnd);
    const absl::Status size =
        ranks.AllReduce(rank.stream(), bytes.subspan(0, 7), ElementKind::kFloat32, ElementOp::kSum);
    const absl::Status root = ranks.Broadcast(rank.stream(), bytes, 1);

    EXPECT_EQ(op.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(op.ToString(), HasSubstr("NCCL has no float32 and"));
    EXPECT_EQ(size.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(root.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(absl::OkStatus(),
              ranks.AllReduce(rank.stream(), bytes, ElementKind::kFloat32, ElementOp::kSum));
    EXPECT_EQ(absl::OkStatus(), ranks.Wait(rank.stream(), Soon()));
  });
}

// What only the stand-in can do: lose ranks, be of another version.
class NcclCommunicatorTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(absl::OkStatus(), InitializeDriver(*driver_.api()).status());
    device_ = *Device::Open(driver_.api(), 0);
    id_ = *NewNcclId(*nccl_.api());
  }
  void TearDown() override {
    device_.reset();
    EXPECT_THAT(nccl_.violations(), IsEmpty());
    EXPECT_EQ(nccl_.num_left(), 0U);
    EXPECT_THAT(driver_.violations(), IsEmpty());
    EXPECT_THAT(driver_.leftovers(), IsEmpty());
  }

  // All ranks connected, from this thread's point of view.
  std::vector<std::unique_ptr<NcclCommunicator>> ConnectAll(uint32_t size, int version = 23203) {
    return InThreads(size, [&](uint32_t i) {
      return NcclCommunicator::Connect(nccl_.api(version), device_, {id_, i, size}, Soon());
    });
  }

  using Made = absl::StatusOr<std::unique_ptr<NcclCommunicator>>;
  std::vector<std::unique_ptr<NcclCommunicator>> InThreads(
      uint32_t size, const std::function<Made(uint32_t i)>& make) {
    std::vector<std::unique_ptr<NcclCommunicator>> made(size);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < size; ++i) {
      threads.emplace_back([&, i] {
        Made one = make(i);
        EXPECT_EQ(absl::OkStatus(), one.status());
        if (one.ok()) made[i] = *std::move(one);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return made;
  }

  FakeCudaDriver driver_;
  FakeNccl nccl_{driver_};
  std::shared_ptr<const Device> device_;
  NcclId id_;
};

TEST_F(NcclCommunicatorTest, ARankThatDoesNotComeEndsTheStart) {
  const auto ranks =
      NcclCommunicator::Connect(nccl_.api(), device_, {id_, 0, 2}, Deadline::After(kShort));

  EXPECT_EQ(ranks.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(ranks.status().ToString(), HasSubstr("rank 0 of 2: connecting"));
}

TEST_F(NcclCommunicatorTest, ARankThatIsNoneIsRefused) {
  const auto ranks = NcclCommunicator::Connect(nccl_.api(), device_, {id_, 2, 2}, Soon());

  EXPECT_EQ(ranks.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(NcclCommunicatorTest, ALostRankEndsTheWaitWithItsOperation) {
  Rank rank(device_, *DeviceStream::Create(device_));
  auto all = ConnectAll(2);
  const DeviceSpan<float> values = rank.Upload({1, 2, 3});
  ASSERT_EQ(absl::OkStatus(),
            all[0]->AllReduce(
                rank.stream(), AsWritableBytes(values), ElementKind::kFloat32, ElementOp::kSum));
  nccl_.LoseRank(1);

  const absl::Status lost = all[0]->Wait(rank.stream(), Soon());
  const absl::Status after = all[0]->Broadcast(rank.stream(), AsWritableBytes(values), 0);
  all.clear();

  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(lost.ToString(),
              AllOf(HasSubstr("rank 0 of 2: all-reduce of 12 bytes: remote process exited"),
                    HasSubstr("go on with those that are left")));
  EXPECT_EQ(after.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(after.ToString(), HasSubstr("all-reduce of 12 bytes"));
}

TEST_F(NcclCommunicatorTest, ACallThatOthersDoNotMakeEndsAtItsDeadline) {
  Rank rank(device_, *DeviceStream::Create(device_));
  auto all = ConnectAll(2);
  const DeviceSpan<float> values = rank.Upload({1, 2, 3});
  ASSERT_EQ(absl::OkStatus(), all[0]->Broadcast(rank.stream(), AsWritableBytes(values), 0));

  const absl::Status late = all[0]->Wait(rank.stream(), Deadline::After(kShort));
  all.clear();

  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.ToString(), HasSubstr("rank 0 of 2: broadcast of 12 bytes from rank 0"));
}

TEST_F(NcclCommunicatorTest, WhoIsLeftGoesOnWithoutTheLostRank) {
  Rank first(device_, *DeviceStream::Create(device_));
  Rank third(device_, *DeviceStream::Create(device_));
  auto all = ConnectAll(3);
  const DeviceSpan<float> of_first = first.Upload({1, 2});
  const DeviceSpan<float> of_third = third.Upload({10, 20});
  ASSERT_EQ(absl::OkStatus(),
            all[0]->AllReduce(
                first.stream(), AsWritableBytes(of_first), ElementKind::kFloat32, ElementOp::kSum));
  nccl_.LoseRank(1);
  EXPECT_EQ(all[0]->Wait(first.stream(), Soon()).code(), absl::StatusCode::kUnavailable);

  const std::vector<uint32_t> lost = {1};
  auto left = InThreads(2, [&](uint32_t i) { return all[2 * i]->Shrink(lost, Soon()); });
  all.clear();

  ASSERT_TRUE(left[0] != nullptr && left[1] != nullptr);
  EXPECT_EQ(left[1]->rank(), 1U);
  EXPECT_EQ(left[1]->size(), 2U);
  for (const auto& [ranks, rank, values] :
       {std::tuple{left[0].get(), &first, of_first}, std::tuple{left[1].get(), &third, of_third}}) {
    EXPECT_EQ(absl::OkStatus(),
              ranks->AllReduce(
                  rank->stream(), AsWritableBytes(values), ElementKind::kFloat32, ElementOp::kSum));
  }
  EXPECT_EQ(absl::OkStatus(), left[0]->Wait(first.stream(), Soon()));
  EXPECT_EQ(absl::OkStatus(), left[1]->Wait(third.stream(), Soon()));
  EXPECT_EQ(first.Download(of_first), (std::vector<float>{11, 22}));
  EXPECT_EQ(third.Download(of_third), (std::vector<float>{11, 22}));
}

TEST_F(NcclCommunicatorTest, ARankMayJoin) {
  auto all = ConnectAll(1);
  const auto id = all[0]->NewGrowId();
  ASSERT_EQ(absl::OkStatus(), id.status());

  auto grown = InThreads(2, [&](uint32_t i) -> Made {
    if (i == 0) return all[0]->Grow(2, &*id, Soon());
    return NcclCommunicator::Join(nccl_.api(), device_, {*id, 1, 2}, Soon());
  });

  ASSERT_TRUE(grown[0] != nullptr && grown[1] != nullptr);
  EXPECT_EQ(grown[0]->size(), 2U);
  EXPECT_EQ(grown[1]->rank(), 1U);
  EXPECT_EQ(all[0]->NewGrowId().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(NcclCommunicatorTest, AnOldVersionSaysThatItCannotShrinkOrGrow) {
  auto all = ConnectAll(2, 22005);
  const std::vector<uint32_t> lost = {1};

  const auto shrunk = all[0]->Shrink(lost, Soon());
  const auto grown = all[0]->Grow(3, nullptr, Soon());

  EXPECT_EQ(shrunk.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(shrunk.status().ToString(), HasSubstr("NCCL 2.20.5 cannot"));
  EXPECT_EQ(grown.status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(NcclCommunicatorTest, ARankCannotLeaveItselfOut) {
  auto all = ConnectAll(2);
  const std::vector<uint32_t> lost = {0};

  const auto shrunk = all[0]->Shrink(lost, Soon());

  EXPECT_EQ(shrunk.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(shrunk.status().ToString(), HasSubstr("rank 0 is this one"));
}

}  // namespace
}  // namespace pushpull
