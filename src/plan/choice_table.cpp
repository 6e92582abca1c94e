// SPDX-License-Identifier: Apache-2.0
#include "plan/choice_table.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/host.hpp"

namespace tutti {
namespace {

// The sizes that stand for a class, 2^(k/2), and those where it ends, its own: 2^((2k + 1) / 4).
struct SizeClasses {
  SizeClasses() {
    for (std::size_t k = 0; k < kSizeClasses; ++k) {
      bytes[k] = static_cast<std::uint64_t>(std::llround(std::exp2(static_cast<double>(k) / 2)));
      ends[k] = static_cast<std::uint64_t>(std::exp2((2.0 * static_cast<double>(k) + 1) / 4));
    }
  }
  std::array<std::uint64_t, kSizeClasses> bytes, ends;
};
const SizeClasses kClasses;

std::size_t number_of(const Algorithm* algorithm) {
  const auto listed = listed_algorithms();
  const auto found = std::ranges::find(listed, algorithm);
  return found == listed.end() ? 0 : static_cast<std::size_t>(found - listed.begin());
}

bool is_listed(const Algorithm* algorithm) {
  return std::ranges::find(listed_algorithms(), algorithm) != listed_algorithms().end();
}

// `supported`: by an algorithm's number.
bool is_sound(const ChoiceRow& row, const std::vector<bool>& supported) {
  for (std::size_t c = 0; c < kSizeClasses; ++c) {
    if (!row.has(c)) continue;
    const ChoiceRow::Entry entry = row.at(c);
    if (entry.algorithm >= supported.size() || entry.shape >= plan_shapes().size() ||
        !supported[entry.algorithm])
      return false;
  }
  return true;
}

}  // namespace

std::size_t size_class(std::uint64_t bytes) {
  const auto found = std::ranges::lower_bound(kClasses.ends, bytes);
  return std::min(static_cast<std::size_t>(found - kClasses.ends.begin()), kSizeClasses - 1);
}

std::uint64_t class_bytes(std::size_t size_class) { return kClasses.bytes[size_class]; }

bool ChoiceRow::empty() const {
  return std::ranges::all_of(entries_, [](std::uint8_t entry) { return entry == kNone; });
}

std::uint64_t ChoiceTable::hash() const {
  static_assert(std::has_unique_object_representations_v<ChoiceTable>);
  return hash_bytes({reinterpret_cast<const char*>(this), sizeof *this});
}

const MeasuredPlan* find_measured(std::span<const MeasuredPlan> measured, const Problem& problem,
                                  std::size_t in_class, std::string_view name) {
  for (const MeasuredPlan& one : measured)
    if (one.collective == problem.collective && one.ranks == problem.ranks &&
        size_class(one.bytes) == in_class && one.name == name)
      return &one;
  return nullptr;
}

std::vector<Collective> chosen_collectives(std::int32_t ranks) {
  std::vector<Collective> chosen;
  for (std::size_t i = 1; i < kCollectiveCount; ++i) {
    const Problem problem{.collective = static_cast<Collective>(i), .ranks = ranks};
    const auto supports = [&](const Algorithm* algorithm) { return algorithm->supports(problem); };
    if (std::ranges::any_of(listed_algorithms(), supports)) chosen.push_back(problem.collective);
  }
  return chosen;
}

namespace {

// The cheapest, or what measurement puts before it; null where there is none.
const Priced* best_of(std::span<const Priced> priced, std::size_t in_class,
                      std::span<const MeasuredPlan> measured) {
  if (priced.empty()) return nullptr;
  const Priced* best = &*std::ranges::min_element(priced, cheaper);
  if (measured.empty()) return best;
  const auto measured_of = [&](const Priced& one) {
    return find_measured(measured, one.contender->problem, in_class,
                         plan_name(*one.candidate->algorithm, one.candidate->options));
  };
  const MeasuredPlan* best_time = measured_of(*best);
  if (best_time == nullptr) return best;
  const MeasuredPlan& cheapest = *best_time;
  for (const Priced& one : priced) {
    const MeasuredPlan* const time = measured_of(one);
    if (time == nullptr || time->time_us >= best_time->time_us) continue;
    if (time->time_us * (1 + time->spread + cheapest.spread) >= cheapest.time_us) continue;
    best = &one;
    best_time = time;
  }
  return best;
}

void enter(ChoiceRow& row, std::size_t in_class, const Priced* best) {
  if (best != nullptr)
    row.set(in_class, {number_of(best->contender->named), best->candidate->shape});
}

// A contender's prices by each access, or by all where it works in no peer's memory.
std::vector<ContenderPrices> prices_by_access(const Settings& settings,
                                              const Contender& contender) {
  std::vector<ContenderPrices> prices;
  const std::size_t accesses = works_in_peers(contender.counts) ? ChoiceTable::kAccesses : 1;
  for (std::size_t access = 0; access < accesses; ++access)
    prices.emplace_back(settings, contender, static_cast<PeerAccess>(access));
  return prices;
}

// One size class of all rows. `prices`: of each contender, by access.
void fill_class(ChoiceTable::Accesses& table, std::span<const Contender> all,
                std::span<const std::vector<ContenderPrices>> prices, std::size_t in_class,
                std::span<const MeasuredPlan> measured) {
  std::vector<Priced> priced, one;
  for (std::size_t access = 0; access < ChoiceTable::kAccesses; ++access) {
    ChoiceTable::Rows& rows = table[access];
    std::erase_if(priced, [](const Priced& p) { return works_in_peers(p.contender->counts); });
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t number = number_of(all[i].named);
      const ChoiceRow& same = table[0].forced[number];
      if (access >= prices[i].size()) {
        if (same.has(in_class)) rows.forced[number].set(in_class, same.at(in_class));
        continue;
      }
      one.clear();
      prices[i][access].append(class_bytes(in_class), one);
      // A contender that cannot has no entry.
      enter(rows.forced[number], in_class, best_of(one, in_class, measured));
      priced.insert(priced.end(), one.begin(), one.end());
    }
    enter(rows.best, in_class, best_of(priced, in_class, measured));
  }
}

}  // namespace

ChoiceRow make_row(const Settings& settings, std::span<const Contender> contenders,
                   PeerAccess access, std::span<const MeasuredPlan> measured) {
  ChoiceRow row;
  std::vector<ContenderPrices> prices;
  for (const Contender& contender : contenders) prices.emplace_back(settings, contender, access);
  std::vector<Priced> priced;
  for (std::size_t c = 0; c < kSizeClasses; ++c) {
    priced.clear();
    for (const ContenderPrices& one : prices) one.append(class_bytes(c), priced);
    enter(row, c, best_of(priced, c, measured));
  }
  return row;
}

Result<ChoiceTable> make_table(const Settings& settings, std::int32_t ranks,
                               std::span<const MeasuredPlan> measured,
                               std::span<const std::int32_t> hosts, const RankOrders* orders) {
  ChoiceTable table;
  TUTTI_TRY_ASSIGN(const ForcedSet set, parse_forced_set(settings.forced_text()));
  for (const Collective collective : chosen_collectives(ranks)) {
    const Problem problem{.collective = collective, .ranks = ranks};
    const Forced forced = forced_by(settings, set.of(problem));
    if (forced.algorithm != nullptr && !is_listed(forced.algorithm)) continue;
    TUTTI_TRY_ASSIGN(const std::vector<Contender> all,
                     contenders(settings, forced, problem, hosts, orders));
    std::vector<std::vector<ContenderPrices>> prices;
    for (const Contender& contender : all) prices.push_back(prices_by_access(settings, contender));
    for (std::size_t c = 0; c < kSizeClasses; ++c)
      fill_class(table.of(collective), all, prices, c, measured);
  }
  return table;
}

const ChoiceRow* find_row(const ChoiceTable& table, const ForcedSet& configured,
                          const RowQuestion& question) {
  const auto& [problem, named, access] = question;
  const std::string& forced = configured.of(problem).name;
  const bool of_names_alone =
      named.name.find('@') == std::string::npos && forced.find('@') == std::string::npos;
  if (named.name != forced && !of_names_alone) return nullptr;
  if (named.algorithm != nullptr && !is_listed(named.algorithm)) return nullptr;
  const ChoiceTable::Rows& rows = table.of(problem.collective)[static_cast<std::size_t>(access)];
  const ChoiceRow& row =
      named.algorithm == nullptr ? rows.best : rows.forced[number_of(named.algorithm)];
  return row.empty() ? nullptr : &row;
}

Status check_table(const ChoiceTable& table, const Settings& settings, std::int32_t ranks) {
  bool sound = table.hash() == settings.table_hash;
  for (std::size_t i = 0; i < kCollectiveCount; ++i) {
    const Problem problem{.collective = static_cast<Collective>(i), .ranks = ranks};
    std::vector<bool> supported;
    for (const Algorithm* algorithm : listed_algorithms())
      supported.push_back(algorithm->supports(problem));
    for (const ChoiceTable::Rows& rows : table.of(problem.collective)) {
      sound = sound && is_sound(rows.best, supported);
      for (const ChoiceRow& row : rows.forced) sound = sound && is_sound(row, supported);
    }
  }
  if (!sound)
    return make_error(Code::kInvalidUsage,
                      "rank 0 sent a table of choices that this build cannot read; start all ranks "
                      "with the same version of Tutti",
                      0);
  return {};
}

}  // namespace tutti
