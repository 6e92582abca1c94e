// SPDX-License-Identifier: Apache-2.0
#include "memory_picture.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace tutti::zero_memory {
namespace {

constexpr double kLeft = 80, kTop = 60, kWidth = 620, kHeight = 360, kRight = 110, kBottom = 60;
constexpr std::array<std::string_view, kStages.size()> kColours{"#c0392b", "#d68910", "#1e8449",
                                                                "#2471a3"};

std::string escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else
      escaped += c;
  }
  return escaped;
}

std::string short_bytes(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.3g} TB", bytes / 1e12);
  if (bytes >= 1e9) return fmt::format("{:.3g} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.3g} MB", bytes / 1e6);
  return fmt::format("{:.3g} kB", bytes / 1e3);
}

// Decades of bytes against doublings of ranks.
struct Axes {
  int doublings = 1;
  int first_decade = 0, last_decade = 1;
  [[nodiscard]] double x(double doubling) const { return kLeft + kWidth * doubling / doublings; }
  [[nodiscard]] double y(double bytes) const {
    const double up = (std::log10(bytes) - first_decade) / (last_decade - first_decade);
    return kTop + kHeight * (1 - up);
  }
};

Axes axes_for(const Model& model, const Accounting& accounting, std::uint64_t most_ranks,
              std::uint64_t memory_bytes) {
  Axes axes;
  const auto width = std::bit_width(std::max<std::uint64_t>(most_ranks, 2) - 1);
  axes.doublings = static_cast<int>(width);
  const double most = state_bytes(model.parameters, Stage::kDdp, accounting, 1).total();
  const double least =
      state_bytes(model.parameters, Stage::kZero3, accounting, std::uint64_t{1} << axes.doublings)
          .total();
  const auto memory = static_cast<double>(memory_bytes);
  axes.first_decade =
      static_cast<int>(std::floor(std::log10(memory_bytes > 0 ? std::min(least, memory) : least)));
  axes.last_decade = static_cast<int>(std::floor(std::log10(std::max(most, memory)))) + 1;
  return axes;
}

std::string grid(const Axes& axes) {
  std::string svg;
  for (int decade = axes.first_decade; decade <= axes.last_decade; ++decade) {
    const double y = axes.y(std::pow(10, decade));
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#dddddd\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, y, kLeft + kWidth, y, kLeft - 8, y + 4, short_bytes(std::pow(10, decade)));
  }
  const int every = 1 + axes.doublings / 12;  // labels that do not touch
  for (int doubling = 0; doubling <= axes.doublings; doubling += every)
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#dddddd\"/>\n"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4}</text>\n",
        axes.x(doubling), kTop, kTop + kHeight, kTop + kHeight + 18, std::uint64_t{1} << doubling);
  return svg + fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">ranks</text>\n",
                           kLeft + kWidth / 2, kTop + kHeight + 42);
}

std::string stage_line(const Model& model, const Accounting& accounting, const Axes& axes,
                       Stage stage) {
  const std::string_view colour = kColours[static_cast<std::size_t>(stage)];
  std::string points, circles;
  double y = 0;
  for (int doubling = 0; doubling <= axes.doublings; ++doubling) {
    const std::uint64_t ranks = std::uint64_t{1} << doubling;
    const double bytes = state_bytes(model.parameters, stage, accounting, ranks).total();
    y = axes.y(bytes);
    points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", axes.x(doubling), y);
    circles += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}, {} ranks: {}</title>"
        "</circle>\n",
        axes.x(doubling), y, colour, name_of(stage), ranks, short_bytes(bytes));
  }
  return fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n{}"
      "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n",
      points, colour, circles, kLeft + kWidth + 8, y + 4, colour, name_of(stage));
}

}  // namespace

std::string memory_svg(const Model& model, const Accounting& accounting, std::uint64_t most_ranks,
                       std::uint64_t memory_bytes) {
  const Axes axes = axes_for(model, accounting, most_ranks, memory_bytes);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#ffffff\"/>\n"
      "<text x=\"20\" y=\"24\" font-size=\"15\">{2}: state on each rank, {3} parameters</text>\n"
      "<text x=\"20\" y=\"42\">{4} + {5} + {6} bytes per parameter: parameters, gradients, "
      "optimizer</text>\n",
      kLeft + kWidth + kRight, kTop + kHeight + kBottom, escape(model.name), model.parameters,
      accounting.parameter, accounting.gradient, accounting.optimizer);
  svg += grid(axes);
  for (const Stage stage : kStages) svg += stage_line(model, accounting, axes, stage);
  if (memory_bytes > 0) {
    const double y = axes.y(static_cast<double>(memory_bytes));
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\" stroke=\"#555555\" "
        "stroke-dasharray=\"6 4\"/>\n<text x=\"{3:.1f}\" y=\"{4:.1f}\" fill=\"#555555\">a rank has "
        "{5}</text>\n",
        kLeft, y, kLeft + kWidth, kLeft + 6, y - 5, short_bytes(static_cast<double>(memory_bytes)));
  }
  return svg + "</svg>\n";
}

}  // namespace tutti::zero_memory
