// SPDX-License-Identifier: Apache-2.0
// Runs a shell command for a test of a program.
#pragma once

#include <sys/wait.h>

#include <cstddef>
#include <cstdio>
#include <string>

namespace tutti::testing {

// Its output and errors; `status`: its exit status.
inline std::string run_command(const std::string& command, int& status) {
  std::FILE* const pipe = ::popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  std::string output;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    output.append(buffer, n);
  status = WEXITSTATUS(::pclose(pipe));
  return output;
}

}  // namespace tutti::testing
