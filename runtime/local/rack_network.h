// SPDX-License-Identifier: Apache-2.0
//
// The network of `pushpull run --topology`: a network namespace for each machine, with links of the
// topology's speeds between them (rack_places.h). The namespaces have no names: they disappear with
// this object and the processes in them, however these end.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/local/rack_places.h"

namespace pushpull {

// Immutable.
class RackNetwork {
 public:
  struct Place {
    int network;  // descriptor of the namespace
    std::string address;
    std::string machine;
    std::string rack;
  };

  // Blocks for some milliseconds per machine, at most 20 s per command. Call it before the process
  // has threads.
  //
  //   kFailedPrecondition  namespaces cannot be made here; the text says what is missing
  static absl::StatusOr<std::unique_ptr<const RackNetwork>> Make(RackPlaces places);

  // Address of this host, where the coordinator is.
  const std::string& here() const { return places_.here; }
  Place OfWorker(int index) const { return PlaceOf(places_.OfWorker(index)); }
  Place OfServer(int index) const { return PlaceOf(places_.OfServer(index)); }

 private:
  explicit RackNetwork(RackPlaces places) : places_(std::move(places)) {}
  Place PlaceOf(const RackPlaces::Host& host) const;

  const RackPlaces places_;
  std::vector<FileDescriptor> namespaces_;  // the switch, then the hosts
};

}  // namespace pushpull
