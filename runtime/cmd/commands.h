// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of `pushpull`, one file each. Each function adds its command to `app`; after the
// command has run, `exit_code` is the program's exit code.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>  // parts that App only declares
#include <CLI/Formatter.hpp>

namespace pushpull {

void AddBenchCommand(CLI::App& app, int& exit_code);
void AddPlanCommand(CLI::App& app, int& exit_code);
void AddReportCommand(CLI::App& app, int& exit_code);
void AddRunCommand(CLI::App& app, int& exit_code);
void AddValidateCommand(CLI::App& app, int& exit_code);
void AddStatusCommand(CLI::App& app, int& exit_code);
void AddCheckpointCommand(CLI::App& app, int& exit_code);
void AddCheckpointNowCommand(CLI::App& checkpoint, int& exit_code);  // subcommands of it
void AddCheckpointShowCommand(CLI::App& checkpoint, int& exit_code);
void AddCheckpointExportCommand(CLI::App& checkpoint, int& exit_code);
void AddScaleCommand(CLI::App& app, int& exit_code);
void AddSetCommand(CLI::App& app, int& exit_code);
void AddTraceCommand(CLI::App& app, int& exit_code);
void AddVersionCommand(CLI::App& app, int& exit_code);
void AddServerCommand(CLI::App& app, int& exit_code);
void AddCoordinatorCommand(CLI::App& app, int& exit_code);

}  // namespace pushpull
