// SPDX-License-Identifier: Apache-2.0
// Threads of the library inside somebody else's program: named, and deaf to signals, so that the
// program's handlers run on the program's threads.
#pragma once

#include <functional>
#include <thread>

#include "base/result.hpp"

namespace tutti::control {

// Whether a thread of the library may make, or carry out, calls of the program.
enum class Runs { kLibraryAlone, kCallsOfProgram };

// `name` at most 15 bytes. Error: kSystemError (thread limit).
[[nodiscard]] Result<std::thread> spawn_thread(const char* name, std::function<void()> body,
                                               Runs runs = Runs::kLibraryAlone);

// Returns whether this process has only the calling thread and those of the library alone: then no
// other thread could make a call for the program. False where it cannot be found out.
[[nodiscard]] bool is_only_thread_of_program();

}  // namespace tutti::control
