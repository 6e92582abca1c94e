// SPDX-License-Identifier: Apache-2.0
// The physical limits of collectives within a host, by threads that use no library of ours.
//
//   bench_limits --threads 2 --sizes 65536,1048576 --shapes 2:1,2:2
//
// Line: one way of the cache line that the first two threads pass to and fro, with an epoch and a
// payload as in our flagged cells. The median over batches. One line for both directions is a fifth
// faster than a line for each (2 cores of an EPYC, Zen 5).
// Shapes: SOURCES:DESTINATIONS. Each thread reads its share of SOURCES float arrays, adds them and
// writes the sum into its share of DESTINATIONS arrays, around the cache (streaming stores). Each
// thread owns an array of each kind; source s is that of thread s, modulo their number. 2:1 among
// two threads is c[i] = a[i] + b[i] with half for each; 2:2 writes the sums into both threads'
// arrays, as an all-reduce must. With --whole each thread works on the whole arrays, its own ones
// first, as in an exchange. Iterations walk through buffers of the largest size, as the perf tools
// do, and the time is averaged over threads.
//
// Thread t is bound to the t-th processor that may be used, modulo their number. With --json one
// JSON object, else lines for people. Status 1: a result is wrong.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "perf/common/flags.hpp"
#include "perf/common/pin.hpp"

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kLineFloats = kLineBytes / sizeof(float);
constexpr int kMostThreads = 256;
constexpr int kBatches = 21;

double ns_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Waits by polling; gives the processor away where threads share one.
template <typename Condition>
void wait_until(bool shared_processor, Condition&& condition) {
  while (!condition())
    if (shared_processor)
      ::sched_yield();
    else
      relax();
}

// ---- one line between two threads

struct alignas(kLineBytes) Line {
  std::atomic<std::uint64_t> epoch{0};
  std::uint64_t payload[7]{};
};
static_assert(sizeof(Line) == kLineBytes);

class Exchange {
 public:
  Exchange(int batch, bool shared_processor) : batch_(batch), shared_processor_(shared_processor) {}

  // Nanoseconds of one way, of each batch in ascending order; empty where a payload was wrong.
  std::vector<double> run() {
    std::thread peer([this] {
      bind_to_processor(1);
      for (std::uint64_t turn = 1; turn <= last(); ++turn) {
        receive(2 * turn - 1);
        send(2 * turn);
      }
    });
    std::vector<double> times;
    std::thread self([&] {
      bind_to_processor(0);
      auto start = Clock::now();
      for (std::uint64_t turn = 1; turn <= last(); ++turn) {
        send(2 * turn - 1);
        receive(2 * turn);
        if (turn % static_cast<std::uint64_t>(batch_) != 0) continue;
        times.push_back(ns_since(start) / (2.0 * batch_));
        start = Clock::now();
      }
    });
    self.join();
    peer.join();
    if (wrong_.load(std::memory_order_relaxed)) return {};
    times.erase(times.begin());  // warms up
    std::ranges::sort(times);
    return times;
  }

 private:
  [[nodiscard]] std::uint64_t last() const {
    return (kBatches + 1) * static_cast<std::uint64_t>(batch_);
  }
  void send(std::uint64_t epoch) {
    line_.payload[0] = ~epoch;
    // Release pairs with the acquire in receive(): the payload comes before it.
    line_.epoch.store(epoch, std::memory_order_release);
  }
  void receive(std::uint64_t epoch) {
    wait_until(shared_processor_,
               [&] { return line_.epoch.load(std::memory_order_acquire) == epoch; });
    if (line_.payload[0] != ~epoch) wrong_.store(true, std::memory_order_relaxed);
  }

  int batch_;
  bool shared_processor_;
  alignas(2 * kLineBytes) Line line_;  // some machines fetch neighbours in pairs
  alignas(2 * kLineBytes) std::atomic<bool> wrong_{false};
};

// ---- streams

// destinations[d][i] = sum of sources[s][i]; whole lines, aligned to one.
using StreamFn = void (*)(const std::vector<const float*>& sources,
                          const std::vector<float*>& destinations, std::size_t elements);

#if defined(__x86_64__)
void stream_sse(const std::vector<const float*>& sources, const std::vector<float*>& destinations,
                std::size_t elements) {
  for (std::size_t i = 0; i < elements; i += kLineFloats) {
    __m128 sum[4];
    for (std::size_t k = 0; k < 4; ++k) sum[k] = _mm_load_ps(sources[0] + i + 4 * k);
    for (std::size_t s = 1; s < sources.size(); ++s)
      for (std::size_t k = 0; k < 4; ++k)
        sum[k] = _mm_add_ps(sum[k], _mm_load_ps(sources[s] + i + 4 * k));
    for (float* const to : destinations)
      for (std::size_t k = 0; k < 4; ++k) _mm_stream_ps(to + i + 4 * k, sum[k]);
  }
  _mm_sfence();
}

__attribute__((target("avx512f"))) void stream_avx512(const std::vector<const float*>& sources,
                                                      const std::vector<float*>& destinations,
                                                      std::size_t elements) {
  for (std::size_t i = 0; i < elements; i += kLineFloats) {
    __m512 sum = _mm512_load_ps(sources[0] + i);
    for (std::size_t s = 1; s < sources.size(); ++s)
      sum = _mm512_add_ps(sum, _mm512_load_ps(sources[s] + i));
    for (float* const to : destinations) _mm512_stream_ps(to + i, sum);
  }
  _mm_sfence();
}
#else
void stream_plain(const std::vector<const float*>& sources, const std::vector<float*>& destinations,
                  std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    float sum = sources[0][i];
    for (std::size_t s = 1; s < sources.size(); ++s) sum += sources[s][i];
    for (float* const to : destinations) to[i] = sum;
  }
}
#endif

struct Stores {
  const char* name;
  StreamFn run;
};
Stores best_stores() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {"streaming, 64 bytes", stream_avx512};
  return {"streaming, 16 bytes", stream_sse};
#else
  return {"plain", stream_plain};
#endif
}

struct Shape {
  std::size_t sources = 2, destinations = 1;
};

struct Options {
  int threads = 2;
  std::vector<std::uint64_t> sizes;
  std::vector<std::string> shape_texts;
  std::vector<Shape> shapes;
  bool whole = false, json = false;
  int iterations = 20, warmup = 5, exchanges = 20000;
};

struct FreeArray {
  void operator()(float* array) const { std::free(array); }
};
using Array = std::unique_ptr<float, FreeArray>;

Array make_array(std::uint64_t bytes, float value) {
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t whole_pages = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  Array array(static_cast<float*>(std::aligned_alloc(kPageBytes, whole_pages)));
  if (array == nullptr) throw std::bad_alloc();
  std::fill_n(array.get(), whole_pages / sizeof(float), value);
  return array;
}

// The threads' arrays and the measurements on them. Every thread calls run() once.
class Streams {
 public:
  explicit Streams(const Options& options)
      : options_(options),
        shared_processor_(static_cast<std::size_t>(options.threads) > allowed_processors().size()),
        sources_(static_cast<std::size_t>(options.threads)),
        destinations_(sources_.size()),
        times_us_(options.shapes.size(), std::vector<double>(options.sizes.size(), 0)) {}

  void run(std::size_t thread) {
    bind_to_processor(static_cast<int>(thread));
    const std::uint64_t bytes = *std::ranges::max_element(options_.sizes);
    sources_[thread] = make_array(bytes, static_cast<float>(thread + 1));
    destinations_[thread] = make_array(bytes, 0);
    for (std::size_t shape = 0; shape < options_.shapes.size(); ++shape)
      for (std::size_t size = 0; size < options_.sizes.size(); ++size) {
        time_us(thread, options_.shapes[shape], options_.sizes[size], options_.warmup);
        const double mine_us =
            time_us(thread, options_.shapes[shape], options_.sizes[size], options_.iterations);
        check(thread, options_.shapes[shape], options_.sizes[size]);
        const std::lock_guard lock(mutex_);
        times_us_[shape][size] += mine_us / options_.threads;
      }
    meet();  // nobody takes its arrays away before
  }

  [[nodiscard]] double time_us(std::size_t shape, std::size_t size) const {
    return times_us_[shape][size];
  }
  [[nodiscard]] bool right() const { return !wrong_.load(std::memory_order_relaxed); }

 private:
  struct Part {
    std::vector<const float*> sources;
    std::vector<float*> destinations;
    std::size_t elements = 0;
  };

  // What a thread works on, in the region of an iteration.
  Part part(std::size_t thread, Shape shape, std::uint64_t bytes, int iteration) const {
    const std::size_t threads = sources_.size(), lines = bytes / kLineBytes;
    const std::size_t first_line = options_.whole ? 0 : lines * thread / threads;
    const std::size_t end_line = options_.whole ? lines : lines * (thread + 1) / threads;
    const std::size_t begin = (region(bytes, iteration) * lines + first_line) * kLineFloats;
    const std::size_t own = options_.whole ? thread : 0;
    Part found;
    for (std::size_t s = 0; s < shape.sources; ++s)
      found.sources.push_back(sources_[(own + s) % threads].get() + begin);
    for (std::size_t d = 0; d < shape.destinations; ++d)
      found.destinations.push_back(destinations_[(own + d) % threads].get() + begin);
    found.elements = (end_line - first_line) * kLineFloats;
    return found;
  }

  double time_us(std::size_t thread, Shape shape, std::uint64_t bytes, int iterations) {
    meet();
    // What will be written lies in the caches, as far as it fits: the perf tools do so too.
    const std::uint64_t used_bytes =
        std::min(largest_bytes(), bytes * static_cast<std::uint64_t>(std::max(1, iterations)));
    std::fill_n(destinations_[thread].get(), used_bytes / sizeof(float), 0.0F);
    meet();
    std::vector<Part> parts;
    for (int i = 0; i < iterations; ++i) parts.push_back(part(thread, shape, bytes, i));
    meet();
    const auto start = Clock::now();
    for (const Part& p : parts) stores_.run(p.sources, p.destinations, p.elements);
    const double took_us = ns_since(start) / 1e3 / std::max(1, iterations);
    meet();
    return took_us;
  }

  // The region of the last iteration in this thread's own destination, if it is one: every element
  // is the sum, whichever threads had to write it.
  void check(std::size_t thread, Shape shape, std::uint64_t bytes) {
    if (!options_.whole && thread >= shape.destinations) return;
    float sum = 0;
    for (std::size_t s = 0; s < shape.sources; ++s)
      sum += *sources_[((options_.whole ? thread : 0) + s) % sources_.size()];
    const std::size_t elements = bytes / sizeof(float);
    const float* const begin =
        destinations_[thread].get() + region(bytes, options_.iterations - 1) * elements;
    if (std::any_of(begin, begin + elements, [&](float found) { return found != sum; }))
      wrong_.store(true, std::memory_order_relaxed);
  }

  // Which region of the buffers an iteration has.
  [[nodiscard]] std::size_t region(std::uint64_t bytes, int iteration) const {
    return static_cast<std::size_t>(iteration) % (largest_bytes() / bytes);
  }

  [[nodiscard]] std::uint64_t largest_bytes() const {
    return *std::ranges::max_element(options_.sizes);
  }

  // Polls, so that all threads go on within a fraction of a microsecond.
  void meet() {
    const std::uint64_t all = sources_.size();
    // Release and acquire: what any thread wrote before is seen by all after.
    const std::uint64_t mine = arrived_.fetch_add(1, std::memory_order_acq_rel);
    const std::uint64_t wanted = (mine / all + 1) * all;
    wait_until(shared_processor_,
               [&] { return arrived_.load(std::memory_order_acquire) >= wanted; });
  }

  const Options& options_;
  const Stores stores_ = best_stores();
  const bool shared_processor_;
  std::vector<Array> sources_, destinations_;  // each set by its thread before the first meet()
  std::atomic<std::uint64_t> arrived_{0};
  std::atomic<bool> wrong_{false};
  std::mutex mutex_;
  std::vector<std::vector<double>> times_us_;  // guarded by mutex_ while threads run
};

// Returns what is wrong with the options, or nothing.
std::string read_shapes(Options& options) {
  for (const std::string& text : options.shape_texts) {
    Shape shape;
    const std::size_t colon = text.find(':');
    const auto number = [](const std::string& word) {
      const bool digits = !word.empty() && word.size() <= 3 &&
                          word.find_first_not_of("0123456789") == std::string::npos;
      return digits ? static_cast<std::size_t>(std::stoul(word)) : std::size_t{0};
    };
    shape.sources = number(text.substr(0, colon));
    shape.destinations = colon == std::string::npos ? 0 : number(text.substr(colon + 1));
    const auto most = static_cast<std::size_t>(options.threads);
    if (shape.sources < 1 || shape.destinations < 1 || shape.sources > most ||
        shape.destinations > most)
      return fmt::format("--shapes: '{}' is not SOURCES:DESTINATIONS, both from 1 to {}", text,
                         options.threads);
    // Else several threads would write the same array.
    if (options.whole && shape.destinations > 1)
      return fmt::format("--shapes: '{}' has more than the one destination of --whole", text);
    options.shapes.push_back(shape);
  }
  for (const std::uint64_t bytes : options.sizes)
    if (bytes < kLineBytes || bytes % kLineBytes != 0)
      return fmt::format("--sizes: {} is not a multiple of a line's {} bytes", bytes, kLineBytes);
  return {};
}

nlohmann::ordered_json report_of(const Options& options, const std::vector<double>& line_ns,
                                 const Streams* streams) {
  nlohmann::ordered_json report{
      {"program", "bench_limits"},          {"threads", options.threads},
      {"processors", allowed_processors()}, {"line_ns", line_ns[line_ns.size() / 2]},
      {"line_least_ns", line_ns.front()},   {"line_greatest_ns", line_ns.back()},
      {"stores", best_stores().name},       {"streams", nlohmann::ordered_json::array()}};
  for (std::size_t shape = 0; streams != nullptr && shape < options.shapes.size(); ++shape)
    for (std::size_t size = 0; size < options.sizes.size(); ++size)
      report["streams"].push_back({{"sources", options.shapes[shape].sources},
                                   {"destinations", options.shapes[shape].destinations},
                                   {"whole", options.whole},
                                   {"bytes", options.sizes[size]},
                                   {"time_us", streams->time_us(shape, size)}});
  return report;
}

void print_lines(const nlohmann::ordered_json& report) {
  fmt::print("line, one way: {:.1f} ns, median of {} batches [{:.1f}..{:.1f}]\n",
             report["line_ns"].get<double>(), kBatches, report["line_least_ns"].get<double>(),
             report["line_greatest_ns"].get<double>());
  for (const auto& stream : report["streams"]) {
    const double time_us = stream["time_us"].get<double>();
    const auto bytes = stream["bytes"].get<std::uint64_t>();
    fmt::print(
        "{} sources, {} destinations{}, {} stores: {:>10} bytes {:>10.2f} us {:>7.2f} GB/s\n",
        stream["sources"].get<int>(), stream["destinations"].get<int>(),
        stream["whole"].get<bool>() ? ", whole" : "", report["stores"].get<std::string>(), bytes,
        time_us, static_cast<double>(bytes) / time_us / 1e3);
  }
}

int run(const Options& options) {
  const int line_threads = 2;
  const bool alone = allowed_processors().size() >= line_threads;
  const std::vector<double> line_ns =
      Exchange(std::max(1, options.exchanges / kBatches), !alone).run();
  std::unique_ptr<Streams> streams;
  if (!options.sizes.empty() && !options.shapes.empty()) {
    streams = std::make_unique<Streams>(options);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < options.threads; ++thread)
      threads.emplace_back([&, thread] { streams->run(static_cast<std::size_t>(thread)); });
    for (std::thread& thread : threads) thread.join();
  }
  if (line_ns.empty() || (streams != nullptr && !streams->right())) {
    fmt::print(stderr, "bench_limits: a thread did not find what another one had written\n");
    return EXIT_FAILURE;
  }
  const nlohmann::ordered_json report = report_of(options, line_ns, streams.get());
  if (options.json)
    fmt::print("{}\n", report.dump());
  else
    print_lines(report);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  using namespace tutti::perf;
  Options options;
  CLI::App app("Physical limits of collectives within a host.", "bench_limits");
  app.add_option("--threads", options.threads, "as many as ranks")
      ->check(CLI::Range(1, kMostThreads));
  app.add_option("--sizes", options.sizes, "bytes of the arrays; none: the line alone")
      ->delimiter(',');
  app.add_option("--shapes", options.shape_texts, "SOURCES:DESTINATIONS")->delimiter(',');
  app.add_flag("--whole", options.whole, "each thread works on whole arrays, not on its share");
  app.add_option("--iterations", options.iterations)->check(CLI::Range(1, 1'000'000));
  app.add_option("--warmup", options.warmup)->check(CLI::Range(0, 1'000'000));
  app.add_option("--exchanges", options.exchanges, "of the line, both ways")
      ->check(CLI::Range(1, 100'000'000));
  app.add_flag("--json", options.json, "print a JSON object");
  if (const auto status = parse_flags(app, argc, argv)) return *status;
  static_cast<void>(allowed_processors());  // before a thread is bound
  if (const std::string wrong = read_shapes(options); !wrong.empty()) {
    fmt::print(stderr, "bench_limits: {} (see bench_limits --help)\n", wrong);
    return 2;
  }
  return run(options);
}
