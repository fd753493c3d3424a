// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/use_order.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(UseOrderTest, ShortListHasDistinctPriorities) {
  for (size_t place = 0; place < 255; ++place) EXPECT_EQ(PriorityOfPlace(place, 255), place);
}

TEST(UseOrderTest, LongListKeepsItsOrderBeforeTheSamples) {
  for (const size_t count : {size_t{256}, size_t{465}, size_t{100'000}}) {
    EXPECT_EQ(PriorityOfPlace(0, count), 0);
    for (size_t place = 1; place < count; ++place) {
      const int step = PriorityOfPlace(place, count) - PriorityOfPlace(place - 1, count);
      EXPECT_TRUE(step == 0 || step == 1) << place << " of " << count;
    }
    EXPECT_EQ(PriorityOfPlace(count - 1, count), kSamplesPriority - 1);
  }
}

}  // namespace
}  // namespace pushpull
