// SPDX-License-Identifier: Apache-2.0
#include "runtime/tls/tls_folder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_tls_folder.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class TlsFolderTest : public testing::Test {
 protected:
  // What is logged during a reload.
  std::string LookedAt() {
    testing::internal::CaptureStderr();
    tls_->Reload();
    return testing::internal::GetCapturedStderr();
  }

  const FakeCertificate authority_ = MakeAuthority("job-1");
  const TlsFiles first_ = MakeTlsFiles(authority_, MakeCertificate("a", authority_));
  const TlsFiles second_ = MakeTlsFiles(authority_, MakeCertificate("a", authority_));
  FakeTlsFolder folder_{first_};
  const std::unique_ptr<TlsFolder> tls_ = *TlsFolder::Open(folder_.path(), Log("server-1"));
};

TEST_F(TlsFolderTest, UnchangedFilesKeepTheirIdentity) {
  const auto before = tls_->identity();

  EXPECT_THAT(LookedAt(), IsEmpty());

  EXPECT_EQ(tls_->identity(), before);
  EXPECT_EQ(before->files(), first_);
}

TEST_F(TlsFolderTest, ASwappedFolderIsUsedAndLoggedOnce) {
  folder_.Swap(second_);

  const std::string log = LookedAt();

  EXPECT_EQ(tls_->identity()->files(), second_);
  EXPECT_THAT(log, AllOf(HasSubstr("new certificates in use"), HasSubstr(folder_.path())));
  EXPECT_THAT(LookedAt(), IsEmpty());
}

TEST_F(TlsFolderTest, AnInvalidPairIsLoggedOnceAndNotUsed) {
  TlsFiles broken = second_;
  broken.private_key = first_.private_key;
  folder_.Swap(broken);

  const std::string log = LookedAt();

  EXPECT_EQ(tls_->identity()->files(), first_);
  EXPECT_THAT(log, AllOf(HasSubstr("warning"), HasSubstr("do not belong together")));
  EXPECT_THAT(log, Not(HasSubstr("PRIVATE KEY")));
  EXPECT_THAT(LookedAt(), IsEmpty());
}

TEST_F(TlsFolderTest, AValidPairAfterAnInvalidOneIsUsed) {
  folder_.Swap({});
  LookedAt();
  folder_.Swap(second_);

  const std::string log = LookedAt();

  EXPECT_EQ(tls_->identity()->files(), second_);
  EXPECT_THAT(log, HasSubstr("new certificates in use"));
}

TEST_F(TlsFolderTest, EachNewErrorIsLogged) {
  TlsFiles broken = second_;
  broken.private_key = "no key";
  folder_.Swap(broken);
  LookedAt();
  folder_.Swap(first_);
  EXPECT_THAT(LookedAt(), IsEmpty());
  folder_.Swap(broken);

  EXPECT_THAT(LookedAt(), HasSubstr("tls.key"));
}

TEST_F(TlsFolderTest, AMissingFileLeavesTheLastValidOnesInUse) {
  std::filesystem::remove(folder_.path() + "/tls.key");

  EXPECT_THAT(LookedAt(), HasSubstr("tls.key"));

  EXPECT_EQ(tls_->identity()->files(), first_);
}

TEST_F(TlsFolderTest, FilesReplacedSinglyAreUsedAfterTheLast) {
  const auto replace = [&](const std::string& name, const std::string& text) {
    const std::string next = folder_.path() + "/next";
    std::ofstream(next) << text;
    std::filesystem::rename(next, folder_.path() + "/" + name);
  };
  replace("tls.crt", second_.certificate);
  LookedAt();
  EXPECT_EQ(tls_->identity()->files(), first_);

  replace("tls.key", second_.private_key);
  LookedAt();

  EXPECT_EQ(tls_->identity()->files(), second_);
}

TEST_F(TlsFolderTest, KeepsReloadingByItself) {
  folder_.Swap(second_);

  tls_->KeepReloading(std::chrono::milliseconds(1));

  const Deadline deadline = Deadline::After(std::chrono::seconds(10));
  Mutex mu;
  CondVar never;
  MutexLock lock(mu);
  while (tls_->identity()->files() != second_ && !deadline.has_passed())
    never.WaitUntil(mu, Deadline::After(std::chrono::milliseconds(2)));
  EXPECT_EQ(tls_->identity()->files(), second_);
}

TEST(TlsFolderOpenTest, AnEmptyPathMeansNoTls) {
  const auto tls = OpenTlsFolder("", Log("server-1"));

  ASSERT_TRUE(tls.ok());
  EXPECT_EQ(*tls, nullptr);
}

TEST(TlsFolderOpenTest, AMissingFileNamesVariableAndFile) {
  const FakeTlsFolder folder(MakeTlsFiles());
  std::filesystem::remove(folder.path() + "/ca.crt");

  const absl::Status status = OpenTlsFolder(folder.path(), Log("server-1")).status();

  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("PUSHPULL_TLS_DIR"), HasSubstr(folder.path() + "/ca.crt")));
}

TEST(TlsFolderOpenTest, InvalidFilesNameTheFolder) {
  TlsFiles files = MakeTlsFiles();
  files.certificate = "nothing";
  const FakeTlsFolder folder(files);

  const absl::Status status = OpenTlsFolder(folder.path(), Log("server-1")).status();

  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(folder.path()), HasSubstr("tls.crt has no certificate")));
}

}  // namespace
}  // namespace pushpull
