// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>

#include "pushpull/job.h"

using namespace std::chrono_literals;
using pushpull::Deadline;

// Pulls ten numbers towards 3 by gradient descent on (w - 3)^2; the optimizer runs on the servers.
absl::Status Train(const std::map<std::string, std::string>& environment) {
  const auto options = pushpull::JobOptions::FromEnvironment(environment);
  if (!options.ok()) return options.status();
  const auto joined = pushpull::Job::Join(*options, Deadline::After(30s));
  if (!joined.ok()) return joined.status();
  pushpull::Job& job = **joined;
  std::vector<float> w(10, 0.0F), gradient(10);  // w: the initial value, then always the newest
  const pushpull::OptimizerSpec sgd{.kind = pushpull::OptimizerKind::kSgd, .learning_rate = 0.1};
  const std::vector<pushpull::TensorRegistration> tensors = {
      {.spec = {.name = "w", .dims = {10}, .optimizer = sgd}, .value = w}};
  if (auto status = job.Register(tensors, Deadline::After(60s)); !status.ok()) return status;
  for (uint64_t step = job.start_step().value(); step < 100; step = job.next_step().value()) {
    for (size_t i = 0; i < w.size(); ++i) gradient[i] = 2 * (w[i] - 3);
    auto push = job.PushPull("w", gradient, w, {.samples = 64});
    if (!push.ok()) return push.status();
    if (auto status = push->Wait(Deadline::After(60s)); !status.ok()) return status;
    job.ReportLoss(pushpull::Step{step}, (w[0] - 3) * (w[0] - 3), 64);
  }
  return job.Leave(Deadline::After(10s));
}

int main() {
  std::map<std::string, std::string> environment;  // PUSHPULL_JOB, PUSHPULL_INDEX, ...
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    environment[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  const absl::Status status = Train(environment);
  if (!status.ok()) std::fprintf(stderr, "my_worker: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
