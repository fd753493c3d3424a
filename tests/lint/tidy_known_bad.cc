// SPDX-License-Identifier: Apache-2.0
//
// Violations that clang-tidy must report, one for each family of checks in .clang-tidy; a
// configuration that is content with this file is broken (tests/lint/tidy.py). Never compiled.
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace pushpull {

int counter = 0;

class Shape {
 public:
  Shape(int sides) : sides_(sides) {}
  virtual ~Shape() { delete area_; }
  virtual int Sides() { return sides_; }

 private:
  int sides_;
  double* area_ = nullptr;
};

class Square : public Shape {
 public:
  Square() : Shape(4) {}
  virtual int Sides() { return 4; }
};

int Leak() {
  int* leaked = new int(3);
  return *leaked;
}

int TooManyParameters(int a, int b, int c, int d, int e, int f, int g) {
  return a + b + c + d + e + f + g;
}

unsigned long CopyAndUseAfterMove(const std::vector<std::string> names) {
  std::vector<std::string> mine = names;
  const std::vector<std::string> theirs = std::move(mine);
  int Unused = 0;
  if (theirs.size() == 0) return 0;
  return mine.size();
}

int Dereference(bool is_set) {
  int* value = is_set ? &counter : nullptr;
  if (getenv("VALUE") == nullptr) return *value;
  return is_set ? 1 : *value;
}

}  // namespace pushpull
