// SPDX-License-Identifier: Apache-2.0
#include "operator/children/tls_secret.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "operator/api/member.h"
#include "operator/children/job_objects.h"
#include "operator/kube/json_fields.h"
#include "runtime/tls/tls_folder.h"
#include "runtime/tls/tls_identity.h"

namespace pushpull_operator {
namespace {

constexpr char kAuthorities[] = "ca.crt";
constexpr char kAuthorityKey[] = "ca.key";
constexpr char kCertificate[] = "tls.crt";
constexpr char kPrivateKey[] = "tls.key";

// Not "tls", a name that a user's template is likely to use.
constexpr char kVolume[] = "pushpull-tls";
constexpr char kFolder[] = "/etc/pushpull-tls";
constexpr int kMode = 0440;

std::string DecodeField(const Json& data, const char* key) {
  std::string text;
  return absl::Base64Unescape(StringField(data, key), &text) ? text : "";
}

Json EncodeData(const JobCertificates& certificates) {
  return {{kAuthorities, absl::Base64Escape(certificates.authorities)},
          {kAuthorityKey, absl::Base64Escape(certificates.authority_key)},
          {kCertificate, absl::Base64Escape(certificates.certificate)},
          {kPrivateKey, absl::Base64Escape(certificates.private_key)}};
}

}  // namespace

std::string TlsSecretName(const std::string& job, const pushpull::SecuritySpec& security) {
  if (security.tls == pushpull::TlsMode::kOff) return "";
  return security.secret_name.empty() ? absl::StrCat(job, "-tls") : security.secret_name;
}

CertificateSubject MembersSubject(const ObjectKey& job) {
  return {.name = job.name, .dns_names = {pushpull::kCertificateName, CoordinatorHost(job)}};
}

JobCertificates DecodeTlsSecret(const Object& secret) {
  const Json* data = Find(*secret.json, "data");
  if (data == nullptr) return {};
  return {.authorities = DecodeField(*data, kAuthorities),
          .authority_key = DecodeField(*data, kAuthorityKey),
          .certificate = DecodeField(*data, kCertificate),
          .private_key = DecodeField(*data, kPrivateKey)};
}

std::string NewTlsSecretText(const ObjectMeta& owner, const JobCertificates& certificates) {
  return ToText({{"apiVersion", "v1"},
                 {"kind", "Secret"},
                 {"metadata", ChildMetadata(owner, TlsSecretName(owner.key.name, {}))},
                 {"type", "Opaque"},
                 {"data", EncodeData(certificates)}});
}

std::string TlsSecretPatchText(const JobCertificates& certificates,
                               const std::string& resource_version) {
  return ToText(
      {{"metadata", {{"resourceVersion", resource_version}}}, {"data", EncodeData(certificates)}});
}

void MountTlsSecret(const std::string& secret, Json& containers, Json& pod) {
  Json items = Json::array();
  for (const char* key : {kAuthorities, kCertificate, kPrivateKey})
    items.push_back({{"key", key}, {"path", key}});
  pod["volumes"].push_back(
      {{"name", kVolume},
       {"secret", {{"secretName", secret}, {"items", std::move(items)}, {"defaultMode", kMode}}}});
  for (Json& container : containers) {
    container["volumeMounts"].push_back(
        {{"name", kVolume}, {"mountPath", kFolder}, {"readOnly", true}});
    container["env"].push_back({{"name", pushpull::kTlsFolderVariable}, {"value", kFolder}});
  }
}

}  // namespace pushpull_operator
