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

// Encodes, decodes and encodes again: a field that the list of its struct omits is not set.
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

TEST(ControlProtoTest, MemberMessagesKeepEveryField) {
  for (const FromMember& sample : SampleFromMember()) {
    SCOPED_TRACE(absl::StrCat("alternative ", sample.index()));
    ExpectRoundTrip<v1::FromMember>(sample);
  }
}

TEST(ControlProtoTest, CoordinatorMessagesKeepEveryField) {
  for (const ToMember& sample : SampleToMember()) {
    SCOPED_TRACE(absl::StrCat("alternative ", sample.index()));
    ExpectRoundTrip<v1::ToMember>(sample);
  }
}

TEST(ControlProtoTest, SamplesCoverEveryAlternative) {
  std::set<size_t> from;
  std::set<size_t> to;
  for (const FromMember& sample : SampleFromMember()) from.insert(sample.index());
  for (const ToMember& sample : SampleToMember()) to.insert(sample.index());

  EXPECT_EQ(from.size(), std::variant_size_v<FromMember>);
  EXPECT_EQ(to.size(), std::variant_size_v<ToMember>);
}

TEST(ControlProtoTest, JobStatusKeepsEveryField) {
  ExpectRoundTrip<v1::JobStatus>(SampleJobStatus());
}

// The round trips above would not notice two fields that are swapped both ways.
TEST(ControlProtoTest, FieldsTravelUnderTheirOwnNames) {
  v1::FromMember wire;
  ToProto(SampleFromMember().at(0), wire);

  EXPECT_EQ(wire.register_server().server(), 1U);
  EXPECT_EQ(wire.register_server().incarnation(), 2U);
  EXPECT_EQ(wire.register_server().data_address(), "127.0.0.1:7171");
  EXPECT_EQ(wire.register_server().metrics_address(), "127.0.0.1:9464");
  EXPECT_EQ(wire.register_server().promised(), 6U);

  v1::ToMember welcome;
  ToProto(SampleToMember().at(0), welcome);

  EXPECT_EQ(welcome.welcome().stall_milliseconds(), 2500U);
  EXPECT_EQ(welcome.welcome().coordinator_timeout_milliseconds(), 420000U);
  EXPECT_EQ(welcome.welcome().job(), "fashion-mnist");
}

TEST(ControlProtoTest, OutOfRangeEnumeratorsAreRejected) {
  std::vector<v1::ToMember> messages(3);
  messages[0].mutable_welcome()->set_non_finite(3);
  messages[1].mutable_capture()->set_versions(0);
  messages[2].mutable_rebuild_shard()->add_chunks()->set_source(3);
  v1::FromMember copies;
  copies.mutable_shard_copies()->add_chunks()->set_kind(3);
  v1::JobStatus status;
  status.set_phase(6);

  for (const v1::ToMember& message : messages)
    EXPECT_EQ(FromProto(message).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FromProto(copies).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FromProto(status).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ControlProtoTest, AbsentOptionalFieldStaysAbsent) {
  v1::ToMember wire;
  ToProto(ProposeView{.view = {.number = 1, .members = {ViewMember{}}}}, wire);

  const absl::StatusOr<ToMember> read = FromProto(wire);

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::get<ProposeView>(*read).view.members.at(0).end_step, std::nullopt);
}

TEST(ControlProtoTest, NaNLossIsKept) {
  WorkerStats stats;
  stats.losses = {{.step = Step{1}, .loss = std::numeric_limits<double>::quiet_NaN()}};
  v1::FromMember wire;
  ToProto(Heartbeat{.stats = stats}, wire);

  const absl::StatusOr<FromMember> read = FromProto(wire);

  ASSERT_TRUE(read.ok()) << read.status();
  const auto& heartbeat = std::get<Heartbeat>(*read);
  EXPECT_TRUE(std::isnan(std::get<WorkerStats>(heartbeat.stats).losses.at(0).loss));
}

// What a broken peer may send, and what the error must say.
struct BadMessage {
  std::string text;
  v1::FromMember message;
};

v1::TensorSpec GoodTensor() {
  v1::FromMember wire;
  ToProto(SampleFromMember().at(2), wire);
  return wire.register_tensors().tensors(0);
}

TEST(ControlProtoTest, ErrorsNameTheFieldPath) {
  std::vector<BadMessage> cases(7);
  cases[0].text = "message: has no known kind";
  cases[1].text = "register_tensors.tensors[layer.weight].dtype: 77 is not known";
  *cases[1].message.mutable_register_tensors()->add_tensors() = GoodTensor();
  cases[1].message.mutable_register_tensors()->mutable_tensors(0)->set_dtype(77);
  cases[2].text = "tensors[layer.weight].reduction: 0";
  *cases[2].message.mutable_register_tensors()->add_tensors() = GoodTensor();
  cases[2].message.mutable_register_tensors()->mutable_tensors(0)->set_reduction(0);
  cases[3].text = "tensors[layer.weight].optimizer.kind: 257";  // 1 as a byte, but not on the wire
  *cases[3].message.mutable_register_tensors()->add_tensors() = GoodTensor();
  cases[3].message.mutable_register_tensors()->mutable_tensors(0)->mutable_optimizer()->set_kind(
      257);
  cases[4].text = "heartbeat.stats: has no known kind";
  cases[4].message.mutable_heartbeat();
  cases[5].text = "heartbeat.worker.sync_seconds.buckets[0]: bucket -1";
  v1::WorkerStats& stats = *cases[5].message.mutable_heartbeat()->mutable_worker();
  stats.mutable_sync_seconds()->add_buckets()->set_index(-1);

  cases[6].text = "tensors[layer.weight].codec: 200";
  *cases[6].message.mutable_register_tensors()->add_tensors() = GoodTensor();
  cases[6].message.mutable_register_tensors()->mutable_tensors(0)->set_codec(200);

  for (const BadMessage& bad : cases) {
    const absl::Status status = FromProto(bad.message).status();

    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.text));
  }
}

TEST(ControlProtoTest, OutOfRangeShardIsRejected) {
  v1::ToMember wire;
  wire.mutable_set_replicas()->add_entries()->set_shard(kShardCount);

  const absl::Status status = FromProto(wire).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("set_replicas.entries[0].shard: shard 1024"));
}

TEST(ControlProtoTest, ViewWithDuplicateWorkerIsRejected) {
  v1::ToMember wire;
  v1::View& view = *wire.mutable_activate_view()->mutable_view();
  view.add_members()->set_worker(1);
  view.add_members()->set_worker(1);

  const absl::Status status = FromProto(wire).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("activate_view.view.members[1]: worker-1"));
}

TEST(ControlProtoTest, TooLongListIsRejected) {
  v1::FromMember wire;
  for (int i = 0; i <= static_cast<int>(kSyncPhaseCount); ++i)
    wire.mutable_leave()->mutable_stats()->add_phase_seconds();

  const absl::Status status = FromProto(wire).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("leave.stats.phase_seconds: has 12 entries, at most 11"));
}

TEST(ControlProtoTest, TextsOfPeersAreEscapedAndShort) {
  const std::string hostile = "a\n\x1b[2J" + std::string(5000, 'x');
  v1::JobStatus wire;
  wire.set_phase(2);
  wire.set_failure(hostile);
  wire.set_mode_problem(hostile);
  wire.mutable_checkpoint()->set_failure(hostile);
  wire.add_servers()->set_data_address(hostile);
  v1::ToMember stop;
  stop.mutable_stop()->mutable_status()->set_code(14);
  stop.mutable_stop()->mutable_status()->set_text(hostile);

  const absl::StatusOr<JobStatus> status = FromProto(wire);
  const absl::StatusOr<ToMember> stopped = FromProto(stop);

  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  for (const std::string& text : {status->failure,
                                  status->mode_problem,
                                  status->checkpoint.failure,
                                  status->servers.front().data_address,
                                  std::string(std::get<Stop>(*stopped).status.message())}) {
    EXPECT_EQ(text.substr(0, 10), "a\\n\\x1b[2J");
    EXPECT_LE(text.size(), 4096U);
  }
}

TEST(ControlProtoTest, UnknownStatusCodeBecomesUnknown) {
  v1::ToMember wire;
  wire.mutable_stop()->mutable_status()->set_code(99);

  const absl::StatusOr<ToMember> read = FromProto(wire);

  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<Stop>(*read).status.code(), absl::StatusCode::kUnknown);
}

TEST(ControlProtoTest, InvalidUtf8InTextIsReplaced) {
  v1::FromMember wire;
  ToProto(Failure{.status = absl::InternalError("tensor \xff\xc0\x80 \xed\xa0\x80 é €")}, wire);
  v1::FromMember parsed;
  ASSERT_TRUE(parsed.ParseFromString(wire.SerializeAsString()));

  const absl::StatusOr<FromMember> read = FromProto(parsed);

  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<Failure>(*read).status.message(), "tensor ??? ??? é €");
}

TEST(ControlProtoTest, CorruptBytesNeverCrash) {
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

  EXPECT_GT(parsed, 1000);  // otherwise nothing was tested
}

}  // namespace
}  // namespace pushpull
