// SPDX-License-Identifier: Apache-2.0
#include "operator/certificates/job_certificates.h"

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

const WallTime kNow{seconds(1'769'860'800)};
constexpr days kLife{90};
const JobSubjects kMembers{
    .job = "mnist",
    .shared = {.name = "mnist", .dns_names = {"pushpull"}},
    .members = {{"worker-0", {.name = "worker-0", .dns_names = {"pushpull", "w.pushpull"}}}}};

JobSubjects WithServer() {
  JobSubjects subjects = kMembers;
  subjects.members["server-0"] = {.name = "server-0", .dns_names = {"pushpull"}};
  return subjects;
}

KeyPair AuthorityOf(const JobCertificates& certificates) {
  return {.certificate = certificates.authorities, .private_key = certificates.authority_key};
}

// As one that was issued `age` ago.
Validity Issued(seconds age, seconds life) {
  return {.begin = kNow - age - kClockSkewMax, .end = kNow - age + life};
}

struct StepRow {
  const char* what;
  std::optional<Validity> authority;
  std::optional<Validity> member;
  CertificateStep step;
};

TEST(JobCertificatesTest, EachStateHasItsStep) {
  const Validity authority = Issued(days(100), kAuthorityLifetime);
  const StepRow rows[] = {
      {"nothing there", std::nullopt, std::nullopt, CertificateStep::kNewAuthority},
      {"authority damaged", std::nullopt, Issued(days(1), kLife), CertificateStep::kNewAuthority},
      {"pair damaged", authority, std::nullopt, CertificateStep::kNewMember},
      {"new", authority, Issued(seconds(0), kLife), CertificateStep::kKeep},
      {"before 3/5", authority, Issued(days(54) - seconds(1), kLife), CertificateStep::kKeep},
      {"at 3/5", authority, Issued(days(54), kLife), CertificateStep::kNewMember},
      {"long over", authority, Issued(days(300), kLife), CertificateStep::kNewMember},
      {"other lives than now", authority, Issued(days(2), days(3)), CertificateStep::kNewMember},
      {"authority ends with the next pair",
       Issued(kAuthorityLifetime - kLife, kAuthorityLifetime),
       Issued(days(1), kLife),
       CertificateStep::kKeep},
      {"authority ends before the next pair",
       Issued(kAuthorityLifetime - kLife + seconds(1), kAuthorityLifetime),
       Issued(days(1), kLife),
       CertificateStep::kNewAuthority},
      {"pair of a clock that was ahead",
       authority,
       Issued(-minutes(11), kLife),
       CertificateStep::kNewMember},
      {"authority of such a clock",
       Issued(-hours(1), kAuthorityLifetime),
       std::nullopt,
       CertificateStep::kNewAuthority}};

  for (const StepRow& row : rows) {
    EXPECT_EQ(DecideStep(row.authority, row.member, kNow, kLife), row.step) << row.what;
  }
}

TEST(JobCertificatesTest, TenMinutesOfClockSkewAreTolerated) {
  const Validity authority = Issued(seconds(0), kAuthorityLifetime);
  const Validity member = Issued(seconds(0), kLife);

  for (const minutes off : {-kClockSkewMax, kClockSkewMax}) {
    EXPECT_EQ(DecideStep(authority, member, kNow + off, kLife - kClockSkewMax),
              CertificateStep::kKeep);
  }
}

TEST(JobCertificatesTest, RenewalIsDueBeforeTwoThirdsOfALifetime) {
  for (const seconds life : {seconds(30), seconds(hours(1)), seconds(kLife)}) {
    const WallTime at = RenewalTime(Issued(seconds(0), life));

    EXPECT_GT(at, kNow + life / 2);
    EXPECT_LT(at, kNow + life * 2 / 3);
  }
}

TEST(JobCertificatesTest, ExpiredCertificatesAreRenewed) {
  const Validity never_ours{.begin = kNow - seconds(5), .end = kNow - seconds(1)};

  EXPECT_LE(RenewalTime(never_ours), kNow);
}

TEST(JobCertificatesTest, ANewJobGetsAnAuthorityAndAPair) {
  const auto kept = UpdateCertificates({}, kMembers, kNow, kLife);

  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_TRUE(kept->has_changed);
  EXPECT_EQ(kept->renew_at, kNow + days(54));
  const KeyPair authority = AuthorityOf(kept->certificates);
  ASSERT_EQ(kept->certificates.pairs.size(), 1U);
  const KeyPair pair = kept->certificates.pairs.at("worker-0");
  EXPECT_EQ(kept->certificates.shared, KeyPair{});
  EXPECT_EQ(CheckAuthority(authority),
            (Validity{.begin = kNow - minutes(10), .end = kNow + kAuthorityLifetime}));
  EXPECT_EQ(CheckMember(pair, authority),
            (Validity{.begin = kNow - minutes(10), .end = kNow + kLife}));
}

TEST(JobCertificatesTest, ValidCertificatesAreKept) {
  const JobCertificates first = UpdateCertificates({}, kMembers, kNow, kLife)->certificates;

  const auto again = UpdateCertificates(first, kMembers, kNow + days(53), kLife);

  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->has_changed);
  EXPECT_EQ(again->certificates, first);
  EXPECT_EQ(again->renew_at, kNow + days(54));
}

TEST(JobCertificatesTest, APairIsRenewedByTheSameAuthority) {
  const JobCertificates first = UpdateCertificates({}, kMembers, kNow, kLife)->certificates;

  const auto renewed = UpdateCertificates(first, kMembers, kNow + days(54), kLife);

  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_EQ(renewed->certificates.authorities, first.authorities);
  EXPECT_EQ(renewed->certificates.authority_key, first.authority_key);
  const KeyPair before = first.pairs.at("worker-0");
  const KeyPair after = renewed->certificates.pairs.at("worker-0");
  EXPECT_NE(after.certificate, before.certificate);
  EXPECT_NE(after.private_key, before.private_key);
  EXPECT_EQ(renewed->renew_at, kNow + days(108));
}

TEST(JobCertificatesTest, ANewAuthorityIsTrustedBesideTheOldOne) {
  JobCertificates damaged = UpdateCertificates({}, kMembers, kNow, kLife)->certificates;
  const std::string before = damaged.authorities;
  damaged.authority_key.clear();

  const JobCertificates both = UpdateCertificates(damaged, kMembers, kNow, kLife)->certificates;
  const auto later = UpdateCertificates(both, kMembers, kNow + days(54), kLife);

  EXPECT_FALSE(absl::StartsWith(both.authorities, before));
  EXPECT_TRUE(absl::EndsWith(both.authorities, before));
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(later->certificates.authorities, FirstCertificate(both.authorities));
  EXPECT_EQ(later->certificates.authority_key, both.authority_key);
}

TEST(JobCertificatesTest, AMemberThatComesChangesNoOtherPair) {
  const JobCertificates first = UpdateCertificates({}, kMembers, kNow, kLife)->certificates;

  const auto more = UpdateCertificates(first, WithServer(), kNow + days(10), kLife);

  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_TRUE(more->has_changed);
  EXPECT_EQ(more->certificates.pairs.at("worker-0"), first.pairs.at("worker-0"));
  EXPECT_TRUE(CheckMember(more->certificates.pairs.at("server-0"), AuthorityOf(first)));
  EXPECT_EQ(more->renew_at, kNow + days(54));
}

TEST(JobCertificatesTest, AMemberThatIsGoneLosesItsPair) {
  const JobCertificates two = UpdateCertificates({}, WithServer(), kNow, kLife)->certificates;

  const auto fewer = UpdateCertificates(two, kMembers, kNow, kLife);

  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_TRUE(fewer->has_changed);
  EXPECT_EQ(fewer->certificates.pairs.count("server-0"), 0U);
  EXPECT_EQ(fewer->certificates.pairs.at("worker-0"), two.pairs.at("worker-0"));
}

TEST(JobCertificatesTest, EachPairIsRenewedInItsOwnTime) {
  const JobCertificates first = UpdateCertificates({}, kMembers, kNow, kLife)->certificates;
  const JobCertificates both =
      UpdateCertificates(first, WithServer(), kNow + days(10), kLife)->certificates;

  const auto later = UpdateCertificates(both, WithServer(), kNow + days(54), kLife);

  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_NE(later->certificates.pairs.at("worker-0"), both.pairs.at("worker-0"));
  EXPECT_EQ(later->certificates.pairs.at("server-0"), both.pairs.at("server-0"));
  EXPECT_EQ(later->renew_at, kNow + days(64));
}

// As a version before wrote it: one pair for all, which pods may have mounted.
TEST(JobCertificatesTest, ASharedPairIsKeptAndRenewed) {
  JobCertificates old = UpdateCertificates({}, kMembers, kNow, kLife)->certificates;
  old.shared = *MakeMember({.name = "mnist", .dns_names = {"pushpull"}},
                           {.begin = kNow - minutes(10), .end = kNow + kLife},
                           AuthorityOf(old));
  old.pairs.clear();

  const auto upgraded = UpdateCertificates(old, kMembers, kNow + days(1), kLife);
  ASSERT_TRUE(upgraded.ok()) << upgraded.status();
  const auto renewed = UpdateCertificates(upgraded->certificates, kMembers, kNow + days(54), kLife);

  EXPECT_EQ(upgraded->certificates.authorities, old.authorities);
  EXPECT_EQ(upgraded->certificates.shared, old.shared);
  EXPECT_EQ(upgraded->certificates.pairs.size(), 1U);
  EXPECT_EQ(upgraded->renew_at, kNow + days(54));
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_NE(renewed->certificates.shared, old.shared);
  EXPECT_TRUE(CheckMember(renewed->certificates.shared, AuthorityOf(old)));
}

TEST(JobCertificatesTest, AMemberThatComesKeepsTheOldAuthority) {
  JobCertificates damaged = UpdateCertificates({}, kMembers, kNow, kLife)->certificates;
  damaged.authority_key.clear();
  const JobCertificates both = UpdateCertificates(damaged, kMembers, kNow, kLife)->certificates;

  const auto more = UpdateCertificates(both, WithServer(), kNow + minutes(1), kLife);

  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(more->certificates.authorities, both.authorities);
}

// However often it happens, two authorities are trusted at most.
TEST(JobCertificatesTest, AuthoritiesDoNotAccumulate) {
  JobCertificates certificates;
  for (int i = 0; i < 3; ++i) {
    certificates.authority_key = "damaged";
    certificates = UpdateCertificates(certificates, kMembers, kNow, kLife)->certificates;
  }
  const std::string first = FirstCertificate(certificates.authorities);
  const std::string rest = certificates.authorities.substr(first.size());

  EXPECT_EQ(FirstCertificate(rest), rest);
}

}  // namespace
}  // namespace pushpull_operator
