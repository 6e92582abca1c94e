// SPDX-License-Identifier: Apache-2.0
// The manifest of published measurements by file name (manifest.json), for folders without one.
#pragma once

#include <string_view>

namespace tutti::sim {

[[nodiscard]] std::string_view built_in_manifest();

}  // namespace tutti::sim
