// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/quantity.h"

#include <array>
#include <cmath>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pushpull {
namespace {

struct Unit {
  absl::string_view name;
  double factor;
};

constexpr std::array kBandwidthUnits = {Unit{"TB/s", 1e12},
                                        Unit{"GB/s", 1e9},
                                        Unit{"MB/s", 1e6},
                                        Unit{"kB/s", 1e3},
                                        Unit{"Tb/s", 1e12 / 8},
                                        Unit{"Gb/s", 1e9 / 8},
                                        Unit{"Mb/s", 1e6 / 8},
                                        Unit{"kb/s", 1e3 / 8}};
// "s" is last: every other unit ends with it.
constexpr std::array kTimeUnits = {
    Unit{"ns", 1e-9}, Unit{"us", 1e-6}, Unit{"ms", 1e-3}, Unit{"s", 1}};

// A number of at least 0 with one of the units.
std::optional<double> ParseWithUnit(absl::string_view text, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (!absl::EndsWith(text, unit.name)) continue;
    text.remove_suffix(unit.name.size());
    text = absl::StripTrailingAsciiWhitespace(text);
    // It must begin with a digit: the parser also accepts "inf", "nan" and signs.
    double number = 0;
    if (text.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(text[0]))) break;
    if (!absl::SimpleAtod(text, &number) || !std::isfinite(number)) break;
    return number * unit.factor;
  }
  return std::nullopt;
}

// Three significant digits, without trailing zeros.
std::string Short(double value) {
  return absl::StrFormat("%.*g", value < 1000 ? 3 : 4, value);
}

}  // namespace

std::optional<double> ParseBandwidth(absl::string_view text) {
  const std::optional<double> bandwidth = ParseWithUnit(text, kBandwidthUnits);
  // Less than a byte a second is a typing error, and so is more than 1 PB/s.
  return bandwidth && *bandwidth >= 1 && *bandwidth <= 1e15 ? bandwidth : std::nullopt;
}

std::optional<double> ParseLatency(absl::string_view text) {
  const std::optional<double> seconds = ParseWithUnit(text, kTimeUnits);
  return seconds && *seconds <= 1 ? seconds : std::nullopt;
}

std::string FormatBytes(double bytes) {
  if (bytes >= 999.5e9) return absl::StrCat(Short(bytes / 1e12), " TB");
  if (bytes >= 999.5e6) return absl::StrCat(Short(bytes / 1e9), " GB");
  if (bytes >= 999.5e3) return absl::StrCat(Short(bytes / 1e6), " MB");
  if (bytes >= 999.5) return absl::StrCat(Short(bytes / 1e3), " kB");
  return absl::StrCat(Short(bytes), " B");
}

std::string FormatBandwidth(double bytes) {
  return absl::StrCat(FormatBytes(bytes), "/s");
}

std::string FormatSeconds(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.2f s", seconds);
  if (seconds >= 0.1) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds >= 1e-3) return absl::StrFormat("%.1f ms", seconds * 1e3);
  return absl::StrFormat("%.1f us", seconds * 1e6);
}

}  // namespace pushpull
