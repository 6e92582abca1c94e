// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/selection.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace tutti::verbs {
namespace {

bool is_ipv4(const Gid& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](std::uint8_t b) { return b == 0; }) &&
         gid[10] == 0xff && gid[11] == 0xff;
}
bool is_link_local(const Gid& gid) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

int worth(const GidEntry& entry) {
  const int type = entry.type == GidType::kRoceV2           ? 2
                   : entry.type == GidType::kInfiniBandOrV1 ? 1
                                                            : 0;
  const int address = is_ipv4(entry.gid) ? 2 : is_link_local(entry.gid) ? 0 : 1;
  return 3 * type + address;
}

}  // namespace

bool HcaFilter::admits(std::string_view device, std::uint32_t port) const {
  if (items.empty()) return true;
  const bool named = std::ranges::any_of(items, [&](const Item& item) {
    const bool fits = exact ? device == item.name : device.starts_with(item.name);
    return fits && (item.port == 0 || item.port == port);
  });
  return named != exclude;
}

Result<HcaFilter> parse_hca_filter(std::string_view text) {
  HcaFilter filter;
  std::string_view rest = text;
  const auto skip = [&](char mark) {
    if (!rest.starts_with(mark)) return false;
    rest.remove_prefix(1);
    return true;
  };
  filter.exclude = skip('^');
  filter.exact = skip('=');
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const std::size_t colon = part.find(':');
    HcaFilter::Item item{.name = std::string(part.substr(0, colon))};
    bool sound = !item.name.empty();
    if (colon != std::string_view::npos) {
      const char* const end = part.data() + part.size();
      const auto [stop, error] = std::from_chars(part.data() + colon + 1, end, item.port);
      sound = sound && error == std::errc{} && stop == end && item.port >= 1 && item.port <= 255;
    }
    if (!sound)
      return make_error(Code::kInvalidArgument,
                        fmt::format("TUTTI_IB_HCA={}: '{}' is not a device; write DEVICE or "
                                    "DEVICE:PORT, separated by commas",
                                    text, part));
    filter.items.push_back(std::move(item));
  }
  return filter;
}

std::optional<GidEntry> choose_gid(std::span<const GidEntry> entries) {
  const auto best = std::ranges::max_element(entries, [](const GidEntry& a, const GidEntry& b) {
    return worth(a) != worth(b) ? worth(a) < worth(b) : a.index > b.index;
  });
  return best == entries.end() ? std::nullopt : std::optional(*best);
}

GidType gid_type_of(std::string_view text) {
  if (text.starts_with("RoCE v2")) return GidType::kRoceV2;
  if (text.starts_with("IB/RoCE v1")) return GidType::kInfiniBandOrV1;
  return GidType::kUnknown;
}

std::string text_of(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET6, gid.data(), text.data(), text.size());
  return text.data();
}

}  // namespace tutti::verbs
