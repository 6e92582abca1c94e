// What functions of the C boundary share: refusals of arguments, and configurations.
#pragma once

#include <tutti/tutti.h>

#include <string_view>

#include "runtime/communicator.hpp"

namespace tutti {

// "function: what".
[[nodiscard]] tl::unexpected<Error> bad_argument(const char* function, std::string_view what);

// `base` with what `config` (may be null) sets. Errors: kInvalidArgument naming the field.
[[nodiscard]] Result<CommunicatorOptions> make_options(const Config& base,
                                                       const tuttiConfig_t* config,
                                                       const char* function);

}  // namespace tutti
