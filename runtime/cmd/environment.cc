// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd/environment.h"

#include <unistd.h>

#include "absl/strings/str_split.h"

namespace pushpull {

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    environment.insert(absl::StrSplit(*entry, absl::MaxSplits('=', 1)));
  return environment;
}

}  // namespace pushpull
