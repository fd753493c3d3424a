// SPDX-License-Identifier: Apache-2.0
//
// Row-sparse tensors in whole simulated jobs: every step's rows beside a dense tensor that gets the
// same gradients, while servers die, are added and removed, and the job is saved and restored.
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/verify.h"
#include "tests/fakes/seeds.h"
#include "tests/fakes/sim_job.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::Each;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

constexpr size_t kDim = 4;
constexpr size_t kKeys = 60;             // that anybody pushes
constexpr int64_t kRows = 200'000;       // ten chunks
constexpr uint64_t kStride = 1'000'003;  // keys need not be near each other
constexpr char kFolder[] = "/checkpoints";

const OptimizerSpec kSgd{.kind = OptimizerKind::kSgd, .learning_rate = 0.1};
const OptimizerSpec kAdagrad{
    .kind = OptimizerKind::kAdagrad, .learning_rate = 0.1, .epsilon = 1e-10};
const OptimizerSpec kAdam{.kind = OptimizerKind::kAdam, .learning_rate = 0.01};

std::vector<uint64_t> AllKeys() {
  std::vector<uint64_t> keys(kKeys);
  for (size_t i = 0; i < kKeys; ++i) keys[i] = i * kStride;
  return keys;
}

struct RowsOptions {
  OptimizerSpec optimizer = kSgd;
  RowSpec rows = {};
  uint32_t workers = 2;
  uint32_t servers = 2;
  uint32_t replication = 0;
  bool is_deterministic = true;
  bool is_every_key_pushed = false;
  bool has_rows_alone = false;
  FileSystem* files = nullptr;  // with checkpoints
  uint64_t seed = 1;
};

class RowsJob {
 public:
  using Operations = std::vector<std::shared_ptr<PendingOperation>>;

  explicit RowsJob(const RowsOptions& options) : options_(options), job_(OptionsOf(options)) {
    Operations registrations;
    for (uint32_t w = 0; w < options.workers; ++w) registrations.push_back(Start(w));
    registered_ = job_.WaitAll(registrations);
  }

  std::shared_ptr<PendingOperation> Start(uint32_t w) {
    job_.StartWorker(w).Join();
    dense_[w].assign(kKeys * kDim, 0.0F);
    std::vector<TensorRegistration> tensors = {{.spec = {.name = "emb",
                                                         .dims = {kRows, kDim},
                                                         .optimizer = options_.optimizer,
                                                         .rows = options_.rows},
                                                .value = {}}};
    if (!options_.has_rows_alone) {
      tensors.push_back(
          {.spec = {.name = "d", .dims = {kKeys, kDim}, .optimizer = options_.optimizer},
           .value = dense_[w]});
    }
    return job_.worker(w).Register(tensors);
  }

  // The step's gradients of both tensors; rows come in falling order, and one of them in two parts.
  Operations Push(uint32_t w) {
    const uint64_t step = job_.worker(w).next_step().value();
    std::vector<float>& gradient = gradients_[w];
    gradient.assign(kKeys * kDim, 0.0F);
    std::vector<uint64_t> keys;
    std::vector<float> rows;
    for (size_t i = kKeys; i-- > 0;) {
      if (!options_.is_every_key_pushed && (i * 7 + step * 5 + w * 3) % 8 != 0) continue;
      for (size_t part = 0; part < (i == 8 ? 2U : 1U); ++part) {
        keys.push_back(i * kStride);
        for (size_t j = 0; j < kDim; ++j) {
          const float value = GradientAt(w, step, i, j) + 0.25F * static_cast<float>(part);
          rows.push_back(value);
          gradient[i * kDim + j] += value;
        }
      }
    }
    const PushOptions push{.samples = w + 1.0};
    Operations pushes = {*job_.worker(w).PushRows("emb", keys, rows, push)};
    if (!options_.has_rows_alone)
      pushes.push_back(*job_.worker(w).PushPull("d", gradient, dense_[w], push));
    return pushes;
  }
  Operations PushAll() {
    Operations pushes;
    for (uint32_t w = 0; w < options_.workers; ++w) {
      for (auto& push : Push(w)) pushes.push_back(std::move(push));
    }
    return pushes;
  }
  void Train(int count = 1) {
    for (int i = 0; i < count; ++i) {
      const absl::Status done = job_.WaitAll(PushAll());
      ASSERT_TRUE(done.ok()) << done;
    }
  }

  std::vector<float> Pull(uint32_t w, const std::vector<uint64_t>& keys) {
    std::vector<float> rows(keys.size() * kDim, -77.0F);
    const auto pull = job_.worker(w).PullRows("emb", keys, rows, job_.worker(w).next_step());
    EXPECT_TRUE(pull.ok()) << pull.status();
    const absl::Status pulled = job_.Wait(*pull);
    EXPECT_TRUE(pulled.ok()) << pulled;
    return rows;
  }
  void ExpectAsDense(uint32_t w = 0) {
    EXPECT_THAT(Pull(w, AllKeys()), Pointwise(FloatNear(1e-6F), dense_[w]));
  }

  SimJob& job() { return job_; }
  const absl::Status& registered() const { return registered_; }

 private:
  static SimJobOptions OptionsOf(const RowsOptions& options) {
    SimJobOptions sim{.settings = {.job = "sim",
                                   .workers = options.workers,
                                   .servers = options.servers,
                                   .replication = options.replication,
                                   .deterministic = options.is_deterministic},
                      .seed = options.seed,
                      .files = options.files};
    if (options.files != nullptr)
      sim.checkpoint = CheckpointPolicy{.folder = kFolder, .every = std::chrono::hours(100)};
    sim.network.faults.delay_max = std::chrono::milliseconds(2);
    return sim;
  }
  static float GradientAt(uint32_t w, uint64_t step, size_t i, size_t j) {
    return 0.3F * static_cast<float>((i * 5 + j * 3 + step * 7 + w) % 13) - 1.7F;
  }

  const RowsOptions options_;
  SimJob job_;
  absl::Status registered_;
  std::map<uint32_t, std::vector<float>> dense_;
  std::map<uint32_t, std::vector<float>> gradients_;
};

// ---- the same as a dense tensor ----

TEST(SimRowsTest, RowsTrainLikeADenseTensor) {
  for (const OptimizerSpec& optimizer : {kSgd, kAdagrad, kAdam}) {
    for (const bool is_deterministic : {true, false}) {
      RowsJob rows({.optimizer = optimizer,
                    .is_deterministic = is_deterministic,
                    .is_every_key_pushed = optimizer.kind == OptimizerKind::kAdam});
      ASSERT_TRUE(rows.registered().ok()) << rows.registered();

      for (int step = 0; step < 6; ++step) {
        rows.Train();
        rows.ExpectAsDense(0);
        rows.ExpectAsDense(1);
      }
    }
  }
}

TEST(SimRowsTest, APullHasTheOrderOfItsKeys) {
  RowsJob rows({});
  rows.Train(2);
  const std::vector<float> all = rows.Pull(0, AllKeys());

  const std::vector<float> some = rows.Pull(1, {5 * kStride, 3 * kStride, 5 * kStride, 12345});

  for (size_t j = 0; j < kDim; ++j) {
    EXPECT_EQ(some[j], all[5 * kDim + j]);
    EXPECT_EQ(some[kDim + j], all[3 * kDim + j]);
    EXPECT_EQ(some[2 * kDim + j], all[5 * kDim + j]);
    EXPECT_EQ(some[3 * kDim + j], 0);
  }
  EXPECT_TRUE(rows.Pull(0, {}).empty());
}

TEST(SimRowsTest, RowsBeginAsTheirInitializerSays) {
  const RowSpec spec{.init = RowInit::kNormal, .scale = 0.5, .seed = 9};
  RowsJob rows({.rows = spec, .servers = 3, .has_rows_alone = true});

  const std::vector<float> pulled = rows.Pull(1, AllKeys());

  for (size_t i = 0; i < kKeys; ++i) {
    std::vector<float> expected(kDim);
    InitializeRow(spec, i * kStride, expected);
    EXPECT_TRUE(std::equal(
        expected.begin(), expected.end(), pulled.begin() + static_cast<ptrdiff_t>(i * kDim)));
  }
}

TEST(SimRowsTest, TheFirstWorkersRowsAreTheJobs) {
  SimJob job({.settings = {.job = "sim", .workers = 1, .servers = 2}});
  job.StartWorker(0).Join();
  std::vector<float> first(100 * kDim);
  std::iota(first.begin(), first.end(), 1.0F);
  const std::vector<float> before = first;
  const std::vector<TensorRegistration> tensors = {
      {.spec = {.name = "emb", .dims = {100, kDim}, .optimizer = kSgd, .rows = RowSpec{}},
       .value = first}};
  ASSERT_TRUE(job.Wait(job.worker(0).Register(tensors)).ok());
  std::vector<uint64_t> keys(101);
  std::iota(keys.begin(), keys.end(), uint64_t{0});
  std::vector<float> rows(101 * kDim);

  ASSERT_TRUE(job.Wait(*job.worker(0).PullRows("emb", keys, rows, Step{0})).ok());

  EXPECT_EQ(first, before);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), rows.begin()));
  EXPECT_THAT(std::span(rows).last(kDim), Each(0));
}

TEST(SimRowsTest, AStepMayHaveNoRows) {
  RowsJob rows({.has_rows_alone = true});
  rows.Train();
  const std::vector<float> before = rows.Pull(0, AllKeys());

  const auto first = *rows.job().worker(0).PushRows("emb", {}, {}, {});
  const auto second = *rows.job().worker(1).PushRows("emb", {}, {}, {});

  EXPECT_TRUE(rows.job().WaitAll({first, second}).ok());
  EXPECT_EQ(rows.job().worker(0).next_step(), Step{2});
  EXPECT_EQ(rows.Pull(0, AllKeys()), before);
}

TEST(SimRowsTest, RowsThatNobodyPushesAreEvicted) {
  RowsJob rows({.rows = {.init = RowInit::kUniform, .scale = 1, .seed = 3, .evict_after = 2},
                .servers = 3,
                .replication = 1,
                .has_rows_alone = true});
  const std::vector<float> fresh = rows.Pull(0, AllKeys());
  rows.Train();
  EXPECT_NE(rows.Pull(0, AllKeys()), fresh);

  for (int step = 0; step < 2; ++step) {
    const auto first = *rows.job().worker(0).PushRows("emb", {}, {}, {});
    const auto second = *rows.job().worker(1).PushRows("emb", {}, {}, {});
    ASSERT_TRUE(rows.job().WaitAll({first, second}).ok());
  }

  EXPECT_EQ(rows.Pull(0, AllKeys()), fresh);
}

// ---- members come and go ----

TEST(SimRowsTest, ALostServerChangesNoRow) {
  for (const OptimizerSpec& optimizer : {kAdagrad, kAdam}) {
    for (int events = 0; events < 300; events += 19) {
      RowsJob rows({.optimizer = optimizer,
                    .servers = 3,
                    .replication = 1,
                    .is_every_key_pushed = optimizer.kind == OptimizerKind::kAdam});
      rows.Train(2);

      const RowsJob::Operations pushes = rows.PushAll();
      for (int i = 0; i < events; ++i) rows.job().scheduler().RunOne();
      rows.job().KillServer(static_cast<uint32_t>(events) % 3);
      ASSERT_TRUE(rows.job().WaitAll(pushes).ok()) << events;
      rows.Train(2);

      rows.ExpectAsDense(0);
      rows.ExpectAsDense(1);
    }
  }
}

TEST(SimRowsTest, RowsMoveWithTheirShards) {
  RowsJob rows({.optimizer = kAdagrad, .servers = 2, .replication = 1});
  rows.Train(2);
  for (const uint32_t servers : {4U, 3U, 5U, 2U}) {
    for (uint32_t i = 0; i < servers; ++i)
      if (!rows.job().has_server(i)) rows.job().StartServer(i);
    ASSERT_TRUE(rows.job().Resize(servers).ok());
    for (int i = 0; i < 400 && rows.job().Status().shards_moving + (i < 20) > 0; ++i) rows.Train();
    EXPECT_EQ(rows.job().Status().shards_moving, 0);

    rows.ExpectAsDense();
  }
}

TEST(SimRowsTest, AJoiningWorkerBeginsWithTheNewestRows) {
  for (int events = 0; events < 60; events += 5) {
    RowsJob rows({.seed = static_cast<uint64_t>(events + 1)});
    rows.Train(3);
    rows.job().KillWorker(1);
    RowsJob::Operations pushes = rows.Push(0);
    for (int i = 0; i < events; ++i) rows.job().scheduler().RunOne();

    const auto joining = rows.Start(1);
    while (!joining->is_done()) {
      if (pushes.front()->is_done() && pushes.back()->is_done()) pushes = rows.Push(0);
      rows.job().scheduler().RunOne();
    }
    while (rows.job().worker(1).next_step() < rows.job().worker(0).next_step()) {
      const RowsJob::Operations own = rows.Push(1);
      pushes.insert(pushes.end(), own.begin(), own.end());
      ASSERT_TRUE(rows.job().WaitAll(pushes).ok()) << events;
    }
    ASSERT_TRUE(rows.job().WaitAll(pushes).ok()) << events;
    rows.Train();

    rows.ExpectAsDense(0);
    rows.ExpectAsDense(1);
  }
}

// ---- checkpoints ----

TEST(SimRowsTest, ACheckpointHasEveryRow) {
  for (const OptimizerSpec& optimizer : {kAdagrad, kAdam}) {
    MemoryFileSystem files;
    RowsOptions options{.optimizer = optimizer,
                        .is_every_key_pushed = optimizer.kind == OptimizerKind::kAdam,
                        .files = &files};
    Step saved;
    {
      RowsJob rows(options);
      rows.Train(3);
      const absl::StatusOr<uint64_t> save = rows.job().SaveCheckpoint();
      ASSERT_TRUE(save.ok());
      while (rows.job().Status().checkpoint.finished < *save) rows.Train();
      saved = rows.job().Status().checkpoint.step;
    }
    const absl::StatusOr<VerifyReport> report = VerifyCheckpoint(files, StepFolder(kFolder, saved));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->num_problems, 0) << report->problems.front().text;

    options.servers = 3;
    RowsJob restored(options);
    ASSERT_TRUE(restored.registered().ok()) << restored.registered();
    EXPECT_GE(restored.job().worker(0).start_step(), Step{3});
    restored.Train(2);

    restored.ExpectAsDense();
  }
}

TEST(SimRowsTest, ADenseTensorIsNotRestoredAsRows) {
  MemoryFileSystem files;
  {
    RowsJob rows({.has_rows_alone = true, .files = &files});
    rows.Train(2);
    const uint64_t save = *rows.job().SaveCheckpoint();
    while (rows.job().Status().checkpoint.finished < save) rows.Train();
  }
  SimJob job({.settings = {.job = "sim", .workers = 1, .servers = 1},
              .checkpoint = CheckpointPolicy{.folder = kFolder, .every = std::chrono::hours(1)},
              .files = &files});
  job.StartWorker(0).Join();
  std::vector<float> value(kRows * kDim);
  const std::vector<TensorRegistration> tensors = {
      {.spec = {.name = "emb", .dims = {kRows, kDim}, .optimizer = kSgd}, .value = value}};

  const absl::Status registered = job.Wait(job.worker(0).Register(tensors));

  EXPECT_THAT(std::string(registered.message()),
              HasSubstr("is row-sparse in the checkpoint, dense in the job"));
}

TEST(SimRowsTest, RowsThatNoServerHasFailTheJobByName) {
  RowsJob rows({.servers = 2, .replication = 0});
  rows.Train();
  const RowsJob::Operations pushes = rows.PushAll();

  rows.job().KillServer(1);

  EXPECT_FALSE(rows.job().WaitAll(pushes).ok());
}

// ---- what a program is told ----

TEST(SimRowsTest, WhatDoesNotFitIsRefusedByTheTensor) {
  RowsJob rows({.workers = 1});
  WorkerNode& worker = rows.job().worker(0);
  std::vector<float> values(kKeys * kDim);
  const std::vector<uint64_t> keys = {1, 2};

  const absl::Status sizes = worker.PushRows("emb", keys, std::span(values).first(7), {}).status();
  const absl::Status dense = worker.PushRows("d", keys, std::span(values).first(8), {}).status();
  const absl::Status whole = worker.PushPull("emb", values, {}, {}).status();
  const absl::Status unknown = worker.PullRows("x", keys, std::span(values).first(8), {}).status();
  const absl::Status in_place =
      worker.PushRows("emb", keys, std::span(values).first(8), {.in_place = true}).status();

  EXPECT_THAT(std::string(sizes.message()),
              AllOf(HasSubstr("\"emb\""), HasSubstr("8 values, got 7")));
  EXPECT_THAT(std::string(dense.message()), HasSubstr("\"d\" is dense"));
  EXPECT_THAT(std::string(whole.message()), HasSubstr("\"emb\" is row-sparse"));
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_THAT(std::string(in_place.message()), HasSubstr("in_place"));
}

TEST(SimRowsTest, ModesThatCannotHaveRowsAreRefused) {
  RowsJob rows({.workers = 3, .is_deterministic = false});

  for (const absl::Status& refused : {rows.job().SetMode({.mode = SyncMode::kAsync}),
                                      rows.job().SetMode({.backup_workers = 1}),
                                      rows.job().SetMode({.gated = true})}) {
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("tensor \"emb\": row-sparse"), HasSubstr("spec.sync.")));
  }
}

TEST(SimRowsTest, TooManyRowsFailTheJobByTheTensor) {
  SimJob job({.settings = {.job = "sim", .workers = 1, .servers = 1}});
  job.StartWorker(0).Join();
  const std::vector<TensorRegistration> tensors = {
      {.spec = {.name = "emb", .dims = {10, 1}, .optimizer = kSgd, .rows = RowSpec{}},
       .value = {}}};
  ASSERT_TRUE(job.Wait(job.worker(0).Register(tensors)).ok());
  std::vector<uint64_t> keys(60'000);
  const std::vector<float> gradient(keys.size());
  std::iota(keys.begin(), keys.end(), uint64_t{0});
  ASSERT_TRUE(job.Wait(*job.worker(0).PushRows("emb", keys, gradient, {})).ok());

  std::ranges::for_each(keys, [](uint64_t& key) { key += 60'000; });
  const absl::Status pushed = job.Wait(*job.worker(0).PushRows("emb", keys, gradient, {}));

  EXPECT_THAT(std::string(pushed.message()),
              AllOf(HasSubstr("\"emb\""), HasSubstr("register it with more rows than 10")));
}

TEST(SimRowsTest, AStepWithoutAnyGradientChangesNoRow) {
  RowsJob rows({.optimizer = kAdam, .replication = 1, .has_rows_alone = true});
  ASSERT_TRUE(rows.registered().ok());
  rows.Train(2);
  const std::vector<float> before = rows.Pull(0, AllKeys());
  const PushOptions none{.has_gradient = false};
  const std::vector<uint64_t> keys = {0};
  const std::vector<float> gradient(kDim, 1.0F);

  RowsJob::Operations pushes;
  for (const uint32_t w : {0U, 1U}) {
    WorkerNode& worker = rows.job().worker(w);
    EXPECT_TRUE(absl::IsInvalidArgument(worker.PushRows("emb", keys, gradient, none).status()));
    pushes.push_back(*worker.PushRows("emb", {}, {}, none));
  }

  ASSERT_TRUE(rows.job().WaitAll(pushes).ok());
  for (const auto& push : pushes) EXPECT_FALSE(push->has_gradient());
  EXPECT_EQ(rows.Pull(1, AllKeys()), before);
  const auto next = rows.PushAll();
  ASSERT_TRUE(rows.job().WaitAll(next).ok());
  EXPECT_TRUE(next.front()->has_gradient());
}

}  // namespace
}  // namespace pushpull
