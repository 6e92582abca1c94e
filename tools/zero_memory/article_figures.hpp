// SPDX-License-Identifier: Apache-2.0
// The figures of articles about training large models, beside the right ones and ours.
//
// What an article says is quoted. What is right comes from the papers and from arithmetic, written
// down by hand. Ours is computed by the functions of this folder, so that a mistake in either
// shows. Pure; any thread.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::zero_memory {

enum class Article { kGiants, kSystems, kCourse, kChapter };
// A letter for tables, and the whole title.
[[nodiscard]] std::string_view letter_of(Article article);
[[nodiscard]] std::string_view title_of(Article article);

struct Figure {
  Article article;
  std::string what;
  std::string unit;
  std::optional<double> said;  // none: the article says it in words, in `why`
  double right = 0;
  double ours = 0;
  std::string why;  // where the article errs, or what its figure rests on
};
// How far figures may lie apart that articles round.
inline constexpr double kArticleRounding = 0.03, kRightRounding = 0.005;
[[nodiscard]] inline bool close(double a, double b, double rounding) {
  return std::abs(a - b) <= rounding * std::abs(b);
}
[[nodiscard]] inline bool agrees(const Figure& figure) {
  return figure.said && close(*figure.said, figure.ours, kArticleRounding);
}

[[nodiscard]] std::vector<Figure> article_figures();
[[nodiscard]] std::string article_table(const std::vector<Figure>& figures);

}  // namespace tutti::zero_memory
