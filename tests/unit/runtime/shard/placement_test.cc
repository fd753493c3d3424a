// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/placement.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/shard/chunk.h"

namespace pushpull {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Bytes in float32 of each tensor of tests/data/tensors/<name>.txt.
std::vector<uint64_t> ReadTensorBytes(const std::string& name) {
  std::ifstream file(std::string(PUSHPULL_TEST_DATA) + "/tensors/" + name + ".txt");
  std::vector<uint64_t> tensor_bytes;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string tensor;
    words >> tensor;
    uint64_t bytes = sizeof(float);
    for (uint64_t dim = 0; words >> dim;) bytes *= dim;
    tensor_bytes.push_back(bytes);
  }
  return tensor_bytes;
}

// "even", or weights 1, 2, 3, 4, 1, 2, ...
std::vector<double> Weights(const std::string& kind, size_t num_servers) {
  std::vector<double> weights(num_servers, 1.0);
  if (kind == "uneven") {
    for (size_t i = 0; i < num_servers; ++i) weights[i] = static_cast<double>(1 + i % 4);
  }
  return weights;
}

// A job whose tensors come in batches; the sums are the test's own.
class Cluster {
 public:
  explicit Cluster(std::vector<double> weights)
      : weights_(std::move(weights)),
        primaries_(AssignShards(weights_).value()),
        shard_bytes_(kShardCount, 0),
        server_bytes_(weights_.size(), 0) {}

  std::vector<ShardId> Place(std::span<const uint64_t> tensor_bytes) {
    const ChunkRange batch = table_.Append(tensor_bytes).value();
    const std::vector<uint64_t> chunk_bytes = table_.ChunkBytes(batch);
    std::vector<ShardId> shards =
        AssignChunks(chunk_bytes,
                     {.primaries = primaries_, .shard_bytes = shard_bytes_, .weights = weights_})
            .value();
    for (size_t i = 0; i < shards.size(); ++i) {
      shard_bytes_[shards[i].value()] += chunk_bytes[i];
      server_bytes_[primaries_[shards[i].value()].value()] += chunk_bytes[i];
    }
    return shards;
  }

  // The fullest server's bytes per unit of weight over those of the whole job.
  double MaxOverMean() const {
    double max = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      max = std::max(max, static_cast<double>(server_bytes_[i]) / weights_[i]);
    }
    const double weight = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    return max / (static_cast<double>(table_.total_bytes()) / weight);
  }

  std::span<const uint64_t> server_bytes() const { return server_bytes_; }
  std::span<const uint64_t> shard_bytes() const { return shard_bytes_; }

 private:
  std::vector<double> weights_;
  std::vector<ServerId> primaries_;
  ChunkTable table_;
  std::vector<uint64_t> shard_bytes_;
  std::vector<uint64_t> server_bytes_;
};

struct Model {
  const char* name;
  size_t num_tensors;
  uint64_t num_parameters;
};

class ModelListTest : public ::testing::TestWithParam<Model> {};

TEST_P(ModelListTest, HasTheTensorsAndParametersOfTheModel) {
  const std::vector<uint64_t> tensor_bytes = ReadTensorBytes(GetParam().name);

  EXPECT_EQ(tensor_bytes.size(), GetParam().num_tensors);
  EXPECT_EQ(std::accumulate(tensor_bytes.begin(), tensor_bytes.end(), uint64_t{0}),
            GetParam().num_parameters * sizeof(float));
}

INSTANTIATE_TEST_SUITE_P(Models,
                         ModelListTest,
                         ::testing::Values(Model{"resnet50", 161, 25'557'032},
                                           Model{"vgg16", 32, 138'357'544},
                                           Model{"bert_large", 391, 335'141'888},
                                           Model{"giant_embedding", 7, 1'280'197'633}),
                         [](const auto& param) { return std::string(param.param.name); });

using BalanceCase = std::tuple<const char*, size_t, const char*>;

class BalanceTest : public ::testing::TestWithParam<BalanceCase> {};

TEST_P(BalanceTest, NoServerIsFivePercentAboveTheMean) {
  const auto& [model, num_servers, weights] = GetParam();
  Cluster cluster(Weights(weights, num_servers));

  cluster.Place(ReadTensorBytes(model));

  EXPECT_LE(cluster.MaxOverMean(), 1.05);
}

TEST_P(BalanceTest, HoldsWhenTensorsComeOneByOneTheLargestFirst) {
  const auto& [model, num_servers, weights] = GetParam();
  Cluster cluster(Weights(weights, num_servers));

  std::vector<uint64_t> tensor_bytes = ReadTensorBytes(model);
  std::sort(tensor_bytes.begin(), tensor_bytes.end(), std::greater<>());
  for (const uint64_t bytes : tensor_bytes) cluster.Place(std::vector<uint64_t>{bytes});

  EXPECT_LE(cluster.MaxOverMean(), 1.05);
}

INSTANTIATE_TEST_SUITE_P(
    Models,
    BalanceTest,
    ::testing::Combine(::testing::Values("resnet50", "vgg16", "bert_large", "giant_embedding"),
                       ::testing::Values(2, 4, 8, 16),
                       ::testing::Values("even", "uneven")),
    [](const auto& param) {
      return std::string(std::get<0>(param.param)) + "_on_" +
             std::to_string(std::get<1>(param.param)) + "_" + std::get<2>(param.param);
    });

class PrefixTest : public ::testing::TestWithParam<std::vector<double>> {};

TEST_P(PrefixTest, EveryPrefixOfTheShardsIsWithinOneOfEveryShare) {
  const std::vector<double>& weights = GetParam();
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;  // in units of the largest: the weights themselves may add up to infinity
  for (const double weight : weights) sum += weight / largest;

  const absl::StatusOr<std::vector<ServerId>> primaries = AssignShards(weights);

  ASSERT_TRUE(primaries.ok()) << primaries.status();
  ASSERT_THAT(*primaries, SizeIs(kShardCount));
  std::vector<double> counts(weights.size(), 0);
  for (size_t shard = 0; shard < primaries->size(); ++shard) {
    counts[(*primaries)[shard].value()] += 1;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double share = weights[i] / largest / sum * static_cast<double>(shard + 1);
      ASSERT_LT(std::abs(counts[i] - share), 1.0) << "server " << i << " after shard " << shard;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights,
                         PrefixTest,
                         ::testing::Values(std::vector<double>{5},
                                           std::vector<double>{1, 1},
                                           std::vector<double>{1, 1, 1},
                                           std::vector<double>{0.7, 0.2, 0.1},
                                           std::vector<double>{1000, 1, 1, 1, 1},
                                           std::vector<double>{1e308, 1e308, 1e308},
                                           std::vector<double>{3, 0, 1, 0},
                                           std::vector<double>(16, 0.1),
                                           std::vector<double>(1024, 1)));

TEST(AssignShardsTest, AServerWithoutWeightGetsNoShard) {
  const std::vector<ServerId> primaries = AssignShards(std::vector<double>{0, 1, 0, 1}).value();

  EXPECT_THAT(primaries, Each(::testing::AnyOf(ServerId(1), ServerId(3))));
}

TEST(AssignShardsTest, RejectsInvalidWeights) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();

  for (const std::vector<double>& weights :
       std::vector<std::vector<double>>{{}, {0, 0}, {1, -1}, {1, nan}, {infinity}}) {
    EXPECT_EQ(AssignShards(weights).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(AssignShards(std::vector<double>{1, -2}).status().message(),
              HasSubstr("server-1: must be finite and at least 0, is -2"));
}

TEST(AssignChunksTest, TheSameArgumentsGiveTheSameAnswer) {
  const std::vector<uint64_t> tensor_bytes = ReadTensorBytes("resnet50");

  EXPECT_EQ(Cluster({1, 2, 3}).Place(tensor_bytes), Cluster({1, 2, 3}).Place(tensor_bytes));
}

TEST(AssignChunksTest, EqualChunksGoToTheLowestIdsFirst) {
  Cluster cluster({1, 1});

  const std::vector<ShardId> shards = cluster.Place(std::vector<uint64_t>{4, 4, 4, 4});

  EXPECT_THAT(shards, ElementsAre(ShardId(0), ShardId(1), ShardId(2), ShardId(3)));
}

TEST(AssignChunksTest, ABatchFillsTheServersThatHoldLess) {
  Cluster cluster({1, 1, 1});
  cluster.Place(std::vector<uint64_t>{900, 100, 200});

  cluster.Place(std::vector<uint64_t>(15, 100));

  EXPECT_THAT(cluster.server_bytes(), ElementsAre(900, 900, 900));
}

TEST(AssignChunksTest, NoShardGetsASecondChunkBeforeAllOfItsServerHaveOne) {
  Cluster cluster({1, 3});

  cluster.Place(std::vector<uint64_t>(kShardCount, 64));

  EXPECT_THAT(cluster.shard_bytes(), Each(64));
}

TEST(AssignChunksTest, AServerThatLostItsWeightGetsNoNewChunk) {
  const std::vector<ServerId> primaries = AssignShards(std::vector<double>{1, 1}).value();
  const std::vector<uint64_t> shard_bytes(kShardCount, 0);

  const std::vector<ShardId> shards = AssignChunks(std::vector<uint64_t>(10, 4),
                                                   {.primaries = primaries,
                                                    .shard_bytes = shard_bytes,
                                                    .weights = std::vector<double>{1, 0}})
                                          .value();

  for (const ShardId shard : shards) EXPECT_EQ(primaries[shard.value()], ServerId(0));
}

TEST(AssignChunksTest, RejectsInconsistentState) {
  const std::vector<uint64_t> chunk{4};
  const std::vector<double> weights{1};
  const std::vector<double> elsewhere{0, 1};
  const std::vector<uint64_t> shard_bytes(kShardCount, 0);
  const std::vector<ServerId> primaries(kShardCount, ServerId(0));
  const std::vector<ServerId> unknown(kShardCount, ServerId(1));

  for (const PlacementState& state : std::vector<PlacementState>{
           {.primaries = unknown, .shard_bytes = shard_bytes, .weights = weights},
           {.primaries = primaries, .shard_bytes = shard_bytes, .weights = elsewhere},
           {.primaries = {}, .shard_bytes = shard_bytes, .weights = weights},
           {.primaries = primaries, .shard_bytes = {}, .weights = weights},
           {.primaries = primaries, .shard_bytes = shard_bytes, .weights = {}}}) {
    EXPECT_EQ(AssignChunks(chunk, state).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace pushpull
