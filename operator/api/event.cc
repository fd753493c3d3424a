// SPDX-License-Identifier: Apache-2.0
#include "operator/api/event.h"

#include "operator/api/lease.h"
#include "operator/kube/json_fields.h"
#include "runtime/job/training_job.h"

namespace pushpull_operator {
namespace {

constexpr char kController[] = "pushpull.dev/operator";
constexpr size_t kNoteBytesMax = 1024;  // of the API

// Truncates between characters.
std::string CutNote(const std::string& note) {
  if (note.size() <= kNoteBytesMax) return note;
  constexpr absl::string_view kMore = "...";
  size_t end = kNoteBytesMax - kMore.size();
  const auto continues = [&note](size_t i) {
    return (static_cast<unsigned char>(note[i]) & 0xC0U) == 0x80U;
  };
  while (end > 0 && continues(end)) --end;
  return note.substr(0, end) + std::string(kMore);
}

}  // namespace

std::string NewEventText(const ObjectKey& key,
                         const Event& event,
                         const ObjectMeta& regarding,
                         const std::string& reporter,
                         std::chrono::system_clock::time_point time) {
  Json object{{"apiVersion", "events.k8s.io/v1"}, {"kind", "Event"}};
  object["metadata"]["name"] = key.name;
  object["metadata"]["namespace"] = key.object_namespace;
  object["eventTime"] = MicroTimeText(time);
  object["type"] = event.kind == Event::Kind::kWarning ? "Warning" : "Normal";
  object["reason"] = event.reason;
  object["action"] = event.action;
  object["note"] = CutNote(event.note);
  object["reportingController"] = kController;
  object["reportingInstance"] = reporter;
  object["regarding"] = {{"apiVersion", pushpull::kTrainingJobApiVersion},
                         {"kind", pushpull::kTrainingJobKind},
                         {"name", regarding.key.name},
                         {"namespace", regarding.key.object_namespace},
                         {"uid", regarding.uid},
                         {"resourceVersion", regarding.resource_version}};
  return ToText(object);
}

std::string EventSeriesText(int count, std::chrono::system_clock::time_point time) {
  return ToText({{"series", {{"count", count}, {"lastObservedTime", MicroTimeText(time)}}}});
}

}  // namespace pushpull_operator
