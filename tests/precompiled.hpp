// SPDX-License-Identifier: Apache-2.0
// Headers of others that most tests include, compiled once for all of them
// (cmake/TuttiBuild.cmake). A test includes what it uses all the same:
// CMAKE_DISABLE_PRECOMPILE_HEADERS=ON compiles without.
#pragma once

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tl/expected.hpp>
#include <vector>
