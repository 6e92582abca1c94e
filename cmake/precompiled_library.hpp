// SPDX-License-Identifier: Apache-2.0
// Headers of others that most sources of the library include, compiled once for all of them
// (TuttiBuild.cmake). A source includes what it uses all the same:
// CMAKE_DISABLE_PRECOMPILE_HEADERS=ON compiles without.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>
