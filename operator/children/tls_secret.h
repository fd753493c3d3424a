// SPDX-License-Identifier: Apache-2.0
//
// The Secret with a job's certificates: its name, its content, its place in the members' pods. For
// the JSON of pods it is included by .cc files of operator/children only. Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

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

// The subject names of the members' certificate.
CertificateSubject MembersSubject(const ObjectKey& job);

// The content of the Secret; a key that is missing, or not base64, is empty.
JobCertificates DecodeTlsSecret(const Object& secret);

// A new Secret of the job, which owns it.
std::string NewTlsSecretText(const ObjectMeta& owner, const JobCertificates& certificates);

// Other certificates for a Secret that still has this version: a JSON merge patch.
std::string TlsSecretPatchText(const JobCertificates& certificates,
                               const std::string& resource_version);

// Mounts the keys that members need, which the authority's key is not, in each container, and sets
// PUSHPULL_TLS_DIR.
void MountTlsSecret(const std::string& secret, nlohmann::json& containers, nlohmann::json& pod);

}  // namespace pushpull_operator
