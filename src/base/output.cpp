#include "base/output.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace tutti {

Status finish_output(std::FILE* stream, std::string_view what) {
  const bool flushed = std::fflush(stream) == 0;
  const int error_number = errno;
  if (flushed && std::ferror(stream) == 0) return {};
  return make_error(Code::kSystemError,
                    fmt::format("{} cannot be written: {}", what,
                                flushed ? "a part of it was lost"
                                        : std::generic_category().message(error_number)));
}

}  // namespace tutti
