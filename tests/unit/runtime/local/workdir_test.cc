// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/workdir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pushpull {
namespace {

using ::testing::HasSubstr;

class WorkdirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = absl::StrCat(::testing::TempDir(), "/workdir_XXXXXX");
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::string folder_;
};

TEST_F(WorkdirTest, IsMadeWithItsFolders) {
  const absl::StatusOr<Workdir> workdir = Workdir::Open(Path("a/b"));

  ASSERT_TRUE(workdir.ok()) << workdir.status();
  EXPECT_EQ(workdir->log_path("worker-3"), Path("a/b/logs/worker-3.log"));
  EXPECT_TRUE(std::filesystem::is_directory(Path("a/b/logs")));
}

TEST_F(WorkdirTest, BelongsToOneLauncherAtATimeAndNamesIt) {
  {
    const absl::StatusOr<Workdir> first = Workdir::Open(Path("job"));
    ASSERT_TRUE(first.ok()) << first.status();

    const absl::Status second = Workdir::Open(Path("job")).status();

    EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists) << second;
    EXPECT_THAT(std::string(second.message()), HasSubstr(absl::StrCat("process ", getpid())));
  }
  EXPECT_TRUE(Workdir::Open(Path("job")).ok());
}

TEST_F(WorkdirTest, APathThatCannotBeAFolderIsNamed) {
  std::ofstream(Path("file")) << "x";

  const absl::Status status = Workdir::Open(Path("file/job")).status();

  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("file/job")));
}

TEST_F(WorkdirTest, EveryTermIsHigherThanAllBefore) {
  {
    absl::StatusOr<Workdir> workdir = Workdir::Open(Path("job"));
    ASSERT_TRUE(workdir.ok()) << workdir.status();
    EXPECT_EQ(*workdir->NextTerm(), 1u);
    EXPECT_EQ(*workdir->NextTerm(), 2u);
  }
  absl::StatusOr<Workdir> reopened = Workdir::Open(Path("job"));
  ASSERT_TRUE(reopened.ok()) << reopened.status();
  EXPECT_EQ(*reopened->NextTerm(), 3u);
}

TEST_F(WorkdirTest, ATermThatCannotBeReadIsNotTakenForNone) {
  absl::StatusOr<Workdir> workdir = Workdir::Open(Path("job"));
  ASSERT_TRUE(workdir.ok()) << workdir.status();
  std::ofstream(Path("job/term")) << "seven\n";

  const absl::Status status = workdir->NextTerm().status();

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("job/term")));
}

TEST_F(WorkdirTest, KeepsTheManifestAsItWas) {
  absl::StatusOr<Workdir> workdir = Workdir::Open(Path("job"));
  ASSERT_TRUE(workdir.ok()) << workdir.status();
  std::ofstream(Path("job.yaml")) << "kind: TrainingJob\n";

  const absl::StatusOr<std::string> kept = workdir->KeepManifest(Path("job.yaml"));

  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(Read(*kept), "kind: TrainingJob\n");
}

TEST_F(WorkdirTest, AManifestThatIsGoneIsNamed) {
  absl::StatusOr<Workdir> workdir = Workdir::Open(Path("job"));
  ASSERT_TRUE(workdir.ok()) << workdir.status();

  const absl::Status status = workdir->KeepManifest(Path("gone.yaml")).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("gone.yaml")));
}

TEST_F(WorkdirTest, ListsEndpointsUnderTheirNames) {
  absl::StatusOr<Workdir> workdir = Workdir::Open(Path("job"));
  ASSERT_TRUE(workdir.ok()) << workdir.status();

  ASSERT_TRUE(workdir
                  ->WriteEndpoints({{.role = "server",
                                     .index = 1,
                                     .pid = 42,
                                     .control = "",
                                     .data = "127.0.0.1:1",
                                     .metrics = "127.0.0.1:2"}})
                  .ok());

  EXPECT_EQ(nlohmann::json::parse(Read(Path("job/endpoints.json"))),
            nlohmann::json::parse(R"([{"role":"server","index":1,"pid":42,"control":"",
                                       "data":"127.0.0.1:1","metrics":"127.0.0.1:2","page":""}])"));
}

TEST_F(WorkdirTest, AFileIsReplacedAsAWholeOrLeftAlone) {
  ASSERT_TRUE(WriteFileAtomically(Path("report.json"), "old").ok());
  ASSERT_TRUE(WriteFileAtomically(Path("report.json"), "new").ok());
  std::filesystem::create_directory(Path("folder"));

  const absl::Status status = WriteFileAtomically(Path("folder"), "text");

  EXPECT_EQ(Read(Path("report.json")), "new");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("folder")));
  // Neither file leaves anything beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
}

}  // namespace
}  // namespace pushpull
