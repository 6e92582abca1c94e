// SPDX-License-Identifier: Apache-2.0
#include "zero/settings.hpp"

#include <bit>

namespace tutti::zero {
namespace {

// FNV-1a, 64 bits (Fowler, Noll, Vo).
class Hash {
 public:
  void add(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) add_byte(static_cast<unsigned char>(value >> (8 * i)));
  }
  void add(const std::string& text) {
    add(text.size());
    for (const char each : text) add_byte(static_cast<unsigned char>(each));
  }
  [[nodiscard]] std::uint64_t value() const { return hash_; }

 private:
  void add_byte(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001B3ULL; }
  std::uint64_t hash_ = 0xCBF29CE484222325ULL;
};

std::uint64_t hash_of(std::span<const Unit> units) {
  Hash hash;
  for (const Unit& unit : units) {
    hash.add(unit.name);
    hash.add(unit.parameters.size());
    for (const Parameter& parameter : unit.parameters) {
      hash.add(parameter.name);
      hash.add(parameter.shape.size());
      for (const std::int64_t extent : parameter.shape)
        hash.add(static_cast<std::uint64_t>(extent));
      hash.add(parameter.decays ? 1 : 0);
    }
  }
  return hash.value();
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
          {"units (their names, parameters or shapes)", hash_of(units), false}};
}

std::vector<Setting> settings_of(const Servers& servers) {
  Hash arrivals;
  for (const int worker : servers.arrivals) arrivals.add(number(worker));
  return {{"Servers::count", number(servers.count)},
          {"Servers::colocated", number(servers.colocated)},
          {"Servers::asynchronous", number(servers.asynchronous)},
          {"Servers::staleness", number(servers.staleness)},
          {"Servers::arrivals", arrivals.value(), false}};
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
  Hash hash;
  for (const Setting& setting : settings) hash.add(setting.value);
  return hash.value();
}

}  // namespace tutti::zero
