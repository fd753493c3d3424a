// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/inproc/inproc_network.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "runtime/base/host_port.h"
#include "runtime/base/status_macros.h"
#include "tests/fakes/inproc/inproc_link.h"

namespace pushpull {

InprocNetwork::InprocNetwork(uint64_t seed, InprocOptions options)
    : seed_(seed), options_(options) {}

void InprocNetwork::SetOptions(const InprocOptions& options) {
  MutexLock lock(mu_);
  options_ = options;
}

InprocOptions InprocNetwork::options() const {
  MutexLock lock(mu_);
  return options_;
}

void InprocNetwork::Cut(const std::string& a, const std::string& b) {
  const Pair pair = PairOf(a, b);
  {
    MutexLock lock(mu_);
    cuts_.insert(pair);
  }
  const Duration timeout = options().cut_timeout;
  for (const std::shared_ptr<InprocLink>& link : LinksBetween(pair)) link->Cut(timeout);
}

void InprocNetwork::Heal(const std::string& a, const std::string& b) {
  MutexLock lock(mu_);
  cuts_.erase(PairOf(a, b));
}

void InprocNetwork::Break(const std::string& a, const std::string& b) {
  for (const std::shared_ptr<InprocLink>& link : LinksBetween(PairOf(a, b))) link->Break();
}

std::string InprocNetwork::NextName() {
  MutexLock lock(mu_);
  return absl::StrCat("node-", next_name_++);
}

absl::StatusOr<std::string> InprocNetwork::Bind(const std::string& address,
                                                const std::shared_ptr<InprocPort>& port) {
  PUSHPULL_ASSIGN_OR_RETURN(HostPort host_port, ParseHostPort(address));
  MutexLock lock(mu_);
  const bool takes_any = host_port.port == 0;
  do {
    if (takes_any) host_port.port = next_port_++;
  } while (takes_any && ports_.count(ToString(host_port)) > 0);
  const std::string bound = ToString(host_port);
  if (!ports_.emplace(bound, port).second)
    return absl::AlreadyExistsError(absl::StrCat("listen on ", bound, ": address is in use"));
  return bound;
}

void InprocNetwork::Unbind(const std::string& address) {
  MutexLock lock(mu_);
  ports_.erase(address);
}

std::shared_ptr<InprocPort> InprocNetwork::Find(const std::string& address) const {
  MutexLock lock(mu_);
  const auto it = ports_.find(address);
  return it == ports_.end() ? nullptr : it->second;
}

bool InprocNetwork::IsCut(const std::string& a, const std::string& b) const {
  MutexLock lock(mu_);
  return cuts_.count(PairOf(a, b)) > 0;
}

uint64_t InprocNetwork::Add(const std::shared_ptr<InprocLink>& link) {
  MutexLock lock(mu_);
  links_.erase(std::remove_if(links_.begin(),
                              links_.end(),
                              [](const std::weak_ptr<InprocLink>& old) { return old.expired(); }),
               links_.end());
  links_.push_back(link);
  // Far apart, so that no two ends draw the same numbers.
  return seed_ + ++num_links_ * uint64_t{0x9e3779b97f4a7c15};
}

InprocNetwork::Pair InprocNetwork::PairOf(const std::string& a, const std::string& b) {
  return a < b ? Pair(a, b) : Pair(b, a);
}

std::vector<std::shared_ptr<InprocLink>> InprocNetwork::LinksBetween(const Pair& pair) {
  std::vector<std::shared_ptr<InprocLink>> found;
  MutexLock lock(mu_);
  for (const std::weak_ptr<InprocLink>& weak : links_) {
    std::shared_ptr<InprocLink> link = weak.lock();
    if (link == nullptr) continue;
    if (PairOf(link->side(0).node->name(), link->side(1).node->name()) == pair)
      found.push_back(std::move(link));
  }
  return found;
}

}  // namespace pushpull
