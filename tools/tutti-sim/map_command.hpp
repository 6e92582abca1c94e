// SPDX-License-Identifier: Apache-2.0
// `tutti-sim map`: which algorithm wins where, over numbers of nodes and sizes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "predict_command.hpp"

namespace tutti::sim {

enum class MapFormat { kText, kCsv, kSvg };

struct MapOptions {
  PredictOptions predict;  // its cluster's number of nodes is replaced by each of:
  std::vector<std::int32_t> nodes;
  MapFormat format = MapFormat::kText;
};

// One number of nodes at one size.
struct MapCell {
  std::size_t winner = 0;  // index into the algorithms
  double time_us = 0;
  double ahead = 0;  // of the second: its time over the winner's, less 1; 0 where there is none
  std::vector<double> times_us;
};

struct CrossoverMap {
  std::vector<std::string> algorithms;
  std::vector<std::int32_t> nodes;
  std::vector<std::uint64_t> sizes_bytes;
  std::vector<std::vector<MapCell>> cells;  // [nodes][sizes]
};

[[nodiscard]] Result<CrossoverMap> make_map(const MapOptions& options);
[[nodiscard]] std::string to_text(const CrossoverMap& map);
[[nodiscard]] std::string to_csv(const CrossoverMap& map);
// Colours are algorithms, fainter where the second is less than 25 % behind.
[[nodiscard]] std::string to_svg(const CrossoverMap& map, const std::string& title);

[[nodiscard]] Status print_map(const MapOptions& options, std::FILE* out);

}  // namespace tutti::sim
