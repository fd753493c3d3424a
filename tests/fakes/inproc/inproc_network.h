// SPDX-License-Identifier: Apache-2.0
//
// The network that in-process transports share: listeners, connections and faults. One for each
// test; nodes are identified by the names of their transports.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/base/mutex.h"
#include "runtime/transport/channel.h"
#include "tests/fakes/inproc/fault_stream.h"

namespace pushpull {

class InprocLink;
struct InprocPort;

struct InprocOptions {
  InprocFaults faults;
  // Frames that may wait on one end before its channel closes.
  size_t send_queue_frames_max = 65536;
  // Bytes in flight in one direction before the sender waits, as in a socket's buffer.
  size_t window_bytes = size_t{4} << 20;
  // After this time both ends of a cut connection fail.
  Duration cut_timeout = std::chrono::seconds(20);
};

// Thread-safe. Outlives the transports.
class InprocNetwork {
 public:
  explicit InprocNetwork(uint64_t seed, InprocOptions options = {});

  // Applies from the next frame of every channel on.
  void SetOptions(const InprocOptions& options) ABSL_LOCKS_EXCLUDED(mu_);
  InprocOptions options() const ABSL_LOCKS_EXCLUDED(mu_);

  // Nothing passes between the two nodes any more: frames in flight are lost, connections fail
  // after cut_timeout, connecting fails at its deadline. Unlike on a real network, cut connections
  // do not recover.
  void Cut(const std::string& a, const std::string& b) ABSL_LOCKS_EXCLUDED(mu_);
  // New connections between the two are possible again.
  void Heal(const std::string& a, const std::string& b) ABSL_LOCKS_EXCLUDED(mu_);
  // Breaks every connection between the two at once; they may reconnect.
  void Break(const std::string& a, const std::string& b) ABSL_LOCKS_EXCLUDED(mu_);

  // ---- For InprocTransport. ----

  // "node-<n>", for a transport without a name.
  std::string NextName() ABSL_LOCKS_EXCLUDED(mu_);
  // Binds host:port for `port` and returns the address with the real port; kAlreadyExists.
  absl::StatusOr<std::string> Bind(const std::string& address,
                                   const std::shared_ptr<InprocPort>& port)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Unbind(const std::string& address) ABSL_LOCKS_EXCLUDED(mu_);
  // Null when nobody listens there.
  std::shared_ptr<InprocPort> Find(const std::string& address) const ABSL_LOCKS_EXCLUDED(mu_);
  bool IsCut(const std::string& a, const std::string& b) const ABSL_LOCKS_EXCLUDED(mu_);
  // Enters a connection; returns the seed of its faults.
  uint64_t Add(const std::shared_ptr<InprocLink>& link) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Pair = std::pair<std::string, std::string>;
  static Pair PairOf(const std::string& a, const std::string& b);
  std::vector<std::shared_ptr<InprocLink>> LinksBetween(const Pair& pair) ABSL_LOCKS_EXCLUDED(mu_);

  const uint64_t seed_;
  mutable Mutex mu_;
  InprocOptions options_ ABSL_GUARDED_BY(mu_);
  uint64_t next_name_ ABSL_GUARDED_BY(mu_) = 0;
  uint16_t next_port_ ABSL_GUARDED_BY(mu_) = 1024;
  uint64_t num_links_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, std::shared_ptr<InprocPort>> ports_ ABSL_GUARDED_BY(mu_);
  std::set<Pair> cuts_ ABSL_GUARDED_BY(mu_);
  std::vector<std::weak_ptr<InprocLink>> links_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
