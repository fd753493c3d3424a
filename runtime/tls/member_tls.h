// SPDX-License-Identifier: Apache-2.0
//
// A member process's certificates, reloaded when they change, and their expiry as a metric.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/base/log.h"
#include "runtime/metrics/certificate_metrics.h"
#include "runtime/tls/tls_folder.h"

namespace pushpull {

// Thread-safe, except that AddTo is called once and first.
class MemberTls {
 public:
  // Reads the folder, the value of PUSHPULL_TLS_DIR, and reloads it from then on. Errors are those
  // of TlsFolder::Open. An empty path means no TLS: all functions still work, and do nothing.
  static absl::StatusOr<std::unique_ptr<MemberTls>> Open(const std::string& path, const Log& log);

  // Null: no TLS.
  const TlsFolder* folder() const { return folder_.get(); }

  // Adds the expiry metric to `registry`. Returns a function that writes the registry, with the
  // expiry of the certificates in use at that time; this object and `registry` outlive it.
  std::function<std::string(MetricsFormat)> AddTo(MetricsRegistry& registry);

 private:
  explicit MemberTls(std::unique_ptr<TlsFolder> folder) : folder_(std::move(folder)) {}

  const std::unique_ptr<TlsFolder> folder_;
  std::optional<CertificateMetrics> metrics_;
};

}  // namespace pushpull
