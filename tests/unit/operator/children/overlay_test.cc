// SPDX-License-Identifier: Apache-2.0
#include "operator/children/overlay.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pushpull_operator {
namespace {

using nlohmann::json;

TEST(OverlayTest, WhatIsNamedIsMergedByNameAndTheRestIsReplaced) {
  struct Row {
    const char* name;
    std::string base, overlay, expected;
  };
  for (const Row& row : {
           Row{"fields",
               R"({"a":1,"b":{"c":2}})",
               R"({"b":{"d":3}})",
               R"({"a":1,"b":{"c":2,"d":3}})"},
           Row{"null takes away", R"({"a":1,"b":2})", R"({"a":null,"x":null})", R"({"b":2})"},
           Row{"containers",
               R"({"containers":[{"name":"worker","image":"i"}]})",
               R"({"containers":[{"name":"worker","tty":true},{"name":"logs"}]})",
               R"({"containers":[{"name":"worker","image":"i","tty":true},{"name":"logs"}]})"},
           Row{"words", R"({"args":["a","b"]})", R"({"args":["c"]})", R"({"args":["c"]})"},
           Row{"tolerations",
               R"({"tolerations":[{"key":"a"}]})",
               R"({"tolerations":[{"key":"b"}]})",
               R"({"tolerations":[{"key":"a"},{"key":"b"}]})"},
           Row{"another kind", R"({"a":[{"name":"x"}]})", R"({"a":"text"})", R"({"a":"text"})"},
           Row{"new", R"({})", R"({"volumes":[{"name":"v"}]})", R"({"volumes":[{"name":"v"}]})"},
       }) {
    json base = json::parse(row.base);

    LayOver(json::parse(row.overlay), base);

    EXPECT_EQ(base, json::parse(row.expected)) << row.name;
  }
}

}  // namespace
}  // namespace pushpull_operator
