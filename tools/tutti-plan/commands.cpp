// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "algorithms/algorithm.hpp"
#include "algorithms/orbit_proof.hpp"
#include "base/clock.hpp"
#include "schedule/pace.hpp"
#include "schedule/passes.hpp"
#include "schedule/print.hpp"
#include "schedule/unroll.hpp"
#include "schedule/verifier.hpp"

namespace tutti {
namespace {

// A picture beyond this is no longer looked at.
constexpr std::size_t kMaxDrawnSteps = 50'000;
// Steps and messages up to which the pace is counted: many slices of them, far dearer than the
// proof. Here up to 2 s and 0.2 GiB.
constexpr std::uint64_t kMaxPaced = std::uint64_t{1} << 19;
// Operands of all ranks up to which a schedule is verified as a whole; of more, by orbit.
constexpr std::uint64_t kMostWholeOperands = std::uint64_t{1} << 21;
// Ranks whose programs are then compared with rank 0's.
constexpr std::uint32_t kCompared = 64;

Status check_replicas(const ScheduleShape& shape, std::uint32_t replicas) {
  constexpr std::uint64_t kTags = std::uint64_t{1} << (8 * sizeof(Tag));
  if (std::uint64_t{shape.tags} * replicas <= kTags) return {};
  return make_error(
      Code::kInvalidArgument,
      fmt::format("{} replicas of {} tags are more than {} tags", replicas, shape.tags, kTags));
}

Result<Problem> problem_of(const CollectiveOptions& asked, std::uint32_t ranks) {
  const std::optional<Collective> collective = parse_collective(asked.name);
  if (!collective)
    return make_error(Code::kInvalidArgument,
                      fmt::format("--collective '{}' is unknown; choose one of {}", asked.name,
                                  known_collectives()));
  return Problem{.collective = *collective,
                 .ranks = static_cast<std::int32_t>(ranks),
                 .root = static_cast<Rank>(asked.root)};
}

// A schedule that build() can make.
struct Case {
  const Algorithm* algorithm;
  Problem problem;
};
Result<Case> check_case(const CollectiveOptions& collective, const std::string& name,
                        std::uint32_t ranks, std::uint32_t replicas) {
  TUTTI_TRY_ASSIGN(const Algorithm* algorithm, find_algorithm(name));
  if (ranks > kMaxWholeRanks)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{} ranks are too many to show at once (limit {}); show one with --rank", ranks,
                    kMaxWholeRanks));
  TUTTI_TRY_ASSIGN(const Problem problem, problem_of(collective, ranks));
  TUTTI_TRY(check_problem(*algorithm, problem));
  TUTTI_TRY(check_replicas(algorithm->shape(problem), replicas));
  return Case{algorithm, problem};
}

Result<Schedule> build(const Case& of, std::uint32_t replicas) {
  TUTTI_TRY_ASSIGN(const Schedule schedule, build_schedule(*of.algorithm, of.problem));
  return replicate(schedule, replicas);
}

std::size_t count_steps(const RankProgram& program) {
  std::size_t steps = 0;
  for (const Lane& lane : program.lanes) steps += lane.steps.size();
  return steps;
}

std::uint64_t count_operands(const RankProgram& program) {
  std::uint64_t operands = 0;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps) operands += step.destinations.size() + step.sources.size();
  return operands;
}

// Adds rank after rank, so that a picture that is too large is refused before it is built.
Status check_picture(const ShowOptions& options) {
  TUTTI_TRY_ASSIGN(const Case one, check_case(options.collective, options.algorithm, options.ranks,
                                              options.replicas));
  const std::size_t copies = std::max<std::size_t>(options.replicas, options.slices);
  std::size_t steps = 0;
  for (Rank rank = 0; rank < one.problem.ranks; ++rank) {
    steps += copies * count_steps(one.algorithm->program(one.problem, rank));
    if (steps > kMaxDrawnSteps)
      return make_error(Code::kInvalidArgument,
                        fmt::format("the first {} of {} ranks have {} steps, but a picture holds "
                                    "{}; use fewer ranks or slices",
                                    rank + 1, options.ranks, steps, kMaxDrawnSteps));
  }
  return {};
}

std::size_t count_steps(const Schedule& schedule) {
  std::size_t steps = 0;
  for (const RankProgram& program : schedule.ranks) steps += count_steps(program);
  return steps;
}

// To `file`, or to `out` if it has no name; what is lost there, the end of the program finds.
Status write(const std::string& text, const std::string& file, std::FILE* out) {
  if (file.empty()) {
    static_cast<void>(std::fwrite(text.data(), 1, text.size(), out));
    return {};
  }
  std::FILE* const to = std::fopen(file.c_str(), "w");
  if (to == nullptr)
    return make_error(Code::kSystemError, fmt::format("{}: {}", file, std::strerror(errno)));
  bool written = std::fwrite(text.data(), 1, text.size(), to) == text.size();
  written = std::fclose(to) == 0 && written;
  if (!written)
    return make_error(Code::kSystemError,
                      fmt::format("{} cannot be written: {}", file, std::strerror(errno)));
  return {};
}

Result<int> show_one_rank(const ShowOptions& options, std::FILE* out) {
  TUTTI_TRY_ASSIGN(const Algorithm* algorithm, find_algorithm(options.algorithm));
  if (options.format != Format::kText || options.slices > 1)
    return make_error(Code::kInvalidArgument,
                      "--rank needs --format text and cannot be combined with --slices");
  if (*options.rank >= options.ranks)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("--rank {} is out of range: there are {} ranks", *options.rank, options.ranks));
  TUTTI_TRY_ASSIGN(const Problem problem, problem_of(options.collective, options.ranks));
  TUTTI_TRY(check_problem(*algorithm, problem));
  const ScheduleShape shape = algorithm->shape(problem);
  TUTTI_TRY(check_replicas(shape, options.replicas));
  const auto rank = static_cast<Rank>(*options.rank);
  const RankProgram program =
      replicate_program(shape, algorithm->program(problem, rank), options.replicas);
  TUTTI_TRY(
      write(to_text(replicate_shape(shape, options.replicas), rank, program), options.file, out));
  return 0;
}

// Prints what was proved, a line a case, and counts.
class CaseTable {
 public:
  // As wide as the longest of these names.
  CaseTable(std::FILE* out, const std::vector<std::string>& names) : out_(out) {
    for (const std::string& name : names) name_width_ = std::max(name_width_, name.size() + 1);
    fmt::print(out_,
               "{:<{}}{:>6}{:>9}{:>7}{:>7}{:>7}{:>7}{:>10}{:>12}{:>8}{:>8}{:>10}{:>11}{:>11}"
               "{:>10}{:>10}\n",
               "# algorithm", name_width_, "ranks", "replicas", "slices", "slots", "depth", "steps",
               "per-slice", "messages", "sent", "reduced", "roundings", "rank-order", "canonical",
               "events", "ms");
  }

  // `slices` 0: any number.
  void check(const Schedule& schedule, std::uint32_t replicas, std::uint32_t slices,
             std::uint32_t slots) {
    fmt::print(out_, "{:<{}}{:>6}{:>9}{:>7}", schedule.shape.algorithm, name_width_,
               schedule.shape.ranks, replicas, slices == 0 ? "any" : fmt::format("{}", slices));
    const Result<Schedule> whole = slices > 1 ? unroll(schedule, slices) : schedule;
    if (!whole) {
      ++not_written_;
      fmt::print(out_, "  NOT UNROLLED: {}; without --slices, verify covers any number of slices\n",
                 whole.error().message);
      return;
    }
    const std::int64_t start_ns = now_ns();
    const Result<Proof> proof = verify(*whole, {.slots = slots});
    const double ms = static_cast<double>(now_ns() - start_ns) / 1e6;
    if (proof) {
      ++proved_;
      std::optional<Pace> pace;
      if (count_steps(schedule) + proof->messages <= kMaxPaced)
        pace = pace_of(schedule, std::max(slots, proof->minimal_slots));
      fmt::print(
          out_, "{:>7}{:>7}{:>7}{:>10}{:>12}{:>8}{:>8}{:>10}{:>11}{:>11}{:>10}{:>10.3f}\n",
          proof->minimal_slots, proof->depth, pace ? fmt::format("{}", pace->first_slice) : "-",
          pace ? fmt::format("{:.2f}", pace->per_slice) : "-", proof->messages,
          proof->max_sent_chunks, proof->max_reduced_chunks, proof->max_roundings,
          proof->in_rank_order ? "yes" : "no", proof->canonical ? "yes" : "no", proof->events, ms);
    } else {
      ++fell_;
      fmt::print(out_, "  FAILED: {}\n", proof.error().message);
    }
    std::fflush(out_);
  }

  // From the program of one rank, compared with those of others, if the ranks are alike.
  void check_by_orbit(const Case& of, std::uint32_t replicas, std::uint32_t slots) {
    const auto ranks = static_cast<std::uint32_t>(of.problem.ranks);
    fmt::print(out_, "{:<{}}{:>6}{:>9}{:>7}", of.algorithm->name, name_width_, ranks, replicas,
               "any");
    std::vector<Rank> compared;
    for (std::uint32_t i = 0; i < kCompared; ++i)
      compared.push_back(static_cast<Rank>(std::uint64_t{ranks} * i / kCompared));
    const std::int64_t start_ns = now_ns();
    const Result<Proof> proof = prove_any(*of.algorithm, of.problem, {.slots = slots}, compared);
    const double ms = static_cast<double>(now_ns() - start_ns) / 1e6;
    if (!proof) {
      ++fell_;
      fmt::print(out_, "  {}: {}\n",
                 proof.error().code == Code::kNotSupported ? "NOT VERIFIED" : "FAILED",
                 proof.error().message);
      return;
    }
    ++proved_;
    ++by_orbit_;
    fmt::print(out_, "{:>7}{:>7}{:>7}{:>10}{:>12}{:>8}{:>8}{:>10}{:>11}{:>11}{:>10}{:>10.3f}\n",
               proof->minimal_slots, proof->depth, "-", "-", proof->messages * replicas,
               proof->max_sent_chunks, proof->max_reduced_chunks, proof->max_roundings, "-", "-",
               proof->events, ms);
    std::fflush(out_);
  }

  int finish() {
    if (by_orbit_ > 0)
      fmt::print(out_,
                 "# {} of more than {} operands: from one rank's program, if all ranks are alike, "
                 "compared with those of {} others\n",
                 by_orbit_, kMostWholeOperands, kCompared);
    fmt::print(out_, "# {} verified, {} failed{}\n", proved_, fell_,
               not_written_ == 0 ? "" : fmt::format(", {} not unrolled", not_written_));
    return fell_ + not_written_ == 0 ? 0 : 1;
  }

 private:
  std::FILE* out_;
  std::size_t name_width_ = 13;  // for the families
  std::uint64_t proved_ = 0, fell_ = 0, not_written_ = 0, by_orbit_ = 0;
};

Result<Schedule> read_schedule(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  // An empty file sets failbit on the string stream; the reader below says what is wrong with it.
  if (stream) text << stream.rdbuf();
  if (!stream || stream.bad())
    return make_error(Code::kSystemError, fmt::format("{}: cannot be read", file));
  Result<Schedule> schedule = from_json(text.str());
  if (!schedule) schedule.error().message = fmt::format("{}: {}", file, schedule.error().message);
  return schedule;
}

}  // namespace

Result<int> list_algorithms(std::FILE* out) {
  std::size_t name = 0, summary = 0;
  for (const Algorithm* algorithm : all_algorithms()) {
    name = std::max(name, algorithm->name.size());
    summary = std::max(summary, algorithm->summary.size());
  }
  fmt::print(out, "{:<{}}  {:<{}}  {}\n", "# name", name, "summary (p ranks, n bytes)", summary,
             "source");
  for (const Algorithm* algorithm : all_algorithms())
    fmt::print(out, "{:<{}}  {:<{}}  {}\n", algorithm->name, name, algorithm->summary, summary,
               algorithm->source);
  fmt::print(out, "# parameters, as in circulant:radix=4; A and B are names of this list\n");
  for (const Algorithm* algorithm : all_algorithms())
    if (!algorithm->parameters.empty())
      fmt::print(out, "#   {:<{}}  {}\n", algorithm->name, name, algorithm->parameters);
  return 0;
}

Result<int> show(const ShowOptions& options, std::FILE* out) {
  if (options.rank) return show_one_rank(options, out);
  if (options.format == Format::kSvg) TUTTI_TRY(check_picture(options));
  TUTTI_TRY_ASSIGN(const Case one, check_case(options.collective, options.algorithm, options.ranks,
                                              options.replicas));
  TUTTI_TRY_ASSIGN(Schedule schedule, build(one, options.replicas));
  if (options.slices > 1) {
    TUTTI_TRY_ASSIGN(schedule, unroll(schedule, options.slices));
  }
  const std::string text = options.format == Format::kText   ? to_text(schedule)
                           : options.format == Format::kJson ? to_json(schedule)
                                                             : to_svg(schedule);
  TUTTI_TRY(write(text, options.file, out));
  return 0;
}

Result<int> verify_cases(const VerifyCommandOptions& options, std::FILE* out) {
  const std::vector<std::uint32_t> any{0};
  const std::vector<std::uint32_t>& slices = options.slices.empty() ? any : options.slices;
  if (!options.file.empty()) {
    TUTTI_TRY_ASSIGN(const Schedule schedule, read_schedule(options.file));
    CaseTable table(out, {schedule.shape.algorithm});
    for (const std::uint32_t s : slices)
      table.check(schedule, schedule.shape.replicas, s, options.slots);
    return table.finish();
  }
  std::vector<std::string> names = options.algorithms;
  if (names.empty()) {
    TUTTI_TRY_ASSIGN(const Problem problem, problem_of(options.collective, 4));
    for (const Algorithm* algorithm : all_algorithms())
      if (algorithm->supports(problem)) names.emplace_back(algorithm->name);
    if (names.empty())
      return make_error(Code::kInvalidArgument,
                        fmt::format("no algorithm has schedules of {}", options.collective.name));
  }
  // Bad input is said before the first of many proofs.
  for (const std::string& name : names)
    for (const std::uint32_t ranks : options.ranks)
      for (const std::uint32_t replicas : options.replicas)
        TUTTI_TRY(check_case(options.collective, name, ranks, replicas));
  CaseTable table(out, names);
  for (const std::string& name : names)
    for (const std::uint32_t ranks : options.ranks)
      for (const std::uint32_t replicas : options.replicas) {
        TUTTI_TRY_ASSIGN(const Case one, check_case(options.collective, name, ranks, replicas));
        const RankProgram first = one.algorithm->program(one.problem, one.problem.root);
        if (options.slices.empty() && count_operands(first) * ranks > kMostWholeOperands) {
          table.check_by_orbit(one, replicas, options.slots);
          continue;
        }
        TUTTI_TRY_ASSIGN(const Schedule schedule, build(one, replicas));
        for (const std::uint32_t s : slices) table.check(schedule, replicas, s, options.slots);
      }
  return table.finish();
}

}  // namespace tutti
