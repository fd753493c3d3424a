// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/lane_link.h"

#include <utility>

#include "absl/strings/str_format.h"

#include "runtime/transport/channel_choice.h"

namespace pushpull {
namespace {

constexpr Duration kBackoffMin = std::chrono::milliseconds(20);
constexpr Duration kBackoffMax = std::chrono::seconds(1);
constexpr Duration kConnectTimeout = std::chrono::seconds(10);

// host:port, if the server uses the same transport as this side. With different ones, both would
// wait for the other's first bytes.
absl::StatusOr<std::string> AddressFor(const Transport& transport, const LaneLinkTarget& target) {
  constexpr absl::string_view kSchemeEnd = "://";
  const absl::string_view address = target.address;
  const size_t end = address.find(kSchemeEnd);
  const size_t scheme_size = end == absl::string_view::npos ? 0 : end + kSchemeEnd.size();
  if (address.substr(0, scheme_size) == transport.scheme())
    return std::string(address.substr(scheme_size));
  const bool is_theirs = scheme_size > 0;
  return absl::FailedPreconditionError(
      absl::StrFormat("%s at %s %s gRPC for tensors, and this side %s: give all members of the job "
                      "the same %s",
                      target.name(),
                      target.address,
                      is_theirs ? "uses" : "does not use",
                      is_theirs ? "does not" : "does",
                      kChannelVariable));
}

}  // namespace

LaneLink::LaneLink(Transport& transport,
                   Executor& executor,
                   LaneLinkTarget target,
                   LaneLinkHandler& handler)
    : transport_(transport),
      executor_(executor),
      target_(std::move(target)),
      handler_(handler),
      pace_(kBackoffMin, kBackoffMax),
      self_(std::make_shared<LaneLink*>(this)) {
  Connect();
}

void LaneLink::Connect() {
  const std::weak_ptr<LaneLink*> self = self_;
  const absl::StatusOr<std::string> address = AddressFor(transport_, target_);
  if (!address.ok()) {
    executor_.Post([self, why = address.status()] {
      if (const auto link = self.lock()) (*link)->handler_.OnLinkRefused(**link, why);
    });
    return;
  }
  transport_.Connect({.address = *address,
                      .peer_name = target_.name(),
                      .hello = target_.hello,
                      .local_lane = target_.local_lane,
                      .deadline = Deadline(executor_.Now() + kConnectTimeout),
                      .server = target_.worker ? std::nullopt : std::optional(target_.server)},
                     [self](absl::StatusOr<std::unique_ptr<Channel>> channel) {
                       if (const auto link = self.lock()) (*link)->OnConnected(std::move(channel));
                     });
}

void LaneLink::OnConnected(absl::StatusOr<std::unique_ptr<Channel>> channel) {
  if (channel.ok()) {
    channel_ = *std::move(channel);
    channel_->Start(*this);
    handler_.OnLinkUp(*this);
    return;
  }
  const bool is_transient =
      absl::IsUnavailable(channel.status()) || absl::IsDeadlineExceeded(channel.status());
  if (!is_transient) return handler_.OnLinkRefused(*this, channel.status());
  ReconnectAfter(channel.status());
}

void LaneLink::ReconnectAfter(const absl::Status& why) {
  retry_ = executor_.RunAfter(pace_.Failed(executor_.Now()), [this] { Connect(); });
  if (pace_.is_warning_due()) handler_.OnLinkWaiting(*this, why, pace_.Lasted(executor_.Now()));
}

// Only a received frame resets the backoff: a server that accepts and closes at once is not a
// success.
void LaneLink::OnFrame(Channel&, const ReceivedFrame& frame) {
  pace_.Succeeded();
  handler_.OnFrame(*this, frame);
}

void LaneLink::OnClosed(Channel&, const absl::Status& why) {
  // The channel is calling: destroy it once this callback has returned.
  executor_.Post([doomed = std::shared_ptr<Channel>(std::move(channel_))] {});
  ReconnectAfter(why);
}

}  // namespace pushpull
