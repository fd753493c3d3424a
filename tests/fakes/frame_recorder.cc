// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/frame_recorder.h"

#include <utility>

namespace pushpull {
namespace {

constexpr Duration kTimeout = std::chrono::seconds(60);

}  // namespace

std::span<std::byte> FrameRecorder::PayloadBuffer(Channel& channel, const FrameHeader& header) {
  if (place) return place(channel, header);
  buffer_.resize(header.payload_bytes);
  return buffer_;
}

void FrameRecorder::OnFrame(Channel& channel, const ReceivedFrame& frame) {
  {
    RecordedFrame record{.header = frame.header,
                         .meta = {frame.meta.begin(), frame.meta.end()},
                         .payload = {},
                         .received_into = frame.payload.data(),
                         .in_place = frame.in_place};
    if (keeps_payloads) record.payload.assign(frame.payload.begin(), frame.payload.end());
    MutexLock lock(mu_);
    frames_.push_back(std::move(record));
    num_payload_bytes_ += frame.payload.size();
    events_.emplace_back("frame");
    changed_.NotifyAll();
  }
  if (on_frame) on_frame(channel, frame);
}

void FrameRecorder::OnPayloadLost(Channel& channel, const FrameHeader&) {
  {
    MutexLock lock(mu_);
    events_.emplace_back("lost");
    changed_.NotifyAll();
  }
  if (on_payload_lost) on_payload_lost(channel);
}

void FrameRecorder::OnClosed(Channel& channel, const absl::Status& why) {
  {
    MutexLock lock(mu_);
    events_.emplace_back("closed");
    closed_ = why;
    changed_.NotifyAll();
  }
  if (on_closed) on_closed(channel);
}

bool FrameRecorder::WaitForFrames(size_t count) const {
  const Deadline deadline = Deadline::After(kTimeout);
  MutexLock lock(mu_);
  while (frames_.size() < count) {
    if (!changed_.WaitUntil(mu_, deadline)) return frames_.size() >= count;
  }
  return true;
}

bool FrameRecorder::WaitForClosed() const {
  const Deadline deadline = Deadline::After(kTimeout);
  MutexLock lock(mu_);
  while (!closed_) {
    if (!changed_.WaitUntil(mu_, deadline)) return closed_.has_value();
  }
  return true;
}

std::vector<RecordedFrame> FrameRecorder::frames() const {
  MutexLock lock(mu_);
  return frames_;
}

size_t FrameRecorder::num_frames() const {
  MutexLock lock(mu_);
  return frames_.size();
}

size_t FrameRecorder::num_payload_bytes() const {
  MutexLock lock(mu_);
  return num_payload_bytes_;
}

std::vector<std::string> FrameRecorder::events() const {
  MutexLock lock(mu_);
  return events_;
}

std::optional<absl::Status> FrameRecorder::closed() const {
  MutexLock lock(mu_);
  return closed_;
}

absl::Status RecordingAcceptor::Admit(const Hello& hello) {
  return admit ? admit(hello) : absl::OkStatus();
}

void RecordingAcceptor::OnChannel(const Hello& hello, std::unique_ptr<Channel> channel) {
  auto accepted = std::make_shared<RecordedChannel>(
      RecordedChannel{.hello = hello,
                      .executor = &transport_.lane(hello.lane),
                      .recorder = std::make_unique<FrameRecorder>(),
                      .channel = std::move(channel)});
  if (prepare) prepare(*accepted->recorder);
  accepted->channel->Start(*accepted->recorder);
  MutexLock lock(mu_);
  channels_.push_back(std::move(accepted));
  changed_.NotifyAll();
}

void RecordingAcceptor::OnRejected(const absl::Status& why) {
  MutexLock lock(mu_);
  rejections_.push_back(why);
  changed_.NotifyAll();
}

std::shared_ptr<RecordedChannel> RecordingAcceptor::WaitForChannel() {
  const Deadline deadline = Deadline::After(kTimeout);
  MutexLock lock(mu_);
  while (channels_.empty()) {
    if (!changed_.WaitUntil(mu_, deadline) && channels_.empty()) return nullptr;
  }
  auto first = std::move(channels_.front());
  channels_.erase(channels_.begin());
  return first;
}

std::shared_ptr<RecordedChannel> RecordingAcceptor::TakeChannel() {
  MutexLock lock(mu_);
  if (channels_.empty()) return nullptr;
  auto first = std::move(channels_.front());
  channels_.erase(channels_.begin());
  return first;
}

bool RecordingAcceptor::WaitForRejections(size_t count) const {
  const Deadline deadline = Deadline::After(kTimeout);
  MutexLock lock(mu_);
  while (rejections_.size() < count) {
    if (!changed_.WaitUntil(mu_, deadline)) return rejections_.size() >= count;
  }
  return true;
}

std::vector<absl::Status> RecordingAcceptor::rejections() const {
  MutexLock lock(mu_);
  return rejections_;
}

}  // namespace pushpull
