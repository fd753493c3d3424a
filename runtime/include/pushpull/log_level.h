// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pushpull {

// Messages below the level are not logged. One line for each change of state; requests are logged
// at kDebug only.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

}  // namespace pushpull
