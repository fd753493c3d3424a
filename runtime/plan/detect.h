// SPDX-License-Identifier: Apache-2.0
//
// The topology of this machine, from sysfs. Blocks on the file system.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/plan/nvidia_smi.h"
#include "runtime/plan/topology.h"

namespace pushpull {

struct Detected {
  Topology topology;               // one machine; lacks what was not found
  std::vector<std::string> notes;  // found, assumed or not found: a line each
};

// `sysfs`: /sys, or a folder like it. Reads
//   devices/pci*/...: class, vendor, numa_node, {current,max}_link_{speed,width} of GPUs and of
//                     the bridges above them; GPUs below one root port count as one switch
//   class/net/*/speed: of interfaces that have a device
// `smi`: what nvidia-smi reports about NVLinks; it numbers GPUs by PCI address, as here.
Detected DetectTopology(const std::string& sysfs, const SmiLinks& smi);

}  // namespace pushpull
