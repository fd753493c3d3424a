// SPDX-License-Identifier: Apache-2.0
//
// Converts a manifest from and to bytes; the rules it must meet are in manifest.cc.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/checkpoint/file_system.h"
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

// The header's last field.
constexpr size_t kManifestChecksumAt = kManifestHeaderBytes - sizeof(uint64_t);

// The header's fields between magic and checksum, as in docs/decisions/0009-checkpoint-format.md,
// the same in every version.
template <typename Visit, typename Header>
void VisitManifestHeader(Visit& visit, Header& header) {
  visit(header.version, Reserved<6>{}, header.sequence, header.body_bytes, header.body_checksum);
  visit(Reserved<16>{});
}

constexpr char kJobSection[] = "job";
constexpr char kTensorSection[] = "tensors";
constexpr char kFileSection[] = "files";
constexpr char kChunkSection[] = "chunks";
constexpr char kSystemSection[] = "system";

// A text or a list of numbers, of any length: the count, then each entry.
template <typename List>
void VisitAll(ByteWriter& out, const List& list) {
  out.Put(static_cast<uint32_t>(list.size()));
  for (const auto& entry : list) out.Put(entry);
}

template <typename List>
void VisitAll(ByteReader& in, List& list) {
  for (auto left = in.Get<uint32_t>(); left > 0 && in.ok(); --left)
    list.push_back(in.Get<typename List::value_type>());
}

constexpr auto kJobFields = [](auto& visit, auto& manifest) {
  visit(manifest.owner.job, manifest.step, manifest.mode, manifest.versions, manifest.written_at);
};

// The namespace was added later, at the end: older versions skip it, and their manifests lack it.
void WriteJob(ByteWriter& out, const CheckpointManifest& manifest) {
  kJobFields(out, manifest);
  if (!manifest.owner.job_namespace.empty()) out.PutText(manifest.owner.job_namespace);
}

void ReadJob(ByteReader& in, CheckpointManifest& manifest) {
  kJobFields(in, manifest);
  if (in.ok() && in.num_left() > 0) manifest.owner.job_namespace = in.GetText();
}

constexpr auto kTensorFields = [](auto& visit, auto& tensor) {
  auto& optimizer = tensor.optimizer;
  VisitAll(visit, tensor.name);
  VisitAll(visit, tensor.dims);
  visit(tensor.dtype, tensor.reduction, optimizer.kind, optimizer.nesterov);
  visit(optimizer.learning_rate, optimizer.momentum, optimizer.weight_decay);
  visit(optimizer.beta1, optimizer.beta2, optimizer.epsilon);
};

constexpr auto kRowFields = [](auto& visit, auto& rows) {
  visit(rows.init, rows.scale, rows.seed, rows.evict_after);
};

// The entry of a row-sparse tensor is longer.
void WriteTensor(ByteWriter& out, const TensorSpec& tensor) {
  kTensorFields(out, tensor);
  if (tensor.rows) kRowFields(out, *tensor.rows);
}

void ReadTensor(ByteReader& in, TensorSpec& tensor) {
  kTensorFields(in, tensor);
  if (in.ok() && in.num_left() > 0) kRowFields(in, tensor.rows.emplace());
}

constexpr auto kFileFields = [](auto& visit, auto& file) {
  visit(file.name, file.bytes, file.num_records, file.checksum);
};

constexpr auto kChunkFields = [](auto& visit, auto& chunk) {
  auto& place = chunk.place;
  visit(chunk.file, place.bytes, place.offset, place.checksum, place.version);
};
constexpr uint32_t kChunkEntryBytes = 32;

void WriteSystem(ByteWriter& out, const SystemSection& section) {
  out.PutText(section.name);
  out.PutBytes(section.bytes);
}

void ReadSystem(ByteReader& in, SystemSection& section) {
  section.name = in.GetText();
  const Bytes bytes = in.GetBytes(in.num_left());
  section.bytes.assign(bytes.begin(), bytes.end());
}

// A list: the number of entries, then each one after its length, so that a newer version can append
// fields to an entry, which this one skips.
template <typename Entry, typename Write>
std::vector<std::byte> EncodeList(const std::vector<Entry>& entries, Write write) {
  ByteWriter out;
  out.Put(uint64_t{entries.size()});
  for (const Entry& entry : entries) {
    ByteWriter one;
    write(one, entry);
    const std::vector<std::byte> bytes = one.Take();
    out.Put(static_cast<uint32_t>(bytes.size()));
    out.PutBytes(bytes);
  }
  return out.Take();
}

// kDataLoss: the list is cut off.
template <typename Entry, typename Read>
absl::Status DecodeList(Bytes bytes, std::vector<Entry>& entries, Read read) {
  ByteReader list(bytes);
  const auto num_entries = list.Get<uint64_t>();
  for (uint64_t i = 0; i < num_entries && list.ok(); ++i) {
    ByteReader entry(list.GetBytes(list.Get<uint32_t>()));
    read(entry, entries.emplace_back());
    if (!entry.ok()) return absl::DataLossError(absl::StrCat("entry ", i, " is cut off"));
  }
  return list.ok() ? absl::OkStatus() : absl::DataLossError("the list is cut off");
}

// Many and alike, so without individual lengths: the number of entries, their length, the entries.
std::vector<std::byte> EncodeChunks(const std::vector<StoredChunk>& chunks) {
  ByteWriter out;
  out(uint64_t{chunks.size()}, kChunkEntryBytes);
  for (const StoredChunk& chunk : chunks) kChunkFields(out, chunk);
  return out.Take();
}

absl::Status DecodeChunks(Bytes bytes, std::vector<StoredChunk>& chunks) {
  ByteReader in(bytes);
  const auto num_chunks = in.Get<uint64_t>();
  const auto entry_bytes = in.Get<uint32_t>();
  if (!in.ok() || entry_bytes < kChunkEntryBytes || num_chunks > in.num_left() / entry_bytes)
    return absl::DataLossError("is cut off");
  chunks.resize(num_chunks);
  for (uint64_t i = 0; i < num_chunks; ++i) {
    ByteReader entry(in.GetBytes(entry_bytes));
    kChunkFields(entry, chunks[i]);
    chunks[i].place.chunk = ChunkId{i};
  }
  return absl::OkStatus();
}

absl::Status DecodeJob(Bytes bytes, CheckpointManifest& manifest) {
  ByteReader in(bytes);
  ReadJob(in, manifest);
  if (!in.ok()) return absl::DataLossError("is cut off");
  if (manifest.versions == ChunkVersions::kOfOneStep ||
      manifest.versions == ChunkVersions::kOfEachChunk) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrFormat("this version does not know what versions of kind %d are",
                      static_cast<int>(manifest.versions)));
}

absl::Status DecodeTensors(Bytes bytes, std::vector<TensorSpec>& tensors) {
  PUSHPULL_RETURN_IF_ERROR(DecodeList(bytes, tensors, ReadTensor));
  for (const TensorSpec& tensor : tensors) {
    if (IsKnown(tensor.dtype) && IsKnown(tensor.reduction) && IsKnown(tensor.optimizer.kind))
      continue;
    return absl::UnimplementedError(
        absl::StrFormat("tensor %s has %s, %s, %s, not all of which this version knows",
                        tensor.name,
                        ToString(tensor.dtype),
                        ToString(tensor.reduction),
                        ToString(tensor.optimizer.kind)));
  }
  return absl::OkStatus();
}

absl::Status DecodeSection(const Section& section, CheckpointManifest& manifest) {
  if (section.name == kJobSection) return DecodeJob(section.bytes, manifest);
  if (section.name == kTensorSection) return DecodeTensors(section.bytes, manifest.tensors);
  if (section.name == kFileSection) return DecodeList(section.bytes, manifest.files, kFileFields);
  if (section.name == kChunkSection) return DecodeChunks(section.bytes, manifest.chunks);
  return DecodeList(section.bytes, manifest.system, ReadSystem);
}

// Every section must occur exactly once: a list that occurs twice would be read twice.
absl::Status CheckSectionNames(const std::vector<Section>& sections, const std::string& file) {
  for (const char* name :
       {kJobSection, kTensorSection, kFileSection, kChunkSection, kSystemSection}) {
    const auto count = std::ranges::count(sections, name, &Section::name);
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
  ByteWriter job;
  WriteJob(job, manifest);
  ByteWriter sections;
  const auto put = [&sections](const char* name, const std::vector<std::byte>& bytes) {
    PutSection(name, SectionRule::kRequired, bytes, sections);
  };
  put(kJobSection, job.Take());
  put(kTensorSection, EncodeList(manifest.tensors, WriteTensor));
  put(kFileSection, EncodeList(manifest.files, kFileFields));
  put(kChunkSection, EncodeChunks(manifest.chunks));
  put(kSystemSection, EncodeList(manifest.system, WriteSystem));
  const std::vector<std::byte> body = sections.Take();

  const ManifestHeader header{.version = kCheckpointVersion,
                              .sequence = manifest.sequence,
                              .body_bytes = body.size(),
                              .body_checksum = ChecksumBytes(body)};
  std::vector<std::byte> whole(kManifestHeaderBytes);
  HeaderWriter writer(whole);
  writer(kManifestMagic);
  VisitManifestHeader(writer, header);
  writer(ChecksumBytes(std::span(whole).first(kManifestChecksumAt)));
  whole.insert(whole.end(), body.begin(), body.end());
  return whole;
}

absl::StatusOr<ManifestHeader> DecodeManifestHeader(Bytes bytes, const std::string& file) {
  if (bytes.size() < kManifestHeaderBytes)
    return DamageError(file, bytes.size(), "the file ends here, too early");
  ByteReader get(bytes);
  if (get.Get<uint64_t>() != kManifestMagic)
    return DamageError(file, 0, "is no manifest of a checkpoint");
  if (LoadNumber<uint64_t>(bytes.subspan(kManifestChecksumAt)) !=
      ChecksumBytes(bytes.first(kManifestChecksumAt)))
    return DamageError(file, 0, "wrong checksum of the manifest's header");
  ManifestHeader header;
  VisitManifestHeader(get, header);
  return header;
}

absl::StatusOr<CheckpointManifest> DecodeManifest(Bytes bytes, const std::string& file) {
  PUSHPULL_ASSIGN_OR_RETURN(const ManifestHeader header, DecodeManifestHeader(bytes, file));
  PUSHPULL_RETURN_IF_ERROR(CheckVersion(header.version, file));
  const Bytes body = bytes.subspan(kManifestHeaderBytes);
  if (header.body_bytes != body.size()) {
    return DamageError(file,
                       std::min<uint64_t>(bytes.size(), kManifestHeaderBytes + header.body_bytes),
                       absl::StrFormat("the manifest has %d bytes after its header, expected %d",
                                       body.size(),
                                       header.body_bytes));
  }
  PUSHPULL_ASSIGN_OR_RETURN(CheckpointManifest manifest, DecodeBody(body, header, file));
  const absl::Status checked = CheckManifest(manifest);
  if (!checked.ok()) return absl::DataLossError(absl::StrCat(file, ": ", checked.message()));
  return manifest;
}

}  // namespace pushpull
