// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/documents.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/parse.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::string_view kKinds[] = {"TrainingJob", "TrainingRuntime"};
constexpr char kClaimText[] =
    "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: models}\n---\n";
constexpr char kJobText[] = "kind: TrainingJob\nmetadata: {name: mnist}\n---\n";
constexpr char kOtherText[] = "kind: TrainingJob\nmetadata: {name: other}\n---\n";
constexpr char kRuntimeText[] = "kind: TrainingRuntime\nmetadata: {name: gpu}\n---\n";

// The name of the object that is taken, and the ignored ones; the problems where there are some.
std::vector<std::string> Take(const std::string& text) {
  Problems problems;
  const std::optional<ManifestDocument> taken = TakeDocument(text, kKinds, problems);
  std::vector<std::string> result;
  for (const ManifestProblem& problem : problems.Take()) result.push_back(ToString(problem));
  if (!result.empty()) return result;
  const Tree* metadata = FindField(taken->tree, "metadata");
  result = taken->ignored;
  result.insert(result.begin(), metadata == nullptr ? "" : FindField(*metadata, "name")->text);
  return result;
}

TEST(TakeDocumentTest, TheOneJobAmongSeveralIsTakenWhereverItIs) {
  EXPECT_THAT(Take(absl::StrCat(kClaimText, kJobText)),
              ElementsAre("mnist", "PersistentVolumeClaim models"));
  EXPECT_THAT(Take(absl::StrCat(kJobText, kClaimText, "kind: Secret\n---\n[1]\n")),
              ElementsAre("mnist",
                          "PersistentVolumeClaim models",
                          "Secret",
                          "a document without kind at line 9, column 1"));
}

TEST(TakeDocumentTest, AJobIsTakenBeforeARuntime) {
  EXPECT_THAT(Take(absl::StrCat(kRuntimeText, kJobText)),
              ElementsAre("mnist", "TrainingRuntime gpu"));
  EXPECT_THAT(Take(absl::StrCat(kClaimText, kRuntimeText)),
              ElementsAre("gpu", "PersistentVolumeClaim models"));
}

TEST(TakeDocumentTest, NoneOrTwoAreRefusedByName) {
  EXPECT_THAT(Take(absl::StrCat(kClaimText, kClaimText)),
              ElementsAre("must have one TrainingJob, has PersistentVolumeClaim models, "
                          "PersistentVolumeClaim models; put the one that you want into a file of "
                          "its own"));
  EXPECT_THAT(Take(absl::StrCat(kClaimText, kJobText, kOtherText)),
              ElementsAre("must have one TrainingJob, has TrainingJob mnist, TrainingJob other; "
                          "put the one that you want into a file of its own"));
}

TEST(TakeDocumentTest, ASingleDocumentIsJudgedWhateverItsKind) {
  EXPECT_THAT(Take(kClaimText), ElementsAre("models"));
}

TEST(TakeDocumentTest, AListIsItsItems) {
  const std::string list =
      "kind: List\nitems:\n- {kind: Pod, metadata: {name: p}}\n- {kind: TrainingJob, metadata: "
      "{name: mnist}}\n";

  EXPECT_THAT(Take(list), ElementsAre("mnist", "Pod p"));
  EXPECT_THAT(Take("kind: List\nitems: []\n"), ElementsAre(""));
}

TEST(TakeDocumentTest, OnlyProblemsOfTheTakenDocumentCount) {
  const std::string twice = "kind: ConfigMap\nkind: ConfigMap\n---\n";

  EXPECT_THAT(Take(absl::StrCat(twice, kJobText)), ElementsAre("mnist", "ConfigMap"));
  EXPECT_THAT(Take(absl::StrCat(kClaimText, "kind: TrainingJob\nkind: TrainingJob\n")),
              ElementsAre("kind: is given twice"));
}

TEST(TakeDocumentTest, LongListsAndForeignBytesInNamesAreCut) {
  std::string many = kJobText;
  for (int i = 0; i < 12; ++i) absl::StrAppend(&many, "{kind: \"a\\e", i, "\"}\n---\n");

  const std::vector<std::string> names = Take(many);

  ASSERT_EQ(names.size(), 12u);
  EXPECT_EQ(names[1], "a\\x1b0");
  EXPECT_EQ(names.back(), "2 more");
}

TEST(TakeDocumentTest, AnExportOfWindowsIsAccepted) {
  const std::string text =
      "apiVersion: pushpull.dev/v1alpha1\nkind: TrainingJob\nmetadata:\n  annotations:\n"
      "    kubectl.kubernetes.io/last-applied-configuration: |\n      {\"kind\":\"TrainingJob\"}\n"
      "  creationTimestamp: \"2026-11-01T10:00:00Z\"\n  generation: 3\n  managedFields:\n"
      "  - {manager: kubectl, operation: Update}\n  name: exported\n  resourceVersion: \"1\"\n"
      "  uid: 00000000-0000-0000-0000-000000000001\nspec:\n  command:\n  - sh\n  - -c\n  - |\n"
      "    one\n    two\nstatus:\n  phase: Running\n";

  const ParsedJob parsed = ParseTrainingJob(
      absl::StrCat("\xEF\xBB\xBF", absl::StrReplaceAll(text, {{"\n", "\r\n"}})), {});

  EXPECT_THAT(parsed.problems, IsEmpty());
  EXPECT_EQ(parsed.job.metadata.name, "exported");
  EXPECT_THAT(parsed.job.spec.command, ElementsAre("sh", "-c", "one\ntwo\n"));
}

}  // namespace
}  // namespace pushpull
