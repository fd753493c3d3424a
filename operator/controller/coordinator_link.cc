// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/coordinator_link.h"

#include <utility>
#include <variant>

#include "runtime/base/status_macros.h"

namespace pushpull_operator {

std::optional<CoordinatorReport> CoordinatorLink::GetReport(const ObservedJob& job,
                                                            JobState& state) {
  const Stored<Pod>* pod = job.Coordinator();
  if (pod == nullptr || !state.backoff.MayAsk(pod->meta.uid, job.now)) return std::nullopt;
  absl::StatusOr<CoordinatorReport> report = Call(job, *pod, state.certificates);
  if (absl::IsDeadlineExceeded(report.status())) state.backoff.OnTimeout(pod->meta.uid, job.now);
  if (!report.ok()) return std::nullopt;
  state.backoff.OnAnswer();
  // The address may belong to another pod by now.
  if (report->job != job.key().name) return std::nullopt;
  return *std::move(report);
}

absl::StatusOr<CoordinatorReport> CoordinatorLink::Call(const ObservedJob& job,
                                                        const Stored<Pod>& pod,
                                                        CertificateState& certificates) {
  PUSHPULL_ASSIGN_OR_RETURN(const CoordinatorEndpoint endpoint, certificates.EndpointOf(job, pod));
  absl::StatusOr<CoordinatorReport> report = coordinators_.GetStatus(endpoint, CallDeadline());
  const bool has_changed =
      absl::IsUnavailable(report.status()) && certificates.RefreshAfterRefusal(keeper_, job);
  if (!has_changed) return report;
  PUSHPULL_ASSIGN_OR_RETURN(const CoordinatorEndpoint again, certificates.EndpointOf(job, pod));
  return coordinators_.GetStatus(again, CallDeadline());
}

absl::Status CoordinatorLink::Send(const ObservedJob& job, const Action& action, JobState& state) {
  const Stored<Pod>* pod = job.Coordinator();
  if (pod == nullptr) return absl::UnavailableError("the job has no ready coordinator");
  PUSHPULL_ASSIGN_OR_RETURN(const CoordinatorEndpoint endpoint,
                            state.certificates.EndpointOf(job, *pod));
  if (const auto* size = std::get_if<RequestSize>(&action))
    return coordinators_.Resize(endpoint, *size, CallDeadline());
  if (const auto* sync = std::get_if<RequestSync>(&action))
    return coordinators_.SetSync(endpoint, *sync, CallDeadline());
  PUSHPULL_ASSIGN_OR_RETURN(state.save, coordinators_.Save(endpoint, CallDeadline()));
  return absl::OkStatus();
}

}  // namespace pushpull_operator
