// Flags as every program of ours reads them: help on standard output, a mistake as one line that
// names the program.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

namespace tutti::perf {

// The exit status where the program is to end now: 0 after help, 2 for bad usage.
inline std::optional<int> parse_flags(CLI::App& app, int argc, char** argv) {
  constexpr int kBadUsage = 2;
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{0}: {1} (see {0} --help)\n", app.get_name(), error.what());
    return kBadUsage;
  }
  return std::nullopt;
}

}  // namespace tutti::perf
