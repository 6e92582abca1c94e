// SPDX-License-Identifier: Apache-2.0
#include "common/bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

tuttiRedOp_t library_op(Op op) { return static_cast<tuttiRedOp_t>(op); }

constexpr std::size_t kProbeBytes = 8;  // the widest element

class WindowPages : public PageSource {
 public:
  void* allocate(std::size_t bytes) const override {
    void* memory = nullptr;
    return tuttiMemAlloc(&memory, bytes) == tuttiSuccess ? memory : nullptr;
  }
  void release(void* memory, std::size_t) const override {
    static_cast<void>(tuttiMemFree(memory));
  }
};

const PageSource& window_pages() {
  static const WindowPages source;
  return source;
}

}  // namespace

Bench::Bench(const Tool& tool, const Options& options, ThreadRanks& ranks, const BenchPlace& place)
    : tool_(tool),
      options_(options),
      ranks_(ranks),
      place_(place),
      streams_(place.gpus, ranks, options) {
  allocate();
  if (options.windows) make_windows();
  if (options.registered) register_buffers();
}

void Bench::allocate() {
  // The widest element decides how far -u shifts, so that one allocation serves all types.
  std::size_t widest = 1;
  for (const tuttiDataType_t type : options_.types) widest = std::max(widest, element_bytes(type));
  const std::size_t misalign = static_cast<std::size_t>(options_.unalign) * widest;
  const PageSource& source = place_.gpus != nullptr ? place_.gpus->pages()
                             : options_.windows     ? window_pages()
                                                    : private_pages();
  const std::size_t blocks = tool_.info().blocks_among(ranks_.all_ranks());
  for (int i = 0; i < ranks_.count(); ++i) {
    if (place_.gpus != nullptr) place_.gpus->use(place_.gpus->of_rank(ranks_.rank(i)));
    buffers_.push_back({GuardedBuffer(options_.max_bytes, misalign, source),
                        GuardedBuffer(options_.max_bytes, misalign, source),
                        GuardedBuffer(kProbeBytes * blocks, 0, source),
                        nullptr,
                        {},
                        {}});
  }
  // Allocating may wait for the GPU: nobody's first operation is to wait for this rank meanwhile.
  if (place_.gpus != nullptr) ranks_.barrier();
}

Bench::~Bench() {
  for (int i = 0; i < ranks_.count(); ++i) {
    const tuttiComm_t comm = ranks_.comm(i).get();
    for (const tuttiWindow_t window : buffers(i).windows)
      static_cast<void>(tuttiCommWindowDeregister(comm, window));
    for (void* const registration : buffers(i).registrations)
      static_cast<void>(tuttiCommDeregister(comm, registration));
  }
}

void Bench::register_buffers() {
  ranks_.for_each(false, [&](int i) {
    RankBuffers& own = buffers(i);
    for (const GuardedBuffer* buffer : {&own.send, &own.receive}) {
      void* registration = nullptr;
      const tuttiResult_t result = tuttiCommRegister(ranks_.comm(i).get(), buffer->mapping(),
                                                     buffer->mapped_bytes(), &registration);
      if (result != tuttiSuccess) return result;
      own.registrations.push_back(registration);
    }
    return tuttiSuccess;
  });
}

void Bench::make_windows() {
  ranks_.for_each(true, [&](int i) {
    RankBuffers& own = buffers(i);
    for (const GuardedBuffer* buffer : {&own.send, &own.receive}) {
      tuttiWindow_t window = nullptr;
      const tuttiResult_t result =
          tuttiCommWindowRegister(ranks_.comm(i).get(), buffer->mapping(), buffer->mapped_bytes(),
                                  &window, TUTTI_WIN_COLL_SYMMETRIC);
      if (result != tuttiSuccess) return result;
      own.windows.push_back(window);
    }
    return tuttiSuccess;
  });
}

std::uint64_t Bench::buffer_bytes() const {
  std::uint64_t bytes = 0;
  for (const RankBuffers& b : buffers_) bytes += b.send.mapped_bytes() + b.receive.mapped_bytes();
  return bytes;
}

void Bench::run() {
  const CollectiveInfo& info = tool_.info();
  const int first_root = info.rooted ? std::max(options_.root, 0) : 0;
  const int last_root = info.rooted && options_.root < 0 ? ranks_.all_ranks() - 1 : first_root;
  const std::vector<Op> ops = info.reduces() ? options_.ops : std::vector{Op::kSum};
  for (const tuttiDataType_t type : options_.types)
    for (const Op op : ops) {
      if (!prepare(type, op)) continue;
      root_ = first_root;
      warm_up();
      for (int root = first_root; root <= last_root; ++root) {
        root_ = root;
        run_sizes();
      }
    }
}

void Bench::force(const std::string& algorithm) {
  for (int i = 0; i < ranks_.count(); ++i) ranks_.comm(i).set_algorithm(algorithm.c_str());
  forced_ = algorithm;
}

// Measures all sizes for one type, operation and root.
void Bench::run_sizes() {
  for (const std::uint64_t bytes : sizes_of(options_)) {
    const Walk walk = walk_of(bytes);
    Row row;
    row.bytes = walk.bytes;
    row.count = walk.count;
    row.type = type_name(spec_.type);
    row.op = tool_.info().reduces() ? op_name(spec_.op) : tool_.op_name;
    row.root = tool_.info().rooted ? root_ : -1;
    row.forced = forced_;
    if (place_.reporter != nullptr) place_.reporter->row_started(row);
    for (const bool in_place : {false, true}) {
      Measurement measurement = measure(walk, in_place);
      wrong_ += measurement.wrong.value_or(0);
      busbw_sum_ += measurement.busbw;
      ++measurements_;
      if (place_.reporter != nullptr) place_.reporter->measured(measurement);
      (in_place ? row.in_place : row.out_of_place) = std::move(measurement);
    }
    if (place_.reporter != nullptr) place_.reporter->row_finished(row);
    // What is point to point has one way only.
    if (place_.reporter != nullptr && options_.explain && walk.count > 0 &&
        tool_.calls_collective())
      place_.reporter->explained(ranks_.comm(0).explain(tool_.info().name.data(), walk.count,
                                                        spec_.type, options_.windows));
  }
}

Bench::Part Bench::part_of(const BufferRule& rule, const Walk& walk, int rank) const {
  const CollectiveInfo& info = tool_.info();
  if (tool_.uneven) return {0, walk.bytes};
  const std::size_t begin = info.first_element(rule, walk.count, rank) * element_;
  if (!CollectiveInfo::has(rule, rank, root_)) return {begin, begin};
  return {begin, begin + info.elements(rule, walk.count, ranks_.all_ranks()) * element_};
}

// Fills the send buffers for (type, op). False: the library cannot do it, and "all" was asked for,
// so it is left out; every rank finds the same.
bool Bench::prepare(tuttiDataType_t type, Op op) {
  spec_ = {type, op, ranks_.all_ranks(), options_.seed};
  element_ = element_bytes(type);
  try {
    if (op == Op::kMulSum) {
      tuttiRedOp_t made{};
      double scalar = 1;
      check(tuttiRedOpCreatePreMulSum(&made, &scalar, type, tuttiScalarHostImmediate,
                                      ranks_.comm(0).get()),
            ranks_.comm(0).get());
      static_cast<void>(tuttiRedOpDestroy(made, ranks_.comm(0).get()));
      throw Exception(tuttiNotSupported,
                      "this tool has no test data for mulsum; choose another operation with -o");
    }
    const Walk one{.count = 1};
    run_stages(false, [&](int i, int stage) {
      std::byte* const data = buffers(i).probe.data();
      return tool_.run({data + part_of(tool_.info().input, one, ranks_.rank(i)).begin,
                        data + part_of(tool_.info().output, one, ranks_.rank(i)).begin, 1, type,
                        library_op(op), 0, ranks_.comm(i).get(), streams_.of(i), stage});
    });
    streams_.wait();
  } catch (const Exception& error) {
    if (error.code() != tuttiNotSupported || !(options_.all_types || options_.all_ops)) throw;
    if (place_.reporter != nullptr)
      place_.reporter->skipped(
          fmt::format("{} {}: {}", type_name(type), op_name(op), error.what()));
    return false;
  }
  for (int i = 0; i < ranks_.count(); ++i) {
    RankBuffers& b = buffers(i);
    const std::uint64_t whole = options_.max_bytes / element_ * element_;
    b.send.memory().part(0, whole).write([&](std::span<std::byte> piece, std::size_t at) {
      fill_input(spec_, ranks_.rank(i), at / element_, piece.size() / element_, piece.data());
    });
    // Touch the receive buffer too: page faults are not the collective's.
    b.receive.memory().write([](std::span<std::byte> piece, std::size_t) {
      std::fill(piece.begin(), piece.end(), std::byte{0});
    });
    b.fingerprint = std::make_unique<Fingerprint>(b.send.memory());
  }
  return true;
}

Bench::Walk Bench::walk_of(std::uint64_t bytes) {
  Walk walk;
  const std::uint64_t blocks = tool_.info().blocks_among(ranks_.all_ranks());
  walk.count = bytes / element_ / blocks;
  walk.bytes = walk.count * blocks * element_;
  if (tool_.uneven) {
    // As in nccl-tests: the count is that of equal blocks in multiples of 16 bytes.
    const std::uint64_t step = std::max<std::uint64_t>(1, 16 / element_);
    walk.count = walk.count / step * step;
    for (int i = 0; i < ranks_.count(); ++i)
      walk.blocks.push_back(peer_blocks(ranks_.rank(i), ranks_.all_ranks(),
                                        walk.count * blocks * element_, options_.spread, element_));
    walk.bytes = walk.blocks[0].sent() * element_;
  }
  walk.regions = walk.bytes == 0 ? 1 : std::max<std::uint64_t>(1, options_.max_bytes / walk.bytes);
  walk.apart = arguments_of(walk, false);
  walk.in_place = arguments_of(walk, true);
  return walk;
}

std::vector<Arguments> Bench::arguments_of(const Walk& walk, bool in_place) {
  std::vector<Arguments> arguments;
  for (int i = 0; i < ranks_.count(); ++i) {
    RankBuffers& b = buffers(i);
    arguments.push_back(
        {(in_place ? b.receive : b.send).data() +
             part_of(tool_.info().input, walk, ranks_.rank(i)).begin,
         b.receive.data() + part_of(tool_.info().output, walk, ranks_.rank(i)).begin, walk.count,
         spec_.type, library_op(spec_.op), root_, ranks_.comm(i).get(), streams_.of(i)});
  }
  return arguments;
}

void Bench::warm_up() {
  // Every size that will be measured: the first call of a size makes its plan.
  for (const std::uint64_t bytes : sizes_of(options_)) {
    const Walk walk = walk_of(bytes);
    for (int i = 0; i < options_.warmup_iterations; ++i)
      issue(walk, walk.offset(static_cast<std::uint64_t>(i)), false, false);
  }
  streams_.wait();
}

std::uint64_t Bench::timed_operations() const {
  return static_cast<std::uint64_t>(options_.iterations) *
         static_cast<std::uint64_t>(options_.aggregated);
}

// Calls run(i, stage) for each of this thread's ranks, stage after stage.
template <class Run>
void Bench::run_stages(bool group, Run&& run) {
  const int stages = tool_.stages != nullptr ? tool_.stages(ranks_.all_ranks()) : 1;
  for (int stage = 0; stage < stages; ++stage)
    ranks_.for_each(group, [&](int i) { return run(i, stage); });
}

// One operation at `offset` of the buffers, for each of this thread's ranks. Small calls take no
// longer than it takes to look something up: the arguments are there.
void Bench::issue(const Walk& walk, std::size_t offset, bool in_place, bool group) {
  const std::vector<Arguments>& first = in_place ? walk.in_place : walk.apart;
  run_stages(group, [&](int i, int stage) {
    Arguments arguments = first[static_cast<std::size_t>(i)];
    arguments.send = static_cast<const std::byte*>(arguments.send) + offset;
    arguments.receive = static_cast<std::byte*>(arguments.receive) + offset;
    arguments.stage = stage;
    if (tool_.uneven) arguments.blocks = &walk.blocks[static_cast<std::size_t>(i)];
    return tool_.run(arguments);
  });
}

void Bench::run_once(const Walk& walk, std::size_t offset, bool in_place) {
  issue(walk, offset, in_place, false);
  streams_.wait();
}

// Fills the receive buffer before operations on [begin, end): the input if in place, else what no
// result can be taken for.
void Bench::reset_receive(std::size_t begin, std::size_t end, bool in_place) {
  for (RankBuffers& b : buffers_) {
    const MemoryView receive = b.receive.memory().part(begin, end);
    if (in_place)
      receive.copy_from(b.send.memory().part(begin, end));
    else
      poison(receive);
  }
}

Measurement Bench::measure(const Walk& walk, bool in_place) {
  Measurement m;
  run_once(walk, 0, in_place);  // the plan is compiled and connected before the clock starts
  if (place_.reporter != nullptr) m.plan = plan_facts();  // a barrier is a call, too
  const std::uint64_t operations = timed_operations();
  reset_receive(0, walk.bytes * std::min(operations, walk.regions), in_place);
  ranks_.barrier();
  const Timing timing = graphs() ? time_graph(walk, in_place) : time_iterations(walk, in_place);

  m.time_us = combine_times(timing.seconds) * 1e6;
  const std::size_t own = tool_.moves_own_block ? 0 : walk.count * element_;
  m.algbw = m.time_us > 0 ? static_cast<double>(walk.bytes - own) / 1e3 / m.time_us : 0;
  // A call on a stream is over before its operation; the bandwidth stays the operation's.
  if (options_.report_cputime && streams_.asynchronous())
    m.time_us = combine_times(timing.cpu_seconds) * 1e6;
  m.graph = timing.graph;
  m.busbw = m.algbw * tool_.info().bus_factor(ranks_.all_ranks());
  if (options_.per_iteration) m.iterations = combine_iterations(timing.iterations);
  if (options_.checks > 0 && (!in_place || tool_.checks_in_place())) {
    std::vector<Findings> found = check_timed(walk, in_place);
    for (int check = 0; check < options_.checks; ++check)
      check_separately(walk, check, in_place, found);
    describe(walk, in_place, found);
    std::vector<double> wrong;
    for (const Findings& f : found) wrong.push_back(static_cast<double>(f.wrong));
    m.wrong = static_cast<std::int64_t>(ranks_.reduce(std::move(wrong), 1, tuttiSum)[0]);
  }
  return m;
}

// The operations of one iteration, each with the waiting that -z asks for within it.
void Bench::issue_iteration(const Walk& walk, Steps& steps, bool in_place) {
  const bool group = options_.aggregated > 1;
  if (group) check(tuttiGroupStart());
  for (int k = 0; k < options_.aggregated; ++k) issue(walk, steps.next(), in_place, false);
  if (group) check(tuttiGroupEnd());
  if (options_.blocking != Blocking::kOff) streams_.wait();
  if (options_.blocking == Blocking::kBarrierEach && !group) ranks_.barrier();
}

// The timed loop.
Bench::Timing Bench::time_iterations(const Walk& walk, bool in_place) {
  Timing timing;
  const auto iterations = static_cast<std::size_t>(options_.iterations);
  const auto operations = static_cast<double>(timed_operations());
  const bool by_clock = options_.per_iteration && !streams_.on_gpus();
  const bool by_marks = options_.per_iteration && streams_.on_gpus();
  Marks marks(streams_, by_marks ? iterations + 1 : 0);
  if (by_clock) timing.iterations.reserve(iterations);
  Steps steps(walk);
  double barrier_seconds = 0;
  const auto start = Clock::now();
  if (by_marks) marks.set();
  for (int iteration = 0; iteration < options_.iterations; ++iteration) {
    const auto iteration_start = by_clock ? Clock::now() : start;
    issue_iteration(walk, steps, in_place);
    if (by_clock) timing.iterations.push_back(seconds_since(iteration_start));
    if (by_marks) marks.set();
    if (options_.blocking == Blocking::kBarrierOuter) {
      const auto barrier_start = Clock::now();
      ranks_.barrier();
      barrier_seconds += seconds_since(barrier_start);
    }
  }
  timing.cpu_seconds = (seconds_since(start) - barrier_seconds) / operations;
  streams_.wait();
  timing.seconds = (seconds_since(start) - barrier_seconds) / operations;
  if (by_marks)
    for (const double us : marks.intervals_us()) timing.iterations.push_back(us / 1e6);
  return timing;
}

// As nccl-tests' -G: the iterations become one graph for each rank, and its launches are timed, the
// first one too; the upload to the GPU comes before.
Bench::Timing Bench::time_graph(const Walk& walk, bool in_place) {
  Graphs captured(streams_, [&] {
    Steps steps(walk);
    for (int iteration = 0; iteration < options_.iterations; ++iteration)
      issue_iteration(walk, steps, in_place);
  });
  constexpr std::size_t kMarks = 3;  // before the first launch, after it, after the last one
  Marks marks(streams_, kMarks);
  ranks_.barrier();
  const auto start = Clock::now();
  marks.set();
  for (int launch = 0; launch < options_.graph_launches; ++launch) {
    captured.launch();
    if (launch == 0) marks.set();
  }
  marks.set();
  const double cpu_seconds = seconds_since(start);
  streams_.wait();
  const double seconds = seconds_since(start);

  const auto in_one = static_cast<double>(timed_operations());
  const double in_all = in_one * options_.graph_launches;
  const std::vector<double> us = marks.intervals_us();
  GraphFacts graph{us[0] / in_one, {}};
  if (options_.graph_launches > 1) graph.warm_us = us[1] / (in_all - in_one);
  return {seconds / in_all, cpu_seconds / in_all, {}, graph};
}

double Bench::combine_times(double seconds) {
  switch (options_.average) {
    case Average::kMinimum:
      return ranks_.reduce_one(seconds, tuttiMin);
    case Average::kMaximum:
      return ranks_.reduce_one(seconds, tuttiMax);
    case Average::kAverage:
      return ranks_.reduce_one(seconds, tuttiSum) / static_cast<double>(ranks_.all_ranks());
    case Average::kRank0:
      break;
  }
  std::vector<double> only_rank0(static_cast<std::size_t>(ranks_.count()), 0.0);
  if (ranks_.first_rank() == 0) only_rank0[0] = seconds;
  return ranks_.reduce(std::move(only_rank0), 1, tuttiSum)[0];
}

IterationStats Bench::combine_iterations(const std::vector<double>& times) {
  const std::size_t n = times.size();
  const std::size_t width = n * static_cast<std::size_t>(place_.processes);
  std::vector<double> mine(width * static_cast<std::size_t>(ranks_.count()), 0.0);
  for (int i = 0; i < ranks_.count(); ++i)
    for (std::size_t t = 0; t < n; ++t)
      mine[static_cast<std::size_t>(i) * width + static_cast<std::size_t>(place_.process) * n + t] =
          times[t] * 1e6;
  const std::vector<double> all = ranks_.reduce(std::move(mine), width, tuttiMax);
  std::vector<double> slowest(n, 0.0);
  std::vector<std::vector<double>> rows;
  for (std::size_t begin = 0; begin < width; begin += n) {
    rows.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(begin),
                      all.begin() + static_cast<std::ptrdiff_t>(begin + n));
    for (std::size_t t = 0; t < n; ++t) slowest[t] = std::max(slowest[t], rows.back()[t]);
  }
  IterationStats stats = iteration_stats(std::move(slowest), options_.per_iteration_skip);
  stats.per_process_times_us = std::move(rows);
  return stats;
}

// Looks at what the timed iterations left, which costs them nothing: the last iteration's region
// and one other. In place, a region that was used twice holds a reduction of reductions, known only
// for min and max, or blocks that have been exchanged twice.
std::vector<Findings> Bench::check_timed(const Walk& walk, bool in_place) {
  std::vector<Findings> found(static_cast<std::size_t>(ranks_.count()));
  const std::uint64_t operations = timed_operations();
  const Outcome outcome = tool_.info().outcome;
  const bool idempotent = outcome == Outcome::kReduction
                              ? spec_.op == Op::kMax || spec_.op == Op::kMin
                              : outcome != Outcome::kTransposed;
  const bool twice = operations > walk.regions || (graphs() && options_.graph_launches > 1);
  if (in_place && twice && !idempotent) return found;
  const std::uint64_t last = operations - 1;
  const std::uint64_t other = (options_.seed * 2654435761u + walk.bytes) % operations;
  for (int i = 0; i < ranks_.count(); ++i) {
    for (const std::uint64_t iteration : {last, other}) {
      check_part(walk, walk.offset(iteration), i, found[static_cast<std::size_t>(i)]);
      if (walk.offset(other) == walk.offset(last)) break;
    }
    if (!found[static_cast<std::size_t>(i)].first.empty())
      found[static_cast<std::size_t>(i)].first.insert(0, "in a timed iteration: ");
  }
  return found;
}

// Compares the data that a rank received in a region: block by block where the blocks are of
// different ranks. In an all-to-all each is the sender's block for this rank.
void Bench::check_part(const Walk& walk, std::size_t region, int i, Findings& findings) {
  if (tool_.uneven) return check_blocks(walk, region, i, findings);
  const CollectiveInfo& info = tool_.info();
  const Part part = part_of(info.output, walk, ranks_.rank(i));
  const std::size_t block = walk.count * element_;
  const bool transposed = info.outcome == Outcome::kTransposed;
  const bool by_block = transposed || info.outcome == Outcome::kOwnersInput;
  const std::size_t own_block = static_cast<std::size_t>(ranks_.rank(i)) * block;
  DataSpec spec = spec_;
  if (info.outcome == Outcome::kRootsInput) spec.copied_from = root_;
  if (tool_.source != nullptr) spec.copied_from = tool_.source(ranks_.rank(i), ranks_.all_ranks());
  for (std::size_t begin = part.begin; begin < part.end;) {
    const std::size_t end = by_block ? begin + block : part.end;
    if (by_block) spec.copied_from = static_cast<int>(begin / block);
    check_result(spec, (region + (transposed ? own_block : begin)) / element_,
                 buffers(i).receive.memory().part(region + begin, region + end), findings);
    begin = end;
  }
}

// The same of blocks that differ.
void Bench::check_blocks(const Walk& walk, std::size_t region, int i, Findings& findings) {
  const PeerBlocks& blocks = walk.blocks[static_cast<std::size_t>(i)];
  DataSpec spec = spec_;
  for (std::size_t peer = 0; peer < blocks.origins.size(); ++peer) {
    const std::size_t begin = region + blocks.receive_offsets[peer] * element_;
    const std::size_t end = begin + blocks.receive_counts[peer] * element_;
    spec.copied_from = static_cast<int>(peer);
    check_result(spec, region / element_ + blocks.origins[peer],
                 buffers(i).receive.memory().part(begin, end), findings);
  }
}

// In place, what lies in the region beside the result is the rank's input still.
void Bench::check_kept(const Walk& walk, std::size_t region, int i, Findings& findings) {
  const Part part = part_of(tool_.info().output, walk, ranks_.rank(i));
  DataSpec spec = spec_;
  spec.copied_from = ranks_.rank(i);
  for (const auto& [begin, end] : {Part{0, part.begin}, Part{part.end, walk.bytes}})
    if (begin < end)
      check_result(spec, (region + begin) / element_,
                   buffers(i).receive.memory().part(region + begin, region + end), findings);
}

// One operation of its own between guards; then everything around it is looked at.
void Bench::check_separately(const Walk& walk, int check, bool in_place,
                             std::vector<Findings>& found) {
  const std::size_t begin = walk.offset(static_cast<std::uint64_t>(check));
  const std::size_t end = begin + walk.bytes;
  reset_receive(begin, end, in_place);
  std::vector<RegionGuard> surroundings;
  for (int i = 0; i < ranks_.count(); ++i) {
    // In place the whole region is input, which check_kept looks at.
    const Part part =
        in_place ? Part{0, walk.bytes} : part_of(tool_.info().output, walk, ranks_.rank(i));
    surroundings.emplace_back(buffers(i).receive.memory(), begin + part.begin, begin + part.end);
  }
  run_once(walk, begin, in_place);
  // The probe of the send buffer covers what the timed iterations used too.
  const std::size_t sent = std::max(end, walk.bytes * std::min(walk.regions, timed_operations()));
  for (int i = 0; i < ranks_.count(); ++i) {
    RankBuffers& b = buffers(i);
    Findings& f = found[static_cast<std::size_t>(i)];
    check_part(walk, begin, i, f);
    if (in_place) check_kept(walk, begin, i, f);
    surroundings[static_cast<std::size_t>(i)].check(f);
    check_guards("send", b.send, f);
    check_guards("receive", b.receive, f);
    check_send_unchanged(spec_, ranks_.rank(i), *b.fingerprint, 0, sent, f);
  }
}

// One line on stderr for each rank of this thread that found something wrong.
void Bench::describe(const Walk& walk, bool in_place, const std::vector<Findings>& found) const {
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].wrong == 0) continue;
    const std::string line =
        fmt::format("# wrong: rank {}, {} {} {}, {} bytes, {}: {} (of {} findings on this rank)\n",
                    ranks_.first_rank() + static_cast<int>(i), tool_.info().name,
                    type_name(spec_.type), op_name(spec_.op), walk.bytes,
                    in_place ? "in-place" : "out-of-place", found[i].first, found[i].wrong);
    static_cast<void>(std::fputs(line.c_str(), stderr));
  }
}

PlanFacts Bench::plan_facts() {
  const tuttiCommInfo_t info = ranks_.comm(0).info();
  return {info.lastAlgorithm, info.lastProtocol, info.lastPlanHash, info.lastSlices,
          info.lastReplicas};
}

}  // namespace tutti::perf
