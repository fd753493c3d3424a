// SPDX-License-Identifier: Apache-2.0
//
// Each field is named once, in a function Visit that both the reader and the writer use.
#include "operator/api/training_job_status.h"

#include <algorithm>
#include <utility>

#include "operator/kube/json_fields.h"

namespace pushpull_operator {
namespace {

constexpr std::pair<Phase, absl::string_view> kPhases[] = {
    {Phase::kPending, "Pending"},
    {Phase::kStarting, "Starting"},
    {Phase::kRunning, "Running"},
    {Phase::kScaling, "Scaling"},
    {Phase::kSuspended, "Suspended"},
    {Phase::kSucceeded, "Succeeded"},
    {Phase::kFailed, "Failed"},
};

void Visit(auto& visitor, Condition& condition) {
  visitor.Field("type", condition.type);
  visitor.Field("status", condition.status);
  visitor.Field("observedGeneration", condition.observed_generation);
  visitor.Field("lastTransitionTime", condition.last_transition);
  visitor.Field("reason", condition.reason);
  // The schema requires it, even if empty.
  visitor.Text("message", condition.message);
}

void Visit(auto& visitor, ServersStatus& servers) {
  visitor.Field("replicas", servers.replicas);
  visitor.Field("ready", servers.ready);
  visitor.Field("draining", servers.draining);
  visitor.Field("selector", servers.selector);
}

void Visit(auto& visitor, WorkersStatus& workers) {
  visitor.Field("replicas", workers.replicas);
  visitor.Field("ready", workers.ready);
  visitor.Field("succeeded", workers.succeeded);
  visitor.Field("selector", workers.selector);
}

void Visit(auto& visitor, CoordinatorStatus& coordinator) {
  visitor.Field("term", coordinator.term);
  visitor.Field("ready", coordinator.is_ready);
}

void Visit(auto& visitor, RingStatus& ring) {
  visitor.Field("epoch", ring.epoch);
  visitor.Field("state", ring.state);
}

void Visit(auto& visitor, LastRestart& last) {
  visitor.Field("pod", last.pod);
  visitor.Field("reason", last.reason);
  visitor.Field("exitCode", last.exit_code);
  visitor.Field("time", last.time);
  visitor.Field("message", last.message);
}

void Visit(auto& visitor, MemberRestart& member) {
  visitor.Field("pod", member.pod);
  visitor.Field("uid", member.uid);
  visitor.Field("counted", member.counted);
  visitor.Field("inARow", member.in_a_row);
  visitor.Field("nextAt", member.next_at);
  visitor.Field("lastEnd", member.last_end);
  visitor.Field("alike", member.alike);
  visitor.Field("leftOut", member.left_out);
}

void Visit(auto& visitor, RestartsStatus& restarts) {
  visitor.Field("counted", restarts.counted);
  visitor.Field("jobRestarts", restarts.job_counted);
  visitor.Field("disruptions", restarts.disruptions);
  visitor.Field("nextAt", restarts.next_at);
  visitor.Field("last", restarts.last);
  visitor.Field("members", restarts.members);
}

void Visit(auto& visitor, LastLoss& last) {
  visitor.Field("message", last.message);
  visitor.Field("time", last.time);
}

void Visit(auto& visitor, LossesStatus& losses) {
  visitor.Field("counted", losses.counted);
  visitor.Field("term", losses.term);
  visitor.Field("told", losses.told);
  visitor.Field("last", losses.last);
}

void Visit(auto& visitor, SavedCheckpoint& checkpoint) {
  visitor.Field("step", checkpoint.step);
  visitor.Field("time", checkpoint.time);
  visitor.Field("location", checkpoint.location);
}

void Visit(auto& visitor, ProgressStatus& progress) {
  visitor.Field("step", progress.step);
  visitor.Field("samplesPerSecond", progress.samples_per_second);
  visitor.Field("syncSecondsP50", progress.sync_seconds_p50);
  visitor.Field("syncSecondsP99", progress.sync_seconds_p99);
  visitor.Field("results", progress.results);
}

void Visit(auto& visitor, RuntimeStatus& runtime) {
  visitor.Field("name", runtime.name);
  visitor.Field("uid", runtime.uid);
  visitor.Field("generation", runtime.generation);
  visitor.Object("spec", runtime.spec);
}

void Visit(auto& visitor, TrainingJobStatus& status) {
  visitor.Field("observedGeneration", status.observed_generation);
  visitor.Field("phase", status.phase);
  visitor.Field("phaseTime", status.phase_time);
  visitor.Field("reason", status.reason);
  visitor.Field("duration", status.duration);
  visitor.Field("conditions", status.conditions);
  visitor.Field("servers", status.servers);
  visitor.Field("workers", status.workers);
  visitor.Field("coordinator", status.coordinator);
  visitor.Field("ring", status.ring);
  visitor.Field("restarts", status.restarts);
  visitor.Field("losses", status.losses);
  visitor.Field("checkpoint", status.checkpoint);
  visitor.Field("progress", status.progress);
  visitor.Field("runtime", status.runtime);
  visitor.Field("startTime", status.start_time);
  visitor.Field("suspendTime", status.suspend_time);
  visitor.Field("suspendedSeconds", status.suspended_seconds);
  visitor.Field("completionTime", status.completion_time);
}

class FieldReader {
 public:
  explicit FieldReader(const Json& json) : json_(json) {}

  void Field(absl::string_view key, auto& out) {
    if (const Json* value = Find(json_, key)) Read(*value, out);
  }
  void Text(absl::string_view key, std::string& out) { Field(key, out); }
  void Object(absl::string_view key, std::string& out) { out = ToText(ObjectField(json_, key)); }

  // Returns false, with `out` unchanged, if the JSON is of another type.
  static bool Read(const Json& json, auto& out) {
    if (!json.is_object()) return false;
    FieldReader reader(json);
    Visit(reader, out);
    return true;
  }

 private:
  static bool Read(const Json& json, std::string& out) {
    if (json.is_string()) out = json.get<std::string>();
    return json.is_string();
  }
  static bool Read(const Json& json, bool& out) {
    if (json.is_boolean()) out = json.get<bool>();
    return json.is_boolean();
  }
  static bool Read(const Json& json, int64_t& out) {
    const std::optional<int64_t> value = ToInt(json);
    out = value.value_or(out);
    return value.has_value();
  }
  static bool Read(const Json& json, WallTime& out) {
    const std::optional<WallTime> time =
        json.is_string() ? ParseWallTime(json.get<std::string>()) : std::nullopt;
    out = time.value_or(out);
    return time.has_value();
  }
  static bool Read(const Json& json, Phase& out) {
    const std::string name = json.is_string() ? json.get<std::string>() : "";
    const auto* named =
        std::ranges::find_if(kPhases, [&](const auto& phase) { return phase.second == name; });
    if (named != std::end(kPhases)) out = named->first;
    return named != std::end(kPhases);
  }
  template <typename T>
  static bool Read(const Json& json, std::optional<T>& out) {
    T value{};
    if (Read(json, value)) out = std::move(value);
    return out.has_value();
  }
  template <typename T>
  static bool Read(const Json& json, std::vector<T>& out) {
    if (!json.is_array()) return false;
    for (const Json& item : json) {
      T value{};
      if (Read(item, value)) out.push_back(std::move(value));
    }
    return true;
  }
  static bool Read(const Json& json, std::map<std::string, std::string>& out) {
    if (!json.is_object()) return false;
    for (const auto& [key, item] : json.items()) {
      if (std::string value; Read(item, value)) out[key] = std::move(value);
    }
    return true;
  }

  const Json& json_;
};

// Leaves out what is unset: empty strings, lists and maps, optionals without a value.
class FieldWriter {
 public:
  explicit FieldWriter(Json& json) : json_(json) {}

  void Field(absl::string_view key, auto& value) {
    Json written = Written(value);
    if (!written.is_null()) json_[std::string(key)] = std::move(written);
  }
  void Text(absl::string_view key, std::string& value) { json_[std::string(key)] = value; }
  void Object(absl::string_view key, std::string& value) {
    json_[std::string(key)] = ParseJson(value).value_or(Json::object());
  }

  static Json Written(auto& value) {
    Json object = Json::object();
    FieldWriter writer(object);
    Visit(writer, value);
    return object;
  }

 private:
  static Json Written(std::string& value) { return value.empty() ? Json() : Json(value); }
  static Json Written(bool& value) { return value; }
  static Json Written(int64_t& value) { return value; }
  static Json Written(WallTime& value) { return ToText(value); }
  static Json Written(Phase& value) { return std::string(NameOf(value)); }
  template <typename T>
  static Json Written(std::optional<T>& value) {
    return value ? Written(*value) : Json();
  }
  template <typename T>
  static Json Written(std::vector<T>& values) {
    Json list;
    for (T& value : values) list.push_back(Written(value));
    return list;
  }
  static Json Written(std::map<std::string, std::string>& values) {
    return values.empty() ? Json() : Json(values);
  }

  Json& json_;
};

// The merge patch (RFC 7386) from one object to another; empty if they are equal.
Json Difference(const Json& from, const Json& to) {
  Json patch = Json::object();
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key)) patch[key] = nullptr;
  }
  for (const auto& [key, value] : to.items()) {
    const Json* old = Find(from, key);
    if (old != nullptr && *old == value) continue;
    const bool is_inside = old != nullptr && old->is_object() && value.is_object();
    patch[key] = is_inside ? Difference(*old, value) : value;
  }
  return patch;
}

}  // namespace

const Condition* FindCondition(const std::vector<Condition>& conditions, absl::string_view type) {
  const auto found = std::ranges::find(conditions, type, &Condition::type);
  return found == conditions.end() ? nullptr : &*found;
}

bool IsTrue(const std::vector<Condition>& conditions, absl::string_view type) {
  const Condition* condition = FindCondition(conditions, type);
  return condition != nullptr && condition->status == kConditionTrue;
}

void SetCondition(std::vector<Condition>& conditions, Condition condition) {
  for (Condition& old : conditions) {
    if (old.type != condition.type) continue;
    if (old.status == condition.status) condition.last_transition = old.last_transition;
    old = std::move(condition);
    return;
  }
  conditions.push_back(std::move(condition));
}

absl::string_view NameOf(Phase phase) {
  for (const auto& [value, name] : kPhases) {
    if (value == phase) return name;
  }
  return "?";
}

TrainingJobStatus DecodeStatus(const Json& json) {
  TrainingJobStatus status;
  if (const Json* field = Find(json, "status")) FieldReader::Read(*field, status);
  return status;
}

std::string StatusPatchText(const TrainingJobStatus& from,
                            const TrainingJobStatus& to,
                            const std::string& resource_version) {
  TrainingJobStatus old = from;  // Visit takes no const
  TrainingJobStatus now = to;
  Json changes = Difference(FieldWriter::Written(old), FieldWriter::Written(now));
  if (changes.empty()) return "";
  Json patch;
  patch["metadata"]["resourceVersion"] = resource_version;
  patch["status"] = std::move(changes);
  return ToText(patch);
}

}  // namespace pushpull_operator
