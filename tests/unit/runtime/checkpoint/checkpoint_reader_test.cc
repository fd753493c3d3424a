// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/checkpoint_reader.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_roles.h"
#include "tests/fakes/memory_file_system.h"
#include "tests/unit/runtime/checkpoint/sample_checkpoint.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<float> FloatsOf(std::span<const std::byte> bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

// Bits, because the sample's values are random ones, and a NaN is not equal to itself.
std::vector<uint32_t> BitsOf(const std::vector<float>& floats) {
  std::vector<uint32_t> bits(floats.size());
  std::memcpy(bits.data(), floats.data(), floats.size() * sizeof(float));
  return bits;
}

class CheckpointReaderTest : public ::testing::Test {
 protected:
  std::unique_ptr<Checkpoint> Open(const std::string& path) {
    absl::StatusOr<std::unique_ptr<Checkpoint>> opened = OpenCheckpoint(files_, path);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  // The value, or the optimizer's state, of the sample's tensor "large".
  static std::vector<float> LargeSaved(const SampleOptions& options, bool is_state) {
    const ChunkTable table = *MakeChunkTable(SampleTensors(options));
    std::vector<float> first;
    std::vector<float> second;
    for (uint64_t id = 6; id < 9; ++id) {
      const SampleChunk chunk = MakeSampleChunk(options, table, ChunkId{id});
      const std::vector<float> floats = FloatsOf(is_state ? chunk.state : chunk.value);
      const auto half = floats.begin() + static_cast<ptrdiff_t>(chunk.value.size() / 4);
      first.insert(first.end(), floats.begin(), half);
      second.insert(second.end(), half, floats.end());
    }
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  MemoryFileSystem files_;
};

TEST_F(CheckpointReaderTest, ATensorIsReadFromTheFilesOfAnyNumberOfServers) {
  for (const uint32_t servers : {1U, 2U, 3U}) {
    const SampleOptions options{.num_servers = servers, .is_large = true};
    const std::string dir = absl::StrCat("dir", servers);
    ASSERT_TRUE(WriteSample(files_, dir, options).ok());
    const auto checkpoint = Open(StepFolder(dir, Step{42}));
    ASSERT_NE(checkpoint, nullptr);
    std::vector<float> value(175'000);
    std::vector<float> state(2 * 175'000);

    ASSERT_TRUE(checkpoint->Read("large", 0, value).ok());
    for (const size_t row : {0, 1}) {
      const std::span<float> out = std::span(state).subspan(row * 175'000, 175'000);
      ASSERT_TRUE(checkpoint->ReadOptimizerState("large", row, 0, out).ok());
    }

    EXPECT_EQ(BitsOf(value), BitsOf(LargeSaved(options, false))) << servers;
    EXPECT_EQ(BitsOf(state), BitsOf(LargeSaved(options, true))) << servers;
    EXPECT_EQ(*checkpoint->Updates("large"), 41U);
    EXPECT_EQ(checkpoint->info().step, Step{42});
    EXPECT_EQ(checkpoint->info().job, "sample");
    EXPECT_EQ(checkpoint->tensors().size(), 8U);
    EXPECT_EQ(checkpoint->position(), std::nullopt);
  }
}

TEST_F(CheckpointReaderTest, APartOfATensorMayBeginAndEndAnywhere) {
  const SampleOptions options{.is_large = true};
  ASSERT_TRUE(WriteSample(files_, "dir", options).ok());
  const auto checkpoint = Open(StepFolder("dir", Step{42}));
  const std::vector<float> all = LargeSaved(options, false);
  std::vector<float> part(100'000);

  ASSERT_TRUE(checkpoint->Read("large", 65'530, part).ok());

  EXPECT_EQ(BitsOf(part), BitsOf({all.begin() + 65'530, all.begin() + 165'530}));
  EXPECT_THAT(checkpoint->Read("large", 75'001, part).message(),
              HasSubstr("has 175000 elements, asked for 100000 from 75001 on"));
}

TEST_F(CheckpointReaderTest, WhatIsNotThereIsNamed) {
  ASSERT_TRUE(WriteSample(files_, "dir", {}).ok());
  const auto checkpoint = Open(StepFolder("dir", Step{42}));
  std::vector<float> out(4);

  EXPECT_THAT(checkpoint->Read("weight", 0, out).message(), HasSubstr("tensor \"weight\" is not"));
  EXPECT_TRUE(absl::IsInvalidArgument(checkpoint->ReadOptimizerState("count", 0, 0, out)));
  EXPECT_TRUE(absl::IsInvalidArgument(checkpoint->ReadRows("count").status()));
  std::vector<std::byte> halves(8);
  EXPECT_THAT(checkpoint->Read("count", 0, TensorValues(DType::kFloat16, halves)).message(),
              HasSubstr("read as that or as float32"));
}

TEST_F(CheckpointReaderTest, TheNewestCompleteOneOfAFolderIsOpened) {
  const SampleOptions older{.step = Step{7}, .job_namespace = "default"};
  const SampleOptions newer{.step = Step{9}, .job_namespace = "default"};
  ASSERT_TRUE(WriteSample(files_, "dir/default/sample", older).ok());
  ASSERT_TRUE(WriteSample(files_, "dir/default/sample", newer).ok());
  ASSERT_TRUE(WriteSampleFiles(files_, "dir/default/sample", {.step = Step{11}}).ok());

  for (const std::string path : {"dir", "dir/default", "dir/default/sample", "dir/"})
    EXPECT_EQ(Open(path)->info().step, Step{9}) << path;
  EXPECT_THAT(OpenCheckpoint(files_, "dir/default/sample/step-000000000011").status().message(),
              HasSubstr("has no checkpoint"));
}

TEST_F(CheckpointReaderTest, SeveralJobsAreNamed) {
  ASSERT_TRUE(WriteSample(files_, "dir/a/one", {.job_namespace = "a", .job = "one"}).ok());
  ASSERT_TRUE(WriteSample(files_, "dir/a/two", {.job_namespace = "a", .job = "two"}).ok());

  const absl::Status opened = OpenCheckpoint(files_, "dir").status();

  EXPECT_TRUE(absl::IsInvalidArgument(opened));
  EXPECT_THAT(opened.message(), HasSubstr("several jobs, a/one, a/two"));
}

TEST_F(CheckpointReaderTest, ADamagedFileIsNamed) {
  ASSERT_TRUE(WriteSample(files_, "dir", {}).ok());
  const std::string folder = StepFolder("dir", Step{42});
  std::string data;
  for (const std::string& path : files_.paths())
    if (path.ends_with(".chunks")) data = path;
  const auto checkpoint = Open(folder);
  for (std::byte& byte : files_.contents(data)) byte = std::byte{0xFF};
  bool is_found = false;
  for (const CheckpointTensor& tensor : checkpoint->tensors()) {
    std::vector<float> out(1);
    if (tensor.spec.name == "empty") continue;

    const absl::Status read = checkpoint->Read(tensor.spec.name, 0, out);

    if (!absl::IsDataLoss(read)) continue;
    is_found = true;
    EXPECT_THAT(std::string(read.message()), StartsWith(data));
  }
  EXPECT_TRUE(is_found);
  files_.contents(data).pop_back();
  EXPECT_THAT(std::string(OpenCheckpoint(files_, folder).status().message()), StartsWith(data));
  EXPECT_THAT(std::string(OpenCheckpoint(files_, "dir").status().message()), StartsWith(data));
}

TEST(TensorRolesTest, WhatTorchKeepsBesideTheTensorsIsTold) {
  const auto kept = [](const char* name) {
    return TensorSpec{.name = name, .dims = {2}, .reduction = Reduction::kMax, .optimizer = {}};
  };
  const auto mean = [](const char* name) {
    return TensorSpec{.name = name, .dims = {2}, .optimizer = {}};
  };
  std::vector<TensorSpec> specs = {mean("pushpull.samples"),
                                   mean("a.w.gradient"),
                                   mean("running.mean"),
                                   mean("pushpull-torch round"),
                                   kept("a.w"),
                                   kept("a.w.exp_avg"),
                                   kept("pushpull-torch optimizers")};

  const std::vector<CheckpointTensor> roles = WithRoles(specs);

  std::vector<TensorRole> found;
  for (const CheckpointTensor& tensor : roles) found.push_back(tensor.role);
  EXPECT_THAT(found,
              ElementsAre(TensorRole::kInternal,
                          TensorRole::kValue,
                          TensorRole::kInternal,
                          TensorRole::kValue,
                          TensorRole::kOptimizerState,
                          TensorRole::kInternal));
  EXPECT_EQ(roles[4].owner, "a.w");
  EXPECT_EQ(roles[4].key, "exp_avg");
  specs.pop_back();  // not of a program whose optimizers run on the workers
  EXPECT_EQ(WithRoles(specs)[4].role, TensorRole::kValue);
}

TEST_F(CheckpointReaderTest, SafetensorsHasHeaderAndElementsWithoutGaps) {
  const SampleOptions options{.is_large = true};
  ASSERT_TRUE(WriteSample(files_, "dir", options).ok());
  const auto checkpoint = Open("dir");

  ASSERT_TRUE(ExportSafetensors(*checkpoint, files_, {.file = "dir/out"}).ok());

  const std::vector<std::byte>& bytes = files_.contents("dir/out");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const std::string header(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  EXPECT_EQ(length % 8, 0U);
  EXPECT_THAT(header, HasSubstr(R"("pushpull.step":"42")"));
  EXPECT_THAT(header,
              HasSubstr(R"("layer.weight":{"dtype":"F32","shape":[3,5],"data_offsets":[0,60]})"));
  EXPECT_THAT(header, HasSubstr(R"("scale":{"dtype":"F32","shape":[],"data_offsets":[80,84]})"));
  EXPECT_THAT(header, HasSubstr(R"("empty":{"dtype":"F32","shape":[0,7],"data_offsets":[84,84]})"));
  EXPECT_EQ(bytes.size(), 8 + length + 4 * (15 + 5 + 1 + 4 + 1 + 7 + 175'000));
  const std::vector<float> last = FloatsOf(std::span(bytes).last(4 * 175'000));
  EXPECT_EQ(BitsOf(last), BitsOf(LargeSaved(options, false)));
  EXPECT_FALSE(files_.Exists("dir/out.new"));
}

TEST_F(CheckpointReaderTest, SafetensorsHasTheStateOfOptimizersIfWanted) {
  ASSERT_TRUE(WriteSample(files_, "dir", {}).ok());

  ASSERT_TRUE(
      ExportSafetensors(*Open("dir"), files_, {.file = "dir/out", .with_optimizer = true}).ok());

  const std::vector<std::byte>& bytes = files_.contents("dir/out");
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const char* name : {"optimizer.layer.weight.exp_avg_sq",
                           "optimizer.layer.weight.step",
                           "optimizer.layer.bias.momentum_buffer",
                           "optimizer.rates.sum",
                           "optimizer.decayed.exp_avg"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

TEST_F(CheckpointReaderTest, AFailedExportLeavesWhatWasThere) {
  ASSERT_TRUE(WriteSample(files_, "dir", {}).ok());
  const auto checkpoint = Open("dir");
  ASSERT_TRUE(ExportSafetensors(*checkpoint, files_, {.file = "dir/out"}).ok());
  const std::vector<std::byte> before = files_.contents("dir/out");
  files_.LimitBytes(files_.num_bytes() + 10);

  EXPECT_FALSE(ExportSafetensors(*checkpoint, files_, {.file = "dir/out"}).ok());

  EXPECT_EQ(files_.contents("dir/out"), before);
  EXPECT_FALSE(files_.Exists("dir/out.new"));
}

}  // namespace
}  // namespace pushpull
