// SPDX-License-Identifier: Apache-2.0
#include "shrink.hpp"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "order.hpp"
#include "values.hpp"

namespace tutti::programs {
namespace {

class Shrinker {
 public:
  Shrinker(const Program& program, const std::string& failure, const Check& check,
           const ShrinkOptions& options)
      : best_{program, failure, 0}, check_(check), options_(options) {}

  Shrunk run() {
    bool smaller = true;
    while (smaller && best_.runs < options_.most_runs) {
      smaller = drop_steps();
      smaller |= lower_ranks();
      smaller |= simplify_steps();
      smaller |= simplify_types();
      smaller |= drop_buffers();
    }
    return std::move(best_);
  }

 private:
  // The steps that were drawn; Order adds the others again.
  static Program drawn(const Program& program) {
    Program own = program;
    std::erase_if(own.steps, [](const Step& step) { return step.derived; });
    return own;
  }

  // Takes the candidate over if it is legal and fails.
  bool try_one(const Program& candidate) {
    const std::optional<Program> program = complete(candidate);
    if (!program) return false;
    for (int tried = 0; tried < options_.tries && best_.runs < options_.most_runs; ++tried) {
      ++best_.runs;
      std::string failure = check_(*program);
      if (failure.empty()) continue;
      best_.program = *program;
      best_.failure = std::move(failure);
      return true;
    }
    return false;
  }

  bool drop_steps() {
    bool dropped = false;
    Program own = drawn(best_.program);
    for (std::size_t run = std::max<std::size_t>(own.steps.size() / 2, 1); run > 0; run /= 2)
      for (std::size_t first = 0; first < own.steps.size();) {
        Program candidate = own;
        const std::size_t end = std::min(first + run, own.steps.size());
        candidate.steps.erase(candidate.steps.begin() + static_cast<std::ptrdiff_t>(first),
                              candidate.steps.begin() + static_cast<std::ptrdiff_t>(end));
        if (try_one(candidate)) {
          own = std::move(candidate);
          dropped = true;
        } else {
          first = end;
        }
      }
    return dropped;
  }

  // Changes the program; keeps the change if the program still fails.
  template <class Change>
  bool attempt(const Change& change) {
    Program candidate = drawn(best_.program);
    if (!change(candidate)) return false;
    return try_one(candidate);
  }

  bool lower_ranks() {
    bool any = false;
    const auto lower = [](int& number, int to) { return std::exchange(number, to) > to; };
    for (int ranks = 1; ranks < best_.program.ranks; ++ranks)
      any |= attempt([&](Program& p) { return lower(p.ranks, ranks); });
    for (int streams = 1; streams < best_.program.streams; ++streams)
      any |= attempt([&](Program& p) {
        for (Step& step : p.steps)
          if (step.stream != kNoStream) step.stream %= streams;
        return lower(p.streams, streams);
      });
    return any;
  }

  bool simplify_steps() {
    bool any = false;
    for (std::size_t i = 0; i < drawn(best_.program).steps.size(); ++i) {
      const auto set = [&](auto member, auto value) {
        any |= attempt([&](Program& p) {
          using Type = std::remove_reference_t<decltype(p.steps[i].*member)>;
          return std::exchange(p.steps[i].*member, static_cast<Type>(value)) !=
                 static_cast<Type>(value);
        });
      };
      set(&Step::group, 0);
      set(&Step::stream, kNoStream);
      set(&Step::stagger, 0);
      set(&Step::comm, 0);
      set(&Step::in_place, 0);
      set(&Step::in_first, 0);
      set(&Step::out_first, 0);
      set(&Step::op, tuttiSum);
      set(&Step::root, 0);
      set(&Step::peer, 0);
      any |= lower_count(i);
    }
    return any;
  }

  // The least count that fails, if failing is a matter of size: by halves, then one by one.
  bool lower_count(std::size_t i) {
    bool any = false;
    const auto to = [&](auto lower) {
      return attempt([&](Program& p) {
        const std::uint32_t before = p.steps[i].count;
        p.steps[i].count = lower(before);
        return p.steps[i].count < before;
      });
    };
    if (to([](std::uint32_t) { return 0u; })) return true;
    if (to([](std::uint32_t) { return 1u; })) return true;
    while (to([](std::uint32_t n) { return n / 2; })) any = true;
    while (to([](std::uint32_t n) { return n - n / 4; })) any = true;
    while (to([](std::uint32_t n) { return n - (n > 0); })) any = true;
    return any;
  }

  bool simplify_types() {
    bool any = false;
    for (const tuttiDataType_t type : std::vector(best_.program.buffers))
      if (type != tuttiInt32)
        any |= attempt([&](Program& p) {
          return std::ranges::count(p.buffers, type) > 0 &&
                 (std::ranges::replace(p.buffers, type, tuttiInt32), true);
        });
    return any;
  }

  bool drop_buffers() {
    bool any = false;
    for (std::size_t b = best_.program.buffers.size(); b-- > 0;)
      any |= attempt([&](Program& p) {
        const int gone = static_cast<int>(b);
        const auto uses = [&](const Step& step) {
          const bool reads = is_call(step.kind) && step.kind != Kind::kBarrier;
          return (reads && (step.in == gone || step.out == gone)) ||
                 (is_function(step.kind) && step.out == gone);
        };
        if (p.buffers.size() == 1 || std::ranges::any_of(p.steps, uses)) return false;
        p.buffers.erase(p.buffers.begin() + gone);
        for (Step& step : p.steps)
          for (int* const buffer : {&step.in, &step.out})
            if (*buffer > gone || *buffer >= static_cast<int>(p.buffers.size()))
              *buffer = std::max(*buffer - 1, 0);
        return true;
      });
    return any;
  }

  Shrunk best_;
  const Check& check_;
  const ShrinkOptions options_;
};

}  // namespace

Shrunk shrink(const Program& program, const std::string& failure, const Check& check,
              const ShrinkOptions& options) {
  return Shrinker(program, failure, check, options).run();
}

}  // namespace tutti::programs
