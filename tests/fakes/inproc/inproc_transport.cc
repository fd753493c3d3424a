// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/inproc/inproc_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "tests/fakes/inproc/inproc_channel.h"
#include "tests/fakes/inproc/inproc_end.h"

namespace pushpull {
namespace {

class InprocListener final : public Listener {
 public:
  InprocListener(InprocNetwork& network, std::shared_ptr<InprocPort> port, std::string address)
      : network_(network), port_(std::move(port)), address_(std::move(address)) {}
  ~InprocListener() override {
    network_.Unbind(address_);
    port_->gate.Close();
  }
  InprocListener(const InprocListener&) = delete;
  InprocListener& operator=(const InprocListener&) = delete;

  const std::string& address() const override { return address_; }

 private:
  InprocNetwork& network_;
  const std::shared_ptr<InprocPort> port_;
  const std::string address_;
};

// One Connect in progress: own lane -> the port's first lane (Admit) -> the lane asked for
// (OnChannel) -> own lane (done). Held by the tasks of that way and by the timer.
class InprocDial final : public std::enable_shared_from_this<InprocDial> {
 public:
  InprocDial(InprocNetwork& network,
             std::shared_ptr<InprocNode> node,
             Executor& executor,
             ConnectRequest request,
             ConnectDone done)
      : network_(network),
        node_(std::move(node)),
        executor_(executor),
        request_(std::move(request)),
        done_(std::move(done)) {}

  void Begin() {
    timer_ = executor_.RunAt(request_.deadline.when(), [self = shared_from_this()] {
      self->Finish(absl::DeadlineExceededError("no connection in time"));
    });
    const std::shared_ptr<InprocPort> port = network_.Find(request_.address);
    if (port == nullptr) return Finish(absl::UnavailableError("nobody listens there"));
    if (network_.IsCut(node_->name(), port->node->name())) return;
    port->node->Post(0, [self = shared_from_this(), port] { self->Knock(port); });
  }

 private:
  // On the own lane.
  void Finish(absl::StatusOr<std::unique_ptr<Channel>> result) {
    if (!done_) return;
    executor_.Cancel(timer_);
    if (!result.ok()) {
      const absl::Status& why = result.status();
      result = absl::Status(
          why.code(),
          absl::StrCat(request_.peer_name, " at ", request_.address, ": ", why.message()));
    }
    std::exchange(done_, nullptr)(std::move(result));
  }

  // From another lane. A channel that does not get there is closed.
  void FinishLater(absl::StatusOr<std::unique_ptr<Channel>> result) {
    node_->Post(request_.local_lane,
                [self = shared_from_this(),
                 result = std::make_shared<absl::StatusOr<std::unique_ptr<Channel>>>(
                     std::move(result))] { self->Finish(std::move(*result)); });
  }

  void Knock(const std::shared_ptr<InprocPort>& port) {
    absl::Status verdict = absl::UnavailableError("nobody listens there any more");
    port->gate.Enter([&](ChannelAcceptor& acceptor) { verdict = acceptor.Admit(request_.hello); });
    if (verdict.ok() && request_.hello.lane >= port->lanes.size()) {
      verdict = absl::InvalidArgumentError(absl::StrCat("there is no lane ", request_.hello.lane));
    }
    if (!verdict.ok()) return FinishLater(verdict);
    port->node->Post(request_.hello.lane,
                     [self = shared_from_this(), port] { self->Establish(port); });
  }

  void Establish(const std::shared_ptr<InprocPort>& port) {
    const std::string connecting = absl::StrCat(PeerName(request_.hello), " at ", node_->name());
    const auto link = std::make_shared<InprocLink>(
        InprocLink::Side{.node = node_,
                         .lane = request_.local_lane,
                         .peer = absl::StrCat(request_.peer_name, " at ", request_.address)},
        InprocLink::Side{.node = port->node, .lane = request_.hello.lane, .peer = connecting});
    const uint64_t seed = network_.Add(link);
    const auto ours = std::make_shared<InprocEnd>(network_, link, 0, executor_, seed);
    const auto theirs =
        std::make_shared<InprocEnd>(network_, link, 1, *port->lanes[request_.hello.lane], ~seed);
    link->SetEnds(ours, theirs);
    port->gate.Enter([&](ChannelAcceptor& acceptor) {
      acceptor.OnChannel(request_.hello, std::make_unique<InprocChannel>(theirs));
    });
    FinishLater(std::make_unique<InprocChannel>(ours));
  }

  InprocNetwork& network_;
  const std::shared_ptr<InprocNode> node_;
  Executor& executor_;
  const ConnectRequest request_;
  ConnectDone done_;
  Executor::TimerId timer_ = 0;
};

}  // namespace

InprocTransport::InprocTransport(InprocNetwork& network,
                                 std::vector<Executor*> lanes,
                                 std::string name)
    : network_(network),
      lanes_(std::move(lanes)),
      node_(std::make_shared<InprocNode>(name.empty() ? network.NextName() : std::move(name),
                                         lanes_)) {
  PUSHPULL_CHECK(!lanes_.empty());
}

InprocTransport::~InprocTransport() {
  node_->Leave();
}

absl::StatusOr<std::unique_ptr<Listener>> InprocTransport::Listen(const std::string& address,
                                                                  ChannelAcceptor& acceptor) {
  const auto port = std::make_shared<InprocPort>(node_, lanes_, acceptor);
  PUSHPULL_ASSIGN_OR_RETURN(std::string bound, network_.Bind(address, port));
  return std::unique_ptr<Listener>(
      std::make_unique<InprocListener>(network_, port, std::move(bound)));
}

void InprocTransport::Connect(ConnectRequest request, ConnectDone done) {
  const size_t lane = request.local_lane;
  const auto dial = std::make_shared<InprocDial>(
      network_, node_, *lanes_[lane], std::move(request), std::move(done));
  node_->Post(lane, [dial] { dial->Begin(); });
}

}  // namespace pushpull
