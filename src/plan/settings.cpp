// SPDX-License-Identifier: Apache-2.0
#include "plan/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/host.hpp"
#include "base/text.hpp"
#include "transports/connection.hpp"

namespace tutti {
namespace {

static_assert(kMostSlots == kMaxSlots, "what TUTTI_SLOTS allows, a connection must hold");

std::string or_auto(std::uint64_t forced) {
  return forced == 0 ? std::string("auto") : fmt::to_string(forced);
}

// A setting that all ranks must have alike: what the configuration says, and as what an error
// prints it. Two ranks differ where the texts do.
struct UniformSetting {
  std::string_view name;
  void (*fill)(Settings&, const Config&);
  std::string (*text)(const Settings&);
};
constexpr UniformSetting kUniform[] = {
    {"TUTTI_ARENA_BYTES", [](Settings& s, const Config& c) { s.arena_bytes = c.arena_bytes; },
     [](const Settings& s) { return fmt::to_string(s.arena_bytes); }},
    {"TUTTI_TRANSPORT", [](Settings& s, const Config& c) { s.transport = c.transport; },
     [](const Settings& s) { return std::string(name_of(s.transport)); }},
    {"TUTTI_SLOT_BYTES",
     [](Settings& s, const Config& c) {
       s.slot_bytes = c.slot_bytes == 0 ? 0 : c.slot_bytes + kSlotHeaderBytes;
     },
     [](const Settings& s) {
       return or_auto(s.slot_bytes == 0 ? 0 : s.slot_bytes - kSlotHeaderBytes);
     }},
    {"TUTTI_SLOTS", [](Settings& s, const Config& c) { s.slots = c.slots; },
     [](const Settings& s) { return or_auto(s.slots); }},
    {"TUTTI_REPLICAS", [](Settings& s, const Config& c) { s.replicas = c.replicas; },
     [](const Settings& s) { return or_auto(s.replicas); }},
    {"TUTTI_SLICES", [](Settings& s, const Config& c) { s.min_slices = c.slices; },
     [](const Settings& s) { return or_auto(s.min_slices); }},
    // Its text has been parsed before it is filled in: make_settings().
    {"TUTTI_ALGO (or the configuration's algorithm)", [](Settings&, const Config&) {},
     [](const Settings& s) {
       return s.forced_text().empty() ? std::string("auto") : printable(s.forced_text());
     }},
    {"TUTTI_PROTO", [](Settings& s, const Config& c) { s.protocol = c.protocol; },
     [](const Settings& s) { return std::string(name_of(s.protocol)); }},
    {"TUTTI_FP32_PARTIALS (or the configuration's fp32Partials)",
     [](Settings& s, const Config& c) { s.fp32_partials = c.fp32_partials; },
     [](const Settings& s) { return std::string(s.fp32_partials ? "1" : "0"); }},
};

}  // namespace

std::string_view Settings::forced_text() const {
  return {forced.data(), ::strnlen(forced.data(), forced.size())};
}

std::string_view Settings::group_text() const {
  return {groups.data(), ::strnlen(groups.data(), groups.size())};
}

Result<ForcedSet> configured_plans(const Config& config) {
  return parse_forced_set(config.algo).map_error([&](Error error) {
    return of_algorithm_setting(config, std::move(error));
  });
}

Error of_algorithm_setting(const Config& config, Error error) {
  if (config.algo != "auto")
    error.message = fmt::format("{}: {}", config.algo_source, error.message);
  return error;
}

Result<Settings> make_settings(const Config& config, std::int32_t cores) {
  Settings settings;
  for (const UniformSetting& setting : kUniform) setting.fill(settings, config);
  settings.cores = std::max(cores, 1);
  TUTTI_TRY_ASSIGN(const ForcedSet forced, configured_plans(config));
  std::ranges::copy(forced.text, settings.forced.begin());
  settings.costs = prior_costs();
  settings.device_costs = kPriorDeviceCosts;
  return settings;
}

std::vector<MeasuredPlan> apply_profile(const Config& config, const Log& log, Settings& settings) {
  const auto tell = [](auto& text, std::string_view source) {
    text.fill(0);
    source.copy(text.data(), text.size() - 1);
  };
  tell(settings.cost_source, "the built-in costs");
  tell(settings.device_cost_source, kPriorDeviceSource);
  const std::optional<std::string> path = profile_to_read(config.profile);
  if (!path) return {};
  Result<MachineProfile> profile = read_profile(*path);
  if (!profile) {
    TUTTI_LOG(log, LogLevel::kWarn, "{}; the library uses its built-in costs",
              profile.error().message);
    return {};
  }
  const std::string source =
      fmt::format("the profile {} of {}", fingerprint_of(profile->machine), profile->created);
  if (profile->has_host()) tell(settings.cost_source, source);
  settings.costs = profile->costs;
  if (profile->device) {
    settings.device_costs = profile->device->costs;
    tell(settings.device_cost_source,
         fmt::format("{}, measured on {}", source, printable(profile->device->name, 32)));
  }
  return std::move(profile->measured);
}

Forced forced_by(const Settings& settings, const Forced& named) {
  Forced forced = named;
  if (forced.replicas == 0) forced.replicas = settings.replicas;
  if (forced.slots == 0) forced.slots = settings.slots;
  if (forced.slot_bytes == 0) forced.slot_bytes = settings.slot_bytes;
  forced.min_slices = settings.min_slices;
  if (!forced.protocol && settings.protocol != ProtocolChoice::kAuto)
    forced.protocol =
        settings.protocol == ProtocolChoice::kFlagged ? Protocol::kFlagged : Protocol::kSlots;
  return forced;
}

std::vector<std::string_view> uniform_variables() {
  std::vector<std::string_view> names;
  for (const UniformSetting& setting : kUniform)
    names.push_back(setting.name.substr(0, setting.name.find(' ')));
  return names;
}

std::uint64_t uniform_hash(const Settings& settings) {
  std::string texts = fmt::to_string(settings.layout);
  for (const UniformSetting& setting : kUniform) texts += '\n' + setting.text(settings);
  return hash_bytes(texts);
}

std::optional<Difference> first_difference(const Settings& a, const Settings& b) {
  if (a.layout != b.layout) return Difference{"the version of Tutti", "", ""};
  for (const UniformSetting& setting : kUniform) {
    std::string mine = setting.text(a), other = setting.text(b);
    if (mine != other) return Difference{setting.name, std::move(mine), std::move(other)};
  }
  return std::nullopt;
}

Status check_settings(const Settings& s) {
  const bool sound = s.layout == sizeof(Settings) && s.cores >= 1 && s.slots <= kMostSlots &&
                     s.replicas <= kMostReplicas && s.forced.back() == 0 &&
                     s.cost_source.back() == 0 && s.device_cost_source.back() == 0 &&
                     s.groups.back() == 0 && s.protocol <= ProtocolChoice::kSlots &&
                     s.transport <= TransportChoice::kVerbs &&
                     s.direct.access <= PeerAccess::kMapped;
  if (!sound)
    return make_error(Code::kInvalidUsage,
                      "rank 0 sent settings that this build cannot read; start all ranks with the "
                      "same version of Tutti",
                      0);
  return {};
}

}  // namespace tutti
