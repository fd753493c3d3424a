// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/error_line.h"

#include <string>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(ErrorLineTest, IsTheLastLineThatSaysSomething) {
  EXPECT_EQ(ErrorLineOf("loading\ntrain.py: no file /data\n\n"), "train.py: no file /data");
  EXPECT_EQ(ErrorLineOf("\n"), "");
}

TEST(ErrorLineTest, NamesTheExceptionOfTheLastTraceback) {
  const char* output =
      "Traceback (most recent call last):\n"
      "  File \"train.py\", line 3, in load\n"
      "KeyError: 'x'\n"
      "\n"
      "During handling of the above exception, another exception occurred:\n"
      "\n"
      "Traceback (most recent call last):\n"
      "  File \"train.py\", line 7, in <module>\n"
      "    model = Net(\n"
      "            ^^^^\n"
      "RuntimeError: no weights:\n"
      "\tmissing layer 3\n"
      "There appear to be 2 leaked objects\n";

  EXPECT_EQ(ErrorLineOf(output), "RuntimeError: no weights:");
}

TEST(ErrorLineTest, LinesOfOurLogDoNotCount) {
  const char* output =
      "out of disk\n2026-11-27T00:10:34.595 info worker-1 values in place start_step=0\n";

  EXPECT_EQ(ErrorLineOf(output), "out of disk");
}

TEST(ErrorLineTest, ARankBeforeTheLineDoesNotCount) {
  EXPECT_EQ(ErrorLineOf("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a\"\n"
                        "[rank1]: NameError: name 'x' is not defined\nroot cause\n====\n"),
            "NameError: name 'x' is not defined");
}

TEST(ErrorLineTest, ALongLineIsCut) {
  EXPECT_EQ(ErrorLineOf(std::string(10'000, 'x')).size(), ErrorLine::kBytesMax);
}

}  // namespace
}  // namespace pushpull
