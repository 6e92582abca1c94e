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

// The cheapest; if it was measured, the cheapest of those that were measured to be as fast as any.
// Null where there is none.
const Priced* best_of(std::span<const Priced> priced) {
  constexpr double kAlike = 1.03;  // docs/performance.md, "Whole calls that were measured"
  if (priced.empty()) return nullptr;
  const auto cheapest = std::ranges::min_element(priced, cheaper);
  if (!cheapest->measured_us) return &*cheapest;
  double least = *cheapest->measured_us;
  for (const Priced& one : priced) least = std::min(least, one.measured_us.value_or(least));
  const Priced* best = nullptr;
  for (const Priced& one : priced)
    if (one.measured_us && *one.measured_us <= kAlike * least &&
        (best == nullptr || cheaper(one, *best)))
      best = &one;
  return best;
}

void enter(ChoiceRow& row, std::size_t in_class, const Priced* best) {
  if (best != nullptr)
    row.set(in_class, {number_of(best->contender->named), best->candidate->shape});
}

using MeasuredByAccess = std::array<MeasuredByName, ChoiceTable::kAccesses>;

// A contender's prices by each access, or by all where it works in no peer's memory and nothing was
// measured.
std::vector<ContenderPrices> prices_by_access(const Settings& settings, const Contender& contender,
                                              const MeasuredByAccess& measured) {
  std::vector<ContenderPrices> prices;
  const bool alike =
      !works_in_peers(contender.counts) && std::ranges::all_of(measured, &MeasuredByName::empty);
  for (std::size_t access = 0; access < (alike ? 1 : measured.size()); ++access)
    prices.emplace_back(settings, contender, static_cast<PeerAccess>(access), measured[access]);
  return prices;
}

// One size class of all rows. `prices`: of each contender, by access.
void fill_class(ChoiceTable::Accesses& table, std::span<const Contender> all,
                std::span<const std::vector<ContenderPrices>> prices, std::size_t in_class) {
  const auto depends_on_access = [&](const Priced& one) {
    return prices[static_cast<std::size_t>(one.contender - all.data())].size() > 1;
  };
  std::vector<Priced> priced, one;
  for (std::size_t access = 0; access < ChoiceTable::kAccesses; ++access) {
    ChoiceTable::Rows& rows = table[access];
    std::erase_if(priced, depends_on_access);
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
      enter(rows.forced[number], in_class, best_of(one));
      priced.insert(priced.end(), one.begin(), one.end());
    }
    enter(rows.best, in_class, best_of(priced));
  }
}

}  // namespace

ChoiceRow make_row(const Settings& settings, std::span<const Contender> contenders,
                   PeerAccess access, const MeasuredByName& measured) {
  ChoiceRow row;
  std::vector<ContenderPrices> prices;
  for (const Contender& contender : contenders)
    prices.emplace_back(settings, contender, access, measured);
  std::vector<Priced> priced;
  for (std::size_t c = 0; c < kSizeClasses; ++c) {
    priced.clear();
    for (const ContenderPrices& one : prices) one.append(class_bytes(c), priced);
    enter(row, c, best_of(priced));
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
    MeasuredByAccess by_access;
    for (std::size_t access = 0; access < by_access.size(); ++access)
      by_access[access] =
          measured_for(measured, problem, settings.cores, static_cast<PeerAccess>(access));
    std::vector<std::vector<ContenderPrices>> prices;
    for (const Contender& contender : all)
      prices.push_back(prices_by_access(settings, contender, by_access));
    for (std::size_t c = 0; c < kSizeClasses; ++c) fill_class(table.of(collective), all, prices, c);
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
