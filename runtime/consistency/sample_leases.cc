// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/sample_leases.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr uint32_t kMagicOfLeases = 0x4C535050;  // "PPSL"
constexpr uint32_t kFormatOfLeases = 1;
constexpr size_t kHeaderBytes = 80;
constexpr size_t kLeaseBytes = 24;
constexpr size_t kReturnedBytes = 16;

static_assert(kHeaderBytes + SampleLeases::kWorkersMax * kLeaseBytes <= SampleQueue::kBytes);

uint64_t CeilDiv(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

bool IsWithin(const SampleRange& range, uint64_t num_samples) {
  return range.first <= num_samples && range.count <= num_samples - range.first;
}

}  // namespace

SampleLeases::SampleLeases(const SampleQueue& queue)
    : source_(queue.source()), epoch_(queue.epoch()), returned_(queue.Left()) {
  counted_ = source_.num_samples;
  for (SampleRange& range : returned_) {
    counted_ -= range.count;
    range.count = std::min(range.count, EndOfEpoch() - std::min(range.first, EndOfEpoch()));
  }
  std::erase_if(returned_, [](const SampleRange& range) { return range.count == 0; });
}

// ---- the value's bytes ----

bool SampleLeases::AreIn(std::span<const std::byte> bytes) {
  return ByteReader(bytes).Get<uint32_t>() == kMagicOfLeases;
}

absl::StatusOr<SampleLeases> SampleLeases::Decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.Get<uint32_t>();
  const auto format = reader.Get<uint32_t>();
  if (bytes.size() != SampleQueue::kBytes || magic != kMagicOfLeases) {
    return absl::DataLossError(
        "the job's position in its data set cannot be read: the value has no leases");
  }
  if (format > kFormatOfLeases) {
    return absl::DataLossError(absl::StrCat("the leases of the job's data set have format ",
                                            format,
                                            ", this program reads up to ",
                                            kFormatOfLeases,
                                            ": use a newer one"));
  }
  SampleLeases leases{SampleQueue(SampleSource{})};
  const SampleSource source = leases.source_ = GetSource(reader);
  leases.epoch_ = reader.Get<uint64_t>();
  leases.begun_in_ = Step{reader.Get<uint64_t>()};
  leases.counted_ = reader.Get<uint64_t>();
  const auto num_leases = reader.Get<uint64_t>();
  const auto num_returned = reader.Get<uint64_t>();
  constexpr uint64_t kNumMax = SampleQueue::kBytes;  // so that the sum does not overflow
  bool is_sound =
      num_leases <= kNumMax && num_returned <= kNumMax &&
      kHeaderBytes + num_leases * kLeaseBytes + num_returned * kReturnedBytes <= bytes.size();
  for (uint64_t i = 0; is_sound && i < num_leases; ++i) {
    Lease lease{.worker = WorkerId{reader.Get<uint32_t>()},
                .in_work = reader.Get<uint32_t>(),
                .range = {.first = reader.Get<uint64_t>(), .count = 0}};
    lease.range.count = reader.Get<uint64_t>();
    const bool is_ascending = i == 0 || leases.leases_.back().worker < lease.worker;
    const bool is_waiting = lease.range.count == 0;
    is_sound = is_ascending && (is_waiting || IsWithin(lease.range, source.num_samples)) &&
               lease.in_work <= lease.range.count && is_waiting == (lease.in_work == 0);
    leases.leases_.push_back(lease);
  }
  leases.returned_.clear();
  for (uint64_t i = 0; is_sound && i < num_returned; ++i) {
    SampleRange range{.first = reader.Get<uint64_t>(), .count = 0};
    range.count = reader.Get<uint64_t>();
    is_sound = range.count > 0 && IsWithin(range, source.num_samples);
    leases.returned_.push_back(range);
  }
  if (!is_sound || source.batch == 0 || source.num_samples == 0)
    return absl::DataLossError("the leases of the job's data set are damaged: out of bounds");
  return leases;
}

std::vector<std::byte> SampleLeases::Encode() const {
  ByteWriter writer;
  writer.Put(kMagicOfLeases);
  writer.Put(kFormatOfLeases);
  PutSource(source_, writer);
  writer.Put(epoch_);
  writer.Put(begun_in_.value());
  writer.Put(counted_);
  writer.Put(uint64_t{leases_.size()});
  writer.Put(uint64_t{returned_.size()});
  for (const Lease& lease : leases_) {
    writer.Put(lease.worker.value());
    writer.Put(lease.in_work);
    writer.Put(lease.range.first);
    writer.Put(lease.range.count);
  }
  for (const SampleRange& range : returned_) {
    writer.Put(range.first);
    writer.Put(range.count);
  }
  std::vector<std::byte> bytes = writer.Take();
  bytes.resize(SampleQueue::kBytes);
  return bytes;
}

// ---- reading ----

const SampleLeases::Lease* SampleLeases::Find(WorkerId worker) const {
  const auto found =
      absl::c_find_if(leases_, [&](const Lease& lease) { return lease.worker == worker; });
  return found == leases_.end() ? nullptr : &*found;
}

uint64_t SampleLeases::BatchOfWorker() const {
  if (!source_.is_global_batch) return source_.batch;
  return CeilDiv(source_.batch, std::max<size_t>(1, leases_.size()));
}

uint64_t SampleLeases::batch() const {
  return source_.is_global_batch ? source_.batch : source_.batch * leases_.size();
}

// Batch norm does not take a single sample, so none is left over.
uint32_t SampleLeases::NextBatchOf(uint64_t count) const {
  const uint64_t batch = BatchOfWorker();
  const uint64_t next = batch > 2 && count == batch + 1 ? batch - 1 : std::min(batch, count);
  return static_cast<uint32_t>(std::min<uint64_t>(next, std::numeric_limits<uint32_t>::max()));
}

StepSamples SampleLeases::ShareOf(WorkerId worker, Step step, uint64_t ahead) const {
  StepSamples share{.step = Step{step.value() + ahead},
                    .epoch = epoch_,
                    .position = counted_,
                    .batch = batch(),
                    .total = 0,
                    .ranges = {},
                    .count = 0,
                    .members = {}};
  for (const Lease& each : leases_) share.members.push_back(each.worker);
  const Lease* lease = Find(worker);
  SampleRange range = lease == nullptr ? SampleRange{} : lease->range;
  uint64_t count = lease == nullptr ? 0 : lease->in_work;
  for (uint64_t i = 0; i < ahead && range.count > 0; ++i) {
    range = {range.first + count, range.count - count};
    share.position += count;
    count = NextBatchOf(range.count);
  }
  if (range.count == 0) {
    if (ahead > 0) ++share.epoch;
    return share;
  }
  share.ranges = {{range.first, count}};
  share.count = share.total = count;
  return share;
}

bool SampleLeases::IsWaiting(WorkerId worker, Step known) const {
  const Lease* lease = Find(worker);
  return lease != nullptr && lease->range.count == 0 && known >= begun_in_;
}

bool SampleLeases::IsTurnedAway(WorkerId worker) const {
  return Find(worker) == nullptr && !HasRoom();
}

bool SampleLeases::HasRoom() const {
  return leases_.size() < kWorkersMax &&
         kHeaderBytes + (leases_.size() + 1) * kLeaseBytes + returned_.size() * kReturnedBytes <=
             SampleQueue::kBytes;
}

SampleQueue SampleLeases::ToQueue(std::span<const WorkerId> counted, Step next) const {
  std::vector<SampleRange> left = returned_;
  for (const Lease& lease : leases_) {
    const uint64_t done = absl::c_linear_search(counted, lease.worker) ? lease.in_work : 0;
    if (lease.range.count > done)
      left.push_back({lease.range.first + done, lease.range.count - done});
  }
  return SampleQueue(source_, next, epoch_, std::move(left));
}

// ---- changes ----

void SampleLeases::Commit(WorkerId worker, SampleReport report, const NextEpoch& next) {
  if (!WantsMore(report) && Find(worker) == nullptr) return;
  const auto lease = PlaceFor(worker);
  if (lease == leases_.end()) return;
  const bool is_other_size = IsNumberOfSamples(next.num_samples) &&
                             static_cast<uint64_t>(next.num_samples) != source_.num_samples;
  if (is_other_size && !has_counted()) {
    for (Lease& each : leases_) Give({}, each);
    BeginEpoch(epoch_, next);
  } else if (AreDone(report)) {
    counted_ += lease->in_work;
    Give({lease->range.first + lease->in_work, lease->range.count - lease->in_work}, *lease);
  }
  if (!WantsMore(report)) {
    GiveBack(*lease);
    leases_.erase(lease);
  }
  HandOut(next);
}

void SampleLeases::Admit(std::span<const WorkerId> workers) {
  for (const WorkerId worker : workers) PlaceFor(worker);
  HandOut({});
}

bool SampleLeases::Retain(absl::FunctionRef<bool(WorkerId)> is_present) {
  const size_t before = leases_.size();
  for (const Lease& lease : leases_)
    if (!is_present(lease.worker)) GiveBack(lease);
  std::erase_if(leases_, [&](const Lease& lease) { return !is_present(lease.worker); });
  if (leases_.size() == before) return false;
  HandOut({});
  return true;
}

void SampleLeases::SetGlobalBatch(uint64_t batch) {
  source_.batch = batch;
  source_.is_global_batch = true;
}

// The end: there is no room.
std::vector<SampleLeases::Lease>::iterator SampleLeases::PlaceFor(WorkerId worker) {
  const auto place = absl::c_lower_bound(
      leases_, worker, [](const Lease& lease, WorkerId id) { return lease.worker < id; });
  if (place != leases_.end() && place->worker == worker) return place;
  if (!HasRoom()) return leases_.end();
  return leases_.insert(place, Lease{.worker = worker, .in_work = 0, .range = {}});
}

void SampleLeases::Give(SampleRange range, Lease& lease) const {
  lease.range = range;
  lease.in_work = NextBatchOf(range.count);
}

void SampleLeases::GiveBack(const Lease& lease) {
  if (lease.range.count > 0) returned_.push_back(lease.range);
}

// Gives each worker that waits a lease, as long as there is anything to give.
void SampleLeases::HandOut(const NextEpoch& next) {
  std::vector<Lease*> waiting;
  for (Lease& lease : leases_)
    if (lease.range.count == 0) waiting.push_back(&lease);
  if (!waiting.empty() && IsEpochOver()) BeginEpoch(epoch_ + 1, next);
  // One part to each as long as there are several, so that they become fewer.
  while (!waiting.empty() && returned_.size() > 1) {
    Give(returned_.front(), *waiting.front());
    returned_.erase(returned_.begin());
    waiting.erase(waiting.begin());
  }
  if (!waiting.empty() && !returned_.empty()) {
    HandOutEvenly(returned_.front(), waiting);
    returned_.clear();
  }
  for (Lease* lease : waiting)
    if (lease->range.count == 0 && !TakePlanned(*lease)) return;
}

void SampleLeases::HandOutEvenly(SampleRange range, std::span<Lease* const> waiting) const {
  const uint64_t batch = BatchOfWorker();
  const uint64_t batches = CeilDiv(range.count, batch);
  const uint64_t parts = std::min<uint64_t>(waiting.size(), batches);
  const auto end_of = [&](uint64_t part) {
    return std::min(range.count, (batches / parts * part + batches % parts * part / parts) * batch);
  };
  for (uint64_t i = 0; i < parts; ++i)
    Give({range.first + end_of(i), end_of(i + 1) - end_of(i)}, *waiting[i]);
}

// The second half of the longest plan, in whole batches.
bool SampleLeases::TakePlanned(Lease& waiting) {
  const auto planned = [](const Lease& lease) { return lease.range.count - lease.in_work; };
  Lease& longest = *absl::c_max_element(
      leases_, [&](const Lease& a, const Lease& b) { return planned(a) < planned(b); });
  if (planned(longest) == 0) return false;
  const uint64_t batch = BatchOfWorker();
  const uint64_t kept = longest.in_work + CeilDiv(planned(longest), batch) / 2 * batch;
  Give({longest.range.first + kept, longest.range.count - kept}, waiting);
  longest.range.count = kept;
  return true;
}

bool SampleLeases::IsEpochOver() const {
  return returned_.empty() &&
         absl::c_all_of(leases_, [](const Lease& lease) { return lease.range.count == 0; });
}

// With drops_last an epoch has full batches only, and at least one batch.
uint64_t SampleLeases::EndOfEpoch() const {
  const uint64_t batch = BatchOfWorker();
  const bool drops = source_.drops_last && source_.num_samples >= batch;
  return source_.num_samples - (drops ? source_.num_samples % batch : 0);
}

void SampleLeases::BeginEpoch(uint64_t epoch, const NextEpoch& next) {
  if (IsNumberOfSamples(next.num_samples))
    source_.num_samples = static_cast<uint64_t>(next.num_samples);
  epoch_ = epoch;
  begun_in_ = next.version;
  counted_ = 0;
  returned_ = {{0, EndOfEpoch()}};
}

}  // namespace pushpull
