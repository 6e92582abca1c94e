// SPDX-License-Identifier: Apache-2.0
// The index of the algorithms, held against their schedules: formulas and numbers in
// algorithms/README.md and the pictures of docs/pictures.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "counts.hpp"
#include "samples.hpp"
#include "schedule/print.hpp"

namespace tutti {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TUTTI_SOURCE_DIR;
constexpr std::array<std::int32_t, 7> kRanks{2, 4, 5, 6, 8, 16, 33};

std::string contents(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// "3/2n" of 6 chunks sent among 4.
std::string as_part(std::uint64_t sent, std::uint64_t chunks) {
  const std::uint64_t common = std::gcd(sent, chunks);
  if (chunks == common) return sent == chunks ? "n" : fmt::format("{}n", sent / common);
  return fmt::format("{}/{}n", sent / common, chunks / common);
}

// Messages in a row and the most bytes that a rank sends.
std::string cell(std::string_view name, std::int32_t ranks) {
  const Schedule schedule = samples::built(name, ranks);
  const Proof proof = counts::proof_of(schedule);
  return fmt::format("{}: {}", proof.depth, as_part(proof.max_sent_chunks, schedule.shape.chunks));
}

std::string table() {
  std::string text = "| p |", rule = "|---|";
  for (const std::int32_t ranks : kRanks) {
    text += fmt::format(" {} |", ranks);
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (const Algorithm* algorithm : all_algorithms()) {
    text += fmt::format("| `{}` |", algorithm->name);
    for (const std::int32_t ranks : kRanks)
      text += fmt::format(" {} |", cell(algorithm->name, ranks));
    text += "\n";
  }
  return text;
}

TEST(Index, NumbersAreThoseOfTheSchedules) {
  const std::string page = contents(kRoot / "algorithms/README.md");
  EXPECT_NE(page.find(table()), std::string::npos) << "algorithms/README.md must have this table:\n"
                                                   << table();
}

// The groups of a hierarchy that its defaults make of these rank counts: g of s.
double group_of(double p) {
  double s = std::ceil(std::sqrt(p));
  while (std::fmod(p, s) != 0) ++s;
  return s;
}
// Circulant between the groups.
double rounds_between(double p) { return 2 * std::ceil(std::log2(p / group_of(p))); }
double least_bytes(double p) { return 2 * (p - 1) / p; }

// The cells of the formula table, as numbers: messages, or parts of n. k is the default radix, 2.
using Formula = double (*)(double p);
const std::map<std::string, Formula, std::less<>> kFormulas{
    {"1", [](double) { return 1.0; }},
    {"2", [](double) { return 2.0; }},
    {"2(p-1)", [](double p) { return 2 * (p - 1); }},
    {"log2 p", [](double p) { return std::log2(p); }},
    {"2 log2 p", [](double p) { return 2 * std::log2(p); }},
    {"2 floor(log2 p)", [](double p) { return 2 * std::floor(std::log2(p)); }},
    {"2 ceil(log2 p)", [](double p) { return 2 * std::ceil(std::log2(p)); }},
    {"2 ceil(log_k p)", [](double p) { return 2 * std::ceil(std::log2(p)); }},
    {"inner(s) + outer(g)", [](double p) { return 2 + rounds_between(p); }},
    {"n", [](double) { return 1.0; }},
    {"2n", [](double) { return 2.0; }},
    {"(p-1)/p n", [](double p) { return (p - 1) / p; }},
    {"2(p-1)/p n", least_bytes},
    {"(p-1) n", [](double p) { return p - 1; }},
    {"log2 p n", [](double p) { return std::log2(p); }},
    {"2(s-1)/s n inside, outer's of n/s between",
     [](double p) {
       const double s = group_of(p);
       return least_bytes(s) + least_bytes(p / s) / s;
     }},
    {"(s-1)/s n, outer's of n/s",
     [](double p) {
       const double s = group_of(p), g = p / s;
       return (s - 1) / s + (g - 1) / g / s;
     }},
};

// Cells of a line "| a | b |".
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t at = line.find("| "), end = 0; at != std::string::npos; at = end) {
    end = line.find(" |", at + 2);
    if (end == std::string::npos) break;
    cells.push_back(line.substr(at + 2, end - at - 2));
    ++end;
  }
  return cells;
}

// The rows of the formula table, which alone link to the pages.
std::vector<std::vector<std::string>> formula_rows() {
  std::istringstream page(contents(kRoot / "algorithms/README.md"));
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("| [`")) rows.push_back(cells_of(line));
  return rows;
}

// A cell against what the schedules come to, by rank count. "at most" must be reached somewhere.
void expect_formula(std::string_view cell, const std::map<std::int32_t, double>& found) {
  constexpr std::string_view kBound = "at most ";
  const bool bound = cell.starts_with(kBound);
  const auto formula = kFormulas.find(bound ? cell.substr(kBound.size()) : cell);
  ASSERT_NE(formula, kFormulas.end()) << "'" << cell << "' is not among this test's formulas";
  bool reached = false;
  for (const auto& [ranks, value] : found) {
    const double says = formula->second(ranks);
    if (bound)
      EXPECT_LE(value, says) << cell << " at " << ranks << " ranks";
    else
      EXPECT_DOUBLE_EQ(value, says) << cell << " at " << ranks << " ranks";
    reached = reached || value == says;
  }
  EXPECT_TRUE(reached || !bound) << cell;
}

TEST(Index, FormulasAreThoseOfTheSchedules) {
  const auto rows = formula_rows();
  const auto all = all_algorithms();
  ASSERT_EQ(rows.size(), all.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(all[i]->name);
    ASSERT_EQ(rows[i].size(), 6U);
    EXPECT_EQ(rows[i][0], fmt::format("[`{0}`]({0}.cpp)", all[i]->name)) << "in this order";
    const bool folds = rows[i][5].starts_with("folds");
    std::map<std::int32_t, double> depth, sent, reduced;
    for (const std::int32_t ranks : kRanks) {
      if (folds && !std::has_single_bit(static_cast<std::uint32_t>(ranks))) continue;
      const Schedule schedule = samples::built(all[i]->name, ranks);
      const Proof proof = counts::proof_of(schedule);
      const double chunks = schedule.shape.chunks;
      depth[ranks] = proof.depth;
      sent[ranks] = static_cast<double>(proof.max_sent_chunks) / chunks;
      reduced[ranks] = static_cast<double>(proof.max_reduced_chunks) / chunks;
    }
    expect_formula(rows[i][1], depth);
    expect_formula(rows[i][2], sent);
    expect_formula(rows[i][3], reduced);
  }
}

TEST(Index, EveryFamilyHasItsRowItsPageAndItsPicture) {
  const std::string page = contents(kRoot / "algorithms/README.md");
  for (const Algorithm* algorithm : all_algorithms()) {
    const std::string name(algorithm->name);
    EXPECT_NE(page.find(fmt::format("| [`{0}`]({0}.cpp) |", name)), std::string::npos) << name;
    EXPECT_NE(page.find(fmt::format("(../docs/pictures/{}.svg)", name)), std::string::npos) << name;
    EXPECT_TRUE(fs::exists(kRoot / "algorithms" / (name + ".cpp"))) << name;
  }
}

// Each line of docs/pictures/README.md that draws gives the file that it names.
TEST(Index, DrawingThePicturesAgainGivesTheSameBytes) {
  const std::string page = contents(kRoot / "docs/pictures/README.md");
  std::set<std::string> drawn;
  std::istringstream words(page);
  std::string program, word, name, ranks_flag, output_flag, file;
  std::int32_t ranks = 0;
  while (words >> word) {
    const bool draws = word == "draw" && program == "tutti-plan";
    program = word.ends_with("tutti-plan") ? "tutti-plan" : "";
    if (!draws) continue;
    ASSERT_TRUE(words >> name >> ranks_flag >> ranks >> output_flag >> file);
    ASSERT_EQ(ranks_flag + output_flag, "--ranks-o");
    drawn.insert(fs::path(file).filename());
    EXPECT_EQ(contents(kRoot / file), to_svg(samples::built(name, ranks)))
        << "draw it again: " << name << " among " << ranks << " ranks as " << file;
  }
  std::set<std::string> there;
  for (const fs::directory_entry& entry : fs::directory_iterator(kRoot / "docs/pictures"))
    if (entry.path().extension() == ".svg") there.insert(entry.path().filename());
  EXPECT_EQ(drawn, there);
  EXPECT_GE(there.size(), all_algorithms().size());
}

// The worked example quotes code; it must be that of the tree.
TEST(Index, TheWorkedExampleQuotesWhatIsThere) {
  const std::string page = contents(kRoot / "docs/adding-an-algorithm.md");
  const std::string code =
      contents(kRoot / "algorithms/pat.cpp") + contents(kRoot / "tests/algorithms/pat_test.cpp");
  const std::string open = "```cpp\n", close = "```";
  int quotes = 0;
  for (std::size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
    at += open.size();
    const std::string quote = page.substr(at, page.find(close, at) - at);
    EXPECT_NE(code.find(quote), std::string::npos) << quote;
    ++quotes;
  }
  EXPECT_GE(quotes, 4);
}

}  // namespace
}  // namespace tutti
