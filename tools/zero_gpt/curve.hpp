// SPDX-License-Identifier: Apache-2.0
// The loss curve as CSV and SVG. Every column of the CSV is a function of the run's arguments
// alone, with digits that read back as the same bits: two runs agree if their files do.
#pragma once

#include <string>
#include <vector>

namespace tutti::gpt {

struct Point {
  int step = 0;
  double loss = 0;  // nats per token
  float learning_rate = 0;
  float gradient_norm = 0;  // before clipping
};

[[nodiscard]] std::string csv_head();
[[nodiscard]] std::string csv_line(const Point& point);
// The head and the rows of a curve's file before step `first`; the head alone if there is no such
// file.
[[nodiscard]] std::string csv_before(const std::string& path, int first);

struct Level {  // a horizontal line
  std::string name;
  double loss;
};
[[nodiscard]] std::string curve_svg(const std::string& title, const std::vector<Point>& points,
                                    const std::vector<Level>& levels);

}  // namespace tutti::gpt
