// SPDX-License-Identifier: Apache-2.0
// Saving and loading what is kept (checkpoint_index.hpp says what is in a checkpoint). Collective.
//
// Saving. The ranks write into `path`.partial-N, each file is synced, then rank 0 writes the index,
// syncs it and the folder, and gives the folder its name in one step. So a folder of that name is
// complete whenever a process is killed; what is left of a killed save is removed by the next save
// to the same name. A file system that cannot exchange two names (NFS) has none of that name for a
// moment: then the old one is `path`.old, which load() looks for. Replicas are equal, so those of
// the first group alone write.
//
// Loading. The index is checked, then each rank reads and checks the pieces that overlap what it
// keeps, and only when all ranks have found all of theirs right are they read again and taken.
//
// An error of one rank is thrown on all of them, as std::runtime_error.
#pragma once

#include <filesystem>
#include <string>

#include "zero/fingerprint.hpp"
#include "zero/update.hpp"

namespace tutti::zero {

void save_checkpoint(const Kept& kept, const std::filesystem::path& path, const Progress& progress,
                     const std::string& note);
// Writes the arrays and `progress`; returns the note.
std::string load_checkpoint(const Kept& kept, const std::filesystem::path& path,
                            Progress& progress);

}  // namespace tutti::zero
