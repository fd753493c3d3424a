// SPDX-License-Identifier: Apache-2.0
//
// What a reflector writes into. The first listing is apart from changes, so that a store can put a
// whole one in its place at once.
#pragma once

#include "operator/kube/object.h"

namespace pushpull_operator {

// Called by one thread.
class ObjectSink {
 public:
  virtual ~ObjectSink() = default;
  // A listing begins. One that has not ended is forgotten.
  virtual void BeginListing() = 0;
  virtual void AddListed(Object object) = 0;
  // The listing is whole: there are these objects and no other.
  virtual void EndListing() = 0;
  // The object is there, new or changed.
  virtual void Apply(Object object) = 0;
  // The object is gone; this is its last state.
  virtual void Remove(Object object) = 0;
};

}  // namespace pushpull_operator
