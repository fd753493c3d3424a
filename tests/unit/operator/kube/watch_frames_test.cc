// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/watch_frames.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using testing::ElementsAre;

std::vector<std::string> FramesOf(const std::vector<std::string>& pieces) {
  WatchFrameSplitter splitter;
  std::vector<std::string> frames;
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(splitter
                    .Feed(piece,
                          [&](absl::string_view frame) {
                            frames.emplace_back(frame);
                            return absl::OkStatus();
                          })
                    .ok());
  }
  return frames;
}

TEST(WatchFramesTest, SplitsAtAnyByteChangeNothing) {
  const std::string stream = "{\"a\":1}\n{\"b\":\"ü\"}\r\n\n{\"c\":3}\n";
  const std::vector<std::string> expected = FramesOf({stream});
  ASSERT_THAT(expected, ElementsAre("{\"a\":1}", "{\"b\":\"ü\"}", "{\"c\":3}"));

  for (size_t i = 0; i <= stream.size(); ++i) {
    for (size_t j = i; j <= stream.size(); ++j) {
      const std::vector<std::string> pieces = {
          stream.substr(0, i), stream.substr(i, j - i), stream.substr(j)};
      EXPECT_EQ(FramesOf(pieces), expected) << "cut at " << i << " and " << j;
    }
  }
}

TEST(WatchFramesTest, AnUnfinishedFrameIsNotDelivered) {
  EXPECT_THAT(FramesOf({"{}\n{\"a\""}), ElementsAre("{}"));
}

TEST(WatchFramesTest, AFrameOfOneMebibyteIsDelivered) {
  const std::string frame(1 << 20, 'x');

  EXPECT_THAT(FramesOf({frame.substr(0, 7), frame.substr(7) + "\ny\n"}), ElementsAre(frame, "y"));
}

TEST(WatchFramesTest, ATooLongFrameIsRejected) {
  WatchFrameSplitter splitter(10);
  const auto ignore = [](absl::string_view) { return absl::OkStatus(); };

  EXPECT_TRUE(splitter.Feed("123456789", ignore).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(splitter.Feed("ab", ignore)));
}

TEST(WatchFramesTest, AnErrorEndsTheFeed) {
  WatchFrameSplitter splitter;
  int frames = 0;

  const absl::Status status = splitter.Feed("a\nb\n", [&](absl::string_view) {
    ++frames;
    return absl::AbortedError("enough");
  });

  EXPECT_TRUE(absl::IsAborted(status));
  EXPECT_EQ(frames, 1);
}

}  // namespace
}  // namespace pushpull_operator
