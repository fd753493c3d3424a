// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/html_report.h"

#include <array>
#include <initializer_list>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include <nlohmann/json.hpp>

#include "runtime/base/status_macros.h"
#include "runtime/metrics/sync_phase.h"
#include "runtime/status/page_files.h"
#include "runtime/status/status_json.h"

namespace pushpull {
namespace {

// A path of keys and the type of the value there.
struct ReportKey {
  const char* path;
  nlohmann::json::value_t type;
};

using Type = nlohmann::json::value_t;

// What report.js reads. Every number counts as a number_float here.
constexpr std::array kReportKeys = {ReportKey{"/job", Type::string},
                                    ReportKey{"/phase", Type::string},
                                    ReportKey{"/failure", Type::string},
                                    ReportKey{"/steps", Type::number_float},
                                    ReportKey{"/training_seconds", Type::number_float},
                                    ReportKey{"/workers", Type::number_float},
                                    ReportKey{"/servers", Type::number_float},
                                    ReportKey{"/restarts", Type::number_float},
                                    ReportKey{"/throughput/samples_per_second", Type::number_float},
                                    ReportKey{"/sync/p50_seconds", Type::number_float},
                                    ReportKey{"/sync/p99_seconds", Type::number_float},
                                    ReportKey{"/bytes/pushed", Type::number_float},
                                    ReportKey{"/bytes/replicated", Type::number_float},
                                    ReportKey{"/final", Type::object},
                                    ReportKey{"/resizes", Type::array},
                                    ReportKey{"/losses", Type::array},
                                    ReportKey{"/history/time", Type::array},
                                    ReportKey{"/history/step", Type::array},
                                    ReportKey{"/history/sync_seconds", Type::array},
                                    ReportKey{"/history/samples_per_second", Type::array},
                                    ReportKey{"/history/phases", Type::object},
                                    ReportKey{"/events", Type::array}};

const char* NameOf(Type type) {
  switch (type) {
    case Type::string:
      return "a string";
    case Type::number_float:
      return "a number";
    case Type::array:
      return "a list";
    default:
      return "an object";
  }
}

absl::Status Check(const nlohmann::json& report, const char* path, Type type) {
  const nlohmann::json::json_pointer pointer(path);
  if (!report.contains(pointer)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no report of `pushpull run --report`, or of an earlier version: ",
                     path + 1,
                     " is missing"));
  }
  const nlohmann::json& value = report[pointer];
  if (value.type() == type || (type == Type::number_float && value.is_number()))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path + 1, ": must be ", NameOf(type), ", is ", value.type_name()));
}

absl::Status CheckReport(const nlohmann::json& report) {
  if (!report.is_object())
    return absl::InvalidArgumentError("no report of `pushpull run --report`: it is no JSON object");
  for (const ReportKey& key : kReportKeys)
    PUSHPULL_RETURN_IF_ERROR(Check(report, key.path, key.type));
  const size_t num_points = report["history"]["time"].size();
  for (const absl::string_view phase : kSyncPhaseNames) {
    const std::string path = absl::StrCat("/history/phases/", phase);
    PUSHPULL_RETURN_IF_ERROR(Check(report, path.c_str(), Type::array));
    if (report[nlohmann::json::json_pointer(path)].size() != num_points)
      return absl::InvalidArgumentError(
          absl::StrCat(path.substr(1), ": must have as many values as history/time"));
  }
  return absl::OkStatus();
}

// Inline files, and their hashes for the content security policy.
struct Inlined {
  std::string html;
  std::string sources;
};

Inlined Inline(absl::string_view tag, std::initializer_list<absl::string_view> names) {
  Inlined inlined;
  for (const absl::string_view name : names) {
    const PageText file = PageFile(name);
    absl::StrAppend(&inlined.html, "<", tag, ">", file.text, "</", tag, ">\n");
    const std::string hash = absl::Base64Escape(absl::HexStringToBytes(file.sha256));
    absl::StrAppend(&inlined.sources, " 'sha256-", hash, "'");
  }
  return inlined;
}

}  // namespace

absl::StatusOr<std::string> HtmlReport(absl::string_view report) {
  const nlohmann::json parsed = nlohmann::json::parse(report, nullptr, false);
  if (parsed.is_discarded()) return absl::InvalidArgumentError("no JSON");
  PUSHPULL_RETURN_IF_ERROR(CheckReport(parsed));
  const Inlined styles = Inline("style", {"uPlot.min.css", "page.css"});
  const Inlined scripts = Inline("script", {"uPlot.iife.min.js", "charts.js", "report.js"});
  const std::string policy = absl::StrCat("default-src 'none'; script-src",
                                          scripts.sources,
                                          "; style-src",
                                          styles.sources,
                                          "; base-uri 'none'; form-action 'none'");
  // A text of the job must not end the element: within JSON strings the escape is the same
  // character.
  const std::string data = absl::StrReplaceAll(Dump(parsed, -1), {{"<", "\\u003c"}});
  const std::string licence =
      absl::StrCat("<!-- uPlot:\n", PageFile("uPlot-LICENSE.txt").text, "-->\n");
  return absl::StrReplaceAll(PageFile("report.html").text,
                             {{"@POLICY@", policy},
                              {"@STYLES@", styles.html},
                              {"@SCRIPTS@", licence + scripts.html},
                              {"@REPORT@", data}});
}

}  // namespace pushpull
