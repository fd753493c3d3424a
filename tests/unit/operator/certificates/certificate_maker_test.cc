// SPDX-License-Identifier: Apache-2.0
#include "operator/certificates/certificate_maker.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

#include "runtime/tls/tls_identity.h"

namespace pushpull_operator {
namespace {

using pushpull::TlsFiles;
using pushpull::TlsIdentity;
using std::chrono::hours;
using std::chrono::seconds;

// Both ends of a connection judge by the machine's clock.
WallTime Today() {
  return std::chrono::floor<seconds>(std::chrono::system_clock::now());
}

const Validity kYears{.begin = WallTime(seconds(1'700'000'000)),
                      .end = WallTime(seconds(4'000'000'000))};  // in 2096
const CertificateSubject kMember{.name = "mnist",
                                 .dns_names = {"pushpull", "mnist-coordinator.n.svc"}};

KeyPair Authority(const Validity& validity = kYears) {
  return *MakeAuthority({.name = "authority of mnist"}, validity);
}

TlsFiles FilesOf(const KeyPair& authority, const KeyPair& member) {
  return {.authorities = authority.certificate,
          .certificate = member.certificate,
          .private_key = member.private_key};
}

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

// Whether two ends with these files come to terms, each with what it has of the other.
bool DoShakeHands(const TlsFiles& server_files, const TlsFiles& client_files) {
  const auto server_identity = TlsIdentity::Create(server_files);
  const auto client_identity = TlsIdentity::Create(client_files);
  if (!server_identity.ok() || !client_identity.ok()) return false;
  const std::unique_ptr<SSL, FreeSsl> server(SSL_new((*server_identity)->context()));
  const std::unique_ptr<SSL, FreeSsl> client(SSL_new((*client_identity)->context()));
  BIO* server_end = nullptr;
  BIO* client_end = nullptr;
  BIO_new_bio_pair(&server_end, 0, &client_end, 0);
  SSL_set_bio(server.get(), server_end, server_end);
  SSL_set_bio(client.get(), client_end, client_end);
  SSL_set_accept_state(server.get());
  SSL_set_connect_state(client.get());
  for (int i = 0; i < 4; ++i) {
    SSL_do_handshake(client.get());
    SSL_do_handshake(server.get());
  }
  ERR_clear_error();
  return SSL_is_init_finished(client.get()) == 1 && SSL_is_init_finished(server.get()) == 1;
}

TEST(CertificateMakerTest, MembersOfAnAuthorityAcceptEachOther) {
  const KeyPair authority = Authority();
  const TlsFiles one = FilesOf(authority, *MakeMember(kMember, kYears, authority));
  const TlsFiles another = FilesOf(authority, *MakeMember(kMember, kYears, authority));

  EXPECT_NE(one.certificate, another.certificate);
  EXPECT_TRUE(DoShakeHands(one, another));
  EXPECT_TRUE(DoShakeHands(one, one));
}

TEST(CertificateMakerTest, MembersOfAnotherJobAreRejected) {
  const KeyPair authority = Authority();
  const KeyPair other = Authority();
  const TlsFiles mine = FilesOf(authority, *MakeMember(kMember, kYears, authority));
  const TlsFiles theirs = FilesOf(other, *MakeMember(kMember, kYears, other));

  EXPECT_FALSE(DoShakeHands(mine, theirs));
  EXPECT_FALSE(DoShakeHands(theirs, mine));
}

// As while an authority is replaced.
TEST(CertificateMakerTest, TwoAuthoritiesMayShareAName) {
  const KeyPair before = Authority();
  const KeyPair after = Authority();
  TlsFiles early = FilesOf(before, *MakeMember(kMember, kYears, before));
  TlsFiles late = FilesOf(after, *MakeMember(kMember, kYears, after));
  for (const std::string& both :
       {before.certificate + after.certificate, after.certificate + before.certificate}) {
    early.authorities = both;
    late.authorities = both;

    EXPECT_TRUE(DoShakeHands(early, late));
    EXPECT_TRUE(DoShakeHands(late, early));
  }
}

TEST(CertificateMakerTest, TheSystemClockIsNotUsed) {
  const WallTime today = Today();
  const Validity over{.begin = today - hours(2), .end = today - hours(1)};
  const KeyPair authority = Authority();
  const KeyPair member = *MakeMember(kMember, over, authority);

  EXPECT_EQ(CheckMember(member, authority), over);
  EXPECT_FALSE(TlsIdentity::Create(FilesOf(authority, member)).ok());
}

TEST(CertificateMakerTest, MismatchedPairsAreInvalid) {
  const KeyPair authority = Authority();
  const KeyPair other = Authority();
  const KeyPair member = *MakeMember(kMember, kYears, authority);
  const KeyPair others = *MakeMember(kMember, kYears, other);
  const auto mix = [](const KeyPair& certificate, const KeyPair& key) {
    return KeyPair{.certificate = certificate.certificate, .private_key = key.private_key};
  };

  EXPECT_EQ(CheckAuthority(authority), kYears);
  EXPECT_EQ(CheckMember(member, authority), kYears);
  EXPECT_EQ(CheckAuthority(mix(authority, other)), std::nullopt);
  EXPECT_EQ(CheckAuthority(member), std::nullopt);
  EXPECT_EQ(CheckMember(member, other), std::nullopt);
  EXPECT_EQ(CheckMember(mix(member, others), authority), std::nullopt);
  EXPECT_EQ(CheckMember(authority, authority), std::nullopt);
}

TEST(CertificateMakerTest, DamagedTextIsInvalidAndLeavesNoError) {
  const KeyPair authority = Authority();
  const KeyPair member = *MakeMember(kMember, kYears, authority);

  for (const std::string& text : {std::string(),
                                  std::string("no PEM"),
                                  member.certificate.substr(0, member.certificate.size() / 2),
                                  member.private_key}) {
    EXPECT_EQ(CheckMember({.certificate = text, .private_key = member.private_key}, authority),
              std::nullopt);
    EXPECT_EQ(CheckMember(member, {.certificate = text, .private_key = authority.private_key}),
              std::nullopt);
    EXPECT_EQ(CheckAuthority({.certificate = text, .private_key = authority.private_key}),
              std::nullopt);
    EXPECT_FALSE(
        MakeMember(kMember, kYears, {.certificate = text, .private_key = authority.private_key})
            .ok());
    EXPECT_EQ(FirstCertificate(text), "");
  }

  EXPECT_EQ(ERR_peek_error(), 0UL);
}

TEST(CertificateMakerTest, TheFirstCertificateCounts) {
  const KeyPair first = Authority();
  const KeyPair second = Authority();
  const std::string both = absl::StrCat(first.certificate, second.certificate);

  EXPECT_EQ(FirstCertificate(both), first.certificate);
  EXPECT_EQ(CheckAuthority({.certificate = both, .private_key = first.private_key}), kYears);
  EXPECT_EQ(CheckAuthority({.certificate = both, .private_key = second.private_key}), std::nullopt);
}

TEST(CertificateMakerTest, AMemberHasItsDnsNames) {
  const KeyPair authority = Authority();
  const KeyPair member = *MakeMember(kMember, kYears, authority);
  BIO* reader = BIO_new_mem_buf(member.certificate.data(), -1);
  X509* certificate = PEM_read_bio_X509(reader, nullptr, nullptr, nullptr);

  for (const std::string& name : kMember.dns_names) {
    EXPECT_EQ(X509_check_host(certificate, name.data(), name.size(), 0, nullptr), 1) << name;
  }
  EXPECT_NE(X509_check_host(certificate, "other", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_ca(certificate), 0);

  X509_free(certificate);
  BIO_free(reader);
}

TEST(CertificateMakerTest, TooLongNamesAreTruncated) {
  const std::string name(200, 'n');

  EXPECT_TRUE(MakeAuthority({.name = name}, kYears).ok());
}

}  // namespace
}  // namespace pushpull_operator
