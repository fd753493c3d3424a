// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/printable.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::EndsWith;

TEST(PrintableTest, KeepsText) {
  for (const std::string text : {"", "step 3 of \"w\": 4 \\ 5", "Größe 日本 😀", "a...b"})
    EXPECT_EQ(Printable(text), text);
}

TEST(PrintableTest, EscapesWhatATerminalActsOn) {
  EXPECT_EQ(Printable("a\nb\r\tc"), "a\\nb\\r\\tc");
  EXPECT_EQ(Printable("\x1b[31mred\x1b[0m"), "\\x1b[31mred\\x1b[0m");
  EXPECT_EQ(Printable(std::string("\0\x7f\x08", 3)), "\\x00\\x7f\\x08");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J"),
            "\\x9b2J");
}

TEST(PrintableTest, EscapesWhatTurnsOrBreaksALine) {
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "exe.txt"),
            "\\u202eexe.txt");
  EXPECT_EQ(Printable("a\xe2\x80\xa8"
                      "b\xe2\x81\xa6"),
            "a\\u2028b\\u2066");
}

TEST(PrintableTest, ReplacesInvalidUtf8) {
  EXPECT_EQ(Printable("a\xff\xc3"), "a??");
}

TEST(PrintableTest, CutsBetweenCharacters) {
  EXPECT_EQ(Printable("123456789", 9), "123456789");
  EXPECT_EQ(Printable("1234567890", 9), "123456...");
  EXPECT_EQ(Printable("12345日6789", 9), "12345...");
  EXPECT_EQ(Printable("12345\x1b"
                      "6789",
                      9),
            "12345...");
  EXPECT_THAT(Printable(std::string(1 << 20, 'x')), EndsWith("x..."));
  EXPECT_EQ(Printable(std::string(1 << 20, 'x')).size(), kPrintableBytesMax);
}

TEST(PrintableTest, AppliedTwiceItChangesNothing) {
  for (const std::string& text : {std::string("\x1b[1m\n\\n\xff"), std::string(9000, '\n')})
    EXPECT_EQ(Printable(Printable(text)), Printable(text));
}

}  // namespace
}  // namespace pushpull
