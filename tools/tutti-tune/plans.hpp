// SPDX-License-Identifier: Apache-2.0
// What tutti-tune measures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/machine_profile.hpp"

namespace tutti::tune {

// One job of so many ranks; each plan at each size.
struct Session {
  int ranks = 2;
  bool windows = false;
  std::vector<std::string> plans;
  std::vector<std::uint64_t> bytes;
};

// Do its plans read other processes' memory through the kernel?
[[nodiscard]] bool attaches(const Session& session);

// Every protocol among two ranks and among more ranks than cores, if that is not too many.
[[nodiscard]] std::vector<Session> sessions(int cores);

// Holds a plan's time, and the session in which it was measured.
struct Sample {
  int ranks = 2;
  bool windows = false;
  std::string plan;
  std::uint64_t bytes = 0;
  double time_us = 0;
};

}  // namespace tutti::tune
