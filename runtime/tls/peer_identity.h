// SPDX-License-Identifier: Apache-2.0
//
// The identity of a certificate's holder, by its DNS names
// (docs/decisions/0061-names-in-certificates.md). Pure.
//
//   pushpull                                 in every certificate; alone: any member of any job
//   <job>.<namespace>.pushpull               any member of this job
//   <member>.<job>.<namespace>.pushpull      it: coordinator, operator, server-N or worker-N
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// A DNS name that every certificate has besides its own, for libraries that insist on comparing
// one.
inline constexpr char kCertificateName[] = "pushpull";

// Names of members in certificates, besides "server-N" and "worker-N" (ToString of the id).
inline constexpr char kCoordinatorMember[] = "coordinator";
inline constexpr char kOperatorMember[] = "operator";

// Whether this is a member's name as certificates have it.
bool IsCertificateMember(absl::string_view member);

// "mnist.default.pushpull", and with a member "worker-3.mnist.default.pushpull".
std::string JobCertificateName(absl::string_view job, absl::string_view job_namespace);
std::string MemberCertificateName(absl::string_view member,
                                  absl::string_view job,
                                  absl::string_view job_namespace);

// Immutable, so thread-safe.
class PeerIdentity {
 public:
  // Without TLS, peers have no identity.
  static PeerIdentity Anybody() { return {}; }

  // Names that do not end with "pushpull" are ignored. kPermissionDenied: no name has a form above,
  // or one ends with "pushpull" but has another form.
  static absl::StatusOr<PeerIdentity> Of(const std::vector<std::string>& dns_names);

  // This identity reduced to the jobs that the own certificate names, if it names any.
  // kPermissionDenied: this identity belongs to other jobs.
  absl::StatusOr<PeerIdentity> Within(const PeerIdentity& own) const;

  // kPermissionDenied unless the peer may be this member, "worker-3"; the text names the
  // certificate, the member and what to do.
  absl::Status CheckIs(absl::string_view member) const;
  // kPermissionDenied unless the peer may control a job: it is a coordinator, an operator, or
  // anybody. `what`: "resize the job".
  absl::Status CheckManages(absl::string_view what) const;

  // For messages: "worker-3.mnist.default.pushpull".
  std::string ToText() const;

 private:
  struct Name {
    std::string member;  // empty: any
    std::string job;
    std::string job_namespace;
  };

  PeerIdentity() = default;
  // The name's parts; none if it has another form.
  static std::optional<Name> Parse(absl::string_view name);
  bool HasMember(absl::string_view member) const;

  std::vector<Name> names_;  // those of jobs and their members
  bool is_any_role_ = true;  // no name is a member's
};

// The identity of a peer with these names, for a process whose identity is `own`. Errors as above.
absl::StatusOr<PeerIdentity> AdmitPeer(const std::vector<std::string>& dns_names,
                                       const PeerIdentity& own);

}  // namespace pushpull
