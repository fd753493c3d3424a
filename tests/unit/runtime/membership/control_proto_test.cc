// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/control_proto.h"

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "pushpull/v1/control.pb.h"

#include "runtime/membership/job_status_proto.h"
#include "runtime/membership/stats_proto.h"
#include "tests/unit/runtime/membership/control_samples.h"

namespace pushpull {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Names of the fields that are at their default anywhere in `message`, alternatives of a oneof that
// are not taken left out. An optional field always counts as a oneof of its own.
std::vector<std::string> FieldsNotSet(const Message& message) {
  std::vector<std::string> missing;
  const auto& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const bool is_set = field->is_repeated() ? reflection.FieldSize(message, field) > 0
                                             : reflection.HasField(message, field);
    if (!is_set) {
      if (field->real_containing_oneof() == nullptr) missing.push_back(field->full_name());
      continue;
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int k = 0; k < count; ++k) {
      const Message& inner = field->is_repeated() ? reflection.GetRepeatedMessage(message, field, k)
                                                  : reflection.GetMessage(message, field);
      for (std::string& name : FieldsNotSet(inner)) missing.push_back(std::move(name));
    }
  }
  return missing;
}

// Writes, reads and writes again; whatever one direction forgets is missing in the end.
template <typename Wire, typename Struct>
void ExpectRoundTrip(const Struct& sample) {
  Wire first;
  ToProto(sample, first);
  const auto read = FromProto(first);
  ASSERT_TRUE(read.ok()) << read.status() << first.DebugString();
  Wire second;
  ToProto(*read, second);

  EXPECT_THAT(FieldsNotSet(first), IsEmpty());
  EXPECT_TRUE(MessageDifferencer::Equals(first, second)) << first.DebugString() << "became\n"
                                                         << second.DebugString();
}

TEST(ControlProtoTest, EveryMessageOfAMemberKeepsEveryField) {
  for (const FromMember& sample : SampleFromMember()) {
    SCOPED_TRACE(absl::StrCat("alternative ", sample.index()));
    ExpectRoundTrip<v1::FromMember>(sample);
  }
}

TEST(ControlProtoTest, EveryMessageToAMemberKeepsEveryField) {
  for (const ToMember& sample : SampleToMember()) {
    SCOPED_TRACE(absl::StrCat("alternative ", sample.index()));
    ExpectRoundTrip<v1::ToMember>(sample);
  }
}

TEST(ControlProtoTest, TheSamplesCoverEveryAlternative) {
  std::set<size_t> from;
  std::set<size_t> to;
  for (const FromMember& sample : SampleFromMember()) from.insert(sample.index());
  for (const ToMember& sample : SampleToMember()) to.insert(sample.index());

  EXPECT_EQ(from.size(), std::variant_size_v<FromMember>);
  EXPECT_EQ(to.size(), std::variant_size_v<ToMember>);
}

TEST(ControlProtoTest, TheJobStatusKeepsEveryField) {
  ExpectRoundTrip<v1::JobStatus>(SampleJobStatus());
}

TEST(ControlProtoTest, AMemberWithoutLastStepStaysWithoutOne) {
  v1::ToMember wire;
  ToProto(ProposeView{.view = {.number = 1, .members = {ViewMember{}}}}, wire);

  const absl::StatusOr<ToMember> read = FromProto(wire);

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::get<ProposeView>(*read).view.members.at(0).end_step, std::nullopt);
}

TEST(ControlProtoTest, ALossThatIsNotANumberArrivesAsOne) {
  WorkerStats stats;
  stats.losses = {{.step = Step{1}, .loss = std::numeric_limits<double>::quiet_NaN()}};
  v1::FromMember wire;
  ToProto(Heartbeat{.stats = stats}, wire);

  const absl::StatusOr<FromMember> read = FromProto(wire);

  ASSERT_TRUE(read.ok()) << read.status();
  const auto& heartbeat = std::get<Heartbeat>(*read);
  EXPECT_TRUE(std::isnan(std::get<WorkerStats>(heartbeat.stats).losses.at(0).loss));
}

// What a broken peer may send, and the word that the error must have.
struct BadMessage {
  std::string word;
  v1::FromMember message;
};

v1::TensorSpec GoodTensor() {
  v1::FromMember wire;
  ToProto(SampleFromMember().at(2), wire);
  return wire.register_tensors().tensors(0);
}

TEST(ControlProtoTest, WhatAMemberSendsWronglyIsNamed) {
  std::vector<BadMessage> cases(7);
  cases[0].word = "kind";
  cases[1].word = "dtype 77";
  *cases[1].message.mutable_register_tensors()->add_tensors() = GoodTensor();
  cases[1].message.mutable_register_tensors()->mutable_tensors(0)->set_dtype(77);
  cases[2].word = "reduction 0";
  *cases[2].message.mutable_register_tensors()->add_tensors() = GoodTensor();
  cases[2].message.mutable_register_tensors()->mutable_tensors(0)->set_reduction(0);
  cases[3].word = "optimizer 257";  // 1 as a byte, but not on the wire
  *cases[3].message.mutable_register_tensors()->add_tensors() = GoodTensor();
  cases[3].message.mutable_register_tensors()->mutable_tensors(0)->mutable_optimizer()->set_kind(
      257);
  cases[4].word = "statistics";
  cases[4].message.mutable_heartbeat();
  cases[5].word = "bucket -1";
  v1::WorkerStats& stats = *cases[5].message.mutable_heartbeat()->mutable_worker();
  stats.mutable_sync_seconds()->add_buckets()->set_index(-1);

  cases[6].word = "tensor layer.weight: codec 200";
  *cases[6].message.mutable_register_tensors()->add_tensors() = GoodTensor();
  cases[6].message.mutable_register_tensors()->mutable_tensors(0)->set_codec(200);

  for (const BadMessage& bad : cases) {
    const absl::Status status = FromProto(bad.message).status();

    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.word;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.word));
  }
}

TEST(ControlProtoTest, AShardThatDoesNotExistIsRefused) {
  v1::ToMember wire;
  wire.mutable_set_replicas()->add_entries()->set_shard(kShardCount);

  const absl::Status status = FromProto(wire).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1024"));
}

TEST(ControlProtoTest, AViewWithAWorkerTwiceIsRefused) {
  v1::ToMember wire;
  v1::View& view = *wire.mutable_activate_view()->mutable_view();
  view.add_members()->set_worker(1);
  view.add_members()->set_worker(1);

  const absl::Status status = FromProto(wire).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker-1"));
}

TEST(ControlProtoTest, AListThatIsTooLongIsRefused) {
  v1::FromMember wire;
  for (int i = 0; i <= static_cast<int>(kSyncPhaseCount); ++i)
    wire.mutable_leave()->mutable_stats()->add_phase_seconds();

  const absl::Status status = FromProto(wire).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("at most 11"));
}

TEST(ControlProtoTest, AStatusCodeOfAnotherVersionIsUnknown) {
  v1::ToMember wire;
  wire.mutable_stop()->mutable_status()->set_code(99);

  const absl::StatusOr<ToMember> read = FromProto(wire);

  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<Stop>(*read).status.code(), absl::StatusCode::kUnknown);
}

TEST(ControlProtoTest, AnErrorTextThatIsNotUtf8StillArrives) {
  v1::FromMember wire;
  ToProto(Failure{.status = absl::InternalError("tensor \xff\xc0\x80 \xed\xa0\x80 é €")}, wire);
  v1::FromMember parsed;
  ASSERT_TRUE(parsed.ParseFromString(wire.SerializeAsString()));

  const absl::StatusOr<FromMember> read = FromProto(parsed);

  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<Failure>(*read).status.message(), "tensor ??? ??? é €");
}

TEST(ControlProtoTest, BytesThatParseByChanceNeverEndTheProcess) {
  const google::protobuf::LogSilencer silencer;
  std::mt19937_64 random(20240607);
  std::vector<FromMember> from = SampleFromMember();
  std::vector<ToMember> to = SampleToMember();
  int parsed = 0;
  for (int round = 0; round < 20000; ++round) {
    v1::FromMember from_wire;
    ToProto(from[static_cast<size_t>(round) % from.size()], from_wire);
    v1::ToMember to_wire;
    ToProto(to[static_cast<size_t>(round) % to.size()], to_wire);
    for (Message* message : std::initializer_list<Message*>{&from_wire, &to_wire}) {
      std::string bytes = message->SerializeAsString();
      for (int flips = 0; flips < 3; ++flips)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      parsed += message->ParseFromString(bytes) ? 1 : 0;
    }

    static_cast<void>(FromProto(from_wire).status());
    static_cast<void>(FromProto(to_wire).status());
  }

  EXPECT_GT(parsed, 1000);  // else the test tries nothing
}

}  // namespace
}  // namespace pushpull
