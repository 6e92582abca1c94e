// SPDX-License-Identifier: Apache-2.0
// How every program of this project reads its flags: --help and --version go to standard output,
// and a mistake is one line on stderr that names the program.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

#include "tutti/tutti.h"

namespace tutti::perf {

// Adds --version, which prints for example "tutti-plan (Tutti) 0.1.0".
inline void add_version_flag(CLI::App& app) {
  app.set_version_flag("--version", fmt::format("{} (Tutti) {}.{}.{}", app.get_name(), TUTTI_MAJOR,
                                                TUTTI_MINOR, TUTTI_PATCH));
}

// Returns the exit status if the program is to end now: 0 after --help and --version, 2 for bad
// usage.
inline std::optional<int> parse_flags(CLI::App& app, int argc, char** argv) {
  constexpr int kBadUsage = 2;
  add_version_flag(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{0}: {1} (see {0} --help)\n", app.get_name(), error.what());
    return kBadUsage;
  }
  return std::nullopt;
}

}  // namespace tutti::perf
