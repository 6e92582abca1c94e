// SPDX-License-Identifier: Apache-2.0
// A contest: ways to run a collective beside each other on one communicator, interleaved, so that
// what disturbs the machine disturbs all of them alike.
//
// For each size, `repetitions` rounds; in each round every competitor runs a series of as many
// calls as the others, in an order that is turned from round to round. A series' time is the
// average of all ranks', per call, as in all_reduce_perf: a rank ends a series a few microseconds
// before or after the others, which the longest time would add to every call of a short series. The
// data are floats, summed if the collective reduces, out of place, and the root is rank 0; nothing
// is checked here (the perf tools do).
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
  // Every rank writes what it sends before each call, as a program that computes its data does. All
  // wait for each other before the clock starts, so this is for data of some KiB and more. Without
  // it, what a peer has read stays in the peer's cache.
  bool fresh = false;
};

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

// Says what is wrong with the options, in words of the programs' flags; "" if nothing is wrong.
[[nodiscard]] std::string mistake_in(const ContestOptions& options);

// Collective: every rank of `comm` with equal options. Throws Error. Progress goes to `done`, if it
// is set, after each size.
[[nodiscard]] std::vector<ContestSize> run_contest(
    Communicator& comm, const ContestOptions& options,
    const std::function<void(const ContestSize&)>& done = {});

[[nodiscard]] double median(std::vector<double> values);

}  // namespace tutti::perf
