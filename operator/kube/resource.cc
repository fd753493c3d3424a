// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/resource.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace pushpull_operator {
namespace {

std::string PercentEncoded(absl::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || absl::string_view("-._~").find(c) != absl::string_view::npos) {
      encoded += c;
    } else {
      absl::StrAppend(&encoded, "%", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return encoded;
}

}  // namespace

std::string ToString(const ObjectKey& key) {
  return key.object_namespace.empty() ? key.name
                                      : absl::StrCat(key.object_namespace, "/", key.name);
}

std::string CollectionTarget(const ResourceType& type, absl::string_view object_namespace) {
  std::string target = type.group.empty() ? "/api/" : absl::StrCat("/apis/", type.group, "/");
  absl::StrAppend(&target, type.version);
  if (type.scope == Scope::kNamespaced && !object_namespace.empty()) {
    absl::StrAppend(&target, "/namespaces/", PercentEncoded(object_namespace));
  }
  return absl::StrCat(target, "/", type.plural);
}

std::string ObjectTarget(const ResourceType& type,
                         const ObjectKey& key,
                         absl::string_view subresource) {
  std::string target =
      absl::StrCat(CollectionTarget(type, key.object_namespace), "/", PercentEncoded(key.name));
  if (!subresource.empty()) absl::StrAppend(&target, "/", subresource);
  return target;
}

std::string WithQuery(std::string target, const Query& query) {
  char separator = '?';
  for (const auto& [key, value] : query) {
    if (value.empty()) continue;
    target += separator;
    absl::StrAppend(&target, key, "=", PercentEncoded(value));
    separator = '&';
  }
  return target;
}

}  // namespace pushpull_operator
