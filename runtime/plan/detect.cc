// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/detect.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "runtime/base/printable.h"
#include "runtime/plan/quantity.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;

constexpr int kPciDepthMax = 32;
constexpr size_t kDeviceNameBytesMax = 64;
// PCI classes, the upper two bytes.
constexpr uint32_t kVga = 0x0300;
constexpr uint32_t k3d = 0x0302;
constexpr uint32_t kOtherDisplay = 0x0380;
constexpr uint32_t kAccelerator = 0x1200;
// Display adapters of remote consoles have one lane, GPUs that compute have at least 4.
constexpr int kVgaLanesMin = 4;

// The first line; empty: the file cannot be read, such as `speed` of an interface that is down.
std::string ReadLine(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

std::optional<int> ReadNumber(const fs::path& file) {
  int number = 0;
  return absl::SimpleAtoi(ReadLine(file), &number) ? std::optional(number) : std::nullopt;
}

std::vector<fs::path> Entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  std::ranges::sort(entries);
  return entries;
}

// "8.0 GT/s PCIe": transfers per second and lane, in 1e9; 0: not known.
double GigaTransfers(const fs::path& file) {
  const std::string line = ReadLine(file);
  double number = 0;
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  return words.size() > 1 && words[1] == "GT/s" && absl::SimpleAtod(words[0], &number) ? number : 0;
}

// Bytes per second in each direction, without the line code: 8b/10b up to PCIe 2, 128b/130b up to
// PCIe 5, 242 of 256 bytes of a flit from PCIe 6 on.
double PcieBandwidth(double giga_transfers, int lanes) {
  const double code =
      giga_transfers <= 5 ? 0.8 : (giga_transfers <= 32 ? 128.0 / 130 : 242.0 / 256);
  return giga_transfers * 1e9 * code * lanes / 8;
}

struct Link {
  double speed = 0;  // maximum GT/s
  double now = 0;    // current GT/s
  int lanes = 0;     // 0: not known
  double bandwidth() const { return PcieBandwidth(speed, lanes); }
};

// Idle GPUs slow their links down, so the speed is the maximum that both ends support.
Link ReadLink(const fs::path& device) {
  Link link;
  link.now = GigaTransfers(device / "current_link_speed");
  link.speed = GigaTransfers(device / "max_link_speed");
  const double above = GigaTransfers(device.parent_path() / "max_link_speed");
  if (above > 0 && link.speed > 0) link.speed = std::min(link.speed, above);
  if (link.speed == 0) link.speed = link.now;
  link.lanes = ReadNumber(device / "current_link_width").value_or(0);
  return link;
}

struct Gpu {
  std::string address;
  std::string root_port;  // the first device on the path; may be the GPU's own address
  fs::path switch_port;   // upstream port of the switch above it; empty: none
  int numa_node = 0;
  Link link;
};

// 0000:3b:00.0
bool IsPciAddress(const std::string& name) {
  return name.size() >= 12 && name[name.size() - 2] == '.' && absl::StrContains(name, ':');
}

bool IsGpuDevice(const fs::path& device) {
  uint32_t code = 0;
  if (!absl::SimpleHexAtoi(ReadLine(device / "class"), &code)) return false;
  const uint32_t kind = code >> 8;
  if (kind == kVga) return ReadLink(device).lanes >= kVgaLanesMin;
  return kind == k3d || kind == kOtherDisplay || kind == kAccelerator;
}

Gpu MakeGpu(const fs::path& device, const std::vector<fs::path>& above) {
  Gpu gpu{.address = device.filename().string()};
  gpu.root_port = above.empty() ? gpu.address : above.front().filename().string();
  // Root port, upstream port, downstream port, GPU.
  if (above.size() >= 3) gpu.switch_port = above[1];
  gpu.numa_node = std::clamp(ReadNumber(device / "numa_node").value_or(0), 0, 63);
  gpu.link = ReadLink(device);
  return gpu;
}

// Finds GPUs below a folder of sysfs, in which each bridge contains what is behind it.
void FindGpus(const fs::path& folder, std::vector<fs::path>& above, std::vector<Gpu>& gpus) {
  for (const fs::path& entry : Entries(folder)) {
    std::error_code error;
    if (!IsPciAddress(entry.filename().string()) || fs::is_symlink(entry, error)) continue;
    if (IsGpuDevice(entry)) gpus.push_back(MakeGpu(entry, above));
    if (above.size() >= kPciDepthMax) continue;
    above.push_back(entry);
    FindGpus(entry, above, gpus);
    above.pop_back();
  }
}

// The GPUs of this machine by address, as nvidia-smi numbers them.
std::vector<Gpu> GpusOf(const fs::path& sysfs) {
  std::vector<Gpu> gpus;
  for (const fs::path& entry : Entries(sysfs / "devices")) {
    if (!absl::StartsWith(entry.filename().string(), "pci")) continue;
    std::vector<fs::path> above;
    FindGpus(entry, above, gpus);
  }
  std::ranges::sort(gpus, {}, &Gpu::address);
  if (gpus.size() > kMachineGpusMax) gpus.resize(kMachineGpusMax);
  return gpus;
}

void NoteGpus(const std::vector<Gpu>& gpus, std::vector<std::string>& notes) {
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& gpu = gpus[i];
    std::string line = absl::StrFormat("GPU %d: %s, NUMA node %d, ",
                                       i,
                                       Printable(gpu.address, kDeviceNameBytesMax),
                                       gpu.numa_node);
    if (gpu.link.bandwidth() > 0) {
      absl::StrAppendFormat(&line, "PCIe %g GT/s x%d", gpu.link.speed, gpu.link.lanes);
      if (gpu.link.now > 0 && gpu.link.now < gpu.link.speed)
        absl::StrAppendFormat(&line, " (%g GT/s now: idle GPUs save power)", gpu.link.now);
    } else {
      absl::StrAppend(&line, "the speed of its link is not known: 16GB/s is taken");
    }
    notes.push_back(std::move(line));
  }
}

constexpr double kUnknownPcie = 16e9;

PcieLinks PcieOf(const std::vector<Gpu>& gpus) {
  PcieLinks pcie;
  std::map<std::string, size_t> switch_of;  // by root port
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& gpu = gpus[i];
    const double own = gpu.link.bandwidth() > 0 ? gpu.link.bandwidth() : kUnknownPcie;
    // One bandwidth for all: the lowest.
    pcie.bandwidth = i == 0 ? own : std::min(pcie.bandwidth, own);
    const auto [found, is_new] = switch_of.emplace(gpu.root_port, pcie.switches.size());
    if (is_new) {
      const double uplink = gpu.switch_port.empty() ? own : ReadLink(gpu.switch_port).bandwidth();
      pcie.switches.push_back(
          {.gpus = {}, .uplink = uplink > 0 ? uplink : own, .numa_node = gpu.numa_node});
    }
    pcie.switches[found->second].gpus.push_back(static_cast<int>(i));
  }
  return pcie;
}

void FindNics(const fs::path& sysfs, Detected& detected) {
  std::map<double, int> counts;
  for (const fs::path& entry : Entries(sysfs / "class" / "net")) {
    std::error_code error;
    // Loopback, bridges and the like have no device.
    if (!fs::exists(entry / "device", error)) continue;
    const std::string name = Printable(entry.filename().string(), kDeviceNameBytesMax);
    const int megabits = ReadNumber(entry / "speed").value_or(0);
    if (megabits <= 0) {
      detected.notes.push_back(
          absl::StrCat("NIC ",
                       name,
                       ": the kernel does not know its speed, as of virtual ones and those that "
                       "are down; add it to machine.nics"));
      continue;
    }
    detected.notes.push_back(absl::StrCat("NIC ", name, ": ", megabits, " Mb/s"));
    ++counts[megabits * 1e6 / 8];
  }
  for (const auto& [bandwidth, count] : counts) {
    detected.topology.machine.nics.push_back(
        {.bandwidth = bandwidth, .count = std::min(count, 64)});
  }
  std::ranges::reverse(detected.topology.machine.nics);  // fastest first
  if (counts.size() > 1)
    detected.notes.push_back("NICs of several speeds: leave those that carry no gradients out");
}

}  // namespace

Detected DetectTopology(const std::string& sysfs, const SmiLinks& smi) {
  Detected detected;
  detected.topology.name = "this machine";
  Machine& machine = detected.topology.machine;
  const std::vector<Gpu> gpus = GpusOf(sysfs);
  machine.gpus = static_cast<int>(gpus.size());
  if (gpus.empty()) {
    detected.notes.push_back(
        absl::StrCat("no GPU below ", (fs::path(sysfs) / "devices/pci*").string()));
  } else {
    machine.pcie = PcieOf(gpus);
    NoteGpus(gpus, detected.notes);
  }
  if (smi.gpus > 0 && smi.gpus != machine.gpus) {
    detected.notes.push_back(absl::StrCat(
        "nvidia-smi shows ", smi.gpus, " GPUs, sysfs ", machine.gpus, ": NVLinks are left out"));
  } else if (smi.nvlink && machine.gpus > 1) {
    machine.nvlink = smi.nvlink;
    detected.notes.insert(detected.notes.end(), smi.notes.begin(), smi.notes.end());
  } else if (machine.gpus > 1) {
    detected.notes.push_back("no NVLinks: nvidia-smi shows none, or is not there");
  }
  FindNics(sysfs, detected);
  if (machine.nics.empty()) {
    detected.notes.push_back(
        absl::StrCat("no NIC with a known speed below ", (fs::path(sysfs) / "class/net").string()));
  }
  return detected;
}

}  // namespace pushpull
