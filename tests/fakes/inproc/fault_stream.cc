// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/inproc/fault_stream.h"

namespace pushpull {

std::vector<Arrival> FaultStream::Next(const InprocFaults& faults) {
  if (Draw() < faults.loss) return {};
  std::vector<Arrival> arrivals{DrawArrival(faults)};
  if (Draw() < faults.duplication) arrivals.push_back(DrawArrival(faults));
  return arrivals;
}

double FaultStream::Draw() {
  return static_cast<double>(random_() >> 11) * 0x1p-53;
}

Arrival FaultStream::DrawArrival(const InprocFaults& faults) {
  const auto part = [](double share, Duration whole) {
    return Duration(static_cast<Duration::rep>(share * static_cast<double>(whole.count())));
  };
  Arrival arrival{.delay = faults.delay_min + part(Draw(), faults.delay_max - faults.delay_min)};
  if (Draw() < faults.reordering) {
    arrival.is_held_back = true;
    // Never zero: later frames are to overtake it.
    arrival.delay += part(1 - Draw(), faults.reordering_delay_max);
  }
  return arrival;
}

}  // namespace pushpull
