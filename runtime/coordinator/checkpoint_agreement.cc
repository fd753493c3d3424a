// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/checkpoint_agreement.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pushpull {
namespace {

// After this many rejected steps in a row, something other than training must be raising the
// versions.
constexpr uint64_t kRefusalsMax = 32;
// Steps that servers may complete while the order travels, doubled at each rejection up to 2^10.
constexpr uint64_t kMarginBitsMax = 10;

std::string NameOf(const Capturer& capturer) {
  return std::visit([](auto id) { return ToString(id); }, capturer);
}

}  // namespace

CheckpointChange CheckpointAgreement::Request(const Job& job) {
  // A save that has not begun serves all requests that arrive until it does.
  const bool has_waiting =
      status_.requested > (state_ == State::kIdle ? status_.finished : under_way_);
  if (!has_waiting) ++status_.requested;
  if (state_ == State::kIdle) Begin(job);
  return std::exchange(change_, {});
}

CheckpointChange CheckpointAgreement::OnTick(const Job& job) {
  ProbeIfDue(job.now);
  if (state_ == State::kIdle) {
    if (!next_due_ || job.now < *next_due_ || job.is_over) return std::exchange(change_, {});
    return Request(job);
  }
  if (job.now < deadline_) return std::exchange(change_, {});
  const std::string limit = absl::StrFormat("within %.0f s", ToSeconds(policy_.attempt_timeout));
  switch (state_) {
    case State::kCapturing:
      Fail(absl::StrCat("not captured and written ", limit, ": ", DescribeMissing()));
      break;
    case State::kWriting:
      Fail(absl::StrCat(policy_.folder, ": the manifest was not written ", limit));
      break;
    case State::kClearing:
      // Files that cannot be removed are not part of a checkpoint, and a later save removes them.
      Finish(job);
      break;
    case State::kIdle:
      break;
  }
  return std::exchange(change_, {});
}

CheckpointChange CheckpointAgreement::SetCapturers(const Job& job, std::set<Capturer> capturers) {
  capturers_ = std::move(capturers);
  // Files that one has reported exist even after it is gone.
  std::erase_if(reported_, [&](const Capturer& one) { return !capturers_.contains(one); });
  if (state_ == State::kCapturing) ConcludeIfComplete(job);
  return std::exchange(change_, {});
}

CheckpointChange CheckpointAgreement::OnCaptured(const Job& job,
                                                 Capturer capturer,
                                                 const Captured& captured) {
  if (state_ != State::kCapturing || captured.attempt != order_.attempt) return {};
  if (absl::IsAborted(captured.status)) {
    reached_ = std::max(reached_, captured.highest_version);
    TryAgain();
  } else if (!captured.status.ok()) {
    Fail(absl::StrCat(NameOf(capturer), ": ", captured.status.message()));
  } else {
    reported_.insert(capturer);
    for (const ChunkFileSummary& file : captured.files) {
      for (const ChunkPlace& place : file.chunks) covered_.insert(place.chunk);
      files_.push_back(file);
    }
    ConcludeIfComplete(job);
  }
  return std::exchange(change_, {});
}

CheckpointChange CheckpointAgreement::OnPartLost() {
  if (state_ == State::kCapturing) TryAgain();
  return std::exchange(change_, {});
}

CheckpointChange CheckpointAgreement::SetWorkers(const Job& job, std::set<WorkerId> workers) {
  workers_ = std::move(workers);
  if (state_ == State::kCapturing) ConcludeIfComplete(job);
  return std::exchange(change_, {});
}

CheckpointChange CheckpointAgreement::OnWhole(const Job& job,
                                              WorkerId worker,
                                              const Captured& word) {
  if (state_ != State::kCapturing || word.attempt != order_.attempt || order_.is_last) return {};
  if (word.status.ok()) {
    whole_.insert(worker);
    ConcludeIfComplete(job);
  } else {
    reached_ = std::max(reached_, word.highest_version);
    TryAgain();
  }
  return std::exchange(change_, {});
}

CheckpointChange CheckpointAgreement::OnManifest(const Job& job,
                                                 uint64_t attempt,
                                                 const absl::Status& written) {
  if (state_ != State::kWriting || attempt != order_.attempt) return {};
  if (!written.ok()) {
    Fail(std::string(written.message()));
    return std::exchange(change_, {});
  }
  status_.step = order_.step;
  ++status_.saved;
  status_.succeeded = under_way_;
  status_.seconds = ToSeconds(job.now - began_at_);
  status_.problem.clear();
  next_probe_.reset();
  change_.said = absl::StrFormat(
      "checkpoint of step %d saved in %.2f s", order_.step.value(), status_.seconds);
  Finish(job);
  return std::exchange(change_, {});
}

CheckpointChange CheckpointAgreement::OnCleared(const Job& job, uint64_t attempt) {
  if (state_ != State::kClearing || attempt != order_.attempt) return {};
  if (is_given_up_) {
    Finish(job);
  } else {
    Try(job);
  }
  return std::exchange(change_, {});
}

CheckpointChange CheckpointAgreement::OnProbed(const Job& job, const absl::Status& written) {
  is_probing_ = false;
  if (!next_probe_) return {};  // a save has ended meanwhile, which says more
  if (written.ok()) {
    next_probe_.reset();
    status_.problem.clear();
    return {};
  }
  next_probe_ = job.now + policy_.probe_every;
  const bool is_known = !status_.problem.empty();
  status_.problem = std::string(written.message());
  if (is_known) return {};
  return {.said = absl::StrCat("checkpoints cannot be saved: ", written.message()),
          .is_problem = true};
}

CheckpointChange CheckpointAgreement::EndJob(const Job& job) {
  if (state_ == State::kCapturing && order_.step > job.highest_version) {
    // Its step will never be reached. The next attempt takes the versions there are.
    Clear();
    return std::exchange(change_, {});
  }
  if (state_ == State::kClearing && !is_given_up_) return {};
  const bool is_under_way = state_ == State::kCapturing || state_ == State::kWriting;
  const bool is_being_saved = is_under_way && order_.step == job.highest_version &&
                              order_.versions == ChunkVersions::kOfOneStep;
  if (is_being_saved || IsSaved(job)) return {};
  return Request(job);
}

// Without common steps nothing shows that the last save contains every push.
bool CheckpointAgreement::IsSaved(const Job& job) const {
  const bool has_saved = status_.saved > 0 && status_.step == job.highest_version;
  return job.versions == ChunkVersions::kOfOneStep &&
         (has_saved || status_.restored_step == job.highest_version);
}

CheckpointChange CheckpointAgreement::Abandon(const std::string& why) {
  if (state_ == State::kCapturing) Fail(why);
  return std::exchange(change_, {});
}

CheckpointChange CheckpointAgreement::GiveUp() {
  next_due_.reset();
  if (state_ == State::kCapturing) change_.end = EndCapture{order_.attempt};
  if (state_ != State::kIdle || status_.finished < status_.requested) ++status_.failures;
  status_.finished = status_.requested;
  state_ = State::kIdle;
  return std::exchange(change_, {});
}

void CheckpointAgreement::ProbeIfDue(SteadyTime now) {
  if (is_probing_ || !next_probe_ || now < *next_probe_) return;
  is_probing_ = true;
  change_.probe = ProbeFolder{policy_.folder};
}

// ---- one save ----

void CheckpointAgreement::Begin(const Job& job) {
  under_way_ = status_.requested;
  began_at_ = job.now;
  refusals_ = 0;
  reached_ = job.highest_version;
  if (next_due_) next_due_ = job.now + policy_.every;
  if (!job.is_over || status_.saved == 0 || !IsSaved(job)) return Try(job);
  // Nothing has changed since the last save.
  status_.succeeded = under_way_;
  Finish(job);
}

void CheckpointAgreement::Try(const Job& job) {
  const uint64_t margin = uint64_t{1} << std::min(refusals_, kMarginBitsMax);
  const Step reached = std::max(reached_, job.highest_version);
  const bool has_to_wait = !job.is_over && job.versions == ChunkVersions::kOfOneStep;
  state_ = State::kCapturing;
  is_given_up_ = false;
  deadline_ = job.now + policy_.attempt_timeout;
  order_ = {.attempt = next_attempt_++,
            .step = has_to_wait ? Step{reached.value() + margin} : reached,
            .versions = job.versions,
            .is_last = job.is_over,
            .folder = policy_.folder};
  reported_.clear();
  whole_.clear();
  covered_.clear();
  files_.clear();
  change_.capture = order_;
}

void CheckpointAgreement::TryAgain() {
  if (++refusals_ > kRefusalsMax) {
    return Fail(absl::StrFormat(
        "no step could be agreed on, after %d tries up to %d", kRefusalsMax, order_.step.value()));
  }
  Clear();
}

void CheckpointAgreement::ConcludeIfComplete(const Job& job) {
  if (covered_.size() >= job.num_chunks) {
    if (!AreGradientsWhole()) return;
    state_ = State::kWriting;
    change_.end = EndCapture{order_.attempt};
    change_.manifest = {.attempt = order_.attempt,
                        .folder = policy_.folder,
                        .keep = policy_.keep,
                        .manifest = {.step = order_.step, .versions = order_.versions},
                        .files = std::move(files_)};
    files_.clear();
    return;
  }
  const bool have_all_reported = !capturers_.empty() && absl::c_includes(reported_, capturers_);
  // A chunk moved between one server's report and another's.
  if (have_all_reported) TryAgain();
}

// After the last step, workers never send their residuals.
bool CheckpointAgreement::AreGradientsWhole() const {
  return order_.is_last || absl::c_includes(whole_, workers_);
}

void CheckpointAgreement::Fail(const std::string& why) {
  ++status_.failures;
  status_.failure = absl::StrCat("checkpoint of step ", order_.step.value(), ": ", why);
  status_.problem = status_.failure;
  next_probe_.reset();
  change_.said = absl::StrCat(status_.failure, "; the job goes on");
  change_.is_problem = true;
  is_given_up_ = true;
  Clear();
}

void CheckpointAgreement::Clear() {
  if (state_ == State::kCapturing) change_.end = EndCapture{order_.attempt};
  state_ = State::kClearing;
  files_.clear();
  change_.clearing = {.attempt = order_.attempt, .folder = policy_.folder, .step = order_.step};
}

void CheckpointAgreement::Finish(const Job& job) {
  state_ = State::kIdle;
  status_.finished = under_way_;
  if (status_.requested > under_way_) Begin(job);
}

std::string CheckpointAgreement::DescribeMissing() const {
  std::string text;
  for (const Capturer& capturer : capturers_) {
    if (reported_.contains(capturer)) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", NameOf(capturer));
  }
  for (const WorkerId worker : workers_) {
    if (AreGradientsWhole() || whole_.contains(worker)) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", ToString(worker));
  }
  return text.empty() ? "nobody is there to capture" : absl::StrCat("nothing from ", text);
}

}  // namespace pushpull
