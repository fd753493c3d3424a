// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/documents.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/printable.h"
#include "runtime/job/yaml_reader.h"

namespace pushpull {
namespace {

constexpr size_t kNameBytesMax = 80;
constexpr size_t kNamesMax = 10;

std::string TextOf(const Tree* field) {
  return field == nullptr ? "" : field->text;
}

std::string KindOf(const YamlDocument& document) {
  return TextOf(FindField(document.tree, "kind"));
}

// "ConfigMap settings"; without a kind, where the document starts.
std::string NameOf(const YamlDocument& document) {
  const std::string kind = KindOf(document);
  if (kind.empty()) return absl::StrCat("a document without kind at ", document.place);
  const Tree* metadata = FindField(document.tree, "metadata");
  const std::string name = metadata == nullptr ? "" : TextOf(FindField(*metadata, "name"));
  return Printable(absl::StrCat(kind, name.empty() ? "" : " ", name), kNameBytesMax);
}

std::vector<std::string> NamesOf(const std::vector<YamlDocument>& documents) {
  std::vector<std::string> names;
  for (const YamlDocument& document : documents) names.push_back(NameOf(document));
  if (names.size() > kNamesMax) {
    const size_t more = names.size() - kNamesMax;
    names.resize(kNamesMax);
    names.push_back(absl::StrCat(more, " more"));
  }
  return names;
}

// The documents, with the items of each List in its place.
std::vector<YamlDocument> WithoutLists(std::vector<YamlDocument> documents) {
  std::vector<YamlDocument> result;
  for (YamlDocument& document : documents) {
    const Tree* items = FindField(document.tree, "items");
    if (KindOf(document) != "List" || items == nullptr) {
      result.push_back(std::move(document));
      continue;
    }
    for (const Tree& item : items->items)
      result.push_back({item, document.place, document.problems});
  }
  return result;
}

// Moves the documents of the first of `kinds` that has any to the front. How many there are.
size_t MoveToFront(std::span<const absl::string_view> kinds, std::vector<YamlDocument>& documents) {
  for (const absl::string_view kind : kinds) {
    const auto is_of_kind = [kind](const YamlDocument& each) { return KindOf(each) == kind; };
    const auto others = std::stable_partition(documents.begin(), documents.end(), is_of_kind);
    if (others != documents.begin()) return static_cast<size_t>(others - documents.begin());
  }
  return 0;
}

}  // namespace

std::optional<ManifestDocument> TakeDocument(absl::string_view text,
                                             std::span<const absl::string_view> kinds,
                                             Problems& problems) {
  std::optional<std::vector<YamlDocument>> read = ReadYamlDocuments(text, problems);
  if (!read.has_value()) return std::nullopt;
  std::vector<YamlDocument> documents = WithoutLists(*std::move(read));
  if (documents.empty()) return ManifestDocument{};
  const size_t num_wanted = documents.size() == 1 ? 1 : MoveToFront(kinds, documents);
  if (num_wanted != 1) {
    if (num_wanted > 1) documents.resize(num_wanted);
    problems.Add("",
                 absl::StrCat("must have one ",
                              kinds.front(),
                              ", has ",
                              absl::StrJoin(NamesOf(documents), ", "),
                              "; put the one that you want into a file of its own"));
    return std::nullopt;
  }
  for (const ManifestProblem& problem : documents.front().problems)
    problems.Add(problem.field, problem.text);
  ManifestDocument taken{.tree = std::move(documents.front().tree)};
  documents.erase(documents.begin());
  taken.ignored = NamesOf(documents);
  return taken;
}

}  // namespace pushpull
