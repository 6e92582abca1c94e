#include "runtime/settings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/text.hpp"
#include "transports/connection.hpp"

namespace tutti {
namespace {

static_assert(kMostSlots == kMaxSlots, "what TUTTI_SLOTS allows, a connection must hold");

}  // namespace

std::string_view Settings::forced_name() const {
  return {algorithm.data(), ::strnlen(algorithm.data(), kMaxAlgorithmName)};
}

std::string_view Settings::group_text() const {
  return {groups.data(), ::strnlen(groups.data(), groups.size())};
}

Result<Settings> make_settings(const Config& config, std::int32_t cores) {
  Settings settings;
  settings.arena_bytes = config.arena_bytes;
  settings.transport = config.transport;
  settings.slot_bytes = config.slot_bytes == 0 ? 0 : config.slot_bytes + kSlotHeaderBytes;
  settings.slots = config.slots;
  settings.replicas = config.replicas;
  settings.min_slices = config.slices;
  settings.cores = std::max(cores, 1);
  TUTTI_TRY_ASSIGN(const Forced forced, parse_forced(config.algo));
  std::ranges::copy(forced.name, settings.algorithm.begin());
  settings.protocol = config.protocol;
  settings.costs = prior_costs();
  return settings;
}

std::vector<MeasuredPlan> apply_profile(const Config& config, const Log& log, Settings& settings) {
  const auto told = [&](std::string_view source) {
    settings.cost_source.fill(0);
    source.copy(settings.cost_source.data(), settings.cost_source.size() - 1);
  };
  told("the library's own costs");
  const std::optional<std::string> path = profile_path(config.profile);
  const bool asked = config.profile != "auto" && config.profile != "off";
  if (!path || (!asked && ::access(path->c_str(), F_OK) != 0)) return {};
  Result<MachineProfile> profile = read_profile(*path);
  if (!profile) {
    TUTTI_LOG(log, LogLevel::kWarn, "{}; the library's own costs are used",
              profile.error().message);
    return {};
  }
  settings.costs = profile->costs;
  told(fmt::format("the profile {} of {}", fingerprint_of(profile->machine), profile->created));
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

std::optional<Difference> first_difference(const Settings& a, const Settings& b) {
  const auto differ = [](std::string_view what, const auto& x, const auto& y) {
    return x == y ? std::nullopt
                  : std::optional(Difference{what, fmt::to_string(x), fmt::to_string(y)});
  };
  const auto forced = [](std::uint64_t value) {
    return value == 0 ? std::string("auto") : fmt::to_string(value);
  };
  const auto payload = [&](std::uint64_t bytes) {
    return forced(bytes == 0 ? 0 : bytes - kSlotHeaderBytes);
  };
  const auto text = [](const Settings& s) {
    return s.forced_name().empty() ? std::string("auto") : printable(s.forced_name());
  };
  if (a.layout != b.layout) return Difference{"the version of Tutti", "", ""};
  for (const std::optional<Difference>& found :
       {differ("TUTTI_ARENA_BYTES", a.arena_bytes, b.arena_bytes),
        differ("TUTTI_TRANSPORT", name_of(a.transport), name_of(b.transport)),
        differ("TUTTI_SLOT_BYTES", payload(a.slot_bytes), payload(b.slot_bytes)),
        differ("TUTTI_SLOTS", forced(a.slots), forced(b.slots)),
        differ("TUTTI_REPLICAS", forced(a.replicas), forced(b.replicas)),
        differ("TUTTI_SLICES", forced(a.min_slices), forced(b.min_slices)),
        differ("TUTTI_ALGO (or the configuration's algorithm)", text(a), text(b)),
        differ("TUTTI_PROTO", name_of(a.protocol), name_of(b.protocol))})
    if (found) return found;
  return std::nullopt;
}

Status check_settings(const Settings& s) {
  const bool sound =
      s.layout == sizeof(Settings) && s.cores >= 1 && s.slots <= kMostSlots &&
      s.replicas <= kMostReplicas && s.algorithm.back() == 0 && s.cost_source.back() == 0 &&
      s.groups.back() == 0 && s.interest <= topology::Interest::kAlways &&
      s.protocol <= ProtocolChoice::kSlots && s.transport <= TransportChoice::kVerbs &&
      s.direct.access <= PeerAccess::kMapped;
  if (!sound)
    return make_error(Code::kInvalidUsage,
                      "rank 0 sent settings of another build; start all ranks with one version", 0);
  return {};
}

}  // namespace tutti
