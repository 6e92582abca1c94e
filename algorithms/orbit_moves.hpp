// SPDX-License-Identifier: Apache-2.0
// The moves of a schedule in which all ranks are alike: what the move that takes rank 0 to another
// rank does to ranks, to chunks, and so to programs. Read off the programs of a few ranks. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace tutti {

// kNotSupported: why a schedule cannot be verified from one rank's program.
[[nodiscard]] tl::unexpected<Error> not_by_orbit(const Algorithm& algorithm, std::string_view why);

// Does the algorithm declare that every rank does what rank 0 does? Never where one is the root,
// whose buffers are not the others'.
[[nodiscard]] inline bool is_one_orbit(const Algorithm& algorithm, const Problem& problem) {
  const Symmetry symmetry = algorithm.symmetry(problem);
  return !info_of(problem.collective).rooted && symmetry.groups != Move::kNone &&
         symmetry.group == 1 && symmetry.paired == 0;
}

class Moves {
 public:
  // `program`: rank 0's. Errors: not_by_orbit(), where the ranks are not all alike.
  [[nodiscard]] static Result<Moves> find(const Algorithm& algorithm, const Problem& problem,
                                          const RankProgram& program);

  [[nodiscard]] bool shifts() const { return move_ == Move::kShift; }
  // Where the move that takes rank 0 to `to` takes `of`.
  [[nodiscard]] Rank rank(Rank of, Rank to) const {
    if (!shifts()) return of ^ to;
    const Rank sum = of + to;
    return sum >= ranks_ ? sum - ranks_ : sum;
  }
  // The move that takes `to` to rank 0, as the rank to which it takes rank 0.
  [[nodiscard]] Rank back(Rank to) const { return shifts() && to > 0 ? ranks_ - to : to; }
  [[nodiscard]] std::uint32_t chunk(std::uint32_t of, Rank to) const;
  // nullopt: its image is no span in the same order.
  [[nodiscard]] std::optional<Span> span(Span of, Rank to) const;
  // One chunk of each orbit; nullopt where a move leaves a chunk where it is.
  [[nodiscard]] std::optional<std::vector<std::uint32_t>> orbits() const;

 private:
  Moves(Move move, std::int32_t ranks, std::uint32_t chunks)
      : move_(move), ranks_(ranks), chunks_(chunks) {}

  // Blocks must go where their ranks go.
  [[nodiscard]] Status check_blocks(const Algorithm& algorithm, const Problem& problem) const;

  Move move_;
  std::int32_t ranks_;
  std::uint32_t chunks_;
  std::vector<std::uint32_t> units_;  // of a shift by 1, or of each bit
};

// Is `program` what the move that takes rank 0 to `to` makes of the program `of`? Up to the order
// of a step's sources.
[[nodiscard]] bool is_image(const RankProgram& program, const RankProgram& of, const Moves& moves,
                            Rank to);

}  // namespace tutti
