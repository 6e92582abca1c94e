// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/host.hpp"
#include "base/text.hpp"

namespace tutti {
namespace {

// What rank 0 decides. Plain bytes: between equal builds, as its settings' size shows.
struct Decision {
  Settings settings;
  ChoiceTable table;
};
// The same with a layout; behind it come the orders.
struct Announcement {
  Decision decision;
  std::array<char, 256> order_source{};  // for people
};

// Where hashes of settings differ, which all ranks see: in what? All compare the same values, so
// all find the same difference.
Status find_difference(const Membership& members, const Settings& own, Deadline deadline) {
  TUTTI_TRY_ASSIGN(const std::vector<Settings> all,
                   members.control().allgather_values(own, deadline));
  for (Rank rank = 1; rank < members.ranks(); ++rank) {
    const std::optional<Difference> difference =
        first_difference(all.front(), all[static_cast<std::size_t>(rank)]);
    if (!difference) continue;
    const auto value = [](const std::string& text) { return text.empty() ? text : text + " at "; };
    return make_error(
        Code::kInvalidUsage,
        fmt::format("{} differs between ranks: {}{} and {}{}; use the same on all ranks",
                    difference->what, value(difference->a), members.describe(0),
                    value(difference->b), members.describe(rank)),
        rank);
  }
  return make_error(Code::kInternalError,
                    "the ranks' settings have different hashes, but do not differ");
}

// On rank 0: takes a layout and the job's cores, and prices again where groups, cores or the wire
// have changed.
void adopt(Agreement& own, const AgreedLayout& laid, std::int32_t cores, const Capabilities& way,
           std::int32_t ranks) {
  Settings& settings = own.settings;
  settings.order_hash = laid.orders.hash(ranks);
  const bool same_cores = cores == std::exchange(settings.cores, cores);
  // Cut, a list of groups would be another one.
  const bool grouped = !laid.groups.empty() && laid.groups.size() < settings.groups.size();
  if (same_cores && !grouped && !way.pumps) return;
  if (way.pumps) {
    // What was measured here was measured within a host.
    settings.flagged_wire = way.flagged;
    settings.slots_wire = way.slots;
    own.measured.clear();
  }
  if (grouped) laid.groups.copy(settings.groups.data(), settings.groups.size() - 1);
  Result<ChoiceTable> table =
      make_table(settings, ranks, own.measured, own.wire_hosts, &laid.orders);
  if (!table && grouped) {
    settings.groups.fill(0);
    table = make_table(settings, ranks, own.measured, own.wire_hosts, &laid.orders);
  }
  if (!table) return;  // what was chosen for fewer cores runs too
  own.table = *table;
  settings.table_hash = own.table.hash();
}

// Rank 0 decides again, now that it knows the hosts: settings, table and orders go to all.
Status agree_again(Agreement& own, const Membership& members, AgreedLayout laid,
                   Deadline deadline) {
  Announcement head{{own.settings, own.table}};
  laid.source.copy(head.order_source.data(), head.order_source.size() - 1);
  std::vector<std::byte> announced(sizeof head);
  std::memcpy(announced.data(), &head, sizeof head);
  const std::vector<std::byte> orders = laid.orders.encode(members.ranks());
  announced.insert(announced.end(), orders.begin(), orders.end());
  TUTTI_TRY(members.control().allgather({}, deadline, announced).map([](const auto&) {}));
  std::memcpy(static_cast<void*>(&head), announced.data(), sizeof head);
  own.settings = head.decision.settings;
  own.table = head.decision.table;
  head.order_source.back() = 0;
  own.order_source = printable(head.order_source.data());
  TUTTI_TRY(check_settings(own.settings));
  TUTTI_TRY_ASSIGN(own.orders, RankOrders::decode(std::span(announced).subspan(sizeof head),
                                                  members.ranks(), own.settings.order_hash));
  return {};
}

}  // namespace

std::string Agreement::order_text() const {
  if (order_source.empty()) return {};
  return fmt::format("rank order: {}; source: {}{}{}", orders.text(), order_source,
                     settings.group_text().empty() ? "" : "; groups ", settings.group_text());
}

Result<Agreement> propose_agreement(const Membership& members) {
  Agreement own;
  Settings& settings = own.settings;
  TUTTI_TRY_ASSIGN(settings, make_settings(members.config(), usable_cpus()));
  own.facts.uniform_hash = uniform_hash(settings);
  own.facts.machine = boot_identity();
  own.facts.cores_hash = seat_hash(topology::seat_of_this_thread());
  own.facts.cores = settings.cores;
  own.facts.machine_cores = machine_cpus();
  own.machine.cores = settings.cores;
  if (members.rank() != 0) return own;
  own.measured = apply_profile(members.config(), members.log(), settings);
  if (members.ranks() == 1) return own;
  Result<ChoiceTable> table = make_table(settings, members.ranks(), own.measured);
  if (!table)
    return tl::unexpected(of_algorithm_setting(members.config(), std::move(table).error()));
  own.table = *table;
  settings.table_hash = own.table.hash();
  return own;
}

Status agree(Agreement& own, const Membership& members, const Transport& transport,
             const AccessView& access, Deadline deadline) {
  const Config& config = members.config();
  const OwnPlace place = look_at_own_place(config, members.rank(), members.peers());
  own.facts.direct = access;
  own.facts.interest = place.interest;
  own.facts.seat_hash = seat_hash(place.seat);
  Decision decision{own.settings, own.table};
  TUTTI_TRY_ASSIGN(const std::vector<RankFacts> all,
                   members.control().allgather_values(
                       own.facts, deadline, std::as_writable_bytes(std::span(&decision, 1))));
  const auto differs = [&](const RankFacts& other) {
    return other.uniform_hash != all.front().uniform_hash;
  };
  if (std::ranges::any_of(all, differs)) return find_difference(members, own.settings, deadline);
  own.settings = decision.settings;
  own.table = decision.table;
  own.settings.direct = all.front().direct;
  for (const RankFacts& other : all)
    if (other.direct.access < own.settings.direct.access) own.settings.direct = other.direct;
  TUTTI_TRY(check_settings(own.settings));
  own.machine = machine_of(members.rank(), all, members.peers());
  const std::int32_t cores = cores_of_job(all, members.peers());
  const bool laid_out = layout_matters(all, members.peers());
  const Capabilities way = transport.capabilities();
  if (way.pumps) own.wire_hosts = number_hosts(members.peers(), forces_wire(config.transport));
  if (laid_out || way.pumps || cores != own.settings.cores) {
    AgreedLayout laid;
    if (laid_out) {
      TUTTI_TRY_ASSIGN(
          laid, gather_layout(members.control(), config, members.log(), place.seat, deadline));
    }
    if (members.rank() == 0) adopt(own, laid, cores, way, members.ranks());
    TUTTI_TRY(agree_again(own, members, std::move(laid), deadline));
    if (members.rank() == 0 && laid_out)
      TUTTI_LOG(members.log(), LogLevel::kInfo, "{}", own.order_text());
  }
  return check_table(own.table, own.settings, members.ranks());
}

}  // namespace tutti
