// SPDX-License-Identifier: Apache-2.0
//
// Whether a request was meant for this process. A web page can have its own name resolve to any
// address and so read what is served there ("DNS rebinding"); the browser then sends that name as
// Host. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

// `host` is the value of a Host header: the host that a browser was told to open, with or without a
// port. True for numeric addresses, localhost and `names`, in any case; nobody else can have these
// resolve to this process.
bool IsOwnHost(absl::string_view host, const std::vector<std::string>& names);

}  // namespace pushpull
