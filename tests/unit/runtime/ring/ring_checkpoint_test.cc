// SPDX-License-Identifier: Apache-2.0
#include "runtime/ring/ring_checkpoint.h"

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/shard/chunk.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr size_t kChunkFloats = kChunkBytes / sizeof(float);
constexpr Epoch kSavedIn{.term = Term{1}, .counter = 4};
constexpr Step kSavedStep{7};

// Two tensors, of three chunks and of one; the first with Adam's two rows of state.
std::vector<PlacedTensor> Tensors() {
  const TensorSpec large{.name = "large",
                         .dims = {static_cast<int64_t>(2 * kChunkFloats + 5)},
                         .optimizer = {.kind = OptimizerKind::kAdam, .learning_rate = 0.1}};
  const TensorSpec small{.name = "small", .dims = {3}, .optimizer = {.learning_rate = 0.1}};
  return {{.id = TensorId{0}, .spec = large, .first_chunk = ChunkId{0}, .shards = {}},
          {.id = TensorId{1}, .spec = small, .first_chunk = ChunkId{3}, .shards = {}}};
}

std::vector<float> CountFrom(float first, size_t size) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), first);
  return values;
}

class RingCheckpointTest : public testing::Test {
 public:
  ~RingCheckpointTest() override { std::filesystem::remove_all(dir_); }

 protected:
  RingCheckpointTest()
      : dir_(testing::TempDir() + "/ring_checkpoint_test"), state_(*RingState::Make(Tensors())) {
    std::filesystem::remove_all(dir_);
    for (size_t i = 0; i < state_.num_tensors(); ++i) {
      const std::vector<float> value = CountFrom(1, state_.value(i).size());
      const std::vector<float> optimizer = CountFrom(-9, state_.optimizer_state(i).size());
      state_.SetInitial(i, std::as_bytes(std::span(value)), optimizer, 5 + i);
    }
    state_.TakeCopy({.made_in = kSavedIn, .step = kSavedStep});
  }

  Capture Order(uint32_t part, uint32_t parts) const {
    return {.attempt = 3, .step = kSavedStep, .folder = dir_, .part = part, .parts = parts};
  }

  // The state as saved by so many workers; returns the checkpoint's folder.
  std::string Save(uint32_t parts) {
    std::vector<ChunkFileSummary> files;
    for (uint32_t part = 0; part < parts; ++part) {
      const absl::StatusOr<StatePart> copied = StatePart::Copy(state_, part, parts);
      EXPECT_TRUE(copied.ok()) << copied.status();
      const auto written = copied->Write(files_, Order(part, parts));
      EXPECT_TRUE(written.ok()) << written.status();
      files.insert(files.end(), written->begin(), written->end());
    }
    CheckpointManifest manifest = {.owner = {.job_namespace = "default", .job = "ring"},
                                   .step = kSavedStep,
                                   .mode = "AllReduce"};
    for (const PlacedTensor& tensor : Tensors()) manifest.tensors.push_back(tensor.spec);
    EXPECT_TRUE(AddFiles(files, manifest).ok());
    const absl::Status saved = WriteManifest(files_, dir_, manifest);
    EXPECT_TRUE(saved.ok()) << saved;
    return StepFolder(dir_, kSavedStep);
  }

  const std::string dir_;
  PosixFileSystem files_;
  RingState state_;
};

TEST_F(RingCheckpointTest, PartsOfAllWorkersAreTheWholeState) {
  for (const uint32_t workers : {1U, 3U, 6U}) {
    const std::string folder = Save(workers);
    RingState restored = *RingState::Make(Tensors());

    const absl::Status read = ReadState(files_, folder, restored);

    ASSERT_TRUE(read.ok()) << read;
    for (size_t i = 0; i < state_.num_tensors(); ++i) {
      EXPECT_TRUE(std::ranges::equal(restored.value(i), state_.value(i)));
      EXPECT_TRUE(std::ranges::equal(restored.optimizer_state(i), state_.optimizer_state(i)));
      EXPECT_EQ(restored.updates(i), state_.updates(i));
    }
    std::filesystem::remove_all(dir_);
  }
}

TEST_F(RingCheckpointTest, LaterStepsDoNotChangeACopy) {
  const absl::StatusOr<StatePart> copied = StatePart::Copy(state_, 0, 1);
  const std::vector<float> other(3, 100);
  state_.SetInitial(1, std::as_bytes(std::span(other)), {}, 9);

  const auto written = copied->Write(files_, Order(0, 1));

  ASSERT_TRUE(written.ok()) << written.status();
  ASSERT_EQ(written->size(), 1U);
  const absl::StatusOr<ChunkFileReader> file =
      ChunkFileReader::Open(files_, StepFolder(dir_, kSavedStep) + "/" + written->front().name);
  std::vector<float> value(3);
  const auto record =
      file->Read(written->front().chunks.back(), std::as_writable_bytes(std::span(value)), {});
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_THAT(value, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(record->version, kSavedStep);
  EXPECT_EQ(record->updates, 6U);
}

TEST_F(RingCheckpointTest, AWorkerWithoutChunksWritesNoFile) {
  const absl::StatusOr<StatePart> copied = StatePart::Copy(state_, 4, 5);

  const auto written = copied->Write(files_, Order(4, 5));

  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_TRUE(written->empty());
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

TEST_F(RingCheckpointTest, OfAnotherJobValuesAloneAreTaken) {
  const std::string folder = Save(2);
  std::vector<PlacedTensor> others = Tensors();
  others[0].spec.optimizer = {.kind = OptimizerKind::kAdagrad, .learning_rate = 1};
  others[1].spec.name = "head";
  RingState state = *RingState::Make(others);
  const std::vector<float> own(3, 7);
  state.SetInitial(1, std::as_bytes(std::span(own)), {}, 0);

  const absl::Status read = ReadValues(files_, folder, state);

  ASSERT_TRUE(read.ok()) << read;
  EXPECT_TRUE(std::ranges::equal(state.value(0), state_.value(0)));
  EXPECT_TRUE(std::ranges::all_of(state.optimizer_state(0), [](float each) { return each == 0; }));
  EXPECT_EQ(state.updates(0), 0U);
  EXPECT_TRUE(std::ranges::equal(state.value(1), own));
}

TEST_F(RingCheckpointTest, CheckpointOfAnotherModelIsRefused) {
  const std::string folder = Save(1);
  std::vector<PlacedTensor> others = Tensors();
  others[1].spec.dims = {4};
  RingState state = *RingState::Make(others);

  const absl::Status read = ReadState(files_, folder, state);

  EXPECT_TRUE(absl::IsInvalidArgument(read)) << read;
  EXPECT_THAT(std::string(read.message()), HasSubstr("small"));
}

TEST_F(RingCheckpointTest, FolderThatThisWorkerDoesNotSeeIsNamed) {
  const absl::Status read = ReadState(files_, dir_ + "/step-000000000001", state_);

  EXPECT_TRUE(absl::IsNotFound(read)) << read;
  EXPECT_THAT(std::string(read.message()), HasSubstr(dir_));
}

}  // namespace
}  // namespace pushpull
