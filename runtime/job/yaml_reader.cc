// SPDX-License-Identifier: Apache-2.0
//
// The adapter to yaml-cpp, and the only place that catches its exceptions; see yaml_reader.h.
#include "runtime/job/yaml_reader.h"

#include <algorithm>
#include <exception>
#include <istream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "runtime/base/utf8.h"
#include "runtime/job/plain_scalar.h"

namespace pushpull {

namespace {

std::string Place(size_t line, size_t column) {
  return absl::StrCat("line ", line, ", column ", column);
}

// A mark counts from 0, people count from 1.
std::string Place(const YAML::Mark& mark) {
  return Place(static_cast<size_t>(mark.line) + 1, static_cast<size_t>(mark.column) + 1);
}

// yaml-cpp takes some control characters for the end of the text, so they must not reach it.
bool IsText(absl::string_view text, Problems& problems) {
  size_t line = 1;
  size_t line_start = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    const size_t bytes = Utf8CharacterBytes(text.substr(i));
    if (bytes == 0 || (is_control && c != '\t' && c != '\n' && c != '\r')) {
      problems.Add(Place(line, i - line_start + 1),
                   bytes == 0 ? "is not UTF-8 text" : "control characters are not allowed");
      return false;
    }
    i += bytes;
    if (c == '\n') {
      ++line;
      line_start = i;
    }
  }
  return true;
}

struct Extent {
  size_t num_values = 1;
  size_t num_levels = 0;  // lists and objects
};

Extent ExtentOf(const Tree& tree) {
  Extent extent;
  const auto include = [&extent](const Tree& child) {
    const Extent inner = ExtentOf(child);
    extent.num_values += inner.num_values;
    extent.num_levels = std::max(extent.num_levels, inner.num_levels);
  };
  for (const Tree& item : tree.items) include(item);
  for (const Tree::Field& field : tree.fields) include(field.value);
  const bool is_scalar = tree.kind != Tree::Kind::kList && tree.kind != Tree::Kind::kObject;
  if (!is_scalar) ++extent.num_levels;
  return extent;
}

// Builds the tree of one document from the parser's events. Not from YAML::Node: its loader never
// ends on some texts, and aliases make its nodes a graph, perhaps with cycles. Values are counted
// and levels checked as they arrive; past a bound all further events are ignored.
class TreeBuilder : public YAML::EventHandler {
 public:
  // `num_values`: those of the documents before it.
  TreeBuilder(size_t num_values, Problems& problems)
      : problems_(problems), num_values_(num_values) {}

  // The document's tree; valid only if building has not failed.
  Tree& tree() { return root_; }
  bool has_failed() const { return has_failed_; }
  size_t num_values() const { return num_values_; }
  const YAML::Mark& start() const { return start_; }

  void OnDocumentStart(const YAML::Mark& mark) override { start_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t anchor) override { Add(Tree{}, anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override;
  void OnScalar(const YAML::Mark& mark,
                const std::string& tag,
                YAML::anchor_t anchor,
                const std::string& value) override;
  void OnSequenceStart(const YAML::Mark& /*mark*/,
                       const std::string& /*tag*/,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(Tree::Kind::kList, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& /*mark*/,
                  const std::string& /*tag*/,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(Tree::Kind::kObject, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  // A list or object that is not closed yet. In an object keys and values alternate.
  struct Frame {
    Tree tree;
    std::string path;
    YAML::anchor_t anchor = 0;
    std::optional<std::string> key;  // the key whose value comes next
    bool skips_value = false;        // the value that comes next belongs to no usable key
    absl::flat_hash_set<std::string> keys;
  };

  void Fail(std::string place, std::string text);
  std::string PathOfNext() const;
  void Open(Tree::Kind kind, YAML::anchor_t anchor);
  void Close();
  // A complete value, in the place where it was written.
  void Add(Tree value, YAML::anchor_t anchor);
  void TakeKey(const Tree& key, Frame& frame);
  // Each fails and returns false when its bound is exceeded.
  bool Count(size_t num_values);
  bool FitsLevels(size_t num_levels);

  Problems& problems_;
  Tree root_;
  YAML::Mark start_;
  std::vector<Frame> open_;  // outermost first
  absl::flat_hash_map<YAML::anchor_t, Tree> anchored_;
  size_t num_values_;
  bool has_failed_ = false;
};

void TreeBuilder::Fail(std::string place, std::string text) {
  problems_.Add(std::move(place), std::move(text));
  has_failed_ = true;
}

bool TreeBuilder::Count(size_t num_values) {
  num_values_ += num_values;
  if (num_values_ <= kManifestValuesMax) return true;
  Fail("", absl::StrCat("has more than ", kManifestValuesMax, " values, aliases included"));
  return false;
}

bool TreeBuilder::FitsLevels(size_t num_levels) {
  if (open_.size() + num_levels <= kManifestDepthMax) return true;
  Fail("", absl::StrCat("is nested deeper than ", kManifestDepthMax, " levels"));
  return false;
}

std::string TreeBuilder::PathOfNext() const {
  if (open_.empty()) return "";
  const Frame& frame = open_.back();
  if (frame.tree.kind == Tree::Kind::kList) return JoinPath(frame.path, frame.tree.items.size());
  return frame.key.has_value() ? JoinPath(frame.path, *frame.key) : frame.path;
}

void TreeBuilder::OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) {
  if (has_failed_) return;
  const auto found = anchored_.find(anchor);
  if (found == anchored_.end()) {
    Fail(Place(mark), "is an alias to what it is a part of");
    return;
  }
  const Extent extent = ExtentOf(found->second);
  // Add counts one of the values.
  if (!FitsLevels(extent.num_levels) || !Count(extent.num_values - 1)) return;
  Add(found->second, 0);
}

void TreeBuilder::OnScalar(const YAML::Mark& mark,
                           const std::string& tag,
                           YAML::anchor_t anchor,
                           const std::string& value) {
  if (has_failed_) return;
  if (absl::StrContains(value, '\0')) {
    Fail(Place(mark), "NUL characters are not allowed");
    return;
  }
  // "!" is the tag of quoted and block scalars.
  const bool is_string = tag == "!" || tag == "tag:yaml.org,2002:str";
  Add(is_string ? MakeTree(Tree::Kind::kString, value) : ResolvePlainScalar(value), anchor);
}

void TreeBuilder::Open(Tree::Kind kind, YAML::anchor_t anchor) {
  if (has_failed_) return;
  if (!FitsLevels(1)) return;
  std::string path = PathOfNext();
  Frame& frame = open_.emplace_back();
  frame.tree.kind = kind;
  frame.path = std::move(path);
  frame.anchor = anchor;
}

void TreeBuilder::Close() {
  if (has_failed_) return;
  Frame frame = std::move(open_.back());
  open_.pop_back();
  Add(std::move(frame.tree), frame.anchor);
}

void TreeBuilder::Add(Tree value, YAML::anchor_t anchor) {
  if (has_failed_ || !Count(1)) return;
  if (anchor != 0) {
    if (!Count(ExtentOf(value).num_values)) return;
    anchored_[anchor] = value;
  }
  if (open_.empty()) {
    root_ = std::move(value);
    return;
  }
  Frame& frame = open_.back();
  if (frame.tree.kind == Tree::Kind::kList) {
    frame.tree.items.push_back(std::move(value));
  } else if (frame.key.has_value()) {
    frame.tree.fields.push_back({.key = *std::exchange(frame.key, {}), .value = std::move(value)});
  } else if (!std::exchange(frame.skips_value, false)) {
    TakeKey(value, frame);
  }
}

void TreeBuilder::TakeKey(const Tree& key, Frame& frame) {
  const bool is_word = key.kind != Tree::Kind::kNull && key.kind != Tree::Kind::kList &&
                       key.kind != Tree::Kind::kObject;
  frame.skips_value = true;
  if (!is_word) {
    problems_.Add(frame.path, "keys must be strings");
  } else if (!frame.keys.insert(key.text).second) {
    problems_.Add(JoinPath(frame.path, key.text), "is given twice");
  } else {
    frame.skips_value = false;
    frame.key = key.text;
  }
}

void AddSyntaxProblem(const YAML::Exception& error, absl::string_view text, Problems& problems) {
  if (error.mark.is_null()) {
    problems.Add("", absl::StrCat("not valid YAML: ", error.msg));
    return;
  }
  const size_t line = static_cast<size_t>(error.mark.line);
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const bool has_tab = line < lines.size() && absl::StartsWith(lines[line], "\t");
  problems.Add(
      Place(line + 1, static_cast<size_t>(error.mark.column) + 1),
      absl::StrCat(
          "not valid YAML: ", error.msg, has_tab ? "; indent with spaces, not with tabs" : ""));
}

void AddAll(const std::vector<ManifestProblem>& more, Problems& problems) {
  for (const ManifestProblem& problem : more) problems.Add(problem.field, problem.text);
}

std::optional<std::vector<YamlDocument>> ReadDocuments(std::istream& text, Problems& problems) {
  YAML::Parser parser(text);
  std::vector<YamlDocument> documents;
  size_t num_values = 0;
  int last_start = -1;
  while (true) {
    Problems own;
    TreeBuilder builder(num_values, own);
    if (!parser.HandleNextDocument(builder)) return documents;
    // At input that it cannot use, the parser finds empty documents for ever.
    if (builder.start().pos == last_start) {
      problems.Add(Place(builder.start()), "not valid YAML: unexpected character");
      return std::nullopt;
    }
    last_start = builder.start().pos;
    num_values = builder.num_values();
    if (builder.has_failed()) {
      AddAll(own.Take(), problems);
      return std::nullopt;
    }
    if (builder.tree().kind == Tree::Kind::kNull) continue;
    documents.push_back({.tree = std::move(builder.tree()),
                         .place = Place(builder.start()),
                         .problems = own.Take()});
  }
}

}  // namespace

std::optional<Tree> ReadYaml(absl::string_view text, Problems& problems) {
  std::optional<std::vector<YamlDocument>> documents = ReadYamlDocuments(text, problems);
  if (!documents.has_value()) return std::nullopt;
  if (documents->empty()) return Tree{};
  if (documents->size() > 1) {
    problems.Add((*documents)[1].place, "another document starts here, only one is expected");
    return std::nullopt;
  }
  AddAll(documents->front().problems, problems);
  return std::move(documents->front().tree);
}

std::optional<std::vector<YamlDocument>> ReadYamlDocuments(absl::string_view text,
                                                           Problems& problems) {
  if (text.size() > kManifestBytesMax) {
    constexpr absl::string_view kText = "is larger than $0 bytes, has $1; is it a manifest?";
    problems.Add("", absl::Substitute(kText, kManifestBytesMax, text.size()));
    return std::nullopt;
  }
  if (!IsText(text, problems)) return std::nullopt;
  try {
    std::istringstream stream{std::string(text)};
    return ReadDocuments(stream, problems);
  } catch (const YAML::Exception& error) {
    AddSyntaxProblem(error, text, problems);
  } catch (const std::exception& error) {
    problems.Add("", absl::StrCat("cannot be read: ", error.what()));
  }
  return std::nullopt;
}

}  // namespace pushpull
