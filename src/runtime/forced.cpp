#include "runtime/forced.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/config.hpp"

namespace tutti {
namespace {

Error refuse(std::string_view text, std::string_view name, std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("'{}' in '{}': {}", text, name, what), kNoRank};
}

constexpr std::uint64_t kMostSlotBytes = std::uint64_t{1} << 30;
constexpr std::string_view kForm =
    "after the algorithm stands @flagged, @slots or @direct, and then :replicas=N, :slots=N or "
    ":slot=BYTES";

Result<std::uint64_t> number_within(std::string_view text, std::string_view name,
                                    std::uint64_t least, std::uint64_t most) {
  const std::optional<std::uint64_t> value = parse_bytes(text.substr(text.find('=') + 1));
  if (!value || *value < least || *value > most)
    return tl::unexpected(
        refuse(text, name, fmt::format("must be a number from {} to {}", least, most)));
  return *value;
}

Status parse_option(std::string_view text, Forced& forced) {
  const std::string_view key = text.substr(0, text.find('='));
  if (key == "replicas") {
    TUTTI_TRY_ASSIGN(const std::uint64_t n, number_within(text, forced.name, 1, kMostReplicas));
    forced.replicas = static_cast<std::uint32_t>(n);
  } else if (key == "slots") {
    TUTTI_TRY_ASSIGN(const std::uint64_t n, number_within(text, forced.name, 2, kMostSlots));
    forced.slots = static_cast<std::uint32_t>(n);
  } else if (key == "slot") {
    TUTTI_TRY_ASSIGN(const std::uint64_t n,
                     number_within(text, forced.name, 2 * kSlotHeaderBytes, kMostSlotBytes));
    forced.slot_bytes = n;
  } else {
    return tl::unexpected(refuse(text, forced.name, kForm));
  }
  return {};
}

// What stands after the @.
Status parse_plan(std::string_view text, Forced& forced) {
  const std::string_view protocol = text.substr(0, text.find(':'));
  for (const Protocol each : {Protocol::kFlagged, Protocol::kSlots, Protocol::kDirect})
    if (protocol == name_of(each)) forced.protocol = each;
  if (!forced.protocol) return tl::unexpected(refuse(protocol, forced.name, kForm));
  for (std::size_t at = text.find(':'); at != std::string_view::npos;) {
    const std::size_t end = text.find(':', at + 1);
    TUTTI_TRY(parse_option(text.substr(at + 1, end - at - 1), forced));
    at = end;
  }
  return {};
}

Result<const Algorithm*> named_algorithm(std::string_view name) {
  const std::string_view family = name.substr(0, name.find(':'));
  const bool known = std::ranges::find(all_algorithms(), family, &Algorithm::name) !=
                     std::ranges::end(all_algorithms());
  return find_algorithm(name).map_error([known](Error error) {
    if (!known) error.message += "; or auto";
    return error;
  });
}

std::string short_bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kKi = 1024;
  return bytes % (kKi * kKi) == 0 ? fmt::format("{}M", bytes / kKi / kKi)
         : bytes % kKi == 0       ? fmt::format("{}K", bytes / kKi)
                                  : fmt::to_string(bytes);
}

}  // namespace

Result<Forced> parse_forced(std::string_view name) {
  Forced forced;
  if (name.empty() || name == "auto") return forced;
  if (name.size() >= kMaxAlgorithmName)
    return make_error(Code::kInvalidArgument,
                      fmt::format("an algorithm's name has at most {} characters, not {}",
                                  kMaxAlgorithmName - 1, name.size()));
  forced.name = name;
  const std::size_t at = name.find('@');
  const std::string_view algorithm = name.substr(0, at);
  if (algorithm.empty())
    return tl::unexpected(refuse("", name, "an algorithm or auto must stand before the @"));
  if (algorithm != "auto") {
    TUTTI_TRY_ASSIGN(forced.algorithm, named_algorithm(algorithm));
  }
  if (at != std::string_view::npos) TUTTI_TRY(parse_plan(name.substr(at + 1), forced));
  return forced;
}

std::string plan_name(const Algorithm& algorithm, const PlanOptions& options) {
  std::string name = fmt::format("{}@{}", algorithm.name, name_of(options.protocol));
  if (options.protocol == Protocol::kSlots || options.replicas != 1)
    name += fmt::format(":replicas={}", options.replicas);
  if (options.slots != 2) name += fmt::format(":slots={}", options.slots);
  if (options.slot_bytes != 0) name += fmt::format(":slot={}", short_bytes(options.slot_bytes));
  return name;
}

}  // namespace tutti
