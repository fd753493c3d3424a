// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/bounded_append.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

TEST(BoundedAppendTest, AGrowingTextTakesNoMoreThanItsLimit) {
  constexpr size_t kLimit = 100'000;
  std::string text;

  while (text.size() + 1'000 <= kLimit) {
    BoundedAppend(std::string(1'000, 'x'), kLimit, text);

    EXPECT_LE(text.capacity(), kLimit);
  }

  EXPECT_EQ(text, std::string(kLimit, 'x'));
}

}  // namespace
}  // namespace pushpull_operator
