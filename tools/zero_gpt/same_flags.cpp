// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/same_flags.hpp"

#include <fmt/core.h>

#include <bit>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::gpt {
namespace {

struct Flag {
  const char* name;
  std::uint64_t value;
};

std::vector<Flag> flags_of(const Options& options, const Text& text) {
  const auto hash = [](std::string_view of) {
    return static_cast<std::uint64_t>(std::hash<std::string_view>{}(of));
  };
  const auto bytes = text.training();
  const std::string_view trained(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto number = [](int value) { return static_cast<std::uint64_t>(value); };
  return {{"--model", hash(options.size.name)},
          {"--stage", options.servers ? 1U : 0U},
          {"--seed", options.seed},
          {"--text", hash(trained)},
          {"--steps", number(options.steps)},
          {"--batch", number(options.batch)},
          {"--lr", std::bit_cast<std::uint32_t>(options.learning_rate)},
          {"--warmup", number(options.warmup_steps)},
          {"--sample", number(options.sample_bytes)},
          {"--save", options.save_path.empty() ? 0U : 1U},
          {"--save-every", number(options.save_every)},
          {"--load", options.load_path.empty() ? 0U : 1U},
          {"--eval-every", number(options.eval_every)},
          {"--eval-windows", number(options.eval_windows)}};
}

}  // namespace

void check_same_flags(Communicator& comm, const Options& options, const Text& text) {
  const std::vector<Flag> flags = flags_of(options, text);
  std::vector<std::uint64_t> own;
  for (const Flag& flag : flags) own.push_back(flag.value);
  std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(comm.nranks()));
  comm.all_gather(std::span<const std::uint64_t>(own), all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == all[i % own.size()]) continue;
    throw std::invalid_argument(fmt::format(
        "{} is not the same on rank {} and on rank 0; give all processes the same flags",
        flags[i % own.size()].name, i / own.size()));
  }
}

}  // namespace tutti::gpt
