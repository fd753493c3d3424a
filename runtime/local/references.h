// SPDX-License-Identifier: Apache-2.0
//
// References to variables, `$(NAME)`, in the words of a container: replaced as the kubelet does, so
// that a manifest means the same here and in a pod. Pure.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// `text` with each `$(NAME)` replaced by the value of that variable. `$$` stands for one `$`, so
// `$$(NAME)` is the text `$(NAME)`. What names no variable of `variables`, or is not closed, stays.
// Values are not looked through again.
std::string ReplaceReferences(absl::string_view text,
                              const std::map<std::string, std::string>& variables);

}  // namespace pushpull
