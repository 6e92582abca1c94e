// SPDX-License-Identifier: Apache-2.0
#include "zero/settings.hpp"

#include <bit>

#include "zero/checkpoint_index.hpp"

namespace tutti::zero {
namespace {

std::uint64_t digest(const std::string& text) {
  constexpr int kHex = 16;
  return std::stoull(checksum_of(text.data(), text.size()).substr(0, kHex), nullptr, kHex);
}

std::string text_of(std::span<const Unit> units) {
  std::string text;
  for (const Unit& unit : units) {
    text += unit.name + '\n';
    for (const Parameter& parameter : unit.parameters) {
      text += parameter.name + '\0' + (parameter.decays ? "decays" : "");
      for (const std::int64_t extent : parameter.shape) text += ' ' + std::to_string(extent);
      text += '\0';
    }
  }
  return text;
}

template <typename Number>
std::uint64_t number(Number value) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}
Setting real(const char* name, float value) {
  return {name, std::bit_cast<std::uint32_t>(value), false};
}

}  // namespace

std::vector<Setting> settings_of(std::span<const Unit> units, const Config& config) {
  return {{"Config::stage", number(config.stage)},
          {"Config::order", number(config.order)},
          {"Config::compute", number(config.compute)},
          {"Config::reduce", number(config.reduce)},
          {"Config::slots", number(config.slots)},
          {"Config::microsteps", number(config.microsteps)},
          {"Config::sync", number(config.sync)},
          {"Config::prefetch", number(config.prefetch)},
          {"Config::overlap", number(config.overlap)},
          {"Config::keep_after_forward", number(config.keep_after_forward)},
          {"Config::shard_ranks", number(config.shard_ranks)},
          {"Config::units_in_use", number(config.units_in_use)},
          real("Config::clip_norm", config.clip_norm),
          real("Config::loss_scaling.initial", config.loss_scaling.initial),
          {"Config::loss_scaling.growth_steps", number(config.loss_scaling.growth_steps)},
          {"units (their names, parameters or shapes)", digest(text_of(units)), false}};
}

std::vector<Setting> settings_of(const Servers& servers) {
  std::string arrivals;
  for (const int worker : servers.arrivals) arrivals += std::to_string(worker) + ' ';
  return {{"Servers::count", number(servers.count)},
          {"Servers::colocated", number(servers.colocated)},
          {"Servers::asynchronous", number(servers.asynchronous)},
          {"Servers::staleness", number(servers.staleness)},
          {"Servers::arrivals", digest(arrivals), false}};
}

std::vector<Setting> settings_of(const AdamW& optimizer) {
  return {{"AdamW", 1, false},
          real("learning_rate", optimizer.learning_rate),
          real("beta1", optimizer.beta1),
          real("beta2", optimizer.beta2),
          real("epsilon", optimizer.epsilon),
          real("weight_decay", optimizer.weight_decay)};
}

std::vector<Setting> settings_of(const Sgd& optimizer) {
  return {{"Sgd", 2, false},
          real("learning_rate", optimizer.learning_rate),
          real("momentum", optimizer.momentum),
          real("weight_decay", optimizer.weight_decay)};
}

std::string difference(std::span<const Setting> own, std::span<const std::uint64_t> all) {
  const std::size_t each = own.size();
  for (std::size_t rank = 1; rank < all.size() / each; ++rank)
    for (std::size_t i = 0; i < each; ++i) {
      const std::uint64_t theirs = all[rank * each + i], first = all[i];
      if (theirs == first) continue;
      const std::string who = "rank " + std::to_string(rank);
      const auto text = [](std::uint64_t value) {
        return std::to_string(static_cast<std::int64_t>(value));
      };
      if (own[i].readable)
        return std::string(own[i].name) + " is " + text(theirs) + " on " + who + " and " +
               text(first) + " on rank 0; all ranks must have the same";
      return who + " has other " + own[i].name + " than rank 0; all ranks must have the same";
    }
  return {};
}

std::uint64_t digest_of(std::span<const Setting> settings) {
  std::string text;
  for (const Setting& setting : settings) text += std::to_string(setting.value) + ' ';
  return digest(text);
}

}  // namespace tutti::zero
