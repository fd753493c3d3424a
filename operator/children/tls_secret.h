// SPDX-License-Identifier: Apache-2.0
//
// The Secret with a job's certificates: its name, its content, its place in the members' pods. Only
// .cc files of operator/children use the part with JSON of pods. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <nlohmann/json_fwd.hpp>

#include "operator/api/member.h"
#include "operator/certificates/job_certificates.h"
#include "operator/kube/object.h"
#include "runtime/job/training_job.h"

namespace pushpull_operator {

inline const ResourceType& SecretType() {
  static const ResourceType type{.group = "", .version = "v1", .plural = "secrets"};
  return type;
}

// The Secret with the certificates of the job's members: its own, "<job>-tls", or the user's.
// Empty: no TLS.
std::string TlsSecretName(const std::string& job, const pushpull::SecuritySpec& security);

// The names in certificates of the member, "worker-3", and of the server in its pod, if any.
std::vector<std::string> CertificateMembers(const pushpull::TrainingJobSpec& spec,
                                            const MemberId& member);

// The subjects of the operator's certificate and of these members'.
JobSubjects SubjectsOf(const ObjectKey& job, const std::set<std::string>& members);

// The content of the Secret; a key that is missing, or not base64, is empty. Keys that the operator
// does not write are left out.
JobCertificates DecodeTlsSecret(const Object& secret);

// A new Secret of the job, which owns it.
std::string NewTlsSecretText(const ObjectMeta& owner, const JobCertificates& certificates);

// A JSON merge patch from `present` to `next`, with the labels, for a Secret of the job that still
// has this version.
std::string TlsSecretPatchText(const ObjectMeta& owner,
                               const JobCertificates& present,
                               const JobCertificates& next,
                               const std::string& resource_version);

// kOutOfRange: more than a Secret holds.
absl::Status CheckSecretSize(const JobCertificates& certificates);

// Mounts what each container's member needs, never the authority's key, and sets PUSHPULL_TLS_DIR.
// `members` has one name for each container; a user's Secret has one pair for all of them.
void MountTlsSecret(const std::string& job,
                    const pushpull::SecuritySpec& security,
                    const std::vector<std::string>& members,
                    nlohmann::json& containers,
                    nlohmann::json& pod);

}  // namespace pushpull_operator
