// SPDX-License-Identifier: Apache-2.0
#include "generate.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <vector>

#include "order.hpp"
#include "values.hpp"

namespace tutti::programs {
namespace {

class Generator {
 public:
  Generator(std::uint32_t seed, const Limits& limits)
      : random_(seed), limits_(limits), order_(empty_program()) {}

  Program run() {
    const int steps = 1 + below(limits_.most_steps);
    for (int drawn = 0; drawn < steps;) {
      const std::vector<Step> unit = below(6) == 0 ? group() : std::vector<Step>{step()};
      // A unit that is not legal is drawn again; the count of tries bounds the loop.
      drawn += order_.add(unit) ? static_cast<int>(unit.size()) : 1;
    }
    return order_.program();
  }

 private:
  std::uint32_t draw() { return static_cast<std::uint32_t>(random_()); }
  // 0 <= result < bound. The standard's distributions differ between libraries.
  int below(int bound) { return static_cast<int>(draw() % static_cast<unsigned>(bound)); }

  Program empty_program() {
    Program program;
    constexpr std::array<int, 8> kRanks{1, 2, 2, 3, 3, 4, 4, 5};
    program.ranks = std::min(kRanks[static_cast<std::size_t>(below(8))], limits_.most_ranks);
    program.streams = 1 + below(4);
    const int types = 1 + below(2), buffers = 2 + below(3);
    for (int i = 0; i < types; ++i)
      program.buffers.insert(program.buffers.end(), static_cast<std::size_t>(buffers),
                             static_cast<tuttiDataType_t>(below(tuttiNumTypes)));
    return program;
  }

  int stream() { return below(4) == 0 ? kNoStream : below(order_.program().streams); }
  // One that is there: the last few are the likeliest to be.
  int comm() {
    for (int tries = 0; tries < 8; ++tries)
      if (const int drawn = below(order_.comms()); order_.is_there(drawn)) return drawn;
    return 0;
  }
  std::uint32_t count() {
    const int kind = below(16);
    if (kind == 0) return 0;
    if (kind < 10) return 1 + static_cast<std::uint32_t>(below(40));
    if (kind < 15) return 1 + static_cast<std::uint32_t>(below(1000));
    return 1 + draw() % limits_.most_count;
  }
  tuttiRedOp_t operation(tuttiDataType_t type) {
    constexpr std::array kAll{tuttiSum,        tuttiProd,      tuttiMax,       tuttiMin,
                              tuttiAvg,        tuttiBitAnd,    tuttiBitOr,     tuttiBitXor,
                              tuttiLogicalAnd, tuttiLogicalOr, tuttiLogicalXor};
    return kAll[static_cast<std::size_t>(below(is_float(type) ? 5 : 11))];
  }

  Step call() {
    const std::vector<tuttiDataType_t>& buffers = order_.program().buffers;
    Step step{.kind = static_cast<Kind>(below(static_cast<int>(Kind::kTransfer) + 1)),
              .comm = comm(),
              .stream = stream(),
              .stagger = below(3) == 0 ? 1 : 0};
    if (below(5) == 0) step.kind = Kind::kTransfer;
    step.out = below(static_cast<int>(buffers.size()));
    do step.in = below(static_cast<int>(buffers.size()));
    while (buffers[static_cast<std::size_t>(step.in)] !=
           buffers[static_cast<std::size_t>(step.out)]);
    if (below(4) == 0) step.in_first = static_cast<std::uint32_t>(below(300));
    if (below(4) == 0) step.out_first = static_cast<std::uint32_t>(below(300));
    if (step.kind != Kind::kBarrier) step.count = count();
    if (reduces(step.kind)) step.op = operation(buffers[static_cast<std::size_t>(step.out)]);
    step.root = below(order_.program().ranks);
    if (step.kind == Kind::kTransfer) step.peer = below(order_.program().ranks);
    if (is_v_form(step.kind)) step.salt = draw();
    // On all ranks, on none, or on some.
    constexpr std::array<std::uint32_t, 4> kMasks{0, 0, ~0u, 0b01101};
    step.in_place = kMasks[static_cast<std::size_t>(below(4))] & ((1u << kMostRanks) - 1);
    return step;
  }

  std::vector<Step> group() {
    std::vector<Step> unit;
    const int own = ++groups_, calls = 2 + below(5);
    const bool one_stream = below(2) == 0, all_wait = below(3) == 0;
    for (int i = 0; i < calls; ++i) {
      Step next = call();
      next.group = own;
      // Groups exist for transfers above all.
      if (below(2) == 0) {
        next.kind = Kind::kTransfer;
        next.op = tuttiSum;
        next.in_place = 0;
        next.peer = below(order_.program().ranks);
      }
      if (one_stream && i > 0) next.stream = unit[0].stream;
      if (all_wait) next.stream = kNoStream;
      unit.push_back(next);
      Order tried = order_;
      if (!tried.add(unit)) unit.pop_back();
    }
    if (unit.empty()) unit.push_back(call());
    return unit;
  }

  Step step() {
    const int kind = below(24);
    if (kind < 14) return call();
    Step step{.stream = below(order_.program().streams), .stagger = below(4) == 0 ? 1 : 0};
    if (kind < 17) {  // a function
      constexpr std::array kFunctions{Kind::kFill, Kind::kAdd, Kind::kSnapshot};
      step.kind = kFunctions[static_cast<std::size_t>(kind - 14)];
      step.out = below(static_cast<int>(order_.program().buffers.size()));
      step.salt = step.kind == Kind::kFill ? draw() : 0;
      step.stream = stream();
    } else if (kind < 22) {
      constexpr std::array kOrdering{Kind::kRecord, Kind::kWait, Kind::kSynchronizeEvent,
                                     Kind::kSynchronizeStream, Kind::kQuery};
      step.kind = kOrdering[static_cast<std::size_t>(kind - 17)];
      step.event = below(kEvents);
    } else {
      step = {.comm = comm()};
      const int what = below(5);
      step.kind = what < 2 ? Kind::kSplit : what < 3 ? Kind::kDestroy : Kind::kAlgorithm;
      if (step.kind == Kind::kSplit) step.peer = below(kDivisions);
      if (step.kind == Kind::kSplit) step.made = order_.comms();
      if (step.kind == Kind::kAlgorithm)
        step.salt = static_cast<std::uint32_t>(below(static_cast<int>(std::size(kAlgorithms))));
    }
    return step;
  }

  static constexpr int kMostRanks = 8;

  std::mt19937 random_;
  const Limits limits_;
  Order order_;
  int groups_ = 0;
};

}  // namespace

Program generate(std::uint32_t seed, const Limits& limits) { return Generator(seed, limits).run(); }

}  // namespace tutti::programs
