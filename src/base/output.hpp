// The end of a program's output. A full disk or a closed pipe shows only when buffers are flushed,
// and whoever reads the exit status must learn of it. Belongs to programs: the library prints
// nothing.
#pragma once

#include <cstdio>

#include "base/result.hpp"

namespace tutti {

// Flushes `stream`. kSystemError if anything written to it so far was lost; `what` names it in the
// message.
[[nodiscard]] Status finish_output(std::FILE* stream, std::string_view what = "standard output");

}  // namespace tutti
