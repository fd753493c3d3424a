// SPDX-License-Identifier: Apache-2.0
#include "runtime/tls/member_tls.h"

#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {

absl::StatusOr<std::unique_ptr<MemberTls>> MemberTls::Open(const std::string& path,
                                                           const Log& log) {
  PUSHPULL_ASSIGN_OR_RETURN(std::unique_ptr<TlsFolder> folder, OpenTlsFolder(path, log));
  if (folder != nullptr) folder->KeepReloading();
  return std::unique_ptr<MemberTls>(new MemberTls(std::move(folder)));
}

std::function<std::string(MetricsFormat)> MemberTls::AddTo(MetricsRegistry& registry) {
  if (folder_ != nullptr) metrics_.emplace(registry);
  return [this, &registry](MetricsFormat format) {
    if (metrics_) metrics_->SetExpiry(folder_->identity()->expires_at());
    return registry.Text(format);
  };
}

}  // namespace pushpull
