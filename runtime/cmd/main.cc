// SPDX-License-Identifier: Apache-2.0
//
// `pushpull`: one binary, a subcommand for each role and each thing a user does.
#include <cstdio>
#include <exception>

#include "runtime/base/exit_codes.h"
#include "runtime/base/signals.h"
#include "runtime/cmd/commands.h"

namespace pushpull {
namespace {

int Main(int argc, char** argv) {
  CLI::App app(
      "Pushpull: an elastic parameter server.\n"
      "Try `pushpull run runtime/examples/fashion-mnist.yaml`.",
      "pushpull");
  app.require_subcommand(1);
  int exit_code = kExitDone;
  AddRunCommand(app, exit_code);
  AddValidateCommand(app, exit_code);
  AddStatusCommand(app, exit_code);
  AddCheckpointCommand(app, exit_code);
  AddScaleCommand(app, exit_code);
  AddSetCommand(app, exit_code);
  AddBenchCommand(app, exit_code);
  AddVersionCommand(app, exit_code);
  AddServerCommand(app, exit_code);
  AddCoordinatorCommand(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "pushpull: %s (see --help)\n", error.what());
    return kExitUsage;
  }
  return exit_code;
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  try {
    pushpull::BlockStopSignals();
    return pushpull::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pushpull: %s\n", error.what());
    return pushpull::kExitFailed;
  }
}
