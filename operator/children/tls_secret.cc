// SPDX-License-Identifier: Apache-2.0
#include "operator/children/tls_secret.h"

#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "operator/api/member.h"
#include "operator/children/job_objects.h"
#include "operator/kube/json_fields.h"
#include "runtime/base/colocated_server.h"
#include "runtime/base/ids.h"
#include "runtime/tls/peer_identity.h"
#include "runtime/tls/tls_folder.h"

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

// In the keys of the pair for all members.
constexpr char kAnyMember[] = "tls";
constexpr char kCertificateEnd[] = ".crt";
// The API server's limit for the values of a Secret.
constexpr size_t kSecretBytesMax = 1 << 20;

std::string DecodeField(const Json& data, const std::string& key) {
  std::string text;
  return absl::Base64Unescape(StringField(data, key.c_str()), &text) ? text : "";
}

std::string CertificateKey(absl::string_view member) {
  return absl::StrCat(member, kCertificateEnd);
}
std::string PrivateKeyKey(absl::string_view member) {
  return absl::StrCat(member, ".key");
}

// Key -> text.
std::map<std::string, std::string> EntriesOf(const JobCertificates& certificates) {
  std::map<std::string, std::string> entries = {{kAuthorities, certificates.authorities},
                                                {kAuthorityKey, certificates.authority_key}};
  const auto add = [&](absl::string_view member, const KeyPair& pair) {
    entries[CertificateKey(member)] = pair.certificate;
    entries[PrivateKeyKey(member)] = pair.private_key;
  };
  if (certificates.shared != KeyPair{}) add(kAnyMember, certificates.shared);
  for (const auto& [member, pair] : certificates.pairs) add(member, pair);
  return entries;
}

KeyPair DecodePair(const Json& data, absl::string_view member) {
  return {.certificate = DecodeField(data, CertificateKey(member)),
          .private_key = DecodeField(data, PrivateKeyKey(member))};
}

Json Item(const std::string& key, const char* path) {
  return {{"key", key}, {"path", path}};
}

Json Volume(const std::string& name, const std::string& secret, absl::string_view member) {
  return {{"name", name},
          {"secret",
           {{"secretName", secret},
            {"items",
             {Item(kAuthorities, kAuthorities),
              Item(CertificateKey(member), kCertificate),
              Item(PrivateKeyKey(member), kPrivateKey)}},
            {"defaultMode", kMode}}}};
}

}  // namespace

std::string TlsSecretName(const std::string& job, const pushpull::SecuritySpec& security) {
  if (security.tls == pushpull::TlsMode::kOff) return "";
  return security.secret_name.empty() ? absl::StrCat(job, "-tls") : security.secret_name;
}

std::vector<std::string> CertificateMembers(const pushpull::TrainingJobSpec& spec,
                                            const MemberId& member) {
  const auto index = static_cast<uint32_t>(member.index);
  if (member.role == pushpull::JobRole::kCoordinator) return {pushpull::kCoordinatorMember};
  if (member.role == pushpull::JobRole::kServer) return {ToString(pushpull::ServerId{index})};
  const pushpull::WorkerId worker{index};
  std::vector<std::string> members = {ToString(worker)};
  if (spec.workers.colocated_server) members.push_back(ToString(pushpull::ServerBeside(worker)));
  return members;
}

JobSubjects SubjectsOf(const ObjectKey& job, const std::set<std::string>& members) {
  JobSubjects subjects{
      .job = job.name,
      .shared = {.name = job.name, .dns_names = {pushpull::kCertificateName, CoordinatorHost(job)}},
      .members = {}};
  const auto add = [&](const std::string& member) {
    subjects.members[member] = {
        .name = absl::StrCat(member, " of ", job.name),
        .dns_names = {pushpull::kCertificateName,
                      pushpull::MemberCertificateName(member, job.name, job.object_namespace)}};
  };
  add(pushpull::kOperatorMember);
  for (const std::string& member : members) add(member);
  return subjects;
}

JobCertificates DecodeTlsSecret(const Object& secret) {
  const Json* data = Find(*secret.json, "data");
  if (data == nullptr) return {};
  JobCertificates certificates{.authorities = DecodeField(*data, kAuthorities),
                               .authority_key = DecodeField(*data, kAuthorityKey),
                               .shared = DecodePair(*data, kAnyMember),
                               .pairs = {}};
  if (!data->is_object()) return certificates;
  for (const auto& [key, value] : data->items()) {
    absl::string_view member = key;
    if (absl::ConsumeSuffix(&member, kCertificateEnd) && pushpull::IsCertificateMember(member))
      certificates.pairs[std::string(member)] = DecodePair(*data, member);
  }
  return certificates;
}

std::string NewTlsSecretText(const ObjectMeta& owner, const JobCertificates& certificates) {
  Json data = Json::object();
  for (const auto& [key, text] : EntriesOf(certificates)) data[key] = absl::Base64Escape(text);
  return ToText({{"apiVersion", "v1"},
                 {"kind", "Secret"},
                 {"metadata", ChildMetadata(owner, TlsSecretName(owner.key.name, {}))},
                 {"type", "Opaque"},
                 {"data", std::move(data)}});
}

std::string TlsSecretPatchText(const ObjectMeta& owner,
                               const JobCertificates& present,
                               const JobCertificates& next,
                               const std::string& resource_version) {
  const std::map<std::string, std::string> before = EntriesOf(present);
  const std::map<std::string, std::string> after = EntriesOf(next);
  Json data = Json::object();
  for (const auto& [key, text] : before) {
    if (!after.contains(key)) data[key] = nullptr;
  }
  for (const auto& [key, text] : after) {
    const auto was = before.find(key);
    if (was == before.end() || was->second != text) data[key] = absl::Base64Escape(text);
  }
  return ToText(
      {{"metadata", {{"resourceVersion", resource_version}, {"labels", JobLabels(owner.key.name)}}},
       {"data", std::move(data)}});
}

absl::Status CheckSecretSize(const JobCertificates& certificates) {
  size_t num_bytes = 0;
  for (const auto& [key, text] : EntriesOf(certificates)) num_bytes += text.size();
  if (num_bytes <= kSecretBytesMax) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("certificates for ",
                   certificates.pairs.size(),
                   " members need ",
                   num_bytes,
                   " bytes, and a Secret holds ",
                   kSecretBytesMax,
                   ": have fewer members, or set spec.security.secretName to a Secret with one "
                   "pair for all, or spec.security.tls to Off"));
}

void MountTlsSecret(const std::string& job,
                    const pushpull::SecuritySpec& security,
                    const std::vector<std::string>& members,
                    Json& containers,
                    Json& pod) {
  const std::string secret = TlsSecretName(job, security);
  if (secret.empty()) return;
  const bool is_users = !security.secret_name.empty();
  std::string volume = kVolume;
  for (size_t i = 0; i < containers.size(); ++i) {
    if (i > 0 && !is_users) volume = absl::StrCat(kVolume, "-", members[i]);
    if (i == 0 || !is_users)
      pod["volumes"].push_back(Volume(volume, secret, is_users ? kAnyMember : members[i]));
    Json& container = containers[i];
    container["volumeMounts"].push_back(
        {{"name", volume}, {"mountPath", kFolder}, {"readOnly", true}});
    container["env"].push_back({{"name", pushpull::kTlsFolderVariable}, {"value", kFolder}});
  }
}

}  // namespace pushpull_operator
