// SPDX-License-Identifier: Apache-2.0
//
// `pushpull report`.
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "runtime/base/exit_codes.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text_file.h"
#include "runtime/cmd/commands.h"
#include "runtime/local/workdir.h"
#include "runtime/status/html_report.h"

namespace pushpull {
namespace {

struct ReportFlags {
  std::string report;
  std::string html;
};

absl::Status WriteHtml(const ReportFlags& flags) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.report));
  const absl::StatusOr<std::string> html = HtmlReport(text);
  if (!html.ok()) {
    return absl::Status(html.status().code(),
                        absl::StrCat(flags.report, ": ", html.status().message()));
  }
  PUSHPULL_RETURN_IF_ERROR(WriteFileAtomically(flags.html, *html));
  std::printf("%s: open it in a browser\n", flags.html.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddReportCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("report", "Show the report of a finished run as a page of charts");
  const auto flags = std::make_shared<ReportFlags>();
  command->add_option("report", flags->report, "What `pushpull run --report` has written")
      ->required();
  command
      ->add_option("--html",
                   flags->html,
                   "The file to write: one page with everything in it, for any browser")
      ->required();
  command->callback([flags, &exit_code] { exit_code = Report(WriteHtml(*flags)); });
}

}  // namespace pushpull
