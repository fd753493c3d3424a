// SPDX-License-Identifier: Apache-2.0
#include "operator/children/overlay.h"

#include <algorithm>
#include <string>

#include "operator/kube/json_fields.h"

namespace pushpull_operator {
namespace {

bool IsNamedList(const Json& list) {
  return list.is_array() && std::all_of(list.begin(), list.end(), [](const Json& item) {
           return !StringField(item, "name").empty();
         });
}

void LayOverNamed(const Json& overlay, Json& base) {
  for (const Json& item : overlay) {
    const std::string name = StringField(item, "name");
    const auto same = std::find_if(base.begin(), base.end(), [&name](const Json& other) {
      return StringField(other, "name") == name;
    });
    if (same == base.end()) {
      base.push_back(item);
    } else {
      LayOver(item, *same);
    }
  }
}

}  // namespace

void LayOver(const Json& overlay, Json& base) {
  if (!overlay.is_object() || !base.is_object()) {
    base = overlay;
    return;
  }
  for (const auto& [key, value] : overlay.items()) {
    if (value.is_null()) {
      base.erase(key);
      continue;
    }
    Json& own = base[key];
    if (key == "tolerations" && own.is_array() && value.is_array()) {
      own.insert(own.end(), value.begin(), value.end());
    } else if (IsNamedList(own) && IsNamedList(value)) {
      LayOverNamed(value, own);
    } else {
      LayOver(value, own);
    }
  }
}

}  // namespace pushpull_operator
