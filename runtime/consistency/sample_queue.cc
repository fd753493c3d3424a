// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/sample_queue.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr uint32_t kMagic = 0x51535050;  // "PPSQ"
constexpr uint32_t kFormat = 2;          // 1 has no kDropsLast
// Flags of a source.
constexpr uint64_t kIsGlobalBatch = 1;
constexpr uint64_t kDropsLast = 2;
constexpr size_t kMemberBytes = SampleQueue::kWorkersMax / 8;

uint64_t Count(const std::vector<SampleRange>& ranges) {
  return absl::c_accumulate(
      ranges, uint64_t{0}, [](uint64_t sum, auto range) { return sum + range.count; });
}

// Appends a run, or extends the last one if the run continues it.
void Append(SampleRange range, std::vector<SampleRange>& ranges) {
  if (range.count == 0) return;
  const bool follows = !ranges.empty() && ranges.back().first + ranges.back().count == range.first;
  if (follows) {
    ranges.back().count += range.count;
  } else {
    ranges.push_back(range);
  }
}

// Samples `begin` to `end` - 1 of the runs, counted over all of them.
std::vector<SampleRange> Slice(const std::vector<SampleRange>& ranges,
                               uint64_t begin,
                               uint64_t end) {
  std::vector<SampleRange> slice;
  uint64_t at = 0;
  for (const SampleRange& range : ranges) {
    const uint64_t from = std::clamp(begin, at, at + range.count);
    const uint64_t to = std::clamp(end, at, at + range.count);
    Append({range.first + (from - at), to - from}, slice);
    at += range.count;
  }
  return slice;
}

}  // namespace

void PutSource(const SampleSource& source, ByteWriter& writer) {
  writer.Put(source.num_samples);
  writer.Put(source.epochs);
  writer.Put(source.batch);
  writer.Put((source.is_global_batch ? kIsGlobalBatch : 0) | (source.drops_last ? kDropsLast : 0));
}

SampleSource GetSource(ByteReader& reader) {
  SampleSource source;
  for (uint64_t* number : {&source.num_samples, &source.epochs, &source.batch})
    *number = reader.Get<uint64_t>();
  const auto flags = reader.Get<uint64_t>();
  source.is_global_batch = (flags & kIsGlobalBatch) != 0;
  source.drops_last = (flags & kDropsLast) != 0;
  return source;
}

SampleQueue::SampleQueue(const SampleSource& source,
                         Step step,
                         uint64_t epoch,
                         std::vector<SampleRange> left)
    : source_(source), step_(step), epoch_(epoch) {
  if (Count(left) == source.num_samples) return;  // it has not begun
  position_ = source.num_samples;
  Return(std::move(left));
  EndEpochIfOver();
}

absl::StatusOr<SampleQueue> SampleQueue::Decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.Get<uint32_t>();
  const auto format = reader.Get<uint32_t>();
  if (bytes.size() != kBytes || magic != kMagic)
    return absl::DataLossError(
        "the job's position in its data set cannot be read: the value is not a sample queue");
  if (format > kFormat) {
    return absl::DataLossError(absl::StrCat("the job's position in its data set has format ",
                                            format,
                                            ", this program reads up to ",
                                            kFormat,
                                            ": use a newer one"));
  }
  SampleQueue queue{SampleSource{}};
  queue.source_ = GetSource(reader);
  queue.step_ = Step{reader.Get<uint64_t>()};
  for (uint64_t* number : {&queue.epoch_, &queue.position_, &queue.dropped_})
    *number = reader.Get<uint64_t>();
  const auto num_returned = reader.Get<uint64_t>();
  const std::span<const std::byte> members = reader.GetBytes(kMemberBytes);
  for (uint32_t i = 0; i < kWorkersMax; ++i) {
    const auto eight = std::to_integer<uint32_t>(members[i / 8]);
    if ((eight >> (i % 8) & 1U) != 0) queue.members_.push_back(WorkerId{i});
  }
  const uint64_t samples = queue.source_.num_samples;
  bool is_sound = num_returned <= kReturnedMax && queue.position_ <= samples;
  for (uint64_t i = 0; is_sound && i < num_returned; ++i) {
    SampleRange range{.first = reader.Get<uint64_t>(), .count = 0};
    range.count = reader.Get<uint64_t>();
    is_sound = range.first <= samples && range.count <= samples - range.first;
    queue.returned_.push_back(range);
  }
  if (!is_sound)
    return absl::DataLossError("the job's position in its data set is damaged: out of bounds");
  return queue;
}

std::vector<std::byte> SampleQueue::Encode() const {
  ByteWriter writer;
  writer.Put(kMagic);
  writer.Put(kFormat);
  PutSource(source_, writer);
  writer.Put(step_.value());
  writer.Put(epoch_);
  writer.Put(position_);
  writer.Put(dropped_);
  writer.Put(uint64_t{returned_.size()});
  std::vector<std::byte> members(kMemberBytes);
  for (const WorkerId worker : members_)
    members[worker.value() / 8] |= std::byte{static_cast<unsigned char>(1U << worker.value() % 8)};
  writer.PutBytes(members);
  for (const SampleRange& range : returned_) {
    writer.Put(range.first);
    writer.Put(range.count);
  }
  std::vector<std::byte> bytes = writer.Take();
  bytes.resize(kBytes);
  return bytes;
}

void SampleQueue::SetMembers(std::vector<WorkerId> members) {
  std::erase_if(members, [](WorkerId worker) { return worker.value() >= kWorkersMax; });
  absl::c_sort(members);
  members.erase(std::unique(members.begin(), members.end()), members.end());
  members_ = std::move(members);
}

void SampleQueue::SetNumSamples(double num_samples) {
  const bool has_begun = position_ > 0 || !returned_.empty();
  if (!has_begun && IsNumberOfSamples(num_samples))
    source_.num_samples = static_cast<uint64_t>(num_samples);
}

void SampleQueue::SetGlobalBatch(uint64_t batch) {
  source_.batch = batch;
  source_.is_global_batch = true;
}

std::vector<SampleRange> SampleQueue::StepRanges() const {
  if (members_.empty()) return {};
  std::vector<SampleRange> ranges = Slice(returned_, 0, batch());
  const uint64_t fresh = std::min(batch() - Count(ranges), source_.num_samples - position_);
  Append({position_, fresh}, ranges);
  return ranges;
}

std::vector<SampleRange> SampleQueue::RangesOf(size_t member,
                                               const std::vector<SampleRange>& step) const {
  const uint64_t size = Count(step);
  const uint64_t sharers = NumSharers(size);
  // Evenly: shares differ by at most one sample.
  const auto before = [&](uint64_t m) {
    m = std::min(m, sharers);
    return size / sharers * m + size % sharers * m / sharers;
  };
  return Slice(step, before(member), before(member + 1));
}

// Where a full step has two samples for every member, a smaller one gives nobody a single sample,
// which batch norm does not take: it goes to fewer members.
uint64_t SampleQueue::NumSharers(uint64_t samples) const {
  const uint64_t least = batch() >= 2 * members_.size() ? 2 : 1;
  return std::clamp<uint64_t>(samples / least, 1, members_.size());
}

void SampleQueue::PreferInSmallStep(std::span<const WorkerId> first) {
  if (members_.empty() || NumSharers(Count(StepRanges())) == members_.size()) return;
  std::vector<WorkerId> preferred;
  for (const WorkerId worker : first)
    if (absl::c_linear_search(members_, worker)) preferred.push_back(worker);
  if (!preferred.empty()) SetMembers(std::move(preferred));
}

StepSamples SampleQueue::ShareOf(WorkerId worker, Step step) const {
  const std::vector<SampleRange> taken = StepRanges();
  StepSamples share{.step = step,
                    .epoch = epoch_,
                    .position = position_ - Count(returned_),
                    .batch = batch(),
                    .total = Count(taken),
                    .ranges = {},
                    .count = 0,
                    .members = members_};
  const auto member = absl::c_find(members_, worker);
  if (step != step_ || member == members_.end()) return share;
  share.ranges = RangesOf(static_cast<size_t>(member - members_.begin()), taken);
  share.count = Count(share.ranges);
  return share;
}

void SampleQueue::Advance(std::span<const WorkerId> counted, std::vector<WorkerId> next) {
  const std::vector<SampleRange> taken = StepRanges();
  std::vector<SampleRange> left;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (absl::c_linear_search(counted, members_[i])) continue;
    for (const SampleRange& range : RangesOf(i, taken)) Append(range, left);
  }
  const uint64_t from_returned = std::min(Count(taken), Count(returned_));
  position_ += Count(taken) - from_returned;
  for (const SampleRange& range : Slice(returned_, from_returned, Count(returned_)))
    Append(range, left);
  Return(std::move(left));
  SetMembers(std::move(next));
  EndEpochIfOver();
  step_ = Step{step_.value() + 1};
}

void SampleQueue::EndEpochIfOver() {
  if (!IsEpochOver()) return;
  ++epoch_;
  position_ = 0;
  returned_.clear();
}

std::vector<SampleRange> SampleQueue::Left() const {
  std::vector<SampleRange> left = returned_;
  Append({position_, source_.num_samples - position_}, left);
  return left;
}

// An epoch has at least one step, whatever its size.
bool SampleQueue::IsEpochOver() const {
  const uint64_t left = Count(returned_) + source_.num_samples - position_;
  return left == 0 || (source_.drops_last && position_ > 0 && left < batch());
}

void SampleQueue::AdvanceAll() {
  const std::vector<WorkerId> all = members_;
  Advance(all, all);
}

void SampleQueue::Return(std::vector<SampleRange> ranges) {
  returned_ = std::move(ranges);
  while (returned_.size() > kReturnedMax) {
    dropped_ += returned_.back().count;
    returned_.pop_back();
  }
}

}  // namespace pushpull
