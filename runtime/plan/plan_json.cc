// SPDX-License-Identifier: Apache-2.0
//
// A plan for programs; see plan.h.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include <nlohmann/json.hpp>

#include "runtime/plan/parse_topology.h"
#include "runtime/plan/plan.h"

namespace pushpull {
namespace {

using nlohmann::json;

std::string Text(absl::string_view text) {
  return std::string(text);
}

json ToJson(const Strategy& strategy) {
  json bytes = json::object();
  json links = json::array();
  for (const LinkUse& use : strategy.links) {
    bytes[Text(KeyOf(use.kind))] = use.bytes;
    links.push_back({{"kind", Text(KeyOf(use.kind))},
                     {"name", use.name},
                     {"bytes", use.bytes},
                     {"bytes_per_second", use.bandwidth},
                     {"seconds", use.seconds}});
  }
  json figures = json::array();
  for (const Figure& figure : strategy.schedule.figures)
    figures.push_back({{"text", figure.text}, {"seconds", figure.seconds}});
  return {{"name", strategy.schedule.name},
          {"title", strategy.schedule.title},
          {"seconds", strategy.seconds},
          {"streamed_seconds", strategy.streamed_seconds},
          {"bytes_per_link", bytes},
          {"links", links},
          {"sums", Text(NameOf(strategy.schedule.runner))},
          {"formula", strategy.schedule.formula},
          {"figures", figures},
          {"source", strategy.schedule.source}};
}

json ToJson(const BreakEvenPoint& point) {
  json from_workers;
  if (point.from_workers) from_workers = *point.from_workers;
  return {{"step_seconds", point.step_seconds},
          {"pays", point.pays},
          {"from_workers", from_workers},
          {"from_batch", point.from_batch}};
}

json ToJson(const BreakEven& found) {
  return {{"compute_seconds", found.compute_seconds},
          {"batch", found.batch},
          {"workers", found.workers},
          {"strategy", found.strategy},
          {"sync_seconds", found.sync_seconds},
          {"in_turn", ToJson(found.in_turn)},
          {"overlapped", ToJson(found.overlapped)}};
}

}  // namespace

std::string ToJson(const Plan& plan) {
  json strategies = json::array();
  for (const Strategy& strategy : plan.strategies) strategies.push_back(ToJson(strategy));
  json fields = json::object();
  for (const ManifestField& field : plan.recommendation.fields)
    fields[field.path] = json::parse(field.value, nullptr, false);
  for (const ManifestField& field : plan.recommendation.fields) {
    if (fields[field.path].is_discarded()) fields[field.path] = field.value;
  }
  const json whole = {{"topology", plan.topology.name},
                      {"yaml", ToYaml(plan.topology)},
                      {"bytes", plan.bytes},
                      {"gpus", plan.topology.machine.gpus},
                      {"workers", NumWorkers(plan.topology)},
                      {"servers", NumServerMachines(plan.topology)},
                      {"strategies", strategies},
                      {"drawing", plan.drawing},
                      {"break_even", plan.break_even ? ToJson(*plan.break_even) : json()},
                      {"recommended",
                       {{"strategy", plan.recommendation.strategy},
                        {"fields", fields},
                        {"notes", plan.recommendation.notes}}}};
  return absl::StrCat(whole.dump(2, ' ', false, json::error_handler_t::replace), "\n");
}

}  // namespace pushpull
