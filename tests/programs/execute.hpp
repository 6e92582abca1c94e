// SPDX-License-Identifier: Apache-2.0
// Runs a program through the library, ranks as threads of this process, and compares what it leaves
// with the model's.
#pragma once

#include <functional>
#include <string>

#include "model.hpp"
#include "program.hpp"

namespace tutti::programs {

struct ExecuteOptions {
  int op_timeout_ms = 60'000;
  // To prove that a wrong byte is found: called at each rank after each step that it has issued,
  // with its buffers.
  std::function<void(int rank, std::size_t step, std::vector<std::vector<std::byte>>& buffers)>
      after_step{};
};

// Empty: every call succeeded and left what the model says. Else the first difference, or what the
// call that failed said. Nothing of the program runs afterwards.
[[nodiscard]] std::string check(const Program& program, const ExecuteOptions& options = {});

}  // namespace tutti::programs
