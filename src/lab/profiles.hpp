// SPDX-License-Identifier: Apache-2.0
// The JSON texts of src/lab/profiles as CMake put them into the program. Pure data.
#pragma once

#include <span>
#include <string_view>

namespace tutti {

struct ProfileText {
  std::string_view name, text;
};

[[nodiscard]] std::span<const ProfileText> compiled_in_profiles();

}  // namespace tutti
