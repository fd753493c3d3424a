// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/wire_bytes.h"

#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pushpull/ids.h"

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

enum class Color : uint8_t { kRed = 1, kBlue = 7 };

struct Example {
  Id<struct ExampleTag, uint16_t> id;
  Color color = Color::kRed;
  bool is_set = false;
  std::array<uint16_t, 2> pair{};
  std::string text;
  friend bool operator==(const Example&, const Example&) = default;
};

template <typename Visit, typename Value>
void VisitExample(Visit& visit, Value& value) {
  visit(value.id, value.color, value.is_set, value.pair, value.text);
}

TEST(FieldsTest, OneListWritesAndReads) {
  Example example;
  example.id = decltype(example.id)(0x0201);
  example.color = Color::kBlue;
  example.is_set = true;
  example.pair = {3, 4};
  example.text = "ab";
  ByteWriter writer;

  VisitExample(writer, example);

  const std::vector<std::byte> bytes = writer.Take();
  std::vector<int> numbers;
  for (const std::byte byte : bytes) numbers.push_back(std::to_integer<int>(byte));
  EXPECT_THAT(numbers, ElementsAre(1, 2, 7, 1, 3, 0, 4, 0, 2, 0, 'a', 'b'));
  Example read;
  ByteReader reader(bytes);
  VisitExample(reader, read);
  EXPECT_EQ(read, example);
  EXPECT_EQ(reader.num_left(), 0);
}

TEST(FieldsTest, ReservedBytesOfAHeaderAreZeroAndNotRead) {
  std::array<std::byte, 5> bytes;
  bytes.fill(std::byte{9});
  HeaderWriter writer(bytes);
  ByteReader reader{std::span(bytes).subspan(1)};
  uint16_t last = 0;

  writer(uint8_t{1}, Reserved<2>{}, uint16_t{0x0403});
  reader(Reserved<2>{}, last);

  EXPECT_THAT(bytes,
              ElementsAre(std::byte{1}, std::byte{0}, std::byte{0}, std::byte{3}, std::byte{4}));
  EXPECT_EQ(last, 0x0403);
}

TEST(ByteWriterTest, ALongTextIsCut) {
  ByteWriter writer;

  writer.PutText(std::string(kTextBytesMax + 1, 'a'));

  const std::vector<std::byte> bytes = writer.Take();
  EXPECT_EQ(ByteReader(bytes).GetText(), std::string(kTextBytesMax, 'a'));
}

}  // namespace
}  // namespace pushpull
