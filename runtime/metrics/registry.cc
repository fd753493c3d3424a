// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/registry.h"

#include <prometheus/text_serializer.h>

namespace pushpull {

std::string MetricsRegistry::Text() const {
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

}  // namespace pushpull
