// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/collective_bench.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(ValidateCollectiveTest, DefaultsAreValid) {
  EXPECT_TRUE(Validate(CollectiveOptions{}).ok());
  EXPECT_TRUE(Validate({.ranks = 1, .channel = "tcp"}).ok());
}

TEST(ValidateCollectiveTest, TheOptionThatIsWrongIsNamed) {
  const auto text = [](const CollectiveOptions& options) {
    return std::string(Validate(options).message());
  };

  EXPECT_EQ(text({.ranks = 65}), "--ranks: must be between 1 and 64, is 65");
  EXPECT_EQ(text({.bytes = {8, 6}}), "--bytes: must be a multiple of 4 (float32), is 6");
  EXPECT_EQ(text({.channel = "grpc"}), "--channel: must be shm or tcp, is \"grpc\"");
  EXPECT_EQ(text({.repeats = 0}), "--repeats: must be between 1 and 100000, is 0");
}

}  // namespace
}  // namespace pushpull
