// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/sim_trainer.h"

#include <set>
#include <utility>

#include <gtest/gtest.h>

namespace pushpull {

TensorSpec SimTensor(const std::string& name,
                     int64_t values,
                     OptimizerKind kind,
                     Reduction reduction) {
  TensorSpec spec{.name = name, .dims = {values}, .reduction = reduction};
  spec.optimizer.kind = kind;
  spec.optimizer.learning_rate = kind == OptimizerKind::kSum ? 0 : 1;
  return spec;
}

void KeepServers(SimJob& job, uint32_t wanted) {
  for (uint32_t i = 0; i < 8; ++i) {
    if (job.has_server(i) && job.server_has_ended(i)) job.KillServer(i);
    if (i < wanted && !job.has_server(i)) job.StartServer(i);
  }
}

bool IsWhole(SimJob& job, uint32_t wanted) {
  const JobStatus status = job.Status();
  std::set<std::string> known;
  for (const ServerStatus& server : status.servers) known.insert(server.data_address);
  for (uint32_t i = 0; i < wanted; ++i) {
    if (!job.has_server(i) || !known.contains(job.server_address(i))) return false;
  }
  return status.shards_moving == 0;
}

SimTrainer::SimTrainer(SimJob& job, std::vector<TensorSpec> specs)
    : job_(job), specs_(std::move(specs)) {}

absl::Status SimTrainer::Start(uint32_t count) {
  Operations pending;
  for (uint32_t i = 0; i < count; ++i) pending.push_back(StartOne(i));
  return job_.WaitAll(pending);
}

std::shared_ptr<PendingOperation> SimTrainer::StartOne(uint32_t index) {
  WorkerNode& node = job_.StartWorker(index);
  node.Join();
  auto& values = values_[index];
  values.clear();
  for (const TensorSpec& spec : specs_)
    values.emplace_back(static_cast<size_t>(spec.dims[0]), 0.0F);
  std::vector<TensorRegistration> registrations;
  for (size_t i = 0; i < specs_.size(); ++i)
    registrations.push_back({.spec = specs_[i], .value = values[i]});
  return node.Register(registrations);
}

SimTrainer::Operations SimTrainer::Push(uint32_t index,
                                        const std::function<float(size_t tensor)>& gradient_of,
                                        double samples) {
  Operations pending;
  auto& gradients = gradients_[index];
  gradients.resize(specs_.size());
  for (size_t i = 0; i < specs_.size(); ++i) {
    gradients[i].assign(static_cast<size_t>(specs_[i].dims[0]), gradient_of(i));
    auto handle = job_.worker(index).PushPull(
        specs_[i].name, gradients[i], values_[index][i], {.samples = samples});
    EXPECT_TRUE(handle.ok()) << handle.status();
    if (handle.ok()) pending.push_back(*handle);
  }
  return pending;
}

SimTrainer::Operations SimTrainer::Push(uint32_t index, float gradient, double samples) {
  return Push(
      index, [gradient](size_t) { return gradient; }, samples);
}

SimTrainer::Operations SimTrainer::PushAll(
    uint32_t count, const std::function<float(uint32_t worker)>& gradient_of) {
  Operations pending;
  for (uint32_t i = 0; i < count; ++i) {
    for (auto& one : Push(i, gradient_of(i))) pending.push_back(std::move(one));
  }
  return pending;
}

absl::Status SimTrainer::StepAll(uint32_t count,
                                 const std::function<float(uint32_t worker)>& gradient_of) {
  return job_.WaitAll(PushAll(count, gradient_of));
}

}  // namespace pushpull
