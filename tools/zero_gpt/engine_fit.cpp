// SPDX-License-Identifier: Apache-2.0
// The model as the engine takes it, and whether it takes it.
#include <fmt/core.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tutti/zero.hpp"
#include "zero_gpt/train.hpp"

namespace tutti::gpt {

std::vector<zero::Unit> engine_units(const Size& size) {
  std::vector<zero::Unit> units;
  for (const TensorUnit& unit : units_of(size)) {
    zero::Unit made{unit.name, {}};
    for (const Tensor& tensor : unit.tensors)
      made.parameters.push_back({tensor.name, tensor.shape, tensor.decays()});
    units.push_back(std::move(made));
  }
  return units;
}

namespace {

// The engine's names as the flags that set them.
std::string with_flags(std::string text) {
  struct Name {
    std::string_view field, flag;
  };
  constexpr std::array kNames{Name{"Config::loss_scaling.initial", "--loss-scale"},
                              Name{"Config::loss_scaling.growth_steps", "--loss-growth"},
                              Name{"Config::shard_ranks", "--shard-ranks"},
                              Name{"Config::units_in_use", "--units-in-use"},
                              Name{"Config::microsteps", "--microsteps"},
                              Name{"Config::prefetch", "--prefetch"},
                              Name{"Config::clip_norm", "--clip"},
                              Name{"Config::slots", "--slots"},
                              Name{"Servers::asynchronous", "--async"},
                              Name{"Servers::staleness", "--staleness"},
                              Name{"Servers::colocated", "--colocated"},
                              Name{"Servers::arrivals", "--arrivals"},
                              Name{"Servers::count", "--servers"}};
  for (const Name& name : kNames)
    for (std::size_t at = text.find(name.field); at != std::string::npos;
         at = text.find(name.field))
      text.replace(at, name.field.size(), name.flag);
  return text;
}

// Of the rank that needs most.
zero::Memory memory_of(const Options& options) {
  const std::vector<zero::Unit> units = engine_units(options.size);
  if (!options.servers) return zero::memory_of(units, options.engine, options.processes);
  const auto of_rank = [&](int rank) {
    return zero::memory_of(units, options.engine, *options.servers, options.processes, rank);
  };
  const zero::Memory first = of_rank(0), last = of_rank(options.processes - 1);
  return first.total() < last.total() ? last : first;
}

}  // namespace

std::string engine_refuses(const Options& options) {
  try {
    const zero::Memory memory = memory_of(options);
    const std::uint64_t limit = options.engine.memory_limit_bytes;
    if (limit == 0 || memory.total() <= limit) return {};
    return fmt::format(
        "--memory-limit: a rank needs {} bytes (parameters {}, gradients {}, optimizer {}, "
        "gathered {}, reducing {}) and may have {}; use a higher stage, more ranks, or a smaller "
        "model",
        memory.total(), memory.parameters, memory.gradients, memory.optimizer, memory.gathered,
        memory.reducing, limit);
  } catch (const std::invalid_argument& error) {
    std::string text = error.what();
    if (options.servers)
      text = fmt::format("--stage ps ({} workers among {} ranks): {}", options.workers(),
                         options.processes, text);
    return with_flags(std::move(text));
  }
}

}  // namespace tutti::gpt
