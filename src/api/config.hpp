// SPDX-License-Identifier: Apache-2.0
// What functions of the C boundary share: refusals of arguments, and configurations.
#pragma once

#include <tutti/tutti.h>

#include <cstring>
#include <string_view>

#include "comm/communicator.hpp"

namespace tutti {

// The value of an enumeration that a C caller may have set to anything.
template <typename Enum>
[[nodiscard]] int value_of(const Enum& caller_s) {
  int value;
  static_assert(sizeof value == sizeof caller_s);
  std::memcpy(&value, &caller_s, sizeof value);
  return value;
}

// "function: what".
[[nodiscard]] tl::unexpected<Error> bad_argument(const char* function, std::string_view what);
// The same before the error's own text.
[[nodiscard]] Error in_call(const char* function, Error error);

// Errors: kInvalidArgument naming `function`, for a number that is no data type, or no rank's.
[[nodiscard]] Result<DataType> check_type(const char* function, int type);
[[nodiscard]] Status check_root(const char* function, int root, std::int32_t ranks);

// `base` with what `config` (may be null) sets. Errors: kInvalidArgument naming the field.
[[nodiscard]] Result<CommunicatorOptions> make_options(const Config& base,
                                                       const tuttiConfig_t* config,
                                                       const char* function);

}  // namespace tutti
