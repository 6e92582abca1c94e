// The index of the algorithms, held against their schedules: the numbers in algorithms/README.md
// and the pictures of docs/pictures.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <string>

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
