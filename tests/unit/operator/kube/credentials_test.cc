// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/credentials.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_certificates.h"
#include "tests/fakes/fake_pausing_time.h"

namespace pushpull_operator {
namespace {

using pushpull::FakeCertificate;
using pushpull::MakeAuthority;
using pushpull::MakeCertificate;
using testing::HasSubstr;
using testing::Not;

class CredentialsTest : public testing::Test {
 protected:
  CredentialsTest() {
    std::filesystem::create_directories(folder_);
    Write("token", "first\n");
    Write("ca", MakeAuthority("one").certificate);
    access_.token.file = folder_ + "/token";
    access_.authorities.file = folder_ + "/ca";
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }

  const std::string folder_ =
      testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
  FakePausingTime time_;
  ClusterAccess access_;
};

TEST_F(CredentialsTest, RotatedFilesAreUsedWithinAMinute) {
  const auto credentials = *Credentials::Create(access_, time_);
  const RequestAuth before = credentials->Current();
  EXPECT_EQ(before.token, "first");
  Write("token", "second");
  Write("ca", MakeAuthority("two").certificate);

  time_.Advance(std::chrono::seconds(60));

  EXPECT_EQ(credentials->Current().token, "second");
  EXPECT_NE(credentials->Current().tls, before.tls);
}

TEST_F(CredentialsTest, UnchangedFilesKeepTheTlsMaterial) {
  const auto credentials = *Credentials::Create(access_, time_);
  const RequestAuth before = credentials->Current();

  time_.Advance(std::chrono::minutes(10));

  EXPECT_EQ(credentials->Current().tls, before.tls);
}

TEST_F(CredentialsTest, InvalidFilesKeepTheLastGoodOnes) {
  const auto credentials = *Credentials::Create(access_, time_);
  const RequestAuth before = credentials->Current();
  Write("token", "third");
  Write("ca", "no certificate");

  time_.Advance(std::chrono::seconds(60));

  EXPECT_EQ(credentials->Current().tls, before.tls);
  EXPECT_EQ(credentials->Current().token, "third");  // each file on its own
  EXPECT_TRUE(absl::IsInvalidArgument(credentials->last_error()));
}

TEST_F(CredentialsTest, InvalidateReloadsTheToken) {
  const auto credentials = *Credentials::Create(access_, time_);
  Write("token", "second");
  EXPECT_EQ(credentials->Current().token, "first");

  credentials->Invalidate();

  EXPECT_EQ(credentials->Current().token, "second");
}

TEST_F(CredentialsTest, ErrorsNameTheFileNotItsContent) {
  Write("token", "sec\nret");
  const absl::Status token = Credentials::Create(access_, time_).status();
  Write("token", "fine");
  std::filesystem::remove(access_.authorities.file);
  const absl::Status authority = Credentials::Create(access_, time_).status();

  EXPECT_THAT(std::string(token.message()), HasSubstr("/token: is not a token"));
  EXPECT_THAT(std::string(token.message()), Not(HasSubstr("sec")));
  EXPECT_TRUE(absl::IsNotFound(authority)) << authority;
}

TEST_F(CredentialsTest, CertificateAndKeyMustBelongTogether) {
  const FakeCertificate authority = MakeAuthority("one");
  access_.certificate.text = MakeCertificate("a", authority).certificate;
  access_.private_key.text = MakeCertificate("b", authority).private_key;

  const absl::Status status = Credentials::Create(access_, time_).status();

  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("belong together"));
}

}  // namespace
}  // namespace pushpull_operator
