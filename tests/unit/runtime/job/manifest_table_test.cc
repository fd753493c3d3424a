// SPDX-License-Identifier: Apache-2.0
//
// The manifests of tests/data/manifests: each valid one is accepted, each broken one is refused
// with exactly the problems that its lines "# expect: " state, in that order. Anything else that
// judges manifests can be held to the same files.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/parse.h"

namespace pushpull {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

std::vector<std::filesystem::path> ManifestsIn(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(PUSHPULL_TEST_DATA) +
                                                               "/manifests/" + folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> ProblemsOf(const std::string& text) {
  std::vector<std::string> lines;
  for (const ManifestProblem& problem : ParseTrainingJob(text, {}).problems) {
    lines.push_back(ToString(problem));
  }
  return lines;
}

std::string NameOfCase(const ::testing::TestParamInfo<std::filesystem::path>& param) {
  return param.param.stem().string();
}

class ValidManifestTest : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(ValidManifestTest, HasNoProblem) {
  EXPECT_THAT(ProblemsOf(ReadText(GetParam())), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Manifests,
                         ValidManifestTest,
                         ::testing::ValuesIn(ManifestsIn("valid")),
                         NameOfCase);

class BrokenManifestTest : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(BrokenManifestTest, HasExactlyTheProblemsItStates) {
  const std::string text = ReadText(GetParam());
  std::vector<std::string> expected;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "# expect: ")) expected.emplace_back(line);
  }
  ASSERT_FALSE(expected.empty()) << "the file states no problem";

  EXPECT_THAT(ProblemsOf(text), ElementsAreArray(expected));
}

INSTANTIATE_TEST_SUITE_P(Manifests,
                         BrokenManifestTest,
                         ::testing::ValuesIn(ManifestsIn("broken")),
                         NameOfCase);

TEST(ExampleManifestTest, IsValid) {
  const std::filesystem::path examples =
      std::filesystem::path(PUSHPULL_TEST_DATA) / "../../runtime/examples";

  for (const char* name : {"fashion-mnist.yaml",
                           "colocated-servers.yaml",
                           "python/softmax.yaml",
                           "cpp/my_worker.yaml",
                           "torch-fashion-mnist.yaml",
                           "torch-characters.yaml",
                           "torch-clicks.yaml"})
    EXPECT_THAT(ProblemsOf(ReadText(examples / name)), IsEmpty()) << name;
}

}  // namespace
}  // namespace pushpull
