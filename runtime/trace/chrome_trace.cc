// SPDX-License-Identifier: Apache-2.0
#include "runtime/trace/chrome_trace.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

#include "runtime/trace/clock_alignment.h"

namespace pushpull {
namespace {

// A bar in the picture; times are nanoseconds of the common clock.
struct Slice {
  std::string name;
  const char* category;
  int64_t begin = 0;
  int64_t end = 0;
  Step step;
  uint32_t track = 0;
};

// Index of a slice within one of a process's groups of tracks.
struct Place {
  uint32_t process = 0;
  uint32_t group = 0;
  size_t slice = 0;
};

// Slices of one kind in one process. Overlapping slices go to separate tracks.
struct Group {
  const char* name;
  std::vector<Slice> slices;

  size_t Add(Slice slice) {
    slices.push_back(std::move(slice));
    return slices.size() - 1;
  }

  // Returns the number of tracks.
  uint32_t AssignTracks() {
    std::vector<Slice*> by_begin;
    for (Slice& slice : slices) by_begin.push_back(&slice);
    std::ranges::stable_sort(by_begin, {}, &Slice::begin);
    std::vector<int64_t> ends;
    for (Slice* slice : by_begin) {
      const auto is_free = [slice](int64_t end) { return end <= slice->begin; };
      const auto free = std::ranges::find_if(ends, is_free);
      slice->track = static_cast<uint32_t>(free - ends.begin());
      if (free == ends.end()) ends.emplace_back();
      ends[slice->track] = slice->end;
    }
    return static_cast<uint32_t>(ends.size());
  }
};

struct Process {
  std::string name;
  std::vector<Group> groups;
};

// Groups of a worker.
constexpr uint32_t kSteps = 0;
constexpr uint32_t kProgram = 1;
constexpr uint32_t kPush = 2;
constexpr uint32_t kAnswer = 3;
// Groups of a server.
constexpr uint32_t kWork = 0;
// The ids of a group's tracks are below those of the next group.
constexpr uint32_t kTracksOfGroup = 10'000;

class Picture {
 public:
  explicit Picture(const std::vector<TraceReport>& reports) : clocks_(AlignClocks(reports)) {
    for (const TraceReport& report : reports) {
      number_ = report.number;
      workers_.emplace(report.worker, 0);
      for (const TracedClock& clock : report.clocks) servers_.emplace(clock.server, 0);
      for (const TracedTensor& tensor : report.tensors)
        tensors_.emplace(tensor.first_chunk, tensor.name);
    }
    for (auto& [worker, process] : workers_) {
      process = static_cast<uint32_t>(processes_.size());
      processes_.push_back(
          {ToString(worker), {{"steps", {}}, {"program", {}}, {"push", {}}, {"answer", {}}}});
    }
    for (auto& [server, process] : servers_) {
      process = static_cast<uint32_t>(processes_.size());
      processes_.push_back({ToString(server), {{"work", {}}}});
    }
    for (const TraceReport& report : reports) Add(report);
    AddSteps();
  }

  std::string Write(absl::string_view job) {
    const nlohmann::json about = {{"job", std::string(job)},
                                  {"trace_id", std::to_string(number_)},
                                  {"left_out", left_out_},
                                  {"clock_offset_seconds", Clocks()}};
    std::string text =
        absl::StrCat(R"({"displayTimeUnit":"ms","otherData":)", Dump(about), ",\"traceEvents\":[");
    begin_ = std::numeric_limits<int64_t>::max();
    for (const Process& process : processes_)
      for (const Group& group : process.groups)
        for (const Slice& slice : group.slices) begin_ = std::min(begin_, slice.begin);
    for (uint32_t process = 0; process < processes_.size(); ++process) WriteProcess(process, text);
    for (size_t id = 0; id < flows_.size(); ++id) WriteFlow(id, text);
    if (text.back() == ',') text.pop_back();
    text += "]}\n";
    return text;
  }

 private:
  void Add(const TraceReport& report) {
    const uint32_t process = workers_.at(report.worker);
    const int64_t clock =
        clocks_.workers.contains(report.worker) ? clocks_.workers.at(report.worker) : 0;
    left_out_ += report.left_out;
    for (const TracedSpan& span : report.spans) {
      processes_[process].groups[kProgram].Add({.name = span.name,
                                                .category = "program",
                                                .begin = span.begin - clock,
                                                .end = After(span.begin, span.end) - clock});
    }
    for (const TracedPush& push : report.pushes) Add(report.worker, push, clock);
  }

  void Add(WorkerId worker, const TracedPush& push, int64_t clock) {
    const uint32_t process = workers_.at(worker);
    const std::string name = NameOf(push.chunk);
    const auto put = [&](uint32_t group, const char* category, int64_t begin, int64_t end) {
      return Place{process,
                   group,
                   processes_[process].groups[group].Add({.name = name,
                                                          .category = category,
                                                          .begin = begin - clock,
                                                          .end = After(begin, end) - clock,
                                                          .step = push.step})};
    };
    Span& step = steps_[{worker, push.step}];
    step.begin = std::min(step.begin, push.ready - clock);
    step.end = std::max(step.end, push.applied - clock);
    const Place sent = put(kPush, "push", push.taken_up, push.sent);
    const auto [sum, optimize] = AddToServer(push, name);
    flows_.push_back({sent, sum, optimize, put(kAnswer, "answer", push.received, push.applied)});
  }

  std::pair<Place, Place> AddToServer(const TracedPush& push, const std::string& name) {
    const uint32_t process = servers_.at(push.server);
    const int64_t clock = clocks_.servers.at(push.server);
    Group& work = processes_[process].groups[kWork];
    const int64_t taken_up = push.received_at + push.server_queue_ns - clock;
    const size_t sum = work.Add({.name = absl::StrCat("sum ", name),
                                 .category = "sum",
                                 .begin = taken_up,
                                 .end = taken_up + std::max<int64_t>(push.sum_ns, 1),
                                 .step = push.step});
    const auto [known, is_new] =
        optimized_.emplace(std::tuple(push.server, push.chunk, push.step), work.slices.size());
    if (is_new) {
      const int64_t begin = push.published_at - push.replicate_ns - push.optimize_ns - clock;
      work.Add({.name = absl::StrCat("optimize ", name),
                .category = "optimize",
                .begin = begin,
                .end = begin + std::max<int64_t>(push.optimize_ns, 1),
                .step = push.step});
    }
    return {Place{process, kWork, sum}, Place{process, kWork, known->second}};
  }

  // A step ends when all its chunks are back; then computation of the next one begins.
  void AddSteps() {
    std::map<WorkerId, int64_t> ends;
    for (const auto& [key, span] : steps_) {
      const auto& [worker, step] = key;
      Group& group = processes_[workers_.at(worker)].groups[kSteps];
      const auto before = ends.find(worker);
      const int64_t begin =
          before == ends.end() ? span.begin : std::min(before->second, span.begin);
      group.Add({absl::StrCat("step ", step.value()), "step", begin, span.end, step});
      if (begin < span.begin) group.Add({"compute", "step", begin, span.begin, step});
      group.Add({"synchronize", "step", span.begin, span.end, step});
      ends[worker] = span.end;
    }
  }

  std::string NameOf(ChunkId chunk) const {
    const auto next = tensors_.upper_bound(chunk);
    if (next == tensors_.begin()) return absl::StrCat("chunk ", chunk.value());
    const auto& [first, name] = *std::prev(next);
    return absl::StrCat(name, "[", chunk.value() - first.value(), "]");
  }

  // Viewers draw no arrow to a slice without width.
  static int64_t After(int64_t begin, int64_t end) { return std::max(end, begin + 1); }

  double Microseconds(int64_t time) const { return static_cast<double>(time - begin_) / 1000; }

  void WriteProcess(uint32_t index, std::string& text) {
    Process& process = processes_[index];
    Metadata(index, 0, "process_name", {{"name", process.name}}, text);
    Metadata(index, 0, "process_sort_index", {{"sort_index", index}}, text);
    for (uint32_t i = 0; i < process.groups.size(); ++i) {
      Group& group = process.groups[i];
      // The slices of a step are nested.
      const bool is_nested = std::string_view(group.name) == "steps";
      const uint32_t tracks = is_nested ? 1 : group.AssignTracks();
      for (uint32_t track = 0; track < tracks; ++track) {
        const uint32_t id = i * kTracksOfGroup + track;
        const std::string name =
            tracks == 1 ? group.name : absl::StrCat(group.name, " ", track + 1);
        Metadata(index, id, "thread_name", {{"name", name}}, text);
        Metadata(index, id, "thread_sort_index", {{"sort_index", id}}, text);
      }
      for (const Slice& slice : group.slices) {
        nlohmann::json event = Event("X", slice.name, slice.category, slice.begin, index);
        event["tid"] = i * kTracksOfGroup + slice.track;
        event["dur"] = static_cast<double>(slice.end - slice.begin) / 1000;
        if (i != kProgram || process.groups.size() == 1)
          event["args"] = {{"step", slice.step.value()}};
        Append(event, text);
      }
    }
  }

  void WriteFlow(size_t id, std::string& text) const {
    static constexpr const char* kPhases[] = {"s", "t", "t", "f"};
    for (size_t i = 0; i < 4; ++i) {
      const Place& place = flows_[id][i];
      const Slice& slice = processes_[place.process].groups[place.group].slices[place.slice];
      nlohmann::json event = Event(kPhases[i], "push", "flow", slice.begin, place.process);
      event["tid"] = place.group * kTracksOfGroup + slice.track;
      event["id"] = id;
      event["bp"] = "e";  // binds to the enclosing slice
      Append(event, text);
    }
  }

  nlohmann::json Event(const char* phase,
                       const std::string& name,
                       const char* category,
                       int64_t begin,
                       uint32_t process) const {
    return {{"ph", phase},
            {"name", name},
            {"cat", category},
            {"ts", Microseconds(begin)},
            {"pid", process + 1}};
  }

  static void Metadata(uint32_t process,
                       uint32_t track,
                       const char* name,
                       const nlohmann::json& args,
                       std::string& text) {
    Append({{"ph", "M"}, {"name", name}, {"pid", process + 1}, {"tid", track}, {"args", args}},
           text);
  }

  // How far each process's own clock was ahead of the common clock of the events.
  nlohmann::json Clocks() const {
    nlohmann::json clocks = nlohmann::json::object();
    for (const auto& [worker, offset] : clocks_.workers)
      clocks[ToString(worker)] = static_cast<double>(offset) / 1e9;
    for (const auto& [server, offset] : clocks_.servers)
      clocks[ToString(server)] = static_cast<double>(offset) / 1e9;
    return clocks;
  }

  static std::string Dump(const nlohmann::json& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  static void Append(const nlohmann::json& event, std::string& text) {
    absl::StrAppend(&text, Dump(event), ",");
  }

  struct Span {
    int64_t begin = std::numeric_limits<int64_t>::max();
    int64_t end = std::numeric_limits<int64_t>::min();
  };

  const AlignedClocks clocks_;
  std::map<WorkerId, uint32_t> workers_;  // index of the process, as below
  std::map<ServerId, uint32_t> servers_;
  std::map<ChunkId, std::string> tensors_;  // by first chunk
  std::vector<Process> processes_;
  std::map<std::pair<WorkerId, Step>, Span> steps_;
  std::map<std::tuple<ServerId, ChunkId, Step>, size_t> optimized_;
  std::vector<std::array<Place, 4>> flows_;
  uint64_t number_ = 0;  // of the trace
  uint64_t left_out_ = 0;
  int64_t begin_ = 0;
};

}  // namespace

std::string ToChromeTrace(absl::string_view job, const std::vector<TraceReport>& reports) {
  return Picture(reports).Write(job);
}

}  // namespace pushpull
