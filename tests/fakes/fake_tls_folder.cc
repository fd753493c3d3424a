// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_tls_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace pushpull {

namespace fs = std::filesystem;

TlsFiles MakeTlsFiles(const FakeCertificate& authority, const FakeCertificate& own) {
  return {.authorities = authority.certificate,
          .certificate = own.certificate,
          .private_key = own.private_key};
}

TlsFiles MakeTlsFiles(const FakeCertificate& authority) {
  return MakeTlsFiles(authority, MakeCertificate("member", authority));
}

TlsFiles MakeTlsFiles() {
  return MakeTlsFiles(MakeAuthority("authority of a job"));
}

TlsFiles MakeNamedTlsFiles(const FakeCertificate& authority,
                           const std::vector<std::string>& dns_names) {
  return MakeTlsFiles(authority, MakeNamedCertificate(dns_names, authority));
}

FakeTlsFolder::FakeTlsFolder(const TlsFiles& files)
    : path_((fs::temp_directory_path() / "pushpull-tls-XXXXXX").string()) {
  PUSHPULL_CHECK(mkdtemp(path_.data()) != nullptr);
  Swap(files);
  for (const char* name : {"ca.crt", "tls.crt", "tls.key"})
    fs::create_symlink(fs::path("..data") / name, fs::path(path_) / name);
}

FakeTlsFolder::~FakeTlsFolder() {
  fs::remove_all(path_);
}

void FakeTlsFolder::Swap(const TlsFiles& files) {
  const std::string version = absl::StrCat("..", ++num_swaps_);
  const fs::path folder = fs::path(path_) / version;
  fs::create_directory(folder);
  std::ofstream(folder / "ca.crt") << files.authorities;
  std::ofstream(folder / "tls.crt") << files.certificate;
  std::ofstream(folder / "tls.key") << files.private_key;
  const fs::path next = fs::path(path_) / "..next";
  fs::create_symlink(version, next);
  fs::rename(next, fs::path(path_) / "..data");
}

}  // namespace pushpull
