// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/nvidia_smi.h"

#include <algorithm>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "runtime/plan/quantity.h"

namespace pushpull {
namespace {

constexpr int kLinksOfAGpuMax = 18;  // H100 and later; earlier GPUs have fewer
constexpr double kLinkBandwidth = 25e9;

// Headers are always underlined, even if the output is no terminal: ESC [ 4 m.
std::string WithoutEscapes(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain.push_back(text[i]);
      continue;
    }
    while (i < text.size() && !absl::ascii_isalpha(static_cast<unsigned char>(text[i]))) ++i;
  }
  return plain;
}

// "GPU12"; not "GPU NUMA ID".
bool IsGpu(absl::string_view word) {
  int number = 0;
  return absl::ConsumePrefix(&word, "GPU") && absl::SimpleAtoi(word, &number);
}

int LinksOf(absl::string_view cell) {
  int links = 0;
  return absl::ConsumePrefix(&cell, "NV") && absl::SimpleAtoi(cell, &links) ? std::max(links, 0)
                                                                            : 0;
}

// The cells of each GPU's row, only those for GPUs.
std::vector<std::vector<int>> ReadMatrix(absl::string_view matrix) {
  std::vector<std::vector<int>> rows;
  const std::string plain = WithoutEscapes(matrix);
  for (const absl::string_view line : absl::StrSplit(plain, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    // The header also begins with a GPU, but only a row has an X, at the GPU itself.
    if (words.empty() || !IsGpu(words[0]) || !absl::c_linear_search(words, "X")) continue;
    std::vector<int>& row = rows.emplace_back();
    for (size_t i = 1; i < words.size(); ++i) row.push_back(LinksOf(words[i]));
  }
  for (std::vector<int>& row : rows) row.resize(rows.size(), 0);
  return rows;
}

std::optional<double> ReadLinkBandwidth(absl::string_view status) {
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, ": ");
    if (parts.size() != 2 || !absl::StartsWith(absl::StripAsciiWhitespace(parts[0]), "Link "))
      continue;
    if (const std::optional<double> found = ParseBandwidth(absl::StripAsciiWhitespace(parts[1])))
      return found;
  }
  return std::nullopt;
}

}  // namespace

SmiLinks ReadSmi(absl::string_view matrix, absl::string_view status) {
  const std::vector<std::vector<int>> rows = ReadMatrix(matrix);
  SmiLinks found{.gpus = static_cast<int>(rows.size())};
  NvLinks nvlink;
  bool is_even = true;
  int count = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = i + 1; j < rows.size(); ++j) {
      const int links = rows[i][j];
      if (i == 0 && j == 1) count = links;
      is_even = is_even && links == count;
      if (links > 0) nvlink.pairs.push_back({static_cast<int>(i), static_cast<int>(j), links});
    }
  }
  if (nvlink.pairs.empty()) return found;
  if (is_even && (found.gpus - 1) * count > kLinksOfAGpuMax) {
    nvlink.pairs.clear();
    nvlink.links_to_switch = count;
    found.notes.push_back(absl::StrCat("each GPU has ",
                                       count,
                                       " NVLinks to every other one: they are taken for links to "
                                       "NVSwitches"));
  }
  const std::optional<double> bandwidth = ReadLinkBandwidth(status);
  nvlink.bandwidth = bandwidth.value_or(kLinkBandwidth);
  if (!bandwidth) {
    found.notes.push_back(absl::StrCat("the bandwidth of an NVLink is not known, ",
                                       FormatBandwidth(kLinkBandwidth),
                                       " is taken; machine.nvlink.bandwidth corrects it"));
  }
  found.nvlink = std::move(nvlink);
  return found;
}

}  // namespace pushpull
