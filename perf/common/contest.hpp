// SPDX-License-Identifier: Apache-2.0
// A contest: ways to run a collective beside each other on one communicator, interleaved, so that
// what disturbs the machine disturbs all of them alike.
//
// For each size, `repetitions` rounds; in each round every competitor runs a series of as many
// calls as the others, in an order that is turned from round to round. A series' time is the
// average of all ranks', per call, as in all_reduce_perf: a rank ends a series a few microseconds
// before or after the others, which the longest time would add to every call of a short series. The
// data are floats, summed if the collective reduces; a broadcast is in place, all others are not;
// the root is rank 0. Nothing is checked here (the perf tools do).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/collective.hpp"
#include "tutti/tutti.hpp"

namespace tutti::perf {

struct ContestOptions {
  Collective collective = Collective::kNone;  // to be named; one that schedules serve
  std::uint64_t min_bytes = 8;                // of the whole data, all blocks of it
  std::uint64_t max_bytes = std::uint64_t{64} << 20;
  std::uint64_t factor = 2;
  int repetitions = 20;
  int least_repetitions = 8;       // where a size would take longer than
  double seconds_a_size = 6;       //   this
  double series_us = 3000;         // as many calls as take the fastest so long, 2 at least
  bool every_candidate = false;    // else the cheapest of each algorithm
  double price_limit = 4;          // candidates dearer than this many times the cheapest stay away
  int autos = 2;                   // how often `auto` takes part: twice to see the noise
  std::vector<std::string> names;  // of plans; not empty: these alone take part
  bool windows = false;            // buffers in symmetric windows
  // From so many bytes, every rank writes what it sends before each call, as a program that
  // computes its data does. Without it, what a peer has read stays in the peer's cache. All wait
  // for each other before the clock starts, which changes the time of small calls too much.
  std::uint64_t fresh_from = ~std::uint64_t{0};
};
// For `fresh_from`, where small and large calls are compared in one contest.
inline constexpr std::uint64_t kFreshBytes = 32 << 10;

struct Competitor {
  std::string name;  // forces it; "auto": the library's choice
  double priced_us = 0;
  std::vector<double> times_us;  // by repetition; per call
};

struct ContestSize {
  std::uint64_t bytes = 0;  // as asked for; whole elements and blocks of it run, one at least
  std::string chosen;       // the name of what `auto` runs
  std::vector<Competitor> competitors;
};

// Unsets what forces plans: under it a plan may be another one than its name says. Before threads.
void force_nothing();

// Finds the collectives that --collectives names, or all; `options`: of their contests. Says what
// is wrong with either, in words of the programs' flags; "" if nothing is wrong.
[[nodiscard]] std::string find_collectives(const std::vector<std::string>& names,
                                           ContestOptions options, std::vector<Collective>& to);

// Collective: every rank of `comm` with equal options. On `barrier`, another communicator of the
// same ranks, they wait for each other: a barrier is an all-reduce, which on `comm` would run by
// what is forced there, and leave that one's lines in the cache. Throws Error. Progress goes to
// `done`, if it is set, after each size.
[[nodiscard]] std::vector<ContestSize> run_contest(
    Communicator& comm, Communicator& barrier, const ContestOptions& options,
    const std::function<void(const ContestSize&)>& done = {});

[[nodiscard]] double median(std::vector<double> values);

}  // namespace tutti::perf
