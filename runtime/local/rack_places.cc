// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/rack_places.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr unsigned kNetworks = 512;
// A link's token bucket holds what a sender passes to the kernel at once, and a millisecond's
// bytes.
constexpr double kBurstBytesMin = 128 * 1024;
constexpr double kBurstSeconds = 0.001;
// Otherwise the kernel may choose a congestion control that does not respond to full buckets.
constexpr char kUseCubic[] =
    "grep -qw cubic /proc/sys/net/ipv4/tcp_allowed_congestion_control && "
    "echo cubic > /proc/sys/net/ipv4/tcp_congestion_control || true";

std::string AddressIn(unsigned number, size_t host) {
  const unsigned network = number % kNetworks;
  return absl::StrCat("198.", 18 + network / 256, ".", network % 256, ".", host);
}

// The rack of each machine: racks take turns until each has had as many turns as it has machines.
template <typename CountOf>
std::vector<size_t> DealtRacks(const std::vector<Rack>& racks, const CountOf& count_of) {
  std::vector<size_t> dealt;
  for (int round = 0;; ++round) {
    const size_t before = dealt.size();
    for (size_t rack = 0; rack < racks.size(); ++rack) {
      if (count_of(racks[rack]) > round) dealt.push_back(rack);
    }
    if (dealt.size() == before) return dealt;
  }
}

class CommandList {
 public:
  // Words are separated by spaces.
  void Add(size_t where, const std::string& words) {
    commands_.push_back({where, absl::StrSplit(words, ' ')});
  }
  void AddShell(size_t where, const char* script) {
    commands_.push_back({where, {"sh", "-c", script}});
  }
  // Limits what leaves through the device.
  void Shape(size_t where, const std::string& device, double bandwidth) {
    if (bandwidth <= 0) return;
    const double burst = std::max(kBurstBytesMin, kBurstSeconds * bandwidth);
    Add(where,
        absl::StrCat("tc qdisc add dev ",
                     device,
                     " root tbf rate ",
                     static_cast<uint64_t>(8 * bandwidth),
                     "bit burst ",
                     static_cast<uint64_t>(burst),
                     "b latency 20ms"));
  }
  // Makes the device a port of the bridge in the switch's namespace.
  void Attach(const std::string& device, const std::string& bridge) {
    Add(NetworkCommand::kSwitch, absl::StrCat("ip link set ", device, " master ", bridge, " up"));
  }
  void AddBridge(const std::string& bridge) {
    Add(NetworkCommand::kSwitch, absl::StrCat("ip link add ", bridge, " type bridge"));
    Add(NetworkCommand::kSwitch, absl::StrCat("ip link set ", bridge, " up"));
  }
  std::vector<NetworkCommand> Take() { return std::move(commands_); }

 private:
  std::vector<NetworkCommand> commands_;
};

absl::Status CheckCount(const char* field, int replicas, size_t places) {
  if (replicas <= static_cast<int>(places)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": is ", replicas, ", the topology has places for ", places));
}

}  // namespace

std::string RackName(size_t rack) {
  return absl::StrCat("rack-", rack);
}

std::string MachineName(size_t host) {
  return absl::StrCat("machine-", host);
}

absl::StatusOr<RackPlaces> PlacesIn(const Topology& topology, unsigned number) {
  const std::vector<Rack>& racks = topology.cluster.racks;
  RackPlaces places;
  const auto add = [&](size_t rack, double bandwidth) {
    const std::string address = AddressIn(number, places.hosts.size() + 2);
    places.hosts.push_back({.rack = rack, .address = address, .bandwidth = bandwidth});
    return places.hosts.size() - 1;
  };
  places.here = AddressIn(number, 1);
  for (const Rack& rack : racks) places.uplinks.push_back(rack.uplink);
  const double nic = NicBandwidth(topology.machine);
  for (const size_t rack : DealtRacks(racks, [](const Rack& it) { return it.workers; })) {
    const size_t host = add(rack, nic);
    places.workers.insert(
        places.workers.end(), static_cast<size_t>(std::max(topology.machine.gpus, 1)), host);
  }
  const double of_servers = topology.cluster.server_bandwidth;
  for (const size_t rack : DealtRacks(racks, [](const Rack& it) { return it.servers; }))
    places.servers.push_back(add(rack, of_servers > 0 ? of_servers : nic));
  if (places.hosts.size() > kRackHostsMax) {
    return absl::InvalidArgumentError(absl::StrCat("cluster.racks: has ",
                                                   places.hosts.size(),
                                                   " machines, at most ",
                                                   kRackHostsMax,
                                                   " can be namespaces of this host"));
  }
  return places;
}

absl::Status CheckPlaces(const RackPlaces& places, const TrainingJobSpec& spec) {
  PUSHPULL_RETURN_IF_ERROR(
      CheckCount("spec.workers.replicas", spec.workers.replicas, places.workers.size()));
  const int servers = spec.sync.mode == SyncMode::kAllReduce ? 0 : spec.servers.replicas;
  return CheckCount("spec.servers.replicas", servers, places.servers.size());
}

std::vector<NetworkCommand> NetworkCommands(const RackPlaces& places,
                                            const std::string& link,
                                            const std::function<std::string(size_t)>& path_of) {
  using Command = NetworkCommand;
  CommandList list;
  list.AddBridge("core");
  list.Add(
      Command::kHere,
      absl::StrCat(
          "ip link add ", link, " type veth peer name here netns ", path_of(Command::kSwitch)));
  list.Attach("here", "core");
  list.Add(Command::kHere, absl::StrCat("ip address add ", places.here, "/24 dev ", link));
  list.Add(Command::kHere, absl::StrCat("ip link set ", link, " up"));
  for (size_t rack = 0; rack < places.uplinks.size(); ++rack) {
    const std::string bridge = absl::StrCat("rack", rack);
    const std::string up = absl::StrCat("up", rack);
    const std::string down = absl::StrCat("down", rack);
    list.AddBridge(bridge);
    list.Add(Command::kSwitch, absl::StrCat("ip link add ", up, " type veth peer name ", down));
    list.Attach(up, bridge);
    list.Attach(down, "core");
    list.Shape(Command::kSwitch, up, places.uplinks[rack]);
    list.Shape(Command::kSwitch, down, places.uplinks[rack]);
  }
  for (size_t i = 0; i < places.hosts.size(); ++i) {
    const RackPlaces::Host& host = places.hosts[i];
    const size_t where = Command::kFirstHost + i;
    const std::string port = absl::StrCat("port", i);
    list.Add(
        Command::kSwitch,
        absl::StrCat("ip link add ", port, " type veth peer name eth0 netns ", path_of(where)));
    list.Attach(port, absl::StrCat("rack", host.rack));
    list.Add(where, "ip link set lo up");
    list.Add(where, absl::StrCat("ip address add ", host.address, "/24 dev eth0"));
    list.Add(where, "ip link set eth0 up");
    list.AddShell(where, kUseCubic);
    list.Shape(where, "eth0", host.bandwidth);
    list.Shape(Command::kSwitch, port, host.bandwidth);
  }
  return list.Take();
}

}  // namespace pushpull
