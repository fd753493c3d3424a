// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/event_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

// The check value of the algorithm, and RFC 3720, appendix B.4.
TEST(EventFileTest, ChecksumsAreCastagnolis) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aa);
}

// Written by TensorBoard's own EventFileWriter.
TEST(EventFileTest, AnEventHasTheBytesThatTensorBoardWrites) {
  const std::string event = ScalarEvent(1.5, 300, {{"loss", 0.25F}});

  EXPECT_EQ(absl::BytesToHexString(event),
            "09000000000000f83f10ac022a0d0a0b0a046c6f7373150000803e");
  const std::string record = EventRecord(event);
  EXPECT_EQ(record.size(), 8 + 4 + event.size() + 4);
  EXPECT_EQ(absl::BytesToHexString(record.substr(0, 8)), "1b00000000000000");
}

TEST(EventFileTest, AFileBeginsWithTheVersionAndGrowsWithEachEvent) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/events/of/run");
  std::filesystem::remove_all(folder);

  absl::StatusOr<EventFile> file = EventFile::Create(folder, 7);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto size_at_first = std::filesystem::file_size(file->path());
  ASSERT_TRUE(file->Append(8, 1, {{"loss", 2}}).ok());

  std::ostringstream text;
  text << std::ifstream(file->path()).rdbuf();
  EXPECT_THAT(text.str(), testing::HasSubstr("brain.Event:2"));
  EXPECT_THAT(file->path(), testing::HasSubstr("/events.out.tfevents.7."));
  EXPECT_GT(text.str().size(), size_at_first);
}

TEST(EventFileTest, AFolderThatCannotBeMadeIsNamed) {
  const absl::StatusOr<EventFile> file = EventFile::Create("/proc/none", 7);

  EXPECT_THAT(std::string(file.status().message()), testing::HasSubstr("folder /proc/none"));
}

}  // namespace
}  // namespace pushpull
