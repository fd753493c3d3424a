// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/shared_pages.h"

#include <array>
#include <optional>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

class SharedPagesTest : public ::testing::Test {
 protected:
  HostBuffer Take(size_t chunk, uint64_t version) {
    std::optional<HostBuffer> place = pages_->Take(chunk, Step{version});
    EXPECT_TRUE(place);
    return place ? *std::move(place) : HostBuffer();
  }
  bool HasPlace(size_t chunk, uint64_t version) {
    return pages_->Take(chunk, Step{version}).has_value();
  }

  static constexpr std::array<uint64_t, 2> kSizes = {10'000, 4};
  const std::shared_ptr<SharedPages> pages_ = *SharedPages::Create("pushpull-test", kSizes);
};

TEST_F(SharedPagesTest, AChunkHasTwoPlacesThatBeginWithAPage) {
  for (size_t chunk = 0; chunk < kSizes.size(); ++chunk) {
    const HostBuffer value = Take(chunk, 0);
    const HostBuffer sum = Take(chunk, 0);

    EXPECT_FALSE(HasPlace(chunk, 0));
    for (const HostBuffer* place : {&value, &sum}) {
      EXPECT_TRUE(place->is_lent());
      EXPECT_EQ(place->num_bytes(), kSizes[chunk]);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(place->bytes().data()) % 4096, 0U);
    }
    EXPECT_NE(value.bytes().data(), sum.bytes().data());
  }
}

TEST_F(SharedPagesTest, APlaceThatIsGivenBackIsTheChunksAgain) {
  HostBuffer value = Take(0, 0);
  const HostBuffer sum = Take(0, 0);
  const std::byte* const place = value.bytes().data();

  value = HostBuffer();

  EXPECT_EQ(Take(0, 0).bytes().data(), place);
}

TEST_F(SharedPagesTest, APublishedPlaceIsNotLentBeforeTheNextVersion) {
  HostBuffer value = Take(0, 0);
  const HostBuffer sum = Take(0, 0);
  const std::byte* const place = value.bytes().data();
  pages_->Publish(0, value.bytes(), Step{7});

  value = HostBuffer();  // as when the shard moves away

  EXPECT_FALSE(HasPlace(0, 6));
  EXPECT_FALSE(HasPlace(0, 7));
  EXPECT_EQ(Take(0, 8).bytes().data(), place);
}

TEST_F(SharedPagesTest, BuffersOutliveTheirLender) {
  HostBuffer value;
  {
    const std::shared_ptr<SharedPages> pages = *SharedPages::Create("pushpull-test", kSizes);
    value = *pages->Take(0, Step{});
  }

  value.bytes()[9999] = std::byte{1};

  EXPECT_EQ(value.bytes()[9999], std::byte{1});
}

}  // namespace
}  // namespace pushpull
