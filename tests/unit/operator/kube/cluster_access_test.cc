// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/cluster_access.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Config(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
         "contexts:\n- name: other\n  context: {cluster: gone, user: gone}\n"
         "- name: here\n  context: {cluster: c, user: u, namespace: team}\n"
         "clusters:\n- name: c\n  cluster: " +
         cluster +
         "\nusers:\n- name: gone\n  user: {exec: {command: aws}}\n- name: u\n  user: " + user +
         "\n";
}

std::string ErrorOf(const std::string& text, const std::string& context = "") {
  const absl::StatusOr<ClusterAccess> access = ParseKubeconfig(text, "/etc/kc", context);
  EXPECT_TRUE(absl::IsInvalidArgument(access.status())) << access.status();
  return std::string(access.status().message());
}

TEST(ClusterAccessTest, ReadsTheCurrentContext) {
  const std::string text =
      Config("{server: 'https://api.example:6443/k8s/', certificate-authority: ca.pem}",
             "{client-certificate-data: Y2VydA==, client-key: /keys/k.pem, tokenFile: t}");

  const absl::StatusOr<ClusterAccess> access = ParseKubeconfig(text, "/etc/kc", "");

  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(access->server, (ServerAddress{.host = "api.example", .port = 6443}));
  EXPECT_EQ(access->path_prefix, "/k8s");
  EXPECT_EQ(access->authorities.file, "/etc/ca.pem");
  EXPECT_EQ(access->certificate.text, "cert");
  EXPECT_EQ(access->private_key.file, "/keys/k.pem");
  EXPECT_EQ(access->token.file, "/etc/t");
  EXPECT_EQ(access->default_namespace, "team");
  EXPECT_EQ(access->check, ServerCheck::kVerify);
}

TEST(ClusterAccessTest, PortsHaveTheDefaultsOfTheirScheme) {
  const auto port = [](const std::string& server) {
    return ParseKubeconfig(Config("{server: '" + server + "'}", "{}"), "f", "")->server.port;
  };

  EXPECT_EQ(port("https://a"), 443);
  EXPECT_EQ(port("http://a"), 80);
  EXPECT_EQ(port("https://[::1]"), 443);
  EXPECT_EQ(port("https://[::1]:6443"), 6443);
}

TEST(ClusterAccessTest, ErrorsNameFileAndField) {
  const std::string error =
      ErrorOf(Config("{server: 'ftp://x', certificate-authority-data: '*', sever: y, proxy-url: z}",
                     "{client-key: k, password: secret, exec: {command: aws}, token: 12345678}"));

  EXPECT_THAT(error, HasSubstr("kubeconfig /etc/kc:"));
  EXPECT_THAT(error, HasSubstr("clusters[0].cluster.server: must start with https://"));
  EXPECT_THAT(error, HasSubstr("clusters[0].cluster.certificate-authority-data: is not base64"));
  EXPECT_THAT(error, HasSubstr("clusters[0].cluster.sever"));
  EXPECT_THAT(error, HasSubstr("clusters[0].cluster.proxy-url"));
  EXPECT_THAT(error, HasSubstr("users[1].user: client-certificate and client-key"));
  EXPECT_THAT(error, HasSubstr("users[1].user.password"));
  EXPECT_THAT(error, HasSubstr("users[1].user.exec"));
  EXPECT_THAT(error, HasSubstr("users[1].user.token: must be a string"));
  EXPECT_THAT(error, Not(HasSubstr("secret")));
  EXPECT_THAT(error, Not(HasSubstr("12345678")));
}

TEST(ClusterAccessTest, ClusterAndUserOfAContextMustExist) {
  const std::string text = Config("{server: 'https://x'}", "{}");

  EXPECT_THAT(ErrorOf(text, "other"), HasSubstr("clusters: has no entry with name \"gone\""));
  EXPECT_THAT(ErrorOf(text, "nowhere"), HasSubstr("contexts: has no entry with name \"nowhere\""));
  EXPECT_THAT(ErrorOf("apiVersion: v1"), HasSubstr("current-context: is not set"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf("a: [b"), HasSubstr("line "));
}

TEST(ClusterAccessTest, SkippingVerificationExcludesAnAuthority) {
  EXPECT_EQ(ParseKubeconfig(
                Config("{server: 'https://x', insecure-skip-tls-verify: true}", "{}"), "f", "")
                ->check,
            ServerCheck::kSkip);
  EXPECT_THAT(ErrorOf(Config("{server: 'https://x', insecure-skip-tls-verify: true, "
                             "certificate-authority: a}",
                             "{}")),
              HasSubstr("insecure-skip-tls-verify"));
}

TEST(ClusterAccessTest, APodUsesItsServiceAccount) {
  const std::filesystem::path folder = testing::TempDir() + "/pod";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "namespace") << "ml-team\n";

  const absl::StatusOr<ClusterAccess> access = InClusterAccess("10.0.0.1", "443", folder);

  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(access->server, (ServerAddress{.host = "10.0.0.1", .port = 443}));
  EXPECT_EQ(access->token.file, folder / "token");
  EXPECT_EQ(access->authorities.file, folder / "ca.crt");
  EXPECT_EQ(access->default_namespace, "ml-team");
}

TEST(ClusterAccessTest, OutsideOfAPodThereIsNoServiceAccount) {
  EXPECT_TRUE(absl::IsFailedPrecondition(InClusterAccess("", "443").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(InClusterAccess("h", "70000").status()));
  EXPECT_TRUE(absl::IsNotFound(InClusterAccess("h", "443", "/nonexistent").status()));
}

}  // namespace
}  // namespace pushpull_operator
