// SPDX-License-Identifier: Apache-2.0
//
// A manifest from and to bytes; the rules it must meet are in manifest.cc.
#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/section.h"
#include "runtime/optim/optimizer.h"
#include "runtime/tensor/codec.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/reduction.h"

namespace pushpull {
namespace {

using Bytes = std::span<const std::byte>;

// "PuPuCkpM"
constexpr uint64_t kManifestMagic = 0x4D706B4375507550;

// Offsets of docs/decisions/0009-checkpoint-format.md, the same in every version. What is not named
// is zero in version 1.
enum ManifestOffset : size_t {
  kManifestMagicAt = 0,
  kManifestVersionAt = 8,
  kSequenceAt = 16,
  kBodyBytesAt = 24,
  kBodyChecksumAt = 32,
  kManifestHeaderChecksumAt = 56,
};

constexpr char kJobSection[] = "job";
constexpr char kTensorSection[] = "tensors";
constexpr char kFileSection[] = "files";
constexpr char kChunkSection[] = "chunks";
constexpr char kSystemSection[] = "system";

// file, bytes, offset, checksum, version
constexpr uint32_t kChunkEntryBytes = 32;

// A list: the number of entries, then each after its length, so that a later version can append to
// an entry what this one passes over.
template <typename Entry, typename Write>
std::vector<std::byte> EncodeList(const std::vector<Entry>& entries, Write write) {
  ByteWriter out;
  out.Put(uint64_t{entries.size()});
  for (const Entry& entry : entries) {
    ByteWriter one;
    write(entry, one);
    const std::vector<std::byte> bytes = one.Take();
    out.Put(static_cast<uint32_t>(bytes.size()));
    out.PutBytes(bytes);
  }
  return out.Take();
}

// Calls `read`, which returns a status, with each entry's bytes. kDataLoss: the list is cut off.
template <typename Read>
absl::Status DecodeList(Bytes bytes, Read read) {
  ByteReader list(bytes);
  const auto num_entries = list.Get<uint64_t>();
  for (uint64_t i = 0; i < num_entries && list.ok(); ++i) {
    ByteReader entry(list.GetBytes(list.Get<uint32_t>()));
    PUSHPULL_RETURN_IF_ERROR(read(entry));
    if (!entry.ok()) return absl::DataLossError(absl::StrCat("entry ", i, " is cut off"));
  }
  return list.ok() ? absl::OkStatus() : absl::DataLossError("the list is cut off");
}

// A text of any length, unlike ByteWriter's.
void PutLongText(const std::string& text, ByteWriter& out) {
  out.Put(static_cast<uint32_t>(text.size()));
  out.PutBytes(std::as_bytes(std::span(text)));
}

std::string GetLongText(ByteReader& in) {
  const Bytes bytes = in.GetBytes(in.Get<uint32_t>());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> EncodeJob(const CheckpointManifest& manifest) {
  ByteWriter out;
  out.PutText(manifest.job);
  out.Put(manifest.step.value());
  out.PutText(manifest.mode);
  out.Put(static_cast<uint8_t>(manifest.versions));
  out.Put(manifest.written_at);
  return out.Take();
}

absl::Status DecodeJob(Bytes bytes, CheckpointManifest& manifest) {
  ByteReader in(bytes);
  manifest.job = in.GetText();
  manifest.step = Step{in.Get<uint64_t>()};
  manifest.mode = in.GetText();
  const auto versions = in.Get<uint8_t>();
  manifest.written_at = in.Get<int64_t>();
  if (!in.ok()) return absl::DataLossError("is cut off");
  manifest.versions = static_cast<ChunkVersions>(versions);
  if (manifest.versions == ChunkVersions::kOfOneStep ||
      manifest.versions == ChunkVersions::kOfEachChunk) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat("this version does not know what versions of kind ", versions, " are"));
}

void EncodeTensor(const TensorSpec& tensor, ByteWriter& out) {
  PutLongText(tensor.name, out);
  out.Put(static_cast<uint32_t>(tensor.dims.size()));
  for (const int64_t dim : tensor.dims) out.Put(dim);
  out.Put(static_cast<uint8_t>(tensor.dtype));
  out.Put(static_cast<uint8_t>(tensor.reduction));
  const OptimizerSpec& optimizer = tensor.optimizer;
  out.Put(static_cast<uint8_t>(optimizer.kind));
  out.Put(static_cast<uint8_t>(optimizer.nesterov ? 1 : 0));
  for (const double setting : {optimizer.learning_rate,
                               optimizer.momentum,
                               optimizer.weight_decay,
                               optimizer.beta1,
                               optimizer.beta2,
                               optimizer.epsilon}) {
    out.Put(setting);
  }
}

absl::Status DecodeTensor(ByteReader& in, CheckpointManifest& manifest) {
  TensorSpec tensor;
  tensor.name = GetLongText(in);
  const auto num_dims = in.Get<uint32_t>();
  for (uint32_t i = 0; i < num_dims && in.ok(); ++i) tensor.dims.push_back(in.Get<int64_t>());
  tensor.dtype = static_cast<DType>(in.Get<uint8_t>());
  tensor.reduction = static_cast<Reduction>(in.Get<uint8_t>());
  OptimizerSpec& optimizer = tensor.optimizer;
  optimizer.kind = static_cast<OptimizerKind>(in.Get<uint8_t>());
  optimizer.nesterov = in.Get<uint8_t>() != 0;
  for (double* setting : {&optimizer.learning_rate,
                          &optimizer.momentum,
                          &optimizer.weight_decay,
                          &optimizer.beta1,
                          &optimizer.beta2,
                          &optimizer.epsilon}) {
    *setting = in.Get<double>();
  }
  // Whoever reads on finds that the entry was cut off.
  if (!in.ok()) return absl::OkStatus();
  if (!IsKnown(tensor.dtype) || !IsKnown(tensor.reduction) || !IsKnown(optimizer.kind)) {
    return absl::UnimplementedError(absl::StrCat("tensor ",
                                                 tensor.name,
                                                 " has ",
                                                 ToString(tensor.dtype),
                                                 ", ",
                                                 ToString(tensor.reduction),
                                                 ", ",
                                                 ToString(optimizer.kind),
                                                 ", not all of which this version knows"));
  }
  manifest.tensors.push_back(std::move(tensor));
  return absl::OkStatus();
}

void EncodeFile(const CheckpointFile& file, ByteWriter& out) {
  out.PutText(file.name);
  out.Put(file.bytes);
  out.Put(file.num_records);
  out.Put(file.checksum);
}

absl::Status DecodeFile(ByteReader& in, CheckpointManifest& manifest) {
  CheckpointFile file;
  file.name = in.GetText();
  file.bytes = in.Get<uint64_t>();
  file.num_records = in.Get<uint32_t>();
  file.checksum = in.Get<uint64_t>();
  manifest.files.push_back(std::move(file));
  return absl::OkStatus();
}

// Many and alike, so without a length each: the number of entries, their length, the entries.
std::vector<std::byte> EncodeChunks(const std::vector<StoredChunk>& chunks) {
  ByteWriter out;
  out.Put(uint64_t{chunks.size()});
  out.Put(kChunkEntryBytes);
  for (const StoredChunk& chunk : chunks) {
    out.Put(chunk.file);
    out.Put(chunk.place.bytes);
    out.Put(chunk.place.offset);
    out.Put(chunk.place.checksum);
    out.Put(chunk.place.version.value());
  }
  return out.Take();
}

absl::Status DecodeChunks(Bytes bytes, CheckpointManifest& manifest) {
  ByteReader in(bytes);
  const auto num_chunks = in.Get<uint64_t>();
  const auto entry_bytes = in.Get<uint32_t>();
  if (!in.ok() || entry_bytes < kChunkEntryBytes || num_chunks > in.num_left() / entry_bytes)
    return absl::DataLossError("is cut off");
  manifest.chunks.reserve(num_chunks);
  for (uint64_t i = 0; i < num_chunks; ++i) {
    ByteReader entry(in.GetBytes(entry_bytes));
    StoredChunk chunk;
    chunk.file = entry.Get<uint32_t>();
    chunk.place.chunk = ChunkId{i};
    chunk.place.bytes = entry.Get<uint32_t>();
    chunk.place.offset = entry.Get<uint64_t>();
    chunk.place.checksum = entry.Get<uint64_t>();
    chunk.place.version = Step{entry.Get<uint64_t>()};
    manifest.chunks.push_back(chunk);
  }
  return absl::OkStatus();
}

void EncodeSystem(const SystemSection& section, ByteWriter& out) {
  out.PutText(section.name);
  out.PutBytes(section.bytes);
}

absl::Status DecodeSystem(ByteReader& in, CheckpointManifest& manifest) {
  SystemSection section;
  section.name = in.GetText();
  const Bytes bytes = in.GetBytes(in.num_left());
  section.bytes.assign(bytes.begin(), bytes.end());
  manifest.system.push_back(std::move(section));
  return absl::OkStatus();
}

absl::Status DecodeSection(const Section& section, CheckpointManifest& manifest) {
  const auto list = [&](absl::Status (*decode)(ByteReader&, CheckpointManifest&)) {
    return DecodeList(section.bytes, [&](ByteReader& entry) { return decode(entry, manifest); });
  };
  if (section.name == kJobSection) return DecodeJob(section.bytes, manifest);
  if (section.name == kTensorSection) return list(DecodeTensor);
  if (section.name == kFileSection) return list(DecodeFile);
  if (section.name == kChunkSection) return DecodeChunks(section.bytes, manifest);
  return list(DecodeSystem);
}

// Every section exactly once: a list that comes twice would be read twice.
absl::Status CheckSectionNames(const std::vector<Section>& sections, const std::string& file) {
  for (const char* name :
       {kJobSection, kTensorSection, kFileSection, kChunkSection, kSystemSection}) {
    const auto count = std::count_if(
        sections.begin(), sections.end(), [name](const Section& s) { return s.name == name; });
    if (count != 1) {
      return absl::DataLossError(
          absl::StrCat(file, ": has ", count, " sections ", name, " instead of one"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointManifest> DecodeBody(Bytes body,
                                              const ManifestHeader& header,
                                              const std::string& file) {
  PUSHPULL_ASSIGN_OR_RETURN(
      const std::vector<Section> sections,
      ReadSections(body,
                   {kJobSection, kTensorSection, kFileSection, kChunkSection, kSystemSection},
                   file,
                   kManifestHeaderBytes));
  if (ChecksumBytes(body) != header.body_checksum)
    return DamageError(file, kManifestHeaderBytes, "wrong checksum of the sections together");
  PUSHPULL_RETURN_IF_ERROR(CheckSectionNames(sections, file));
  CheckpointManifest manifest;
  manifest.sequence = header.sequence;
  for (const Section& section : sections) {
    const absl::Status decoded = DecodeSection(section, manifest);
    if (!decoded.ok()) {
      return absl::Status(decoded.code(),
                          absl::StrCat(file, ": section ", section.name, ": ", decoded.message()));
    }
  }
  return manifest;
}

}  // namespace

std::vector<std::byte> EncodeManifest(const CheckpointManifest& manifest) {
  ByteWriter sections;
  const auto put = [&sections](const char* name, const std::vector<std::byte>& bytes) {
    PutSection(name, SectionRule::kRequired, bytes, sections);
  };
  put(kJobSection, EncodeJob(manifest));
  put(kTensorSection, EncodeList(manifest.tensors, EncodeTensor));
  put(kFileSection, EncodeList(manifest.files, EncodeFile));
  put(kChunkSection, EncodeChunks(manifest.chunks));
  put(kSystemSection, EncodeList(manifest.system, EncodeSystem));
  const std::vector<std::byte> body = sections.Take();

  std::array<std::byte, kManifestHeaderBytes> header{};
  const auto set = [&header](ManifestOffset at, auto number) {
    StoreNumber(number, std::span(header).subspan(at));
  };
  set(kManifestMagicAt, kManifestMagic);
  set(kManifestVersionAt, kCheckpointVersion);
  set(kSequenceAt, manifest.sequence);
  set(kBodyBytesAt, uint64_t{body.size()});
  set(kBodyChecksumAt, ChecksumBytes(body));
  set(kManifestHeaderChecksumAt, ChecksumBytes(std::span(header).first(kManifestHeaderChecksumAt)));
  ByteWriter whole;
  whole.PutBytes(header);
  whole.PutBytes(body);
  return whole.Take();
}

absl::StatusOr<ManifestHeader> DecodeManifestHeader(Bytes bytes, const std::string& file) {
  if (bytes.size() < kManifestHeaderBytes)
    return DamageError(file, bytes.size(), "the file ends here, too early");
  const auto get = [bytes]<typename Number>(ManifestOffset at, Number) {
    return LoadNumber<Number>(bytes.subspan(at));
  };
  if (get(kManifestMagicAt, uint64_t{}) != kManifestMagic)
    return DamageError(file, 0, "is no manifest of a checkpoint");
  if (get(kManifestHeaderChecksumAt, uint64_t{}) !=
      ChecksumBytes(bytes.first(kManifestHeaderChecksumAt)))
    return DamageError(file, 0, "wrong checksum of the manifest's header");
  return ManifestHeader{.version = get(kManifestVersionAt, uint16_t{}),
                        .sequence = get(kSequenceAt, uint64_t{}),
                        .body_bytes = get(kBodyBytesAt, uint64_t{}),
                        .body_checksum = get(kBodyChecksumAt, uint64_t{})};
}

absl::StatusOr<CheckpointManifest> DecodeManifest(Bytes bytes, const std::string& file) {
  PUSHPULL_ASSIGN_OR_RETURN(const ManifestHeader header, DecodeManifestHeader(bytes, file));
  if (header.version > kCheckpointVersion) {
    return absl::UnimplementedError(absl::StrCat(file,
                                                 ": has format version ",
                                                 header.version,
                                                 ", this program reads up to version ",
                                                 kCheckpointVersion));
  }
  const Bytes body = bytes.subspan(kManifestHeaderBytes);
  if (header.body_bytes != body.size()) {
    return DamageError(file,
                       std::min<uint64_t>(bytes.size(), kManifestHeaderBytes + header.body_bytes),
                       absl::StrCat("the manifest has ",
                                    body.size(),
                                    " bytes after its header, expected ",
                                    header.body_bytes));
  }
  PUSHPULL_ASSIGN_OR_RETURN(CheckpointManifest manifest, DecodeBody(body, header, file));
  const absl::Status checked = CheckManifest(manifest);
  if (!checked.ok()) return absl::DataLossError(absl::StrCat(file, ": ", checked.message()));
  return manifest;
}

}  // namespace pushpull
