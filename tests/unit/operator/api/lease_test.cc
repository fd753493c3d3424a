// SPDX-License-Identifier: Apache-2.0
#include "operator/api/lease.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

const LeaseRecord kRecord{.holder = "pod-1",
                          .duration = std::chrono::seconds(15),
                          .acquire_time = "2026-01-31T12:00:00.000000Z",
                          .renew_time = "2026-01-31T12:00:02.000000Z",
                          .transitions = 3};

TEST(LeaseTest, ARecordComesBackAsItWasWritten) {
  const std::string text = NewLeaseText({.object_namespace = "ops", .name = "op"}, kRecord);

  const absl::StatusOr<Object> object = ParseObject(text);

  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->meta.key, (ObjectKey{.object_namespace = "ops", .name = "op"}));
  EXPECT_EQ(*DecodeLease(*object), kRecord);
}

TEST(LeaseTest, AChangeKeepsEverythingElse) {
  const Object object = *ParseObject(
      R"({"metadata":{"name":"op","resourceVersion":"7","x":1},"spec":{"strategy":"s"}})");

  const Object changed = *ParseObject(ChangedLeaseText(object, kRecord));

  EXPECT_EQ(changed.meta.resource_version, "7");
  EXPECT_EQ(*DecodeLease(changed), kRecord);
  EXPECT_NE(ToText(changed).find(R"("strategy":"s")"), std::string::npos);
}

TEST(LeaseTest, WrongFieldsAreEmptyAndAWrongSpecIsAnError) {
  const Object odd = *ParseObject(
      R"({"metadata":{},"spec":{"holderIdentity":7,"leaseDurationSeconds":999999999,"renewTime":[]}})");

  EXPECT_EQ(*DecodeLease(odd), LeaseRecord{});
  EXPECT_EQ(*DecodeLease(*ParseObject(R"({"metadata":{}})")), LeaseRecord{});
  EXPECT_TRUE(
      absl::IsDataLoss(DecodeLease(*ParseObject(R"({"metadata":{},"spec":[1]})")).status()));
}

TEST(LeaseTest, TimesHaveTheFormOfTheApi) {
  const auto time =
      std::chrono::system_clock::time_point(std::chrono::microseconds(1'769'860'800'000'042));

  EXPECT_EQ(MicroTimeText(time), "2026-01-31T12:00:00.000042Z");
}

}  // namespace
}  // namespace pushpull_operator
