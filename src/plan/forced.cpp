// SPDX-License-Identifier: Apache-2.0
#include "plan/forced.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/config.hpp"
#include "base/text.hpp"

namespace tutti {
namespace {

Error refuse(std::string_view text, std::string_view name, std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("'{}' in '{}': {}", text, name, what), kNoRank};
}

constexpr std::uint64_t kMostNamed = 32;  // replicas; on devices, where a block runs each
constexpr std::uint64_t kMostSlotBytes = std::uint64_t{1} << 30;
constexpr std::string_view kForm =
    "after the algorithm write @flagged, @slots or @direct (on devices also @cells, @ll8, @ll16 or "
    "@ll128), then :replicas=N, :slots=N or :slot=BYTES";

constexpr std::array<std::string_view, 3> kPackets = {"ll8", "ll16", "ll128"};  // by PacketFormat

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
    TUTTI_TRY_ASSIGN(const std::uint64_t n, number_within(text, forced.name, 1, kMostNamed));
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

// Parses the part after the @.
Status parse_plan(std::string_view text, Forced& forced) {
  const std::string_view protocol = text.substr(0, text.find(':'));
  for (const Protocol each : {Protocol::kFlagged, Protocol::kSlots, Protocol::kDirect})
    if (protocol == name_of(each)) forced.protocol = each;
  if (const auto found = std::ranges::find(kPackets, protocol); found != kPackets.end())
    forced.packets = static_cast<PacketFormat>(found - kPackets.begin());
  forced.cells = protocol == "cells";
  if (forced.packets || forced.cells) forced.protocol = Protocol::kFlagged;
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
    if (!known) error.message += ", or auto";
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

Result<Forced> parse_forced(std::string_view text) {
  Forced forced;
  if (text.size() >= kMaxAlgorithmName)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("an algorithm's name may have at most {} characters, but this one has {}",
                    kMaxAlgorithmName - 1, text.size()));
  const std::string name = lower_case(text);
  if (name.empty() || name == "auto") return forced;
  forced.name = text;
  const std::size_t at = name.find('@');
  const std::string algorithm = name.substr(0, at);
  if (algorithm.empty())
    return tl::unexpected(refuse("", name, "write an algorithm or auto before the @"));
  if (algorithm != "auto") {
    TUTTI_TRY_ASSIGN(forced.algorithm, named_algorithm(algorithm));
  }
  if (at != std::string_view::npos)
    TUTTI_TRY(parse_plan(std::string_view(name).substr(at + 1), forced));
  return forced;
}

std::optional<Collective> find_collective(std::string_view name) {
  const auto plain = [](std::string_view text) {
    std::string letters = lower_case(text);
    std::erase(letters, '_');
    return letters;
  };
  for (std::size_t i = 1; i < kCollectiveCount; ++i)
    if (plain(kCollectives[i].name) == plain(name)) return static_cast<Collective>(i);
  return std::nullopt;
}

const Forced& ForcedSet::of(const Problem& problem) const {
  static const auto* const nothing = new Forced;  // never destroyed: ranks may outlive main
  const auto collective = static_cast<std::size_t>(problem.collective);
  if (named[collective]) return of_each[collective];
  const bool covered = any.algorithm == nullptr || any.algorithm->supports(problem);
  return covered ? any : *nothing;
}

Result<ForcedSet> parse_forced_set(std::string_view text) {
  ForcedSet set;
  if (text.size() >= kMaxForcedText)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("the list of algorithms may have at most {} characters, but this one has {}",
                    kMaxForcedText - 1, text.size()));
  if (lower_case(text) != "auto") set.text = text;
  bool bare = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    const std::string_view entry = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t colon = entry.find(':');
    const auto collective =
        colon == std::string_view::npos ? std::nullopt : find_collective(entry.substr(0, colon));
    if (collective && scheduled_as(*collective) != *collective)
      return tl::unexpected(
          refuse(entry, text,
                 fmt::format("names a {}, which runs as {}; name that", name_of(*collective),
                             name_of(scheduled_as(*collective)))));
    const std::size_t number = collective ? static_cast<std::size_t>(*collective) : 0;
    bool& taken = collective ? set.named[number] : bare;
    if (taken)
      return tl::unexpected(
          refuse(entry, text,
                 collective ? "this collective is named twice; name each once"
                            : "this is a second algorithm for all collectives; give only one"));
    taken = !entry.empty();
    Forced& into = collective ? set.of_each[number] : set.any;
    TUTTI_TRY_ASSIGN(into, parse_forced(collective ? entry.substr(colon + 1) : entry));
    into.for_all = !collective;
  }
  return set;
}

std::string plan_name(const Algorithm& algorithm, const PlanOptions& options) {
  const std::string_view how = options.packets
                                   ? kPackets[static_cast<std::size_t>(*options.packets)]
                                   : std::string_view(name_of(options.protocol));
  std::string name = fmt::format("{}@{}", algorithm.name, how);
  if (options.protocol == Protocol::kSlots || options.replicas != 1)
    name += fmt::format(":replicas={}", options.replicas);
  if (options.slots != 2) name += fmt::format(":slots={}", options.slots);
  if (options.slot_bytes != 0) name += fmt::format(":slot={}", short_bytes(options.slot_bytes));
  return name;
}

}  // namespace tutti
