// SPDX-License-Identifier: Apache-2.0
// What tutti-plan does, free of how its flags are parsed. Each command writes to `out` and returns
// the exit status: 0, or 1 where a schedule fell. An Error is bad input: one line, exit status 2.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti {

// One rank count is the most that a schedule as a whole is built for; `show --rank` goes further,
// as it builds one program alone.
inline constexpr std::uint32_t kMaxWholeRanks = 1U << 16;
inline constexpr std::uint32_t kMaxRanks = 1U << 20;
inline constexpr std::uint32_t kMaxSlices = 1U << 12;
inline constexpr std::uint32_t kMaxReplicas = 1U << 10;

enum class Format { kText, kJson, kSvg };

// What a schedule does, as the command line names it.
struct CollectiveOptions {
  std::string name = "all_reduce";
  std::uint32_t root = 0;
};

struct ShowOptions {
  CollectiveOptions collective;
  std::string algorithm;
  std::uint32_t ranks = 0;
  std::optional<std::uint32_t> rank;  // this rank's program alone
  std::uint32_t slices = 1;           // more than 1: written out, slice after slice
  std::uint32_t replicas = 1;
  Format format = Format::kText;
  std::string file;  // empty: standard output
};

struct VerifyCommandOptions {
  CollectiveOptions collective;
  std::vector<std::string> algorithms;  // empty: every family that has the collective
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint32_t> slices;  // empty: any number, by the verifier's composition rule
  std::vector<std::uint32_t> replicas{1};
  std::uint32_t slots = 2;
  std::string file;  // a schedule as JSON, instead of algorithms, ranks and replicas
};

[[nodiscard]] Result<int> list_algorithms(std::FILE* out);
[[nodiscard]] Result<int> show(const ShowOptions& options, std::FILE* out);
[[nodiscard]] Result<int> verify_cases(const VerifyCommandOptions& options, std::FILE* out);

}  // namespace tutti
