#include "base/result.hpp"

#include <fmt/format.h>

#include <system_error>

namespace tutti {

const char* describe(Code code) {
  switch (code) {
    case Code::kSuccess:
      return "no error";
    case Code::kUnhandledCudaError:
      return "unhandled CUDA error";
    case Code::kSystemError:
      return "system error";
    case Code::kInternalError:
      return "internal error";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kInvalidUsage:
      return "invalid usage";
    case Code::kRemoteError:
      return "a remote rank died or failed";
    case Code::kInProgress:
      return "operation in progress";
    case Code::kTimeout:
      return "timed out";
    case Code::kNotSupported:
      return "not supported";
  }
  return "unknown result code";
}

tl::unexpected<Error> errno_error(std::string_view what, int error_number) {
  return make_error(Code::kSystemError,
                    fmt::format("{}: {} (errno {})", what,
                                std::generic_category().message(error_number), error_number));
}

}  // namespace tutti
