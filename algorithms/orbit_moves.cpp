// SPDX-License-Identifier: Apache-2.0
#include "algorithms/orbit_moves.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <tuple>

#include "schedule/verify/step_checks.hpp"

namespace tutti {
namespace {

// The first chunk of the shortest span that names any: moves of ranks show there what they do.
std::optional<std::uint32_t> sample_chunk(const RankProgram& program) {
  std::optional<Span> shortest;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps)
      for (const auto* side : {&step.destinations, &step.sources})
        for (const Operand& operand : *side)
          if (proof::is_logical(operand) && operand.span.count() > 0 &&
              (!shortest || operand.span.count() < shortest->count()))
            shortest = operand.span;
  if (!shortest) return std::nullopt;
  return shortest->first;
}

}  // namespace

tl::unexpected<Error> not_by_orbit(const Algorithm& algorithm, std::string_view why) {
  return make_error(
      Code::kNotSupported,
      fmt::format("{} cannot be verified from one rank's program: {}", algorithm.name, why));
}

Result<Moves> Moves::find(const Algorithm& algorithm, const Problem& problem,
                          const RankProgram& program) {
  const Symmetry symmetry = algorithm.symmetry(problem);
  if (!is_one_orbit(algorithm, problem))
    return not_by_orbit(algorithm, "its ranks are not all alike");
  Moves moves(symmetry.groups, problem.ranks, algorithm.shape(problem).chunks);
  const std::optional<std::uint32_t> own = sample_chunk(program);
  if (!own) return not_by_orbit(algorithm, "it moves no data");
  for (Rank unit = 1; unit < problem.ranks; unit *= 2) {
    const std::optional<std::uint32_t> there = sample_chunk(algorithm.program(problem, unit));
    if (!there) return not_by_orbit(algorithm, "its ranks are not all alike");
    moves.units_.push_back(moves.shifts() ? (*there + moves.chunks_ - *own) % moves.chunks_
                                          : *own ^ *there);
    if (moves.shifts()) break;
  }
  TUTTI_TRY(moves.check_blocks(algorithm, problem));
  return moves;
}

std::uint32_t Moves::chunk(std::uint32_t of, Rank to) const {
  if (shifts())
    return static_cast<std::uint32_t>(
        (of + std::uint64_t{units_.front()} * static_cast<std::uint64_t>(to)) % chunks_);
  for (std::size_t bit = 0; bit < units_.size(); ++bit)
    if ((to >> bit & 1) != 0) of ^= units_[bit];
  return of;
}

std::optional<Span> Moves::span(Span of, Rank to) const {
  if (of.count() == 0) return of;
  if (shifts()) {
    of.first = chunk(of.first, to);
    return of;
  }
  const bool aligned = std::has_single_bit(of.run) && of.first % of.run == 0;
  if (of.repetitions != 1 || !aligned) return std::nullopt;
  of.first = chunk(of.first, to) & ~(of.run - 1);
  return of;
}

std::optional<std::vector<std::uint32_t>> Moves::orbits() const {
  std::vector<bool> seen(chunks_);
  std::vector<std::uint32_t> first;
  for (std::uint32_t c = 0; c < chunks_; ++c) {
    if (seen[c]) continue;
    first.push_back(c);
    for (Rank to = 0; to < ranks_; ++to) {
      const std::uint32_t image = chunk(c, to);
      if (image >= chunks_ || seen[image]) return std::nullopt;
      seen[image] = true;
    }
  }
  return first;
}

Status Moves::check_blocks(const Algorithm& algorithm, const Problem& problem) const {
  if (!info_of(problem.collective).blocks) return {};
  const std::uint32_t each = chunks_ / static_cast<std::uint32_t>(ranks_);
  for (std::size_t bit = 0; bit < units_.size(); ++bit)
    if (units_[bit] != each << bit || chunks_ % static_cast<std::uint32_t>(ranks_) != 0)
      return not_by_orbit(algorithm, "its blocks do not move with their ranks");
  return {};
}

namespace {

std::optional<Operand> image_of(Operand operand, const Moves& moves, Rank to) {
  if (operand.kind != OperandKind::kLocal) operand.peer = moves.rank(operand.peer, to);
  if (!proof::is_logical(operand)) return operand;
  const std::optional<Span> span = moves.span(operand.span, to);
  if (!span) return std::nullopt;
  operand.span = *span;
  return operand;
}

bool is_image(const Step& step, const Step& of, const Moves& moves, Rank to) {
  if (step.finish != of.finish || step.waits != of.waits ||
      step.destinations.size() != of.destinations.size() ||
      step.sources.size() != of.sources.size())
    return false;
  const auto same = [&](const Operand& a, const Operand& b) {
    return image_of(b, moves, to) == std::optional<Operand>(a);
  };
  if (!std::ranges::equal(step.destinations, of.destinations, same)) return false;
  if (std::ranges::equal(step.sources, of.sources, same)) return true;
  // Sources may stand in another order.
  const auto key = [](const Operand& o) {
    return std::tuple(o.kind, o.buffer, o.peer, o.tag, o.span.first, o.span.run, o.span.stride,
                      o.span.repetitions);
  };
  std::vector<Operand> own = step.sources, images;
  for (const Operand& operand : of.sources) {
    const std::optional<Operand> image = image_of(operand, moves, to);
    if (!image) return false;
    images.push_back(*image);
  }
  std::ranges::sort(own, {}, key);
  std::ranges::sort(images, {}, key);
  return own == images;
}

}  // namespace

bool is_image(const RankProgram& program, const RankProgram& of, const Moves& moves, Rank to) {
  return std::ranges::equal(program.lanes, of.lanes, [&](const Lane& a, const Lane& b) {
    return a.replica == b.replica &&
           std::ranges::equal(a.steps, b.steps, [&](const Step& x, const Step& y) {
             return is_image(x, y, moves, to);
           });
  });
}

}  // namespace tutti
