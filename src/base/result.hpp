// SPDX-License-Identifier: Apache-2.0
// Errors as values. The first function that knows the cause writes the message; the code says what
// the caller can do next. Nothing is thrown across the library's boundary.
//
//   Result<UniqueFd> fd = open_segment(bytes);
//   TUTTI_TRY(connect(peer));                     // returns the error from this function
//   TUTTI_TRY_ASSIGN(auto segment, map(*fd));     // declares and assigns, or returns the error
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "base/types.hpp"

namespace tutti {

// Values equal those of tuttiResult_t. A new one needs a row in result.cpp and a name in tutti.h.
enum class Code : std::uint8_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,      // the operating system refused: look at the message, fix the machine
  kInternalError = 3,    // a bug in Tutti: report it
  kInvalidArgument = 4,  // fix the call
  kInvalidUsage = 5,     // fix the program: calls do not match between ranks, wrong state
  kRemoteError = 6,      // a peer died or failed: abort, then shrink or restart
  kInProgress = 7,       // not an error: ask again
  kTimeout = 8,          // a bounded wait ran out: a live peer did not come
  kNotSupported = 9,     // legal, but this build cannot do it
};

inline constexpr std::size_t kCodeCount = 10;

[[nodiscard]] const char* describe(Code code);
// The code of an error that came as a number, from a peer or from shared memory: kRemoteError where
// it names none.
[[nodiscard]] Code failure_code(std::uint64_t value);

struct Error {
  Code code = Code::kInternalError;
  std::string message;     // one line: what, where, what to do
  Rank culprit = kNoRank;  // the rank that caused it, if known
};

// A Result is moved, not copied: tl::expected copies in noexcept functions, so that the program
// ends where there is no memory for the copy. A local one that is returned is therefore not const.
template <typename T>
using Result = tl::expected<T, Error>;

using Status = Result<void>;

// An error of the given code. `make_error(Code::kTimeout, fmt::format(...), rank)`.
[[nodiscard]] inline tl::unexpected<Error> make_error(Code code, std::string message,
                                                      Rank culprit = kNoRank) {
  return tl::unexpected<Error>(Error{code, std::move(message), culprit});
}

// A kSystemError from errno: "what: strerror (errno)".
[[nodiscard]] tl::unexpected<Error> errno_error(std::string_view what, int error_number);

}  // namespace tutti

#define TUTTI_CONCAT_(a, b) a##b
#define TUTTI_CONCAT(a, b) TUTTI_CONCAT_(a, b)
#define TUTTI_TRY(expression)                                                \
  do {                                                                       \
    auto&& tutti_try_ = (expression);                                        \
    if (!tutti_try_) return ::tl::unexpected(std::move(tutti_try_).error()); \
  } while (0)
#define TUTTI_TRY_ASSIGN(declaration, expression)                                      \
  auto&& TUTTI_CONCAT(tutti_result_, __LINE__) = (expression);                         \
  if (!TUTTI_CONCAT(tutti_result_, __LINE__))                                          \
    return ::tl::unexpected(std::move(TUTTI_CONCAT(tutti_result_, __LINE__)).error()); \
  declaration = *std::move(TUTTI_CONCAT(tutti_result_, __LINE__))
