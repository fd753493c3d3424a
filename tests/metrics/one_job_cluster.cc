// SPDX-License-Identifier: Apache-2.0
//
// An API server with one TrainingJob and no nodes, for an operator whose metrics are looked at.
// Prints its address, and serves until it is killed.
#include <unistd.h>

#include <cstdio>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "tests/fakes/fake_api_server.h"

int main() {
  using pushpull_operator::FakeApiServer;
  FakeApiServer server;
  server.Put(
      pushpull_operator::TrainingJobType(),
      {"team-a", "mnist"},
      {{"apiVersion", "pushpull.dev/v1alpha1"},
       {"kind", "TrainingJob"},
       {"spec",
        {{"image", "trainer:1"}, {"servers", {{"replicas", 2}}}, {"workers", {{"replicas", 2}}}}}});
  const pushpull_operator::ServerAddress address = server.access().server;
  std::printf("serves at %s:%d\n", address.host.c_str(), address.port);
  std::fflush(stdout);
  pause();
  return 0;
}
