// SPDX-License-Identifier: Apache-2.0
#include "common/contest.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <set>

#include "common/buffer.hpp"
#include "tutti/explain.h"

namespace tutti::perf {
namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<tuttiCandidate_t> candidates_for(const Communicator& comm, std::string_view collective,
                                             std::size_t count, bool windows) {
  const std::string name(collective);
  std::size_t total = 0;
  check(tuttiGetCandidates(comm.get(), name.c_str(), count, tuttiFloat, windows ? 1 : 0, nullptr,
                           sizeof(tuttiCandidate_t), 0, &total),
        comm.get());
  std::vector<tuttiCandidate_t> all(total);
  check(tuttiGetCandidates(comm.get(), name.c_str(), count, tuttiFloat, windows ? 1 : 0, all.data(),
                           sizeof all[0], total, &total),
        comm.get());
  return all;
}

constexpr int kRoot = 0;

tuttiResult_t call(Collective collective, const void* send, void* receive, std::size_t count,
                   tuttiComm_t comm) {
  switch (collective) {
    case Collective::kAllReduce:
      return tuttiAllReduce(send, receive, count, tuttiFloat, tuttiSum, comm, nullptr);
    case Collective::kBroadcast:
      return tuttiBroadcast(send, receive, count, tuttiFloat, kRoot, comm, nullptr);
    case Collective::kReduce:
      return tuttiReduce(send, receive, count, tuttiFloat, tuttiSum, kRoot, comm, nullptr);
    case Collective::kAllGather:
      return tuttiAllGather(send, receive, count, tuttiFloat, comm, nullptr);
    case Collective::kReduceScatter:
      return tuttiReduceScatter(send, receive, count, tuttiFloat, tuttiSum, comm, nullptr);
    case Collective::kAllToAll:
      return tuttiAlltoAll(send, receive, count, tuttiFloat, comm, nullptr);
    case Collective::kGather:
      return tuttiGather(send, receive, count, tuttiFloat, kRoot, comm, nullptr);
    case Collective::kScatter:
      return tuttiScatter(send, receive, count, tuttiFloat, kRoot, comm, nullptr);
    default:
      return tuttiInvalidArgument;  // mistake_in() says so
  }
}

std::string algorithm_of(const std::string& name) { return name.substr(0, name.find('@')); }

// Floats, all 1; in a symmetric window of the communicator where that is wanted, else in pages of
// the program's own.
class Buffer {
 public:
  Buffer(const Communicator& comm, std::uint64_t bytes, bool window) : comm_(comm.get()) {
    if (window)
      check(tuttiMemAlloc(&memory_, bytes));
    else
      memory_ = own_.emplace(bytes).data();
    std::fill_n(static_cast<float*>(memory_), bytes / sizeof(float), 1.0F);
    if (window)
      check(tuttiCommWindowRegister(comm_, memory_, bytes, &window_, TUTTI_WIN_COLL_SYMMETRIC),
            comm_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (own_) return;
    if (window_ != nullptr) static_cast<void>(tuttiCommWindowDeregister(comm_, window_));
    static_cast<void>(tuttiMemFree(memory_));
  }
  [[nodiscard]] void* data() const { return memory_; }

 private:
  tuttiComm_t comm_;
  std::optional<GuardedBuffer> own_;
  void* memory_ = nullptr;
  tuttiWindow_t window_ = nullptr;
};

class Contest {
 public:
  Contest(Communicator& comm, Communicator& barrier, const ContestOptions& options)
      : comm_(comm),
        barrier_(barrier),
        options_(options),
        blocks_(info_of(options.collective).blocks_among(comm.nranks())),
        send_(comm, data_bytes(options.max_bytes), options.windows),
        receive_(comm, data_bytes(options.max_bytes), options.windows) {}

  ContestSize run(std::uint64_t bytes) {
    ContestSize size{.bytes = bytes, .chosen = {}, .competitors = {}};
    enter(size);
    std::vector<double> once_us;
    for (const Competitor& each : size.competitors) {
      force(each.name);
      time_us(bytes, 2);  // connects
      once_us.push_back(time_us(bytes, 3));
    }
    once_us.push_back(prepared_us_);
    once_us = agree(std::move(once_us));
    const double prepared_us = once_us.back();
    once_us.pop_back();
    // Series of one length: how ranks run ahead of each other within one shows in its time.
    const double least = *std::ranges::min_element(once_us);
    const int calls = static_cast<int>(std::clamp(options_.series_us / least, 2.0, 1000.0));
    const double all_us = std::accumulate(once_us.begin(), once_us.end(),
                                          prepared_us * static_cast<double>(once_us.size()));
    const double round_us = all_us * (calls + 1);
    const int least_rounds = std::min(options_.least_repetitions, options_.repetitions);
    const int rounds = static_cast<int>(std::clamp(options_.seconds_a_size * 1e6 / round_us,
                                                   static_cast<double>(least_rounds),
                                                   static_cast<double>(options_.repetitions)));
    for (int round = 0; round < rounds; ++round) run_round(size, calls, round);
    share(size);
    return size;
  }

 private:
  // As in the call: of the vector, or of a block.
  [[nodiscard]] std::size_t count_of(std::uint64_t bytes) const {
    return std::max<std::size_t>(1, bytes / sizeof(float) / blocks_);
  }
  [[nodiscard]] std::uint64_t data_bytes(std::uint64_t bytes) const {
    return count_of(bytes) * blocks_ * sizeof(float);
  }

  // By this rank.
  [[nodiscard]] std::size_t sent_elements(std::uint64_t bytes) const {
    const CollectiveInfo& info = info_of(options_.collective);
    if (!CollectiveInfo::has(info.input, comm_.rank(), kRoot)) return 0;
    return info.elements(info.input, count_of(bytes), comm_.nranks());
  }

  void force(const std::string& name) {
    comm_.set_algorithm(fmt::format("{}:{}", name_of(options_.collective), name).c_str());
  }

  void enter(ContestSize& size) {
    for (const std::string& name : options_.names) size.competitors.push_back({name, 0, {}});
    if (!options_.names.empty()) return;
    comm_.set_algorithm("auto");
    const auto all =
        candidates_for(comm_, name_of(options_.collective), count_of(size.bytes), options_.windows);
    for (int i = 0; i < options_.autos; ++i) size.competitors.push_back({"auto", 0, {}});
    std::set<std::string> seen;
    for (const tuttiCandidate_t& each : all) {
      if (each.runs != 0) {
        size.chosen = each.name;
        for (Competitor& automatic : size.competitors)
          if (automatic.name == "auto") automatic.priced_us = each.timeUs;
      }
      const bool near = each.timeUs <= options_.price_limit * all.front().timeUs;
      if (options_.every_candidate && !near) continue;
      // Where slots are forced, several candidates have the same name and are the same.
      const std::string name = options_.every_candidate ? each.name : algorithm_of(each.name);
      if (seen.insert(name).second) size.competitors.push_back({each.name, each.timeUs, {}});
    }
  }

  void run_round(ContestSize& size, int calls, int round) {
    const std::size_t n = size.competitors.size();
    for (std::size_t turn = 0; turn < n; ++turn) {
      const std::size_t i = (turn + static_cast<std::size_t>(round)) % n;
      force(size.competitors[i].name);
      time_us(size.bytes, 1);
      size.competitors[i].times_us.push_back(time_us(size.bytes, calls));
    }
  }

  // Nearly all programs broadcast in place.
  [[nodiscard]] void* source() const {
    return options_.collective == Collective::kBroadcast ? receive_.data() : send_.data();
  }

  void call(std::uint64_t bytes) {
    check(perf::call(options_.collective, source(), receive_.data(), count_of(bytes), comm_.get()),
          comm_.get());
  }

  double time_us(std::uint64_t bytes, int calls) {
    if (bytes >= options_.fresh_from) return time_fresh_us(bytes, calls);
    const double start = now_us();
    for (int i = 0; i < calls; ++i) call(bytes);
    return (now_us() - start) / calls;
  }

  // The clock starts when all have written: where ranks share a core, one would else wait for
  // another's writing.
  double time_fresh_us(std::uint64_t bytes, int calls) {
    double sum_us = 0;
    const double first = now_us();
    for (int i = 0; i < calls; ++i) {
      std::fill_n(static_cast<float*>(source()), sent_elements(bytes), 1.0F);
      check(tuttiBarrier(barrier_.get(), nullptr), barrier_.get());
      const double start = now_us();
      call(bytes);
      sum_us += now_us() - start;
    }
    prepared_us_ = (now_us() - first - sum_us) / calls;
    return sum_us / calls;
  }

  // The ranks' average. By whatever runs: what was forced may need windows.
  std::vector<double> agree(std::vector<double> own) {
    comm_.set_algorithm("auto");
    check(tuttiAllReduce(own.data(), own.data(), own.size(), tuttiDouble, tuttiAvg, comm_.get(),
                         nullptr),
          comm_.get());
    return own;
  }

  void share(ContestSize& size) {
    for (Competitor& each : size.competitors) each.times_us = agree(std::move(each.times_us));
  }

  Communicator& comm_;
  Communicator& barrier_;
  const ContestOptions& options_;
  const std::uint64_t blocks_;  // of the data
  Buffer send_, receive_;
  double prepared_us_ = 0;  // what came before each call of the last series, untimed
};

// In words of the programs' flags; "" if nothing is wrong.
std::string mistake_in(const ContestOptions& options) {
  const Collective collective = options.collective;
  if (is_point_to_point(collective) || scheduled_as(collective) != collective ||
      info_of(collective).outcome == Outcome::kNothing)
    return fmt::format("{} has no algorithms of its own to compare", name_of(collective));
  if (options.min_bytes <= options.max_bytes) return "";
  return fmt::format(
      "there is no size from --minbytes {} to --maxbytes {}; give the smaller one as --minbytes",
      options.min_bytes, options.max_bytes);
}

}  // namespace

void force_nothing() {
  for (const char* name : {"TUTTI_ALGO", "TUTTI_PROTO", "TUTTI_SLOTS", "TUTTI_SLOT_BYTES",
                           "TUTTI_REPLICAS", "TUTTI_SLICES"})
    ::unsetenv(name);
}

std::string find_collectives(const std::vector<std::string>& names, ContestOptions options,
                             std::vector<Collective>& to) {
  to.clear();
  const auto mistake_of = [&](Collective collective) {
    options.collective = collective;
    return mistake_in(options);
  };
  for (const std::string& name : names) {
    const auto collective = parse_collective(name);
    if (!collective && name != "all")
      return fmt::format("--collectives: there is no {}; use all, or some of {}", name,
                         known_collectives());
    if (collective) {
      if (std::string mistake = mistake_of(*collective); !mistake.empty()) return mistake;
      to.push_back(*collective);
      continue;
    }
    if (std::string mistake = mistake_of(Collective::kAllReduce); !mistake.empty()) return mistake;
    for (std::size_t i = 1; i < kCollectiveCount; ++i)
      if (const auto each = static_cast<Collective>(i); mistake_of(each).empty())
        to.push_back(each);
  }
  return "";
}

std::vector<ContestSize> run_contest(Communicator& comm, Communicator& barrier,
                                     const ContestOptions& options,
                                     const std::function<void(const ContestSize&)>& done) {
  Contest contest(comm, barrier, options);
  std::vector<ContestSize> sizes;
  for (std::uint64_t bytes = options.min_bytes; bytes <= options.max_bytes;
       bytes *= options.factor) {
    sizes.push_back(contest.run(bytes));
    if (done) done(sizes.back());
  }
  return sizes;
}

double median(std::vector<double> values) {
  if (values.empty()) return NAN;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace tutti::perf
