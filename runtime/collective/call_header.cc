// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/call_header.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/wire_bytes.h"

namespace pushpull {
namespace {

constexpr uint32_t kCallMagic = 0x6C6C6143;  // "Call"

template <typename Visit, typename Header>
void VisitCallHeader(Visit& visit, Header& header) {
  visit(header.sequence,
        header.elements,
        header.op,
        header.root,
        header.element_bytes,
        header.collective,
        header.algorithm);
}

}  // namespace

std::string ToString(const CallHeader& header) {
  return absl::StrCat(
      "call ",
      header.sequence,
      ", ",
      ToString(header.collective),
      " by ",
      ToString(header.algorithm),
      " of ",
      header.elements,
      " elements of ",
      header.element_bytes,
      " bytes",
      header.collective == Collective::kBroadcast ? absl::StrCat(" from rank ", header.root) : "");
}

std::array<std::byte, kCallHeaderBytes> EncodeCallHeader(const CallHeader& header) {
  std::array<std::byte, kCallHeaderBytes> bytes{};
  HeaderWriter writer(bytes);
  writer(kCallMagic);
  VisitCallHeader(writer, header);
  return bytes;
}

absl::Status CheckCallHeader(const CallHeader& own, std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  uint32_t magic = 0;
  CallHeader other;
  reader(magic);
  VisitCallHeader(reader, other);
  if (!reader.ok() || magic != kCallMagic) {
    return absl::DataLossError(
        "sends bytes that begin no call: both ends must be of one version of the program");
  }
  if (other == own) return absl::OkStatus();
  CallHeader but_op = other;
  but_op.op = own.op;
  const char* const hint = but_op == own ? ", with another operation" : "";
  return absl::InvalidArgumentError(absl::StrCat("makes another call: ",
                                                 ToString(other),
                                                 hint,
                                                 "; this rank's is ",
                                                 ToString(own),
                                                 ". All ranks make the same calls in one order"));
}

}  // namespace pushpull
