// SPDX-License-Identifier: Apache-2.0
// The end of a program's output. A full disk or a closed pipe shows only when buffers are flushed,
// and whoever reads the exit status must learn of it. Belongs to programs: the library prints
// nothing.
#pragma once

#include "base/result.hpp"

namespace tutti {

// Flushes standard output. kSystemError if anything written to it so far was lost.
[[nodiscard]] Status finish_output();

}  // namespace tutti
