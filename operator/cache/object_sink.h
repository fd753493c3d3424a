// SPDX-License-Identifier: Apache-2.0
//
// What a reflector writes into. A list is delivered apart from watch events, so that a store can
// apply all of it at once.
#pragma once

#include "operator/kube/object.h"

namespace pushpull_operator {

// Called by one thread.
class ObjectSink {
 public:
  virtual ~ObjectSink() = default;
  // A list begins; an unfinished one is discarded.
  virtual void BeginListing() = 0;
  virtual void AddListed(Object object) = 0;
  // The list is complete: exactly these objects exist.
  virtual void EndListing() = 0;
  // The object was created or changed.
  virtual void Apply(Object object) = 0;
  // The object was deleted; this is its last state.
  virtual void Remove(Object object) = 0;
};

}  // namespace pushpull_operator
