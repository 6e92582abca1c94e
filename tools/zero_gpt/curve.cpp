// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/curve.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

namespace tutti::gpt {
namespace {

constexpr double kWidth = 800, kHeight = 450, kLeft = 60, kRight = 150, kTop = 40, kBottom = 45;

// From data to the picture.
struct Scale {
  double steps, most_loss;
  [[nodiscard]] double x(double step) const {
    return kLeft + step / steps * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double loss) const {
    return kTop + (1 - loss / most_loss) * (kHeight - kTop - kBottom);
  }
};

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     text);
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" style=\"{}\"/>\n", x1, y1, x2,
      y2, style);
}

std::string axes(const Scale& scale) {
  std::string text;
  for (double loss = 0; loss <= scale.most_loss; loss += 1) {
    text += line(kLeft, scale.y(loss), kWidth - kRight, scale.y(loss), "stroke:#ddd");
    text += label(kLeft - 8, scale.y(loss) + 4, "end", fmt::format("{:.0f}", loss));
  }
  for (int i = 0; i <= 4; ++i) {
    const double step = scale.steps * i / 4;
    text += label(scale.x(step), kHeight - kBottom + 18, "middle", fmt::format("{:.0f}", step));
  }
  text += label((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", "step");
  return text + label(kLeft, kTop - 10, "middle", "nats per token");
}

}  // namespace

std::string csv_head() { return "step,loss,learning_rate,gradient_norm\n"; }

std::string csv_before(const std::string& path, int first) {
  std::ifstream file(path);
  std::string text = csv_head(), line;
  if (!std::getline(file, line) || line + "\n" != text) return text;
  while (std::getline(file, line)) {
    const std::size_t comma = line.find(',');
    if (comma == std::string::npos || std::atoi(line.c_str()) >= first) break;
    text += line + "\n";
  }
  return text;
}

std::string csv_line(const Point& point) {
  return fmt::format("{},{:.17g},{:.9g},{:.9g}\n", point.step, point.loss, point.learning_rate,
                     point.gradient_norm);
}

std::string curve_svg(const std::string& title, const std::vector<Point>& points,
                      const std::vector<Level>& levels) {
  Scale scale{1, 1};
  for (const Point& point : points) {
    scale.steps = std::max(scale.steps, static_cast<double>(point.step));
    if (std::isfinite(point.loss)) scale.most_loss = std::max(scale.most_loss, point.loss);
  }
  for (const Level& level : levels) scale.most_loss = std::max(scale.most_loss, level.loss);
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  text += axes(scale) + label(kWidth / 2, 20, "middle", title);
  for (const Level& level : levels) {
    const double y = scale.y(level.loss);
    text += line(kLeft, y, kWidth - kRight, y, "stroke:#c33;stroke-dasharray:6 4");
    text += label(kWidth - kRight + 6, y + 4, "start",
                  fmt::format("{} {:.3f}", level.name, level.loss));
  }
  text += "<polyline fill=\"none\" stroke=\"#136\" stroke-width=\"1.5\" points=\"";
  for (const Point& point : points)
    if (std::isfinite(point.loss))
      text += fmt::format("{:.1f},{:.1f} ", scale.x(point.step), scale.y(point.loss));
  return text + "\"/>\n</svg>\n";
}

}  // namespace tutti::gpt
