// SPDX-License-Identifier: Apache-2.0
#include "runtime/tls/peer_identity.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "runtime/base/printable.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr char kSuffix[] = ".pushpull";
constexpr char kForms[] =
    "it must have the DNS name \"pushpull\", and may have <job>.<namespace>.pushpull or "
    "<member>.<job>.<namespace>.pushpull: see docs/security.md";
constexpr size_t kShownNamesMax = 4;

// In canonical form, so that each index has one name.
bool IsIndex(absl::string_view text) {
  uint32_t index = 0;
  return absl::SimpleAtoi(text, &index) && absl::StrCat(index) == text;
}

bool IsLabel(const std::string& label) {
  const auto is_letter = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-'; };
  return !label.empty() && std::all_of(label.begin(), label.end(), is_letter);
}

}  // namespace

bool IsCertificateMember(absl::string_view member) {
  if (member == kCoordinatorMember || member == kOperatorMember) return true;
  return (absl::ConsumePrefix(&member, "server-") || absl::ConsumePrefix(&member, "worker-")) &&
         IsIndex(member);
}

std::string JobCertificateName(absl::string_view job, absl::string_view job_namespace) {
  return absl::StrCat(job, ".", job_namespace, kSuffix);
}

std::string MemberCertificateName(absl::string_view member,
                                  absl::string_view job,
                                  absl::string_view job_namespace) {
  return absl::StrCat(member, ".", JobCertificateName(job, job_namespace));
}

std::optional<PeerIdentity::Name> PeerIdentity::Parse(absl::string_view name) {
  const std::vector<std::string> labels = absl::StrSplit(absl::StripSuffix(name, kSuffix), '.');
  if (!std::all_of(labels.begin(), labels.end(), IsLabel)) return std::nullopt;
  if (labels.size() == 2) return Name{.member = "", .job = labels[0], .job_namespace = labels[1]};
  if (labels.size() != 3 || !IsCertificateMember(labels[0])) return std::nullopt;
  return Name{.member = labels[0], .job = labels[1], .job_namespace = labels[2]};
}

absl::StatusOr<PeerIdentity> PeerIdentity::Of(const std::vector<std::string>& dns_names) {
  PeerIdentity identity;
  bool is_ours = false;
  for (const std::string& dns_name : dns_names) {
    const std::string name = absl::AsciiStrToLower(dns_name);
    is_ours = is_ours || name == kCertificateName;
    if (!absl::EndsWith(name, kSuffix)) continue;
    std::optional<Name> parsed = Parse(name);
    if (!parsed) {
      return absl::PermissionDeniedError(
          absl::StrCat("the certificate's name ", Printable(name), " has another form: ", kForms));
    }
    is_ours = true;
    identity.is_any_role_ = identity.is_any_role_ && parsed->member.empty();
    identity.names_.push_back(*std::move(parsed));
  }
  if (is_ours) return identity;
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate names no member of a job: ", kForms));
}

absl::StatusOr<PeerIdentity> PeerIdentity::Within(const PeerIdentity& own) const {
  if (own.names_.empty() || names_.empty()) return *this;
  PeerIdentity within;
  within.is_any_role_ = is_any_role_;
  for (const Name& name : names_) {
    const auto is_same_job = [&](const Name& other) {
      return other.job == name.job && other.job_namespace == name.job_namespace;
    };
    for (const Name& other : own.names_) {
      if (!is_same_job(other)) continue;
      within.names_.push_back(name);
      break;
    }
  }
  if (!within.names_.empty()) return within;
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate of ",
                   ToText(),
                   " is of another job than ",
                   own.ToText(),
                   ": give the members of a job certificates of it"));
}

bool PeerIdentity::HasMember(absl::string_view member) const {
  for (const Name& name : names_) {
    if (name.member == member) return true;
  }
  return false;
}

absl::Status PeerIdentity::CheckIs(absl::string_view member) const {
  if (is_any_role_ || HasMember(member)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate of ",
                   ToText(),
                   " is not that of ",
                   member,
                   ": give each member its own in the folder of PUSHPULL_TLS_DIR"));
}

absl::Status PeerIdentity::CheckManages(absl::string_view what) const {
  if (is_any_role_ || HasMember(kCoordinatorMember) || HasMember(kOperatorMember))
    return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate of ",
                   ToText(),
                   " may not ",
                   what,
                   ": change the TrainingJob, or run the command in the coordinator's pod"));
}

std::string PeerIdentity::ToText() const {
  if (names_.empty()) return kCertificateName;
  std::vector<std::string> texts;
  for (const Name& name : names_) {
    if (texts.size() == kShownNamesMax) {
      texts.emplace_back("...");
      break;
    }
    texts.push_back(name.member.empty()
                        ? JobCertificateName(name.job, name.job_namespace)
                        : MemberCertificateName(name.member, name.job, name.job_namespace));
  }
  return absl::StrJoin(texts, ", ");
}

absl::StatusOr<PeerIdentity> AdmitPeer(const std::vector<std::string>& dns_names,
                                       const PeerIdentity& own) {
  PUSHPULL_ASSIGN_OR_RETURN(const PeerIdentity identity, PeerIdentity::Of(dns_names));
  return identity.Within(own);
}

}  // namespace pushpull
