// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's decisions: JobCore returns commands, Coordinator carries them out in order.
// Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/membership/control.h"
#include "runtime/membership/session.h"

namespace pushpull {

struct SendMessage {
  SessionId session;
  ToMember message;
};
struct CloseSession {
  SessionId session;
};
// One log line.
struct Announce {
  bool is_problem = false;  // a warning
  std::string text;
};
// Every file of a checkpoint is written: write its manifest, then prune old checkpoints. Answered
// by JobCore::OnManifest.
struct SaveManifest {
  uint64_t attempt = 0;
  std::string folder;  // of the job's checkpoints
  uint32_t keep = 1;
  CheckpointManifest manifest;  // without files and chunks
  std::vector<ChunkFileSummary> files;
};
// Remove the files of a failed attempt, unless the step has a complete checkpoint. Answered by
// JobCore::OnCleared.
struct ClearCheckpoint {
  uint64_t attempt = 0;
  std::string folder;
  Step step;
};
// Check that the folder is writable. Answered by JobCore::OnProbed.
struct ProbeFolder {
  std::string folder;
};
// Keep, beside the job's checkpoints, which step it has reached. Not answered.
struct NoteStep {
  std::string folder;
  Step step;
};
// End this process, so that another coordinator starts with a higher term and collects the members'
// state. JobCore does nothing from then on.
struct StepDown {
  std::string why;
};
using Command = std::variant<SendMessage,
                             CloseSession,
                             Announce,
                             SaveManifest,
                             ClearCheckpoint,
                             ProbeFolder,
                             NoteStep,
                             StepDown>;

}  // namespace pushpull
