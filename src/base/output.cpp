// SPDX-License-Identifier: Apache-2.0
#include "base/output.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace tutti {

Status finish_output() {
  const bool flushed = std::fflush(stdout) == 0;
  const int error_number = errno;
  if (flushed && std::ferror(stdout) == 0) return {};
  return make_error(Code::kSystemError,
                    fmt::format("standard output cannot be written: {}",
                                flushed ? "a part of the output was lost"
                                        : std::generic_category().message(error_number)));
}

}  // namespace tutti
