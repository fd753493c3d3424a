// SPDX-License-Identifier: Apache-2.0
//
// A folder of certificates for tests, laid out and replaced as Kubernetes does it: each file is a
// link into a folder behind one link, and that one is swapped.
//
//   ca.crt -> ..data/ca.crt    ..data -> ..1    ..1/ca.crt
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/tls/tls_folder.h"
#include "runtime/tls/tls_identity.h"
#include "tests/fakes/fake_certificates.h"

namespace pushpull {

// A member's files: `own`, and the authority that signed it.
TlsFiles MakeTlsFiles(const FakeCertificate& authority, const FakeCertificate& own);
// The files of a new member of that authority's job, and of a new job.
TlsFiles MakeTlsFiles(const FakeCertificate& authority);
TlsFiles MakeTlsFiles();

// The files of a member whose certificate has these DNS names.
TlsFiles MakeNamedTlsFiles(const FakeCertificate& authority,
                           const std::vector<std::string>& dns_names);

// Removed when destroyed. Thread-compatible.
class FakeTlsFolder {
 public:
  explicit FakeTlsFolder(const TlsFiles& files);
  ~FakeTlsFolder();
  FakeTlsFolder(const FakeTlsFolder&) = delete;
  FakeTlsFolder& operator=(const FakeTlsFolder&) = delete;

  const std::string& path() const { return path_; }
  // Replaces all of them at once.
  void Swap(const TlsFiles& files);

 private:
  std::string path_;
  int num_swaps_ = 0;
};

// A member: its folder and what it has loaded from there.
struct FakeTlsMember {
  explicit FakeTlsMember(const TlsFiles& files)
      : folder(files), tls(*TlsFolder::Open(folder.path(), Log("test"))) {}

  FakeTlsFolder folder;
  const std::unique_ptr<TlsFolder> tls;
};

}  // namespace pushpull
