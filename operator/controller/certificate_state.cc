// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/certificate_state.h"

#include <memory>
#include <utility>

#include "operator/children/job_objects.h"
#include "operator/controller/object_maker.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

constexpr std::chrono::seconds kRereadPause{30};

}  // namespace

absl::Status CertificateState::Refresh(CertificateKeeper& keeper, const ObservedJob& job) {
  absl::StatusOr<MemberCertificates> read =
      keeper.Ensure(job.meta(), job.object().job.spec.security, job.now);
  obstacle_ =
      absl::IsNotFound(read.status())
          ? Obstacle{.reason = "SecretMissing", .message = std::string(read.status().message())}
          : ObstacleOf(read.status());
  PUSHPULL_RETURN_IF_ERROR(read.status());
  certificates_ = *std::move(read);
  return absl::OkStatus();
}

absl::Status CertificateState::RefreshIfDue(CertificateKeeper& keeper,
                                            const ObservedJob& job,
                                            bool is_active) {
  if (!is_active) {
    if (job.Coordinator() == nullptr) certificates_ = {};
    return absl::OkStatus();
  }
  const bool is_fresh = certificates_.secret == job.Secret() && job.now < certificates_.recheck_at;
  return is_fresh || !job.HasPods() ? absl::OkStatus() : Refresh(keeper, job);
}

bool CertificateState::RefreshAfterRefusal(CertificateKeeper& keeper, const ObservedJob& job) {
  const std::shared_ptr<const pushpull::TlsFiles> refused = certificates_.files;
  if (refused == nullptr || job.now < reread_at_) return false;
  reread_at_ = job.now + kRereadPause;
  return Refresh(keeper, job).ok() && certificates_.files != nullptr &&
         *certificates_.files != *refused;
}

absl::StatusOr<CoordinatorEndpoint> CertificateState::EndpointOf(const ObservedJob& job,
                                                                 const Stored<Pod>& pod) const {
  if (certificates_.secret != job.Secret())
    return absl::UnavailableError("the certificates for calls to the coordinator are missing");
  return CoordinatorEndpoint{.address = CoordinatorAddressAt(pod.value.ip),
                             .tls = certificates_.files};
}

std::optional<WallTime> CertificateState::recheck_at() const {
  if (certificates_.files == nullptr) return std::nullopt;
  return certificates_.recheck_at;
}

}  // namespace pushpull_operator
