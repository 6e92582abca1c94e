// What the ranks of a communicator agree on when it starts: settings, the table of choices, the
// order in which ranks stand. Rank 0 decides; the others check what it sent.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/host.hpp"
#include "base/text.hpp"
#include "runtime/communicator.hpp"
#include "runtime/faults.hpp"
#include "runtime/machines.hpp"

namespace tutti {
namespace {

// Plain bytes, and behind them the orders: between equal builds, as the settings' size has shown.
struct Announcement {
  Settings settings;
  ChoiceTable table;
  std::array<char, 256> order_source{};  // for people
};

}  // namespace

Result<Settings> Communicator::decide() {
  TUTTI_TRY_ASSIGN(Settings settings, make_settings(config_, usable_cpus()));
  settings.cores_hash = seat_hash(topology::seat_of_this_thread());
  settings.machine_cores = machine_cpus();
  settings.machine = boot_identity();
  machine_cores_ = settings.cores;
  if (rank_ != 0) return settings;
  measured_ = apply_profile(config_, log_, settings);
  if (ranks_ == 1) return settings;
  TUTTI_TRY_ASSIGN(table_, make_table(settings, ranks_, measured_));
  settings.table_hash = table_.hash();
  return settings;
}

Status Communicator::agree_on_settings(Deadline deadline) {
  windows_.emplace(*control_);
  shrink_.emplace(*control_);
  TUTTI_TRY(join_on_device(device_));
  if (ranks_ == 1) return force({});
  // Before the exchange, so that ranks of one process find each other's after it.
  lent_ = LentMemory(control_->session(), rank_, board_->call_record(rank_));
  settings_.direct = look_at_peers();
  const OwnPlace place = look_at_own_place(config_, rank_, peers_);
  settings_.interest = place.interest;
  settings_.seat_hash = seat_hash(place.seat);
  // Also the barrier after which every rank can be connected to.
  TUTTI_TRY_ASSIGN(const std::vector<Settings> all,
                   control_->allgather_values(settings_, deadline,
                                              std::as_writable_bytes(std::span(&table_, 1))));
  TUTTI_TRY(compare_settings(all));
  settings_ = all.front();
  for (const Settings& other : all)
    if (other.direct.access < settings_.direct.access) settings_.direct = other.direct;
  TUTTI_TRY(check_settings(settings_));
  const Machine machine = machine_of(rank_, all, peers_);
  machine_ranks_ = machine.ranks;
  machine_cores_ = machine.cores;
  const std::int32_t cores = cores_of_job(all, peers_);
  const bool laid_out = layout_matters(all, peers_), wired = transport_->capabilities().pumps;
  if (wired) wire_hosts_ = number_hosts(peers_, forces_wire(config_.transport));
  if (laid_out || wired || cores != settings_.cores)
    TUTTI_TRY(agree_again(place, cores, laid_out, deadline));
  TUTTI_TRY(check_table(table_, settings_, ranks_));
  return force({});
}

// Rank 0 decides again, now that it knows the hosts: settings, table and orders go to all.
Status Communicator::agree_again(const OwnPlace& place, std::int32_t cores, bool laid_out,
                                 Deadline deadline) {
  AgreedLayout laid;
  if (laid_out) {
    TUTTI_TRY_ASSIGN(laid, gather_layout(*control_, config_, log_, place.seat, deadline));
  }
  if (rank_ == 0) adopt(laid, cores);
  Announcement head{settings_, table_};
  laid.source.copy(head.order_source.data(), head.order_source.size() - 1);
  std::vector<std::byte> announced(sizeof head);
  std::memcpy(announced.data(), &head, sizeof head);
  const std::vector<std::byte> orders = laid.orders.encode(ranks_);
  announced.insert(announced.end(), orders.begin(), orders.end());
  TUTTI_TRY(control_->allgather({}, deadline, announced).map([](const auto&) {}));
  std::memcpy(static_cast<void*>(&head), announced.data(), sizeof head);
  settings_ = head.settings;
  table_ = head.table;
  head.order_source.back() = 0;
  order_source_ = printable(head.order_source.data());
  TUTTI_TRY(check_settings(settings_));
  TUTTI_TRY_ASSIGN(orders_, RankOrders::decode(std::span(announced).subspan(sizeof head), ranks_,
                                               settings_.order_hash));
  if (rank_ == 0 && laid_out) TUTTI_LOG(log_, LogLevel::kInfo, "{}", order_text());
  return {};
}

void Communicator::adopt(const AgreedLayout& laid, std::int32_t cores) {
  settings_.order_hash = laid.orders.hash(ranks_);
  const bool same_cores = cores == std::exchange(settings_.cores, cores);
  // Cut, a list of groups would be another one.
  const bool grouped = !laid.groups.empty() && laid.groups.size() < settings_.groups.size();
  const Capabilities way = transport_->capabilities();
  if (same_cores && !grouped && !way.pumps) return;
  if (way.pumps) {
    // What was measured here was measured within a host.
    settings_.flagged_wire = way.flagged;
    settings_.slots_wire = way.slots;
    measured_.clear();
  }
  if (grouped) laid.groups.copy(settings_.groups.data(), settings_.groups.size() - 1);
  Result<ChoiceTable> table = make_table(settings_, ranks_, measured_, wire_hosts_);
  if (!table && grouped) {
    settings_.groups.fill(0);
    table = make_table(settings_, ranks_, measured_, wire_hosts_);
  }
  if (!table) return;  // what was chosen for fewer cores runs too
  table_ = *table;
  settings_.table_hash = table_.hash();
}

std::string Communicator::order_text() const {
  if (order_source_.empty()) return {};
  return fmt::format("ranks stand {}; by {}{}{}", orders_.text(), order_source_,
                     settings_.group_text().empty() ? "" : "; groups ", settings_.group_text());
}

// All ranks compare the same values, so all find the same difference.
Status Communicator::compare_settings(std::span<const Settings> all) const {
  for (std::int32_t rank = 1; rank < ranks_; ++rank) {
    const Settings& other = all[static_cast<std::size_t>(rank)];
    const std::optional<Difference> difference = first_difference(all.front(), other);
    if (!difference) continue;
    const auto value = [](const std::string& text) { return text.empty() ? text : text + " at "; };
    return make_error(Code::kInvalidUsage,
                      fmt::format("{} differs: {}{} and {}{}; set it alike on all ranks",
                                  difference->what, value(difference->a), describe_rank(peers_, 0),
                                  value(difference->b), describe_rank(peers_, rank)),
                      rank);
  }
  return {};
}

}  // namespace tutti
