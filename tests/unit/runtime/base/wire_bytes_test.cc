// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/wire_bytes.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ByteWriterTest, NumbersAreLittleEndianAndFollowEachOther) {
  ByteWriter writer;

  writer.Put(uint32_t{0x01020304});
  writer.Put(uint8_t{5});

  EXPECT_EQ(writer.num_bytes(), 5);
  EXPECT_THAT(writer.Take(),
              ElementsAre(std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}, std::byte{5}));
}

TEST(ByteReaderTest, ReadsBackWhatWasWritten) {
  const std::vector<std::byte> run{std::byte{7}, std::byte{8}};
  ByteWriter writer;
  writer.PutText("text");
  writer.PutBytes(run);
  writer.Put(0.5);
  const std::vector<std::byte> bytes = writer.Take();

  ByteReader reader(bytes);

  EXPECT_EQ(reader.GetText(), "text");
  EXPECT_THAT(reader.GetBytes(2), ElementsAre(std::byte{7}, std::byte{8}));
  EXPECT_EQ(reader.num_left(), sizeof(double));
  EXPECT_EQ(reader.Get<double>(), 0.5);
  EXPECT_TRUE(reader.ok());
}

TEST(ByteReaderTest, NothingIsReadBeyondTheEnd) {
  const std::vector<std::byte> bytes(3, std::byte{1});
  ByteReader reader(bytes);

  EXPECT_EQ(reader.Get<uint32_t>(), 0);
  EXPECT_THAT(reader.GetBytes(1), IsEmpty());
  EXPECT_EQ(reader.GetText(), "");
  EXPECT_FALSE(reader.ok());
}

TEST(ByteWriterTest, ALongTextIsCut) {
  ByteWriter writer;

  writer.PutText(std::string(kTextBytesMax + 1, 'a'));

  const std::vector<std::byte> bytes = writer.Take();
  EXPECT_EQ(ByteReader(bytes).GetText(), std::string(kTextBytesMax, 'a'));
}

}  // namespace
}  // namespace pushpull
