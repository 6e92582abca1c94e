// SPDX-License-Identifier: Apache-2.0
#include "tutti-tune/choose.hpp"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/choice_table.hpp"

namespace tutti::tune {
namespace {

struct Usage {
  double seconds = 0;
  long kib = 0;  // the most so far
};

Usage usage() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return {seconds(used.ru_utime) + seconds(used.ru_stime), used.ru_maxrss};
}

// As initialization sets them once it knows the hosts.
Result<Settings> settings_of(const ChooseOptions& options) {
  TUTTI_TRY_ASSIGN(Settings settings,
                   make_settings({}, options.cores > 0 ? options.cores : options.ranks));
  const std::int32_t size = options.ranks_per_host;
  if (size == 0 || size >= options.ranks) return settings;
  settings.flagged_wire = {.alpha_ns = options.wire_alpha_ns,
                           .beta_ns_per_byte = 1 / options.wire_GBps};
  settings.slots_wire = settings.flagged_wire;
  const std::int32_t rest = options.ranks % size;
  const std::string groups =
      fmt::format("{}x{}{}", options.ranks / size, size, rest == 0 ? "" : fmt::format("+{}", rest));
  groups.copy(settings.groups.data(), settings.groups.size() - 1);
  return settings;
}

std::string text_of(const ChoiceRow& row, std::size_t size_class) {
  if (!row.has(size_class)) return "-";
  const ChoiceRow::Entry entry = row.at(size_class);
  const PlanShape& shape = plan_shapes()[entry.shape];
  return plan_name(*listed_algorithms()[entry.algorithm], {.protocol = shape.protocol,
                                                           .replicas = shape.replicas,
                                                           .slots = shape.slots,
                                                           .slot_bytes = shape.slot_bytes});
}

}  // namespace

Status choose(const ChooseOptions& options, std::FILE* out) {
  TUTTI_TRY_ASSIGN(const Settings settings, settings_of(options));
  std::vector<std::int32_t> hosts;
  if (options.ranks_per_host > 0)
    for (Rank rank = 0; rank < options.ranks; ++rank)
      hosts.push_back(rank / options.ranks_per_host);
  const Usage before = usage();
  TUTTI_TRY_ASSIGN(const ChoiceTable table, make_table(settings, options.ranks, {}, hosts));
  const Usage after = usage();
  fmt::print(out, "{:>16}  {}\n", "# from bytes", "plan of an all_reduce");
  std::string last;
  const ChoiceRow& best = table.of(Collective::kAllReduce)[0].best;
  for (std::size_t c = 0; c < kSizeClasses; ++c)
    if (const std::string text = text_of(best, c); text != last) {
      fmt::print(out, "{:>16}  {}\n", class_bytes(c), text);
      last = text;
    }
  fmt::print(out,
             "# {} ranks: chosen for every collective in {:.2f} s of CPU, at most {:.0f} MB "
             "({:.0f} MB before)\n",
             options.ranks, after.seconds - before.seconds, static_cast<double>(after.kib) / 1e3,
             static_cast<double>(before.kib) / 1e3);
  return {};
}

}  // namespace tutti::tune
