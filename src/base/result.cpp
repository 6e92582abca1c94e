// SPDX-License-Identifier: Apache-2.0
#include "base/result.hpp"

#include <fmt/core.h>

#include <array>
#include <system_error>

namespace tutti {

namespace {

struct CodeRow {
  Code code;
  const char* text;
};

// By value; the only list of texts.
constexpr std::array<CodeRow, kCodeCount> kCodes{{
    {Code::kSuccess, "no error"},
    {Code::kUnhandledCudaError, "unhandled CUDA error"},
    {Code::kSystemError, "system error"},
    {Code::kInternalError, "internal error"},
    {Code::kInvalidArgument, "invalid argument"},
    {Code::kInvalidUsage, "invalid usage"},
    {Code::kRemoteError, "a remote rank died or failed"},
    {Code::kInProgress, "operation in progress"},
    {Code::kTimeout, "timed out"},
    {Code::kNotSupported, "not supported"},
}};
static_assert(
    [] {
      for (std::size_t i = 0; i < kCodes.size(); ++i)
        if (static_cast<std::size_t>(kCodes[i].code) != i || kCodes[i].text == nullptr)
          return false;
      return true;
    }(),
    "a row for each code, in the order of their values");

}  // namespace

const char* describe(Code code) {
  const auto row = static_cast<std::size_t>(code);
  return row < kCodes.size() ? kCodes[row].text : "unknown result code";
}

Code failure_code(std::uint64_t value) {
  return value == 0 || value >= kCodes.size() ? Code::kRemoteError : static_cast<Code>(value);
}

tl::unexpected<Error> errno_error(std::string_view what, int error_number) {
  return make_error(Code::kSystemError,
                    fmt::format("{}: {} (errno {})", what,
                                std::generic_category().message(error_number), error_number));
}

}  // namespace tutti
