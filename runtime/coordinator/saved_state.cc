// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/saved_state.h"

#include <algorithm>

namespace pushpull {

Step StepAfter(const CheckpointManifest& manifest) {
  if (manifest.versions == ChunkVersions::kOfOneStep) return manifest.step;
  Step highest;
  for (const StoredChunk& chunk : manifest.chunks) highest = std::max(highest, chunk.place.version);
  return highest;
}

}  // namespace pushpull
