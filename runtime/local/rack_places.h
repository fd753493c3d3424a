// SPDX-License-Identifier: Apache-2.0
//
// Where the members of a local job are in a topology, and the commands that make its network out of
// namespaces: one for each machine, and one that has a bridge for each rack and one between racks.
//
//   machine --its NIC-- bridge of its rack --uplink-- bridge between racks --no limit-- this host
//
// Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/job/training_job.h"
#include "runtime/plan/topology.h"

namespace pushpull {

struct RackPlaces {
  struct Host {
    size_t rack = 0;
    std::string address;
    double bandwidth = 0;  // bytes per second in each direction; 0: no limit
  };
  std::vector<Host> hosts;
  std::vector<size_t> workers;  // host of each worker, by index
  std::vector<size_t> servers;  // likewise
  std::vector<double> uplinks;  // of each rack, bytes per second in each direction; 0: no limit
  std::string here;             // address of this host, where the coordinator is

  // A member whose index exceeds the number of places shares one.
  const Host& OfWorker(int index) const { return Of(workers, index); }
  const Host& OfServer(int index) const { return Of(servers, index); }

 private:
  const Host& Of(const std::vector<size_t>& places, int index) const {
    return hosts[places[static_cast<size_t>(index) % places.size()]];
  }
};

inline constexpr size_t kRackHostsMax = 250;

// Machines take turns between racks, as a scheduler spreads pods: if there are two racks, worker 1
// is not in that of worker 0. Each GPU of a machine has a worker. Addresses are from 198.18.0.0/15,
// which is reserved for network benchmarks; `number` chooses one of its 512 parts.
//
// kInvalidArgument: more than kRackHostsMax machines.
absl::StatusOr<RackPlaces> PlacesIn(const Topology& topology, unsigned number);

// "rack-0", "machine-0".
std::string RackName(size_t rack);
std::string MachineName(size_t host);

// kInvalidArgument: the job has more members than the topology has places.
absl::Status CheckPlaces(const RackPlaces& places, const TrainingJobSpec& spec);

// A command and the namespace in which it runs: kHere, kSwitch, or kFirstHost + the host's number.
struct NetworkCommand {
  static constexpr size_t kHere = 0;
  static constexpr size_t kSwitch = 1;
  static constexpr size_t kFirstHost = 2;

  size_t where = kHere;
  std::vector<std::string> words;
};

// `path_of`: a path of the namespace for `ip`. `link`: name of the link from this host, which
// disappears with the namespace at its other end.
std::vector<NetworkCommand> NetworkCommands(const RackPlaces& places,
                                            const std::string& link,
                                            const std::function<std::string(size_t)>& path_of);

}  // namespace pushpull
