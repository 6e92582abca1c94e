// SPDX-License-Identifier: Apache-2.0
// The job's secret from a file, for launchers that cannot carry one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::launch {

inline constexpr std::size_t kLeastSecretBytes = 32;
inline constexpr std::size_t kMostSecretBytes = 4096;

// All bytes of the file. Errors, each one line that names the file and what to do: kSystemError (it
// cannot be read), kInvalidArgument (no regular file, another user's, open to others, too short,
// too long). The bytes are in no message. Never blocks, also on a FIFO. Any thread.
[[nodiscard]] Result<std::vector<std::byte>> read_secret_file(const std::string& path);

}  // namespace tutti::launch
