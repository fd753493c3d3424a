// SPDX-License-Identifier: Apache-2.0
//
// `pushpull version`.
#include <cstdio>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/base/exit_codes.h"
#include "runtime/cmd/build_info.h"
#include "runtime/cmd/commands.h"

namespace pushpull {

void AddVersionCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("version", "Version, commit and build options");
  const auto is_json = std::make_shared<bool>(false);
  command->add_flag("--json", *is_json, "As JSON");
  command->callback([is_json, &exit_code] {
    exit_code = kExitDone;
    if (*is_json) {
      const nlohmann::json info = {
          {"version", kVersion},
          {"commit", kCommit},
          {"build", {{"cuda", false}, {"nccl", false}, {"torch", kHasTorch}}}};
      std::printf("%s\n", info.dump(2).c_str());
      return;
    }
    std::printf("pushpull %s (%s), torch: %s\n", kVersion, kCommit, kHasTorch ? "yes" : "no");
  });
}

}  // namespace pushpull
