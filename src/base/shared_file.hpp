// SPDX-License-Identifier: Apache-2.0
// Shared files: memory without a name that processes of a host hand each other by descriptor.
//
// A memfd, sealed so that nobody can shrink it under those who have mapped it; where the kernel or
// a filter refuses memfd, a nameless file of mode 0600 whose pages are reserved at once. Nothing is
// left after a kill. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace tutti {

enum class SharedFileKind : std::uint8_t { kAny, kMemfd, kTmpFile, kShmOpen };

// A file of `bytes` zeros, named `purpose` in /proc/<pid>/maps. Error: kSystemError.
[[nodiscard]] Result<UniqueFd> make_shared_file(std::string_view purpose, std::size_t bytes,
                                                SharedFileKind kind = SharedFileKind::kAny);

// Would a file of `bytes`, for the `purpose` named in the error, be larger than this process may
// make one? Asking the kernel for it would raise SIGXFSZ. Error: kSystemError, naming the limit.
[[nodiscard]] Status check_file_limit(std::string_view purpose, std::size_t bytes);

// Checks that the descriptor which a peer sent for `purpose` is a nameless file of exactly `bytes`
// that cannot shrink once it is mapped. Errors: kRemoteError, kSystemError.
[[nodiscard]] Status check_shared_file(int fd, std::string_view purpose, std::size_t bytes);

// Could be sealed against shrinking, and is not.
[[nodiscard]] bool is_unsealed(int fd);

}  // namespace tutti
