// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/registry.h"

#include <utility>

#include "runtime/metrics/exposition.h"

namespace pushpull {

HistogramFamily& MetricsRegistry::AddHistogram(std::string name,
                                               std::string help,
                                               std::vector<double> bounds) {
  const MutexLock lock(lock_);
  return histograms_.emplace_back(std::move(name), std::move(help), std::move(bounds));
}

std::string MetricsRegistry::Text(MetricsFormat format) const {
  Exposition exposition{.families = registry_->Collect(), .histograms = {}};
  {
    const MutexLock lock(lock_);
    for (const HistogramFamily& family : histograms_)
      exposition.histograms.push_back({.name = family.name(),
                                       .help = family.help(),
                                       .bounds = family.bounds(),
                                       .states = family.States()});
  }
  return Write(exposition, format);
}

}  // namespace pushpull
