// SPDX-License-Identifier: Apache-2.0
//
// One mistake for each sanitizer, chosen by the first argument. Each must end with an error under
// the options and suppressions of `./dev sanitize`, else those hide too much. No part of the build.
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace {

int shared = 0;

int Race() {
  std::thread other([] { shared = 1; });
  shared = 2;
  other.join();
  return shared;
}

// Through the C library, where TSAN_OPTIONS=ignore_noninstrumented_modules=1 would not look.
int CopyRace(size_t size) {
  const std::string source(size + 64, 'x');
  std::string target(size + 64, 'y');
  std::thread other([&] { std::memcpy(target.data(), source.data(), target.size()); });
  std::memcpy(target.data(), source.data(), target.size());
  other.join();
  return target.back();
}

int Overflow(size_t size) {
  const std::vector<char> text(size + 64);
  return text[size + 64];
}

int Leak() {
  void* volatile lost = new char[64];
  lost = nullptr;
  return lost == nullptr ? 0 : 1;
}

int Undefined(int value) {
  return std::numeric_limits<int>::max() + value;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mistake = argc > 1 ? argv[1] : "";
  const auto size = static_cast<size_t>(argc);
  volatile int result = 0;  // so that no mistake is optimised away
  if (mistake == "race") result = Race();
  if (mistake == "copy-race") result = CopyRace(size);
  if (mistake == "overflow") result = Overflow(size);
  if (mistake == "leak") result = Leak();
  if (mistake == "undefined") result = Undefined(argc);
  return 0;
}
