// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/control_socket.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/bench/job_process.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Deadline Soon() {
  return Deadline::After(std::chrono::seconds(30));
}

class ControlSocketTest : public testing::Test {
 protected:
  ControlSocketTest()
      : folder_(*BenchFolder::Make({{"TMPDIR", testing::TempDir()}})),
        listener_(*ControlListener::Listen(folder_.path() + "/control")),
        worker_(*ControlSocket::Connect(folder_.path() + "/control")),
        benchmark_(*listener_.Accept(Soon())) {}

  BenchFolder folder_;
  ControlListener listener_;
  ControlSocket worker_;
  ControlSocket benchmark_;
};

TEST_F(ControlSocketTest, MessagesArriveAsTheyWereSent) {
  const std::vector<int64_t> sent = {1, -2, 3};
  ASSERT_TRUE(worker_.Send(std::span<const int64_t>(sent), Soon()).ok());

  std::vector<int64_t> received(3);
  ASSERT_TRUE(benchmark_.Receive(std::span<int64_t>(received), Soon()).ok());

  EXPECT_THAT(received, ElementsAre(1, -2, 3));
}

TEST_F(ControlSocketTest, AnEndThatHasGoneIsNoticed) {
  { const ControlSocket gone = std::move(worker_); }

  EXPECT_TRUE(absl::IsUnavailable(benchmark_.Receive<int>(Soon()).status()));
}

TEST_F(ControlSocketTest, SilenceEndsAtTheDeadline) {
  const Deadline past = Deadline::After(Duration::zero());

  EXPECT_TRUE(absl::IsDeadlineExceeded(benchmark_.Receive<int>(past).status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(listener_.Accept(past).status()));
}

TEST(ControlListenerTest, APathThatIsTooLongSaysWhatToDo) {
  const absl::Status listening = ControlListener::Listen(std::string(200, 'x')).status();

  EXPECT_TRUE(absl::IsInvalidArgument(listening));
  EXPECT_THAT(std::string(listening.message()), HasSubstr("TMPDIR"));
}

}  // namespace
}  // namespace pushpull
