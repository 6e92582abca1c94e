// SPDX-License-Identifier: Apache-2.0
// What all ranks must have said alike, as numbers to compare: a rank with other settings would wait
// for calls that nobody makes, or train another model. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/parameter_server.hpp"
#include "tutti/zero.hpp"

namespace tutti::zero {

struct Setting {
  const char* name;
  std::uint64_t value;  // of what is no integer, its bits or a hash
  bool readable = true;
};

// memory_limit_bytes and poison may differ.
[[nodiscard]] std::vector<Setting> settings_of(std::span<const Unit> units, const Config& config);
[[nodiscard]] std::vector<Setting> settings_of(const Servers& servers);
[[nodiscard]] std::vector<Setting> settings_of(const AdamW& optimizer);
[[nodiscard]] std::vector<Setting> settings_of(const Sgd& optimizer);

// `all` are the values of each rank, one rank after the other. Returns what differs first, or
// nothing: "rank 1 has slots 16, rank 0 has 8".
[[nodiscard]] std::string difference(std::span<const Setting> own,
                                     std::span<const std::uint64_t> all);
// One number for all of them.
[[nodiscard]] std::uint64_t digest_of(std::span<const Setting> settings);

}  // namespace tutti::zero
