// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/cluster_access.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "runtime/base/host_port.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text_file.h"
#include "runtime/job/object_reader.h"
#include "runtime/job/problems.h"
#include "runtime/job/tree.h"
#include "runtime/job/yaml_reader.h"

namespace pushpull_operator {
namespace {

using pushpull::FindField;
using pushpull::JoinPath;
using pushpull::ObjectReader;
using pushpull::Problems;
using pushpull::Quoted;
using pushpull::ReadTextFile;
using pushpull::Tree;

// Relative paths in a kubeconfig are resolved against its folder.
std::string Resolved(const std::string& path, const std::string& kubeconfig) {
  if (path.empty() || path.front() == '/') return path;
  const size_t slash = kubeconfig.rfind('/');
  return slash == std::string::npos ? path : absl::StrCat(kubeconfig.substr(0, slash + 1), path);
}

// Reads the parts of a kubeconfig that one context names.
class KubeconfigReader {
 public:
  KubeconfigReader(const Tree& root, const std::string& file, Problems& problems)
      : root_(root), file_(file), problems_(problems) {}

  ClusterAccess Read(const std::string& context) {
    ObjectReader top(root_, "", problems_);
    std::string chosen;
    top.ReadString("current-context", chosen);
    for (const char* key :
         {"apiVersion", "kind", "preferences", "extensions", "clusters", "users", "contexts"}) {
      top.Skip(key);
    }
    if (!context.empty()) chosen = context;
    if (chosen.empty()) {
      problems_.Add("current-context", "is not set; set it or pass a context");
    } else {
      ReadContext(chosen);
    }
    return access_;
  }

 private:
  void ReadContext(const std::string& name) {
    std::string cluster;
    std::string user;
    ReadEntry("contexts", "context", name, [&](ObjectReader& reader) {
      reader.ReadString("cluster", cluster);
      reader.ReadString("user", user);
      reader.ReadString("namespace", access_.default_namespace);
      reader.Skip("extensions");
      reader.Require("cluster");
      reader.Require("user");
    });
    if (!cluster.empty()) {
      ReadEntry("clusters", "cluster", cluster, [this](ObjectReader& r) { ReadCluster(r); });
    }
    if (!user.empty()) ReadEntry("users", "user", user, [this](ObjectReader& r) { ReadUser(r); });
  }

  // Calls `read` with the object `kind` of the entry called `name`.
  template <typename Read>
  void ReadEntry(const char* list, const char* kind, const std::string& name, const Read& read) {
    const Tree* entries = FindField(root_, list);
    if (entries == nullptr) {
      problems_.Add(list, absl::StrCat("is missing; needs an entry with name ", Quoted(name)));
      return;
    }
    for (size_t i = 0; i < entries->items.size(); ++i) {
      const Tree& entry = entries->items[i];
      const Tree* entry_name = FindField(entry, "name");
      if (entry_name == nullptr || entry_name->text != name) continue;
      const std::string path = JoinPath(JoinPath(list, i), kind);
      const Tree* body = FindField(entry, kind);
      if (body == nullptr) {
        problems_.Add(path, "is missing");
        return;
      }
      body_ = body;
      ObjectReader reader(*body, path, problems_);
      read(reader);
      return;
    }
    problems_.Add(list, absl::StrCat("has no entry with name ", Quoted(name)));
  }

  void ReadCluster(ObjectReader& reader) {
    std::string server;
    bool skips_check = false;
    reader.ReadString("server", server);
    reader.Require("server");
    reader.ReadBool("insecure-skip-tls-verify", skips_check);
    reader.ReadString("tls-server-name", access_.server.tls_name);
    access_.authorities = ReadSource(reader, "certificate-authority", "certificate-authority-data");
    if (skips_check) access_.check = ServerCheck::kSkip;
    if (skips_check && !access_.authorities.empty()) {
      problems_.Add(JoinPath(reader.path(), "insecure-skip-tls-verify"),
                    "cannot be combined with a certificate authority; remove one of them");
    }
    reader.Skip("extensions");
    reader.Skip("disable-compression");  // compression is never requested
    Refuse(reader, "proxy-url", "a proxy is not supported");
    if (!server.empty()) ReadServer(server, JoinPath(reader.path(), "server"));
  }

  // "https://host:port/prefix".
  void ReadServer(const std::string& url, const std::string& path) {
    absl::string_view rest = url;
    access_.server.uses_tls = !absl::ConsumePrefix(&rest, "http://");
    if (access_.server.uses_tls && !absl::ConsumePrefix(&rest, "https://")) {
      problems_.Add(path, absl::StrCat("must start with https:// or http://, is ", Quoted(url)));
      return;
    }
    const size_t slash = rest.find('/');
    if (slash != absl::string_view::npos) {
      access_.path_prefix = std::string(absl::StripSuffix(rest.substr(slash), "/"));
      rest = rest.substr(0, slash);
    }
    std::string authority(rest);
    const size_t colon = authority.rfind(':');
    const bool has_port =
        colon != std::string::npos && authority.find(']', colon) == std::string::npos;
    if (!has_port) authority += access_.server.uses_tls ? ":443" : ":80";
    const absl::StatusOr<pushpull::HostPort> address = pushpull::ParseHostPort(authority);
    const std::string forbidden = " @?#%\\\"'<>";
    if (!address.ok() || address->port == 0 || url.find_first_of(forbidden) != std::string::npos) {
      problems_.Add(path, absl::StrCat("must be like https://host:6443, is ", Quoted(url)));
      return;
    }
    access_.server.host = address->host;
    access_.server.port = address->port;
  }

  void ReadUser(ObjectReader& reader) {
    access_.certificate = ReadSource(reader, "client-certificate", "client-certificate-data");
    access_.private_key = ReadSource(reader, "client-key", "client-key-data");
    if (access_.certificate.empty() != access_.private_key.empty()) {
      problems_.Add(reader.path(), "client-certificate and client-key must be set together");
    }
    ReadSecret(reader, "token", access_.token.text);
    reader.ReadString("tokenFile", access_.token.file);
    access_.token.file = Resolved(access_.token.file, file_);
    reader.Skip("extensions");
    for (const char* key : {"exec", "auth-provider"}) {
      Refuse(reader,
             key,
             "credential plugins are not supported; use a token, a tokenFile or a client "
             "certificate");
    }
    for (const char* key : {"username", "password"}) {
      Refuse(reader, key, "passwords are not supported; use a token or a client certificate");
    }
    for (const char* key : {"as", "as-uid", "as-groups", "as-user-extra"}) {
      Refuse(reader, key, "impersonation is not supported");
    }
  }

  // Base64 or a file; data wins, as in kubectl. The keys are literals: the reader keeps pointers.
  Source ReadSource(ObjectReader& reader, const char* key, const char* data_key) {
    Source source;
    std::string data;
    reader.ReadString(key, source.file);
    source.file = Resolved(source.file, file_);
    ReadSecret(reader, data_key, data);
    if (data.empty()) return source;
    source.file.clear();
    if (!absl::Base64Unescape(data, &source.text) || source.text.empty()) {
      problems_.Add(JoinPath(reader.path(), data_key), "is not base64");
    }
    return source;
  }

  // Errors never contain the value of a secret.
  void ReadSecret(ObjectReader& reader, const char* key, std::string& out) {
    const Tree* value = FindField(*body_, key);
    if (value == nullptr || value->kind == Tree::Kind::kString) {
      reader.ReadString(key, out);
      return;
    }
    reader.Skip(key);
    problems_.Add(JoinPath(reader.path(), key), "must be a string; put it in quotes");
  }

  void Refuse(ObjectReader& reader, const char* key, const char* text) {
    reader.Skip(key);
    const Tree* value = FindField(*body_, key);
    if (value == nullptr || value->kind == Tree::Kind::kNull) return;
    problems_.Add(JoinPath(reader.path(), key), text);
  }

  const Tree& root_;
  const std::string& file_;
  Problems& problems_;
  const Tree* body_ = nullptr;  // of the current entry
  ClusterAccess access_;
};

absl::Status AsStatus(const std::string& file, Problems& problems) {
  std::string text = absl::StrCat("kubeconfig ", file, ":");
  for (const pushpull::ManifestProblem& problem : problems.Take()) {
    absl::StrAppend(&text, "\n  ", ToString(problem));
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace

absl::StatusOr<ClusterAccess> ParseKubeconfig(absl::string_view text,
                                              const std::string& file,
                                              const std::string& context) {
  Problems problems;
  const std::optional<Tree> root = pushpull::ReadYaml(text, problems);
  if (root.has_value() && root->kind == Tree::Kind::kNull) problems.Add("", "is empty");
  if (!root.has_value() || !problems.empty()) return AsStatus(file, problems);
  ClusterAccess access = KubeconfigReader(*root, file, problems).Read(context);
  if (!problems.empty()) return AsStatus(file, problems);
  return access;
}

absl::StatusOr<ClusterAccess> LoadKubeconfig(const std::string& file, const std::string& context) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file));
  return ParseKubeconfig(text, file, context);
}

absl::StatusOr<ClusterAccess> InClusterAccess(const std::string& host,
                                              const std::string& port,
                                              const std::string& folder) {
  if (host.empty() || port.empty()) {
    return absl::FailedPreconditionError(
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: not running in a pod; "
        "pass a "
        "kubeconfig");
  }
  ClusterAccess access;
  uint32_t number = 0;
  if (!absl::SimpleAtoi(port, &number) || number == 0 || number > UINT16_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("KUBERNETES_SERVICE_PORT is not a port: ", Quoted(port)));
  }
  access.server = {.host = host, .port = static_cast<uint16_t>(number)};
  access.authorities.file = folder + "/ca.crt";
  access.token.file = folder + "/token";
  PUSHPULL_ASSIGN_OR_RETURN(const std::string own_namespace, ReadTextFile(folder + "/namespace"));
  access.default_namespace = std::string(absl::StripAsciiWhitespace(own_namespace));
  return access;
}

}  // namespace pushpull_operator
