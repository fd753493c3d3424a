// SPDX-License-Identifier: Apache-2.0
//
// The schema of the CRD and the codec state the same fields, types, ranges and defaults. What the
// API server makes of the schema is tried in tests/e2e/api.
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/decode.h"
#include "runtime/job/override.h"
#include "runtime/job/parse.h"
#include "runtime/job/problems.h"
#include "runtime/job/training_job.h"
#include "runtime/job/tree.h"
#include "runtime/job/yaml_reader.h"

namespace pushpull {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kCrd[] = "/../../charts/pushpull/files/crd/trainingjobs.yaml";
constexpr char kSchemaMinimal[] =
    "{apiVersion: pushpull.dev/v1alpha1, kind: TrainingJob, metadata: {name: minimal}, spec: ";

Tree ReadTree(const std::string& file) {
  std::ifstream stream(std::string(PUSHPULL_TEST_DATA) + file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  Problems problems;
  std::optional<Tree> tree = ReadYaml(text, problems);
  EXPECT_TRUE(tree.has_value()) << file;
  return tree.value_or(Tree{});
}

// The value at the end of the keys; null where there is none.
const Tree& At(const Tree& tree, const std::vector<std::string>& keys) {
  static const Tree none;
  const Tree* at = &tree;
  for (const std::string& key : keys) {
    at = FindField(*at, key);
    if (at == nullptr) return none;
  }
  return *at;
}

const Tree& Version() {
  static const Tree crd = ReadTree(kCrd);
  const Tree& versions = At(crd, {"spec", "versions"});
  EXPECT_EQ(versions.items.size(), 1U);
  return versions.items.at(0);
}

const Tree& Schema() {
  return At(Version(), {"schema", "openAPIV3Schema"});
}

const Tree& SpecSchema() {
  return At(Schema(), {"properties", "spec"});
}

// Calls `visit` with the path and the schema of everything inside `schema`.
void Walk(const Tree& schema,
          const std::string& path,
          const std::function<void(const std::string&, const Tree&)>& visit) {
  for (const Tree::Field& property : At(schema, {"properties"}).fields) {
    const std::string field = absl::StrCat(path, ".", property.key);
    visit(field, property.value);
    Walk(property.value, field, visit);
  }
  const Tree& items = At(schema, {"items"});
  if (items.kind == Tree::Kind::kNull) return;
  visit(path + "[0]", items);
  Walk(items, path + "[0]", visit);
}

// The fields with a problem, when `path` alone is set to `value`, judged by type and range alone.
std::vector<std::string> WrongFields(const std::string& path, const std::string& value) {
  Problems problems;
  std::optional<Tree> tree = ReadYaml(absl::StrCat(kSchemaMinimal, "{}}"), problems);
  ApplyOverride(absl::StrCat(path, "=", value), *tree, problems);
  DecodeTrainingJob(*tree, problems);
  std::vector<std::string> fields;
  for (const ManifestProblem& problem : problems.Take()) fields.push_back(problem.field);
  return fields;
}

void ExpectTaken(const std::string& path, const std::string& value) {
  EXPECT_THAT(WrongFields(path, value), Not(Contains(path))) << path << " = " << value;
}

void ExpectRefused(const std::string& path, const std::string& value) {
  EXPECT_THAT(WrongFields(path, value), Contains(path)) << path << " = " << value;
}

void ExpectSameIntegers(const std::string& path, const Tree& schema) {
  const Tree& min = At(schema, {"minimum"});
  const Tree& max = At(schema, {"maximum"});
  ASSERT_EQ(min.kind, Tree::Kind::kInteger) << path;
  ASSERT_EQ(max.kind, Tree::Kind::kInteger) << path;
  ExpectTaken(path, absl::StrCat(min.integer));
  ExpectTaken(path, absl::StrCat(max.integer));
  ExpectRefused(path, absl::StrCat(min.integer - 1));
  ExpectRefused(path, absl::StrCat(max.integer + 1));
  ExpectRefused(path, "1.5");
  ExpectRefused(path, "'1'");
}

void ExpectSameStrings(const std::string& path, const Tree& schema) {
  ExpectRefused(path, "1");
  const Tree& names = At(schema, {"enum"});
  if (names.kind == Tree::Kind::kNull) return ExpectTaken(path, "'a'");
  for (const Tree& name : names.items) ExpectTaken(path, absl::StrCat("'", name.text, "'"));
  ExpectRefused(path, "'Nonsense'");
}

void ExpectSameLists(const std::string& path, const Tree& schema) {
  const Tree& max = At(schema, {"maxItems"});
  ASSERT_EQ(max.kind, Tree::Kind::kInteger) << path;
  const auto list = [](int64_t size) {
    return absl::StrCat(
        "[", absl::StrJoin(std::vector<std::string>(static_cast<size_t>(size), "7"), ","), "]");
  };
  ExpectTaken(path, list(max.integer));
  ExpectRefused(path, list(max.integer + 1));
  ExpectRefused(path, "7");
}

TEST(SchemaTest, FieldsOfTheSchemaHaveTheTypeAndRangeOfTheCodec) {
  int num_fields = 0;
  Walk(SpecSchema(), "spec", [&num_fields](const std::string& path, const Tree& schema) {
    ++num_fields;
    const std::string type = At(schema, {"type"}).text;
    if (type == "integer") {
      ExpectSameIntegers(path, schema);
    } else if (type == "string") {
      ExpectSameStrings(path, schema);
    } else if (type == "array") {
      ExpectSameLists(path, schema);
    } else if (type == "boolean") {
      ExpectTaken(path, "true");
      ExpectRefused(path, "1");
    } else {
      ASSERT_EQ(type, "object") << path;
      ExpectTaken(path, "{}");
      ExpectRefused(path, "[]");
    }
  });
  EXPECT_GT(num_fields, 70);
}

// As `kubectl explain` and `kubectl get` print them; of a list's items it prints what the list has.
TEST(SchemaTest, EveryFieldAndColumnHasADescription) {
  Walk(Schema(), "", [](const std::string& path, const Tree& schema) {
    // Of metadata the API server takes none and prints its own.
    if (path.ends_with("[0]") || path == ".metadata") return;
    EXPECT_NE(At(schema, {"description"}).text, "") << path;
  });
  for (const Tree& column : At(Version(), {"additionalPrinterColumns"}).items)
    EXPECT_NE(At(column, {"description"}).text, "") << At(column, {"name"}).text;
}

TEST(SchemaTest, UnknownFieldsArePassedThroughWhereTheCodecDoes) {
  Walk(SpecSchema(), "spec", [](const std::string& path, const Tree& schema) {
    if (At(schema, {"type"}).text != "object") return;
    const bool is_open = At(schema, {"x-kubernetes-preserve-unknown-fields"}).boolean;
    const std::string field = path + ".neverHeardOf";

    if (is_open) {
      ExpectTaken(field, "1");
    } else {
      ExpectRefused(field, "1");
    }
  });
}

// One that the API server writes into a job would look as if the job had set it, against what its
// runtime says.
TEST(SchemaTest, TheApiServerWritesNoValueIntoAJob) {
  Walk(SpecSchema(), "spec", [](const std::string& path, const Tree& schema) {
    const Tree& value = At(schema, {"default"});
    EXPECT_TRUE(value.kind == Tree::Kind::kNull || ToJson(value) == "{}") << path;
  });
}

// What its description ends with, as `kubectl explain` prints it; null: it has none.
Tree DefaultOf(const Tree& schema) {
  constexpr absl::string_view kBefore = " Defaults to ";
  absl::string_view text = At(schema, {"description"}).text;
  absl::ConsumeSuffix(&text, " Kubernetes only.");
  const size_t begin = text.rfind(kBefore);
  if (begin == absl::string_view::npos || !absl::ConsumeSuffix(&text, ".")) return Tree{};
  Problems problems;
  const bool is_text = At(schema, {"type"}).text == "string";
  if (is_text) return MakeTree(Tree::Kind::kString, text.substr(begin + kBefore.size()));
  return ReadYaml(text.substr(begin + kBefore.size()), problems).value_or(Tree{});
}

TrainingJob Decoded(const std::string& spec) {
  const ParsedJob parsed = ParseTrainingJob(absl::StrCat(kSchemaMinimal, spec, "}"), {});
  EXPECT_THAT(parsed.problems, IsEmpty()) << spec;
  return parsed.job;
}

// The fields of `schema` at their defaults, after `first`.
std::string DefaultsOf(const Tree& schema, const std::string& first) {
  std::vector<std::string> fields;
  if (!first.empty()) fields.push_back(first);
  for (const Tree::Field& property : At(schema, {"properties"}).fields) {
    const Tree value = DefaultOf(property.value);
    if (value.kind != Tree::Kind::kNull) {
      fields.push_back(absl::StrCat(property.key, ": ", ToJson(value)));
    } else if (ToJson(At(property.value, {"default"})) == "{}") {
      fields.push_back(absl::StrCat(property.key, ": ", DefaultsOf(property.value, "")));
    }
  }
  return absl::StrCat("{", absl::StrJoin(fields, ", "), "}");
}

TEST(SchemaTest, DefaultsAreThoseOfTheStructs) {
  EXPECT_THAT(DefaultsOf(SpecSchema(), ""), HasSubstr("lossGraceSeconds: 30"));
  TrainingJob bare = Decoded("{}");
  bare.spec.security.network_policy = NetworkPolicy::kIsolated;  // what unset means, written out

  const TrainingJob spelled_out = Decoded(DefaultsOf(SpecSchema(), ""));

  EXPECT_TRUE(spelled_out == bare) << DefaultsOf(SpecSchema(), "");
}

TEST(SchemaTest, DefaultsInsideOptionalObjectsAreThoseOfTheStructs) {
  const std::string checkpoint =
      DefaultsOf(At(SpecSchema(), {"properties", "checkpoint"}), "claim: c");
  const std::string scheduling = DefaultsOf(At(SpecSchema(), {"properties", "scheduling"}), "");

  EXPECT_TRUE(Decoded(absl::StrCat("{checkpoint: ", checkpoint, "}")) ==
              Decoded("{checkpoint: {claim: c}}"))
      << checkpoint;
  EXPECT_TRUE(Decoded(absl::StrCat("{scheduling: ", scheduling, "}")) ==
              Decoded("{scheduling: {}}"))
      << scheduling;
}

// Every path of the value that the schema has a word for; the insides of pass-through objects and
// of maps not.
void ExpectInSchema(const Tree& value, const std::string& path, const Tree& schema) {
  ASSERT_NE(schema.kind, Tree::Kind::kNull) << path << " is not in the schema";
  const bool is_map = At(schema, {"additionalProperties"}).kind != Tree::Kind::kNull;
  if (is_map || At(schema, {"x-kubernetes-preserve-unknown-fields"}).boolean) return;
  for (const Tree::Field& field : value.fields) {
    const Tree& inner = At(schema, {"properties", field.key});
    ExpectInSchema(field.value, absl::StrCat(path, ".", field.key), inner);
  }
  for (const Tree& item : value.items) ExpectInSchema(item, path + "[]", At(schema, {"items"}));
}

TEST(SchemaTest, HasEveryFieldOfTheCodec) {
  const Tree manifest = ReadTree("/manifests/valid/every_field.yaml");

  ExpectInSchema(At(manifest, {"spec"}), "spec", SpecSchema());
}

}  // namespace
}  // namespace pushpull
