// SPDX-License-Identifier: Apache-2.0
//
// Plain structs <-> protobuf messages, through one list of fields per struct:
//
//   PUSHPULL_WIRE(ViewAnswer, F(number), F(is_accepted), F(lowest_free_step));
//
// Encode and Decode below walk the list with protobuf's reflection, so a field is named once and
// everything that a peer sends is checked here: ids and enumerators in range, lists of bounded
// length, texts in UTF-8. Types: integers, double, bool, std::string, Id, enumerations that have an
// IsKnown, Duration (milliseconds), structs with a list of their own, std::optional (a field with
// presence), std::vector and std::array (a repeated field), std::variant of structs (a oneof), and
// types with a Surrogate.
//
// If a list names a field that the message does not have, or that has another type, the first
// message of that kind aborts the process. tests/unit/runtime/membership/control_proto_test.cc
// converts all of them.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "pushpull/deadline.h"

#include "runtime/base/check.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"

namespace pushpull::wire {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// kName is the name of the message type, kFields a std::tuple of Field, Joined and Inline.
template <typename Struct>
struct Wire;

#define PUSHPULL_WIRE(Struct, ...)                                       \
  template <>                                                            \
  struct Wire<Struct> {                                                  \
    using T = Struct;                                                    \
    [[maybe_unused]] static constexpr absl::string_view kName = #Struct; \
    static constexpr auto kFields = std::tuple(__VA_ARGS__);             \
  }
#define PUSHPULL_WIRE_FIELD(member) Field(#member, &T::member)

// What is sent in place of a T: `Type`, a struct with a list of fields or a vector of such, with
// the conversions From(T) and To(Type).
template <typename T>
struct Surrogate;

// The maximum length of a list of T from a peer.
template <typename T>
inline constexpr int kCountMax = 0;

template <typename T>
inline constexpr bool kIsId = false;
template <typename Tag, typename Integer>
inline constexpr bool kIsId<Id<Tag, Integer>> = true;

template <typename T>
inline constexpr int kListMax = 0;  // above 0: T is a list
template <typename T>
inline constexpr int kListMax<std::vector<T>> = kCountMax<T>;
template <typename T, size_t N>
inline constexpr int kListMax<std::array<T, N>> = static_cast<int>(N);

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

template <typename T>
inline constexpr bool kIsVariant = false;
template <typename... T>
inline constexpr bool kIsVariant<std::variant<T...>> = true;

template <typename T>
concept HasFields = requires {
  Wire<T>::kFields;
};
template <typename T>
concept HasSurrogate = requires {
  typename Surrogate<T>::Type;
};

// Sets the field, or appends to it if it is repeated.
template <typename T>
void Encode(const T& value, Message& message, const FieldDescriptor* field);
template <typename T>
absl::Status Decode(const Message& message, const FieldDescriptor* field, int count_max, T& out);

// All fields of the struct's list.
template <typename T>
void EncodeFields(const T& value, Message& message);
template <typename T>
absl::Status DecodeFields(const Message& message, T& out);

// The oneof `name`, whose alternatives are messages named like the variant's types.
template <typename... T>
void EncodeOneof(const std::variant<T...>& variant, const char* name, Message& message);
template <typename... T>
absl::Status DecodeOneof(const Message& message, const char* name, std::variant<T...>& out);

// "name.inner: why" of "inner: why", "name[3]: why" of "[3]: why", "name: why" of ": why".
inline absl::Status Inside(absl::string_view name, const absl::Status& status) {
  const absl::string_view text = status.message();
  const bool has_mark = text.empty() || text[0] == ':' || text[0] == '[';
  return absl::InvalidArgumentError(absl::StrCat(name, has_mark ? "" : ".", text));
}

// ---- entries of a struct's list ----

template <typename Struct, typename Member>
struct Field {
  constexpr Field(const char* its_name,
                  Member Struct::*its_member,
                  int its_count_max = kListMax<Member>)
      : name(its_name), member(its_member), count_max(its_count_max) {}

  // If the message lacks this field, keeps the struct's default. Otherwise an absent message reads
  // as an empty one.
  constexpr Field OrDefault() const {
    Field copy = *this;
    copy.has_default = true;
    return copy;
  }

  void Write(const Struct& value, Message& message, const FieldDescriptor* field) const {
    if constexpr (kIsVariant<Member>) {
      EncodeOneof(value.*member, name, message);
    } else {
      Encode(value.*member, message, field);
    }
  }
  absl::Status Read(const Message& message, const FieldDescriptor* field, Struct& out) const {
    if constexpr (kIsVariant<Member>) {
      return DecodeOneof(message, name, out.*member);
    } else {
      if (has_default && !message.GetReflection()->HasField(message, field))
        return absl::OkStatus();
      const absl::Status status = Decode(message, field, count_max, out.*member);
      return status.ok() ? status : Inside(name, status);
    }
  }

  const char* name;
  Member Struct::*member;
  int count_max;
  bool has_default = false;
};

// Two members that form one message: a std::pair of their types has the list of fields.
template <typename Struct, typename First, typename Second>
struct Joined {
  constexpr Joined(const char* its_name, First Struct::*its_first, Second Struct::*its_second)
      : name(its_name), first(its_first), second(its_second) {}

  void Write(const Struct& value, Message& message, const FieldDescriptor* field) const {
    Encode(std::pair(value.*first, value.*second), message, field);
  }
  absl::Status Read(const Message& message, const FieldDescriptor* field, Struct& out) const {
    std::pair<First, Second> both;
    const absl::Status status = Decode(message, field, 0, both);
    std::tie(out.*first, out.*second) = std::move(both);
    return status.ok() ? status : Inside(name, status);
  }

  const char* name;
  First Struct::*first;
  Second Struct::*second;
};

// A member whose fields are fields of the message itself.
template <typename Struct, typename Member>
struct Inline {
  constexpr explicit Inline(Member Struct::*its_member) : member(its_member) {}

  void Write(const Struct& value, Message& message, const FieldDescriptor* /*field*/) const {
    EncodeFields(value.*member, message);
  }
  absl::Status Read(const Message& message, const FieldDescriptor* /*field*/, Struct& out) const {
    return DecodeFields(message, out.*member);
  }

  static constexpr const char* name = "";
  Member Struct::*member;
};

// ---- scalars ----

// Protobuf's accessors of a scalar type.
template <typename Scalar>
struct Access;

#define PUSHPULL_WIRE_ACCESS(Scalar, Name)                               \
  template <>                                                            \
  struct Access<Scalar> {                                                \
    static constexpr auto kSet = &Reflection::Set##Name;                 \
    static constexpr auto kAdd = &Reflection::Add##Name;                 \
    static constexpr auto kGet = &Reflection::Get##Name;                 \
    static constexpr auto kGetRepeated = &Reflection::GetRepeated##Name; \
  }
PUSHPULL_WIRE_ACCESS(bool, Bool);
PUSHPULL_WIRE_ACCESS(int32_t, Int32);
PUSHPULL_WIRE_ACCESS(int64_t, Int64);
PUSHPULL_WIRE_ACCESS(uint32_t, UInt32);
PUSHPULL_WIRE_ACCESS(uint64_t, UInt64);
PUSHPULL_WIRE_ACCESS(double, Double);
PUSHPULL_WIRE_ACCESS(std::string, String);
#undef PUSHPULL_WIRE_ACCESS

template <typename T>
auto ToScalar(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<uint32_t>(value);
  } else if constexpr (std::is_same_v<T, Duration>) {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(value).count());
  } else if constexpr (std::is_same_v<T, std::string>) {
    // Protobuf does not parse a string field that is not UTF-8: one invalid byte in an error text
    // would end the session.
    return ReplaceInvalidUtf8(value);
  } else if constexpr (kIsId<T>) {
    return value.value();
  } else {
    return value;
  }
}

template <typename T, typename Scalar>
absl::Status FromScalar(Scalar scalar, T& out) {
  if constexpr (std::is_enum_v<T>) {
    out = static_cast<T>(scalar);
    // Checks the number as well: 257 is 1 in an enumeration of one byte.
    if (scalar > 255 || !IsKnown(out))
      return absl::InvalidArgumentError(absl::StrCat(": ", scalar, " is not known"));
  } else if constexpr (std::is_same_v<T, Duration>) {
    // More would overflow the nanoseconds of a Duration.
    out = std::chrono::milliseconds(std::min<uint64_t>(scalar, 1'000'000'000));
  } else if constexpr (kIsId<T>) {
    out = T{scalar};
  } else {
    out = std::move(scalar);
  }
  if constexpr (requires { CheckForm(out); }) return CheckForm(out);
  return absl::OkStatus();
}

// ---- fields ----

// Calls visit(entry, descriptor) for each entry of T's list until one fails. The descriptors are
// looked up once: a T is always sent as the same type of message.
template <typename T, typename Visit>
absl::Status VisitFields(const Message& message, const Visit& visit) {
  const auto visit_all = [&](const auto&... entries) {
    [[maybe_unused]] const auto& type = *message.GetDescriptor();
    static const std::array<const FieldDescriptor*, sizeof...(entries)> fields{
        type.FindFieldByName(entries.name)...};
    [[maybe_unused]] auto field = fields.begin();
    absl::Status status;
    static_cast<void>(((status = visit(entries, *field++)).ok() && ...));
    return status;
  };
  return std::apply(visit_all, Wire<T>::kFields);
}

template <typename T>
void EncodeFields(const T& value, Message& message) {
  static_cast<void>(VisitFields<T>(message, [&](const auto& entry, const FieldDescriptor* field) {
    entry.Write(value, message, field);
    return absl::OkStatus();
  }));
}

template <typename T>
absl::Status DecodeFields(const Message& message, T& out) {
  PUSHPULL_RETURN_IF_ERROR(
      VisitFields<T>(message, [&](const auto& entry, const FieldDescriptor* field) {
        return entry.Read(message, field, out);
      }));
  if constexpr (requires { CheckForm(out); }) return CheckForm(out);
  return absl::OkStatus();
}

template <typename... T>
void EncodeOneof(const std::variant<T...>& variant, const char* name, Message& message) {
  const auto& oneof = *message.GetDescriptor()->FindOneofByName(name);
  const auto encode = [&]<typename Alternative>(const Alternative& value) {
    int i = 0;
    while (oneof.field(i)->message_type()->name() != Wire<Alternative>::kName) ++i;
    EncodeFields(value, *message.GetReflection()->MutableMessage(&message, oneof.field(i)));
  };
  std::visit(encode, variant);
}

template <typename... T>
absl::Status DecodeOneof(const Message& message, const char* name, std::variant<T...>& out) {
  const Reflection& reflection = *message.GetReflection();
  const FieldDescriptor* field =
      reflection.GetOneofFieldDescriptor(message, message.GetDescriptor()->FindOneofByName(name));
  if (field == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(name, ": has no known kind"));
  const Message& inner = reflection.GetMessage(message, field);
  absl::Status status;
  const auto decode = [&]<typename Alternative>(Alternative value) {
    if (field->message_type()->name() != Wire<Alternative>::kName) return false;
    status = DecodeFields(inner, value);
    out = std::move(value);
    return true;
  };
  PUSHPULL_CHECK((decode(T{}) || ...));
  return status.ok() ? status : Inside(field->name(), status);
}

template <typename T>
void Encode(const T& value, Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  if constexpr (kIsOptional<T>) {
    if (value) Encode(*value, message, field);
  } else if constexpr (kListMax<T> > 0) {
    for (const auto& element : value) Encode(element, message, field);
  } else if constexpr (HasSurrogate<T>) {
    Encode(Surrogate<T>::From(value), message, field);
  } else if constexpr (HasFields<T>) {
    EncodeFields(value,
                 field->is_repeated() ? *reflection.AddMessage(&message, field)
                                      : *reflection.MutableMessage(&message, field));
  } else {
    using Scalar = decltype(ToScalar(value));
    const auto put = field->is_repeated() ? Access<Scalar>::kAdd : Access<Scalar>::kSet;
    (reflection.*put)(&message, field, ToScalar(value));
  }
}

// One value: the element `index`, or the whole field if that is -1.
template <typename T>
absl::Status DecodeOne(const Message& message, const FieldDescriptor* field, int index, T& out) {
  const Reflection& reflection = *message.GetReflection();
  if constexpr (HasSurrogate<T>) {
    typename Surrogate<T>::Type surrogate;
    PUSHPULL_RETURN_IF_ERROR(DecodeOne(message, field, index, surrogate));
    out = Surrogate<T>::To(surrogate);
    return absl::OkStatus();
  } else if constexpr (HasFields<T>) {
    return DecodeFields(index < 0 ? reflection.GetMessage(message, field)
                                  : reflection.GetRepeatedMessage(message, field, index),
                        out);
  } else {
    using Scalar = decltype(ToScalar(out));
    return FromScalar(index < 0 ? (reflection.*Access<Scalar>::kGet)(message, field)
                                : (reflection.*Access<Scalar>::kGetRepeated)(message, field, index),
                      out);
  }
}

template <typename List>
absl::Status DecodeList(const Message& message,
                        const FieldDescriptor* field,
                        int count_max,
                        List& out) {
  const int count = message.GetReflection()->FieldSize(message, field);
  // Checked before anything is built from the list.
  if (count > count_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(": has ", count, " entries, at most ", count_max, " are accepted"));
  }
  if constexpr (requires { out.resize(0); }) out.resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    auto& element = out[static_cast<size_t>(i)];
    const absl::Status status = DecodeOne(message, field, i, element);
    if (status.ok()) continue;
    if constexpr (requires { element.name; }) {
      if (!element.name.empty()) return Inside(absl::StrCat("[", element.name, "]"), status);
    }
    return Inside(absl::StrCat("[", i, "]"), status);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status Decode(const Message& message, const FieldDescriptor* field, int count_max, T& out) {
  if constexpr (kIsOptional<T>) {
    if (!message.GetReflection()->HasField(message, field)) return absl::OkStatus();
    return DecodeOne(message, field, -1, out.emplace());
  } else if constexpr (kListMax<T> > 0) {
    return DecodeList(message, field, count_max, out);
  } else if constexpr (HasSurrogate<T>) {
    typename Surrogate<T>::Type surrogate;
    PUSHPULL_RETURN_IF_ERROR(Decode(message, field, kListMax<decltype(surrogate)>, surrogate));
    out = Surrogate<T>::To(surrogate);
    return absl::OkStatus();
  } else {
    return DecodeOne(message, field, -1, out);
  }
}

}  // namespace pushpull::wire
