// SPDX-License-Identifier: Apache-2.0
//
// The files of the status page, runtime/status/page, which are part of the program
// (docs/decisions/0073-status-page.md).
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"

#include "runtime/metrics/http_exposer.h"

namespace pushpull {

struct PageText {
  absl::string_view text;
  absl::string_view sha256;  // of the text, in hexadecimal digits
};
// A file of runtime/status/page, by its name without the folder; empty if there is none.
PageText PageFile(absl::string_view name);

// What a browser loads, by path: the page at "/", and the files that it references.
std::map<std::string, HttpResource> PageResources();

}  // namespace pushpull
