// SPDX-License-Identifier: Apache-2.0
//
// `pushpull`: one binary, a subcommand for each role and each thing a user does.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "runtime/base/exit_codes.h"
#include "runtime/base/signals.h"
#include "runtime/base/termination_message.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/environment.h"

namespace pushpull {
namespace {

// How many letters to insert, remove or replace to turn one into the other.
size_t EditDistance(absl::string_view from, absl::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = i;
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// `word` is not in `known`: returns " (did you mean X?)" if one is at most two letters away, else
// "".
std::string NearestOf(absl::string_view word, const std::vector<std::string>& known) {
  constexpr size_t kLettersMax = 2;
  std::string nearest;
  size_t least = std::min(kLettersMax + 1, word.size());
  for (const std::string& name : known) {
    const size_t distance = EditDistance(word, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest.empty() ? "" : absl::StrCat(" (did you mean ", nearest, "?)");
}

std::string FullName(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name()
                           : absl::StrCat(FullName(*parent), " ", command.get_name());
}

// An error for a word that `command` does not know, with what it may have meant, or "". The parser
// itself would first report what is missing, often because of that very word.
std::string UnknownFlag(const CLI::App& command, std::span<char*> words) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back(absl::StrCat("--", name));
  }
  for (const absl::string_view word : words) {
    if (word == "--") break;
    const std::string flag(word.substr(0, word.find('=')));
    const bool is_flag = flag.size() > 1 && flag[0] == '-' &&
                         !absl::ascii_isdigit(static_cast<unsigned char>(flag[1]));
    if (!is_flag || command.get_option_no_throw(flag) != nullptr) continue;
    return absl::StrCat(FullName(command), ": unknown flag ", flag, NearestOf(flag, known));
  }
  return "";
}

// An error for what no command knows, or "" if the parser's own error says more.
std::string UnknownWord(const CLI::App& app, std::span<char*> words) {
  const CLI::App* command = &app;
  while (command->get_require_subcommand_min() > 0 && !words.empty()) {
    const std::string word = words.front();
    if (absl::StartsWith(word, "-")) break;
    const CLI::App* named = nullptr;
    std::vector<std::string> known;
    for (const CLI::App* each : command->get_subcommands(nullptr)) {
      if (each->check_name(word)) named = each;
      if (!each->get_group().empty()) known.push_back(each->get_name());
    }
    if (named == nullptr)
      return absl::StrCat(FullName(*command), ": unknown command ", word, NearestOf(word, known));
    command = named;
    words = words.subspan(1);
  }
  return UnknownFlag(*command, words);
}

// Whether this process is a member's main program: a role, or `pushpull` alone, which a container
// without a command runs. Commands that somebody runs beside a role in its container are not.
bool IsMember(int argc, char** argv) {
  const absl::string_view first = argc > 1 ? argv[1] : "";
  return first.empty() || first == "server" || first == "coordinator";
}

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
  AddTraceCommand(app, exit_code);
  AddReportCommand(app, exit_code);
  AddPlanCommand(app, exit_code);
  AddBenchCommand(app, exit_code);
  AddVersionCommand(app, exit_code);
  AddServerCommand(app, exit_code);
  AddCoordinatorCommand(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    std::string unknown = UnknownWord(app, std::span(argv, static_cast<size_t>(argc)).subspan(1));
    if (unknown.empty()) unknown = absl::StrCat("pushpull: ", error.what());
    std::fprintf(stderr, "%s (see --help)\n", unknown.c_str());
    if (IsMember(argc, argv)) WriteFinalMessage(Environment()[kTerminationLogVariable], unknown);
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
