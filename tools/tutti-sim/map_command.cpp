// SPDX-License-Identifier: Apache-2.0
#include "map_command.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "lab/predict.hpp"
#include "sizes.hpp"

namespace tutti::sim {
namespace {

// Okabe and Ito 2008: told apart by the colour-blind.
constexpr std::array<std::string_view, 9> kColours{"#0072b2", "#e69f00", "#009e73",
                                                   "#cc79a7", "#56b4e9", "#d55e00",
                                                   "#f0e442", "#000000", "#999999"};
constexpr double kFullColour = 0.25;  // the second is this much behind, or more
constexpr int kCellWidth = 44, kCellHeight = 26, kLeft = 70, kTop = 48;

std::string escape(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<' || c == '>' || c == '&' || c == '"') {
      safe += fmt::format("&#{};", static_cast<int>(c));
    } else {
      safe += c;
    }
  }
  return safe;
}

MapCell cell_of(std::vector<double> times) {
  MapCell cell;
  const auto best = std::ranges::min_element(times);
  cell.winner = static_cast<std::size_t>(best - times.begin());
  cell.time_us = *best;
  double second = 0;
  for (std::size_t i = 0; i < times.size(); ++i)
    if (i != cell.winner && (second == 0 || times[i] < second)) second = times[i];
  cell.ahead = second == 0 ? 0 : second / cell.time_us - 1;
  cell.times_us = std::move(times);
  return cell;
}

Result<std::vector<MapCell>> row_of(const MapOptions& options, Profile& profile,
                                    std::int32_t nodes) {
  TUTTI_TRY_ASSIGN(const Cluster cluster, resize(options.predict.cluster, nodes));
  std::vector<Predictor> predictors;
  for (const std::string& name : options.predict.algorithms) {
    TUTTI_TRY_ASSIGN(const AlgorithmProfile algorithm, resolve_algorithm(profile, name));
    TUTTI_TRY_ASSIGN(Predictor predictor,
                     Predictor::make(cluster, profile, algorithm, options.predict.collective));
    predictors.push_back(std::move(predictor));
  }
  std::vector<MapCell> row;
  for (const std::uint64_t size : options.predict.sizes_bytes) {
    std::vector<double> times;
    for (const Predictor& predictor : predictors) {
      TUTTI_TRY_ASSIGN(const Prediction prediction, predictor.predict(profile, size));
      times.push_back(prediction.time_ns / 1e3);
    }
    row.push_back(cell_of(std::move(times)));
  }
  return row;
}

std::string svg_cell(const CrossoverMap& map, std::size_t n, std::size_t s) {
  const MapCell& cell = map.cells[n][s];
  std::string title = fmt::format("{} nodes, {}:", map.nodes[n],
                                  short_size(static_cast<double>(map.sizes_bytes[s])));
  for (std::size_t i = 0; i < map.algorithms.size(); ++i)
    title += fmt::format(" {} {:.4g} us", map.algorithms[i], cell.times_us[i]);
  return fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" fill-opacity=\"{:.2f}\">"
      "<title>{}</title></rect>\n",
      kLeft + static_cast<int>(s) * kCellWidth,
      kTop + static_cast<int>(map.nodes.size() - 1 - n) * kCellHeight, kCellWidth - 1,
      kCellHeight - 1, kColours[cell.winner % kColours.size()],
      0.3 + 0.7 * std::min(1.0, cell.ahead / kFullColour), escape(title));
}

}  // namespace

Result<CrossoverMap> make_map(const MapOptions& options) {
  CrossoverMap map{options.predict.algorithms, options.nodes, options.predict.sizes_bytes, {}};
  if (map.algorithms.empty() || map.nodes.empty() || map.sizes_bytes.empty())
    return make_error(Code::kInvalidArgument, "a map needs algorithms, numbers of nodes and sizes");
  Profile profile = options.predict.profile;
  for (const std::int32_t nodes : options.nodes) {
    TUTTI_TRY_ASSIGN(std::vector<MapCell> row, row_of(options, profile, nodes));
    map.cells.push_back(std::move(row));
  }
  return map;
}

// Sizes to the right, nodes downwards, a letter for each algorithm; small where the second is
// within 5 %.
std::string to_text(const CrossoverMap& map) {
  std::string text;
  for (std::size_t i = 0; i < map.algorithms.size(); ++i)
    text += fmt::format("# {} {}\n", static_cast<char>('A' + i % 26), map.algorithms[i]);
  text += "# lower case: the second best is within 5 %\n";
  text += fmt::format("{:>8}", "nodes");
  for (const std::uint64_t size : map.sizes_bytes)
    text += fmt::format("{:>7}", short_size(static_cast<double>(size)));
  text += "\n";
  for (std::size_t n = 0; n < map.nodes.size(); ++n) {
    text += fmt::format("{:>8}", map.nodes[n]);
    for (const MapCell& cell : map.cells[n]) {
      const bool tie = map.algorithms.size() > 1 && cell.ahead <= 0.05;
      text += fmt::format("{:>7}", static_cast<char>((tie ? 'a' : 'A') + cell.winner % 26));
    }
    text += "\n";
  }
  return text;
}

std::string to_csv(const CrossoverMap& map) {
  std::string text = "nodes,size_bytes,winner,time_us,second_behind\n";
  for (std::size_t n = 0; n < map.nodes.size(); ++n)
    for (std::size_t s = 0; s < map.sizes_bytes.size(); ++s) {
      const MapCell& cell = map.cells[n][s];
      text += fmt::format("{},{},{},{:.3f},{:.4f}\n", map.nodes[n], map.sizes_bytes[s],
                          map.algorithms[cell.winner], cell.time_us, cell.ahead);
    }
  return text;
}

std::string to_svg(const CrossoverMap& map, const std::string& title) {
  const int rows = static_cast<int>(map.nodes.size());
  const int bottom = kTop + rows * kCellHeight;
  const int width = kLeft + static_cast<int>(map.sizes_bytes.size()) * kCellWidth + 20;
  const int height = bottom + 60 + 20 * static_cast<int>(map.algorithms.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
      "<text x=\"10\" y=\"22\" font-size=\"14\">{2}</text>\n<text x=\"10\" "
      "y=\"{3}\">nodes</text>\n",
      width, height, escape(title), kTop - 8);
  for (std::size_t n = 0; n < map.nodes.size(); ++n) {
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLeft - 8,
                       kTop + (rows - 1 - static_cast<int>(n)) * kCellHeight + 17, map.nodes[n]);
    for (std::size_t s = 0; s < map.sizes_bytes.size(); ++s) svg += svg_cell(map, n, s);
  }
  for (std::size_t s = 0; s < map.sizes_bytes.size(); ++s)
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                       kLeft + static_cast<int>(s) * kCellWidth + kCellWidth / 2, bottom + 16,
                       short_size(static_cast<double>(map.sizes_bytes[s])));
  for (std::size_t i = 0; i < map.algorithms.size(); ++i) {
    const int y = bottom + 40 + 20 * static_cast<int>(i);
    svg += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{}\">{}</text>\n",
        kLeft, y - 11, kColours[i % kColours.size()], kLeft + 22, y, escape(map.algorithms[i]));
  }
  return svg + "</svg>\n";
}

Status print_map(const MapOptions& options, std::FILE* out) {
  TUTTI_TRY_ASSIGN(const CrossoverMap map, make_map(options));
  std::string text;
  switch (options.format) {
    case MapFormat::kText:
      text = to_text(map);
      break;
    case MapFormat::kCsv:
      text = to_csv(map);
      break;
    case MapFormat::kSvg:
      text = to_svg(map, fmt::format("{} on {}, profile {}: predicted winner",
                                     name_of(options.predict.collective),
                                     options.predict.cluster.name, options.predict.profile.name));
      break;
  }
  std::fwrite(text.data(), 1, text.size(), out);
  return {};
}

}  // namespace tutti::sim
