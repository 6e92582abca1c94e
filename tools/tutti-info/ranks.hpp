// SPDX-License-Identifier: Apache-2.0
// `tutti-info ranks`: what every rank of this host does, whom it waits for, and who holds it up; or
// the same from a flight recorder's files. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "jobs.hpp"

namespace tutti::info {

struct RanksOptions {
  std::size_t history = 0;                // operations of each rank to list, at most
  std::int64_t after_ns = 1'000'000'000;  // waits from here on are a stall
};

// Both end with a newline. The JSON has every operation that is remembered.
[[nodiscard]] std::string ranks_text(const Jobs& jobs, const Moment& now,
                                     const RanksOptions& options);
[[nodiscard]] std::string ranks_json(const Jobs& jobs, const Moment& now,
                                     const RanksOptions& options);

}  // namespace tutti::info
