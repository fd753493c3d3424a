// SPDX-License-Identifier: Apache-2.0
#include "runtime/ring/ring_calls.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/status_macros.h"
#include "runtime/collective/rank_mesh.h"
#include "runtime/job/training_job.h"
#include "runtime/tls/peer_identity.h"
#include "tests/fakes/fake_tls_folder.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

static_assert(kRingWorkersMax <= static_cast<int>(kRanksMax), "a ring's workers are ranks");

constexpr size_t kValues = 300'000;  // more than a socket takes at once

// Each of GoogleMock takes a tenth of a second for so many.
MATCHER_P(AllAre, value, "") {
  return absl::c_all_of(arg, [this](float it) { return it == value; });
}

std::span<const std::byte> Bytes(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

// A worker with a listener and a state of its own.
struct Member {
  Member(WorkerId its_id, RankListener its_listener, RingState its_state)
      : id(its_id), listener(std::move(its_listener)), state(std::move(its_state)) {}

  const WorkerId id;
  const RankListener listener;
  RingState state;
  std::shared_ptr<const TlsIdentity> tls;
  Interrupt interrupt;
  std::unique_ptr<RingLinks> ring;
  absl::Status status;
};

class RingCallsTest : public ::testing::Test {
 protected:
  void AddMembers(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) AddMember("127.0.0.1");
  }

  void AddMember(const std::string& host, const std::string& rack = "") {
    const PlacedTensor tensor = {
        .id = TensorId{0},
        .spec = {.name = "w",
                 .dims = {static_cast<int64_t>(kValues)},
                 .optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1}},
        .first_chunk = ChunkId{0},
        .shards = {}};
    const WorkerId id{static_cast<uint32_t>(members_.size())};
    absl::StatusOr<RankListener> listener = RankListener::Listen({host, 0});
    ASSERT_TRUE(listener.ok()) << listener.status();
    absl::StatusOr<RingState> state = RingState::Make(
        {&tensor, 1}, has_shm_ ? RingState::Sums::kShared : RingState::Sums::kPrivate);
    ASSERT_TRUE(state.ok()) << state.status();
    form_.workers.push_back(
        {.worker = id, .address = absl::StrCat(host, ":", listener->port()), .rack = rack});
    members_.push_back(std::make_unique<Member>(id, *std::move(listener), *std::move(state)));
  }

  // The member shows the certificate of the job's member of this name.
  void SetTls(Member& member, const std::string& name) {
    absl::StatusOr<std::shared_ptr<const TlsIdentity>> identity =
        TlsIdentity::Create(MakeNamedTlsFiles(
            authority_, {kCertificateName, MemberCertificateName(name, "mnist", "ml")}));
    ASSERT_TRUE(identity.ok()) << identity.status();
    member.tls = *std::move(identity);
  }

  // `call` of each member, on a thread of its own.
  template <typename Call>
  void ForAll(const Call& call) {
    std::vector<std::thread> threads;
    for (const auto& member : members_)
      threads.emplace_back([&call, &member] { member->status = call(*member); });
    for (std::thread& thread : threads) thread.join();
  }

  absl::Status Connect(Member& member) const {
    const RingEnd end = {.listener = member.listener,
                         .interrupt = member.interrupt,
                         .self = member.id,
                         .has_shm = has_shm_,
                         .tls = member.tls,
                         .arrays = member.state.shared_sums()};
    PUSHPULL_ASSIGN_OR_RETURN(member.ring, RingLinks::Connect(end, form_));
    return absl::OkStatus();
  }

  absl::Status TakeOneStep(Member& member) const {
    const std::vector<float> gradient(kValues, static_cast<float>(member.id.value() + 1));
    const std::vector<RingPush> pushes = {{.gradient = Bytes(gradient)}};
    return TakeStep(*member.ring, form_, pushes, 0, member.state);
  }

  // Every member, with the values of the source where the ring copies them.
  void ConnectAndTakeOneStep() {
    ForAll([&](Member& member) -> absl::Status {
      PUSHPULL_RETURN_IF_ERROR(Connect(member));
      if (form_.copies) PUSHPULL_RETURN_IF_ERROR(CopyState(*member.ring, form_, member.state));
      return TakeOneStep(member);
    });
  }

  void ExpectValues(float value) const {
    for (const auto& member : members_) {
      ASSERT_TRUE(member->status.ok()) << member->status;
      EXPECT_THAT(member->state.value(0), AllAre(value));
    }
  }

  const std::vector<float> tens_ = std::vector<float>(kValues, 10);
  bool has_shm_ = false;
  const FakeCertificate authority_ = MakeAuthority("rings");
  FormRing form_{.epoch = {.term = Term{1}, .counter = 2}, .workers = {}, .token = {3, 4}};
  std::vector<std::unique_ptr<Member>> members_;
};

TEST_F(RingCallsTest, AllHaveTheValuesOfTheSourceAndTakeTheSameStep) {
  AddMembers(3);
  form_.source = 1;
  form_.copies = true;
  form_.mark = {.made_in = {.term = Term{1}, .counter = 1}, .step = Step{7}};
  members_[1]->state.SetInitial(0, Bytes(tens_), {}, 0);

  ConnectAndTakeOneStep();

  ExpectValues(8);  // the mean of 1, 2 and 3 is 2
  for (const auto& member : members_)
    EXPECT_EQ(member->state.mark(), (RingMark{.made_in = form_.epoch, .step = Step{8}}));
}

TEST_F(RingCallsTest, WorkersWithTheirCertificatesTakeAStepOverTls) {
  AddMembers(3);
  for (const auto& member : members_) SetTls(*member, ToString(member->id));

  ConnectAndTakeOneStep();

  ExpectValues(-2);  // the mean of 1, 2 and 3 is 2
}

TEST_F(RingCallsTest, CertificateOfAnotherWorkerIsRefused) {
  AddMembers(2);
  SetTls(*members_[0], "worker-0");
  SetTls(*members_[1], "worker-7");

  std::thread first([&] { members_[0]->status = Connect(*members_[0]); });
  members_[1]->status = Connect(*members_[1]);
  members_[0]->interrupt.Set();
  first.join();

  EXPECT_EQ(members_[1]->status.code(), absl::StatusCode::kUnauthenticated) << members_[1]->status;
  EXPECT_EQ(members_[0]->status.code(), absl::StatusCode::kCancelled) << members_[0]->status;
}

TEST_F(RingCallsTest, StepOfAWorkerThatIsGoneEndsWithAnErrorAndNoChange) {
  AddMembers(3);
  ForAll([&](Member& member) { return Connect(member); });

  ForAll([&](Member& member) -> absl::Status {
    if (member.id != WorkerId{2}) return TakeOneStep(member);
    member.ring.reset();
    return absl::OkStatus();
  });

  for (const auto& member : {members_[0].get(), members_[1].get()}) {
    EXPECT_EQ(member->status.code(), absl::StatusCode::kUnavailable) << member->status;
    EXPECT_EQ(member->state.mark(), RingMark{});
    EXPECT_THAT(member->state.value(0), AllAre(0.0F));
  }
}

TEST_F(RingCallsTest, InterruptEndsAStepThatOthersDoNotTake) {
  AddMembers(2);
  ForAll([&](Member& member) { return Connect(member); });

  std::thread step([&] { members_[0]->status = TakeOneStep(*members_[0]); });
  members_[0]->interrupt.Set();
  step.join();

  EXPECT_EQ(members_[0]->status.code(), absl::StatusCode::kCancelled) << members_[0]->status;
}

TEST_F(RingCallsTest, InterruptEndsTheWaitForWorkersThatDoNotCome) {
  AddMembers(2);
  std::vector<std::thread> waits;
  for (const auto& member : members_) {
    if (member->id == WorkerId{1}) continue;
    waits.emplace_back([&] { member->status = Connect(*member); });
  }

  members_[0]->interrupt.Set();
  for (std::thread& wait : waits) wait.join();

  EXPECT_EQ(members_[0]->status.code(), absl::StatusCode::kCancelled) << members_[0]->status;
}

TEST_F(RingCallsTest, ConnectingToOneThatAnswersNotIsInterrupted) {
  AddMembers(2);
  std::thread wait([&] { members_[1]->status = Connect(*members_[1]); });

  members_[1]->interrupt.Set();
  wait.join();

  EXPECT_EQ(members_[1]->status.code(), absl::StatusCode::kCancelled) << members_[1]->status;
}

TEST_F(RingCallsTest, WorkerOutsideOfTheRingIsRefused) {
  AddMembers(2);
  form_.workers.pop_back();

  EXPECT_EQ(Connect(*members_[1]).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RingCallsTest, WorkersOfOneHostTakeAStepOverSharedMemory) {
  has_shm_ = true;
  AddMembers(3);

  ConnectAndTakeOneStep();

  ExpectValues(-2);  // the mean of 1, 2 and 3 is 2
}

TEST_F(RingCallsTest, InterruptEndsAStepOverSharedMemory) {
  has_shm_ = true;
  AddMembers(2);
  ForAll([&](Member& member) { return Connect(member); });

  std::thread step([&] { members_[0]->status = TakeOneStep(*members_[0]); });
  members_[0]->interrupt.Set();
  step.join();

  EXPECT_EQ(members_[0]->status.code(), absl::StatusCode::kCancelled) << members_[0]->status;
}

TEST_F(RingCallsTest, WorkersOfTwoHostsSumInTwoStages) {
  // All of 127.0.0.0/8 is this host; by their addresses the workers are on two.
  has_shm_ = true;
  for (const char* host : {"127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.1", "127.0.0.2"})
    AddMember(host);
  form_.source = 4;
  form_.copies = true;
  members_[4]->state.SetInitial(0, Bytes(tens_), {}, 0);

  ConnectAndTakeOneStep();

  ExpectValues(7);  // the mean of 1 to 5 is 3
  for (const auto& member : members_) EXPECT_FALSE(member->ring->is_shm());
}

// Each worker is on a host of its own: all of 127.0.0.0/8 is this one.
TEST_F(RingCallsTest, WorkersOfTwoRacksSumInsideThemFirst) {
  int host = 0;
  for (const char* rack : {"a", "b", "b", "a"}) AddMember(absl::StrCat("127.0.0.", ++host), rack);
  form_.source = 2;
  form_.copies = true;
  members_[2]->state.SetInitial(0, Bytes(tens_), {}, 0);

  ConnectAndTakeOneStep();

  ExpectValues(7.5);  // the mean of 1 to 4 is 2.5
  // Each carries half of the array over the uplink, and half of it into its rack, twice.
  const uint64_t array = kValues * sizeof(float);
  const uint64_t most = 2 * array + array + 4096;
  for (const auto& member : members_) EXPECT_LE(member->ring->bytes_sent(), most);
}

TEST_F(RingCallsTest, RacksOfUnequalSizeSumThroughTheirFirstWorkers) {
  int host = 0;
  for (const char* rack : {"a", "b", "a", "a", "b"})
    AddMember(absl::StrCat("127.0.0.", ++host), rack);
  form_.source = 3;
  form_.copies = true;
  members_[3]->state.SetInitial(0, Bytes(tens_), {}, 0);

  ConnectAndTakeOneStep();

  ExpectValues(7);
}

TEST_F(RingCallsTest, HostsOfTwoRacksSumInThreeStages) {
  has_shm_ = true;
  for (const char* host : {"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.1"})
    AddMember(host, std::string(host) < "127.0.0.3" ? "a" : "b");
  form_.source = 4;
  form_.copies = true;
  members_[4]->state.SetInitial(0, Bytes(tens_), {}, 0);

  ConnectAndTakeOneStep();

  ExpectValues(7);
}

TEST_F(RingCallsTest, StagesAreThoseOfTheHostsAndRacks) {
  const auto form = [](const std::vector<std::string>& addresses,
                       const std::vector<std::string>& racks) {
    FormRing ring;
    for (size_t i = 0; i < addresses.size(); ++i)
      ring.workers.push_back(
          {.worker = WorkerId{0}, .address = addresses[i], .rack = racks.empty() ? "" : racks[i]});
    return ring;
  };
  const std::vector<std::string> hosts = {"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"};

  const RingStages mixed = StagesOf(form({"10.0.0.1:1", "10.0.0.2:1", "10.0.0.1:2"}, {}));
  const RingStages racks = StagesOf(form(hosts, {"a", "b", "a", "b"}));
  const RingStages unequal = StagesOf(form(hosts, {"a", "b", "a", "a"}));
  const RingStages both = StagesOf(
      form({"10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.3:1"}, {"a", "a", "a", "b"}));

  EXPECT_THAT(mixed.hosts.groups, ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
  EXPECT_TRUE(mixed.hosts.are_a_stage());
  EXPECT_FALSE(mixed.has_racks());
  EXPECT_THAT(mixed.LastOf(1), ElementsAre(0, 1));
  EXPECT_THAT(mixed.LastOf(2), IsEmpty());
  EXPECT_FALSE(StagesOf(form({"10.0.0.1:1", "10.0.0.1:2"}, {})).hosts.are_a_stage());
  EXPECT_FALSE(StagesOf(form({"10.0.0.1:1", "10.0.0.2:1"}, {})).hosts.are_a_stage());
  EXPECT_TRUE(StagesOf(form({"[fd00::1]:1", "[fd00::1]:2"}, {})).is_one_host());
  EXPECT_TRUE(racks.are_racks_split());
  EXPECT_THAT(racks.LastOf(3), ElementsAre(2, 3));
  EXPECT_TRUE(unequal.has_racks() && !unequal.are_racks_split());
  EXPECT_THAT(unequal.LastOf(2), IsEmpty());
  EXPECT_THAT(both.racks.groups, ElementsAre(ElementsAre(0, 2), ElementsAre(3)));
  // The rack of one is not known, so none is used.
  EXPECT_FALSE(StagesOf(form(hosts, {"a", "", "a", "b"})).has_racks());
}

}  // namespace
}  // namespace pushpull
