// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/json_reader.h"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/printable.h"

namespace pushpull_operator {
namespace {

using Json = nlohmann::json;

// Names in the path that a problem reports: for a TrainingJob, all that its schema knows.
constexpr size_t kPathNames = 3;
constexpr size_t kPathBytesMax = 200;

// Builds one value from the parser's events. Thread-compatible.
class ValueBuilder {
 public:
  ValueBuilder() = default;
  ValueBuilder(const ValueBuilder&) = delete;
  ValueBuilder& operator=(const ValueBuilder&) = delete;

  void Key(std::string& key) {
    if (num_skipped_ > 0) return;
    if (open_.size() == 1) spent_ = &BudgetOf(key);
    is_unwanted_ = open_.size() == 2 && key == "managedFields" && spent_ == &spents_[kMetadata];
    if (open_.size() <= kPathNames) {
      path_.resize(open_.size());
      path_.back() = key;
    }
    key_ = std::move(key);
  }

  void Open(Json container) {
    if (num_skipped_ > 0 || !Admits(/*text_bytes=*/0) || IsTooDeep()) {
      ++num_skipped_;
    } else {
      open_.push_back(&Put(std::move(container)));
    }
  }

  void Close() {
    if (num_skipped_ > 0) {
      --num_skipped_;
    } else {
      open_.pop_back();
    }
  }

  void Scalar(Json value, size_t text_bytes = 0) {
    if (num_skipped_ == 0 && Admits(text_bytes)) Put(std::move(value));
  }

  ReadValue Take() { return {.json = std::move(root_), .problem = std::move(problem_)}; }

 private:
  enum Budget { kMetadata, kStatus, kOther };

  // A spec that is too large must not prevent reading the job's name and conditions.
  size_t& BudgetOf(absl::string_view field) {
    return spents_[field == "metadata" ? kMetadata : field == "status" ? kStatus : kOther];
  }

  bool Admits(size_t text_bytes) {
    if (std::exchange(is_unwanted_, false)) return false;
    *spent_ += kJsonValueCost + key_.size() + text_bytes;
    if (*spent_ <= kJsonCostMax) return true;
    Tell(absl::StrCat("is larger than ",
                      kJsonCostMax >> 10,
                      " KiB, ",
                      kJsonValueCost,
                      " bytes counted for each value besides its text"));
    return false;
  }

  bool IsTooDeep() {
    if (open_.size() < size_t{kJsonDepthMax}) return false;
    Tell(absl::StrCat("nests deeper than ", kJsonDepthMax, " levels"));
    return true;
  }

  void Tell(absl::string_view what) {
    if (!problem_.empty()) return;
    const std::string path = pushpull::Printable(absl::StrJoin(path_, "."), kPathBytesMax);
    problem_ = absl::StrCat(path.empty() ? "the object" : path, " ", what);
  }

  Json& Put(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_object()) return parent[key_] = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }

  Json root_;
  std::vector<Json*> open_;  // containers; each the last child of the one before
  size_t num_skipped_ = 0;   // open containers inside a value that is left out
  std::string key_;          // of the next value of an object
  bool is_unwanted_ = false;
  std::vector<std::string> path_;
  std::array<size_t, 3> spents_{};
  size_t* spent_ = &spents_[kOther];
  std::string problem_;
};

// Where the objects are in a text.
struct Place {
  int depth = 0;          // containers around each
  absl::string_view key;  // of the field that holds them, if the depth is above 0
};

// Thread-compatible.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  Reader(const Place& place, absl::FunctionRef<void(ReadValue)> on_value)
      : place_(place), on_value_(on_value) {}

  Json TakeEnvelope() { return envelope_.Take().json; }

  bool null() override { return OnScalar(nullptr); }
  bool boolean(bool value) override { return OnScalar(value); }
  bool number_integer(int64_t value) override { return OnScalar(value); }
  bool number_unsigned(uint64_t value) override { return OnScalar(value); }
  bool number_float(double value, const std::string& /*text*/) override { return OnScalar(value); }
  bool string(std::string& value) override {
    const size_t bytes = value.size();
    return OnScalar(std::move(value), bytes);
  }
  bool binary(Json::binary_t& /*value*/) override { return false; }  // not in JSON
  bool start_object(size_t /*size*/) override { return OnOpen(Json::object()); }
  bool end_object() override { return OnClose(); }
  bool start_array(size_t /*size*/) override {
    if (depth_ == 1 && place_.depth == 2 && is_at_key_) is_in_list_ = true;
    return OnOpen(Json::array());
  }
  bool end_array() override { return OnClose(); }
  bool key(std::string& name) override {
    if (depth_ == 1) is_at_key_ = name == place_.key;
    Target().Key(name);
    return true;
  }
  bool parse_error(size_t /*position*/,
                   const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    return false;
  }

 private:
  ValueBuilder& Target() { return value_ ? *value_ : envelope_; }

  void BeginValue() {
    if (value_ || depth_ != place_.depth) return;
    const bool is_here = depth_ == 0 || (depth_ == 1 && is_at_key_) || is_in_list_;
    if (is_here) value_.emplace();
  }
  bool EndValue() {
    if (depth_ == 1) is_in_list_ = false;
    if (!value_ || depth_ != place_.depth) return true;
    on_value_(value_->Take());
    value_.reset();
    return true;
  }

  bool OnScalar(Json value, size_t text_bytes = 0) {
    BeginValue();
    Target().Scalar(std::move(value), text_bytes);
    return EndValue();
  }
  bool OnOpen(Json container) {
    BeginValue();
    Target().Open(std::move(container));
    ++depth_;
    return true;
  }
  bool OnClose() {
    --depth_;
    Target().Close();
    return EndValue();
  }

  const Place place_;
  const absl::FunctionRef<void(ReadValue)> on_value_;
  ValueBuilder envelope_;
  std::optional<ValueBuilder> value_;  // being read
  int depth_ = 0;                      // open containers
  bool is_at_key_ = false;             // the last field of the text is place_.key
  bool is_in_list_ = false;            // of the objects
};

bool Parse(absl::string_view text, Reader& reader) {
  return Json::sax_parse(text.begin(), text.end(), &reader);
}

}  // namespace

std::optional<ReadValue> ReadJson(absl::string_view text) {
  std::optional<ReadValue> read;
  const auto keep = [&](ReadValue value) { read = std::move(value); };
  Reader reader({}, keep);
  if (!Parse(text, reader)) return std::nullopt;
  return read;
}

std::optional<Json> ReadEnvelope(absl::string_view text,
                                 absl::string_view key,
                                 Holds holds,
                                 absl::FunctionRef<void(ReadValue)> on_value) {
  Reader reader({.depth = holds == Holds::kList ? 2 : 1, .key = key}, on_value);
  if (!Parse(text, reader)) return std::nullopt;
  return reader.TakeEnvelope();
}

}  // namespace pushpull_operator
