// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/sync_bench.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::StartsWith;

void ExpectRefused(const SyncOptions& options, const char* begin) {
  const absl::Status valid = Validate(options, {});

  EXPECT_TRUE(absl::IsInvalidArgument(valid));
  EXPECT_THAT(std::string(valid.message()), StartsWith(begin));
}

TEST(ValidateSyncTest, DefaultsAreValid) {
  EXPECT_TRUE(Validate({}, {}).ok());
  EXPECT_TRUE(Validate({.channel = "shm"}, {}).ok());
  EXPECT_TRUE(Validate({.channel = "grpc"}, {}).ok());
}

TEST(ValidateSyncTest, TheOptionThatIsWrongIsNamed) {
  ExpectRefused({.workers = 0}, "--workers:");
  ExpectRefused({.servers = 65}, "--servers: must be between 1 and 64, is 65");
  ExpectRefused({.steps = 0}, "--steps:");
  ExpectRefused({.bytes = 17'000'000'000}, "--bytes:");
  ExpectRefused({.bytes = 6}, "--bytes:");
  ExpectRefused({.tensors = "few"}, "--tensors:");
  ExpectRefused({.channel = "rdma"}, "--channel: must be tcp, shm or grpc, is \"rdma\"");
}

TEST(ValidateSyncTest, TlsNeedsCertificatesAndHasNoChecksumsBeside) {
  ExpectRefused({.has_tls = true}, "--tls: set PUSHPULL_TLS_DIR");

  EXPECT_TRUE(Validate({.has_tls = true}, {{"PUSHPULL_TLS_DIR", "certificates"}}).ok());
  const absl::Status both = Validate({.has_tls = true, .has_payload_checksum = true},
                                     {{"PUSHPULL_TLS_DIR", "certificates"}});
  EXPECT_THAT(std::string(both.message()), StartsWith("--payload-checksum:"));
}

}  // namespace
}  // namespace pushpull
