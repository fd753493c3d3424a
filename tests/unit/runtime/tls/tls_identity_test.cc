// SPDX-License-Identifier: Apache-2.0
#include "runtime/tls/tls_identity.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_tls_folder.h"

namespace pushpull {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TlsIdentityTest : public testing::Test {
 protected:
  static absl::Status Refusal(TlsFiles files) {
    return TlsIdentity::Create(std::move(files)).status();
  }

  const FakeCertificate authority_ = MakeAuthority("job-1");
  const FakeCertificate member_ = MakeCertificate("server-0", authority_);
};

TEST_F(TlsIdentityTest, ACertificateOfTheAuthorityIsAccepted) {
  const TlsFiles files = MakeTlsFiles(authority_, member_);

  const auto identity = TlsIdentity::Create(files);

  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_NE((*identity)->context(), nullptr);
  EXPECT_EQ((*identity)->files(), files);
}

TEST_F(TlsIdentityTest, OneOfSeveralAuthoritiesIsEnough) {
  TlsFiles files = MakeTlsFiles(authority_, member_);
  files.authorities = MakeAuthority("next").certificate + files.authorities;

  EXPECT_TRUE(TlsIdentity::Create(files).ok());
}

TEST_F(TlsIdentityTest, ExpiresWithTheFirstOfTheChain) {
  const FakeCertificate ends_soon = MakeAuthority("job-1", hours(2));
  const auto member_first =
      *TlsIdentity::Create(MakeTlsFiles(authority_, MakeCertificate("a", authority_, seconds(90))));
  const auto authority_first =
      *TlsIdentity::Create(MakeTlsFiles(ends_soon, MakeCertificate("a", ends_soon, hours(9))));

  const auto left = [](const TlsIdentity& identity) {
    return std::chrono::duration<double>(identity.expires_at() - std::chrono::system_clock::now())
        .count();
  };
  EXPECT_NEAR(left(*member_first), 90, 60);
  EXPECT_NEAR(left(*authority_first), 7200, 60);
}

TEST_F(TlsIdentityTest, TextThatIsNotPemIsNamedAndNotQuoted) {
  const TlsFiles good = MakeTlsFiles(authority_, member_);
  TlsFiles no_authority = good;
  no_authority.authorities = "secret";
  TlsFiles no_certificate = good;
  no_certificate.certificate = "secret";
  TlsFiles no_key = good;
  no_key.private_key = "secret";

  for (const auto& [files, name] :
       {std::pair(no_authority, "ca.crt"), {no_certificate, "tls.crt"}, {no_key, "tls.key"}}) {
    const absl::Status status = Refusal(files);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(name), Not(HasSubstr("secret"))));
  }
}

TEST_F(TlsIdentityTest, ABundleWithADamagedCertificateIsRejected) {
  TlsFiles files = MakeTlsFiles(authority_, member_);
  const std::string& whole = member_.certificate;
  files.authorities += whole.substr(0, whole.size() / 2) + "\n-----END CERTIFICATE-----\n";

  EXPECT_THAT(std::string(Refusal(files).message()), HasSubstr("ca.crt: certificate 2"));
}

TEST_F(TlsIdentityTest, ACertificateWithTheKeyOfAnotherIsRejected) {
  TlsFiles files = MakeTlsFiles(authority_, member_);
  files.private_key = MakeCertificate("server-1", authority_).private_key;

  EXPECT_THAT(std::string(Refusal(files).message()),
              HasSubstr("tls.crt and tls.key do not belong together"));
}

TEST_F(TlsIdentityTest, ACertificateOfAnotherAuthorityIsRejected) {
  const absl::Status status = Refusal(MakeTlsFiles(MakeAuthority("job-2"), member_));

  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("authority in ca.crt"));
}

TEST_F(TlsIdentityTest, AnExpiredCertificateIsRejected) {
  const absl::Status status =
      Refusal(MakeTlsFiles(authority_, MakeCertificate("a", authority_, seconds(-10))));

  EXPECT_THAT(std::string(status.message()), HasSubstr("certificate has expired"));
}

}  // namespace
}  // namespace pushpull
