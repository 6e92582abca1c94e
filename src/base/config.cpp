// SPDX-License-Identifier: Apache-2.0
#include "base/config.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/text.hpp"

namespace tutti {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
constexpr std::uint64_t kMillisecondNs = 1'000'000, kSecondNs = 1'000'000'000;
constexpr std::uint64_t kDayNs = 86'400 * kSecondNs;

constexpr std::string_view kProtocolChoices = "auto|flagged|slots";
constexpr std::string_view kIsaChoices = "auto|avx512|avx2|scalar";
constexpr std::string_view kCmaChoices = "auto|off";
constexpr std::string_view kTransportChoices = "auto|shm|tcp|verbs";
constexpr std::string_view kLauncherChoices = "auto|none";
constexpr std::string_view kFlagChoices = "0|1";
constexpr std::string_view kLogLevelChoices = "off|error|warn|version|info|trace";

constexpr std::array<ConfigVariable, 37> kTable{{
    {"TUTTI_ALGO", "auto", ConfigKind::kText, "", 1, kMaxForcedText - 1, false,
     "algorithm of every collective that has it: auto or a name from `tutti-plan list`; or one for "
     "each, e.g. all_reduce:ring;all_gather:pat; equal on all ranks",
     &Config::algo},
    {"TUTTI_PROTO", "auto", ConfigKind::kChoice, kProtocolChoices, 0, 0, false,
     "protocol of every connection; equal on all ranks", &Config::protocol},
    {"TUTTI_REPLICAS", "0", ConfigKind::kNumber, "", 1, kMostReplicas, true,
     "copies of the schedule that share the slices, for pipelining; equal on all ranks",
     &Config::replicas},
    {"TUTTI_SLICES", "0", ConfigKind::kNumber, "", 1, 65536, true,
     "number of parts into which every chunk is divided; equal on all ranks", &Config::slices},
    {"TUTTI_SLOTS", "0", ConfigKind::kNumber, "", 2, kMostSlots, true,
     "messages that a connection can hold; equal on all ranks", &Config::slots},
    {"TUTTI_SLOT_BYTES", "0", ConfigKind::kBytes, "", 64, 1 * kGiB, true,
     "payload of one slot; equal on all ranks", &Config::slot_bytes},
    {"TUTTI_ARENA_BYTES", "2M", ConfigKind::kBytes, "", 64 * kKiB, 64 * kGiB, false,
     "receive buffer of every rank; equal on all ranks", &Config::arena_bytes},
    {"TUTTI_VERIFY", "0", ConfigKind::kChoice, kFlagChoices, 0, 0, false,
     "1: verify every plan when it is compiled, even if the tests have verified its family",
     &Config::verify},
    {"TUTTI_FP32_PARTIALS", "0", ConfigKind::kChoice, kFlagChoices, 0, 0, false,
     "1: sums, averages and products of 8- and 16-bit floats travel between the ranks as fp32 and "
     "are rounded once, at more traffic; equal on all ranks",
     &Config::fp32_partials},
    {"TUTTI_OP_TIMEOUT_S", "600", ConfigKind::kSeconds, "", kMillisecondNs, 365 * kDayNs, false,
     "an operation fails if a live peer does not take part for this long", &Config::op_timeout_ns},
    {"TUTTI_WARN_AFTER_S", "5", ConfigKind::kSeconds, "", kMillisecondNs, 365 * kDayNs, false,
     "the library logs a warning if an operation waits for this long", &Config::warn_after_ns},
    {"TUTTI_INIT_TIMEOUT_S", "60", ConfigKind::kSeconds, "", kMillisecondNs, 365 * kDayNs, false,
     "how long a rank that joins a communicator waits for the others", &Config::init_timeout_ns},
    {"TUTTI_DEBUG", "warn", ConfigKind::kChoice, kLogLevelChoices, 0, 0, false,
     "most verbose level that is logged, in upper or lower case; version: warnings and the "
     "library's version",
     &Config::log_level},
    {"TUTTI_DEBUG_FILE", "", ConfigKind::kText, "", 0, 4095, false,
     "file of the log; %h is the host, %p the pid; not set: stderr", &Config::log_file},
    {"TUTTI_FLIGHT_DIR", "", ConfigKind::kText, "", 0, 3500, false,
     "folder on a local disk for a record of the last operations that outlives every rank; read it "
     "with `tutti-info ranks FILE`",
     &Config::flight_dir},
    {"TUTTI_ISA", "auto", ConfigKind::kChoice, kIsaChoices, 0, 0, false,
     "widest vector instructions of the reduction kernels", &Config::isa},
    {"TUTTI_HOST_ID", "", ConfigKind::kText, "", 0, 255, false,
     "ranks with equal texts count as one host; not set: boot id and network namespace",
     &Config::host_id},
    {"TUTTI_IFNAME", "", ConfigKind::kText, "", 0, 255, false,
     "network interface for ranks of other hosts: eth,ib (prefixes), =eth0, ^docker; not set: the "
     "first that is up, without it ranks of one host only",
     &Config::interfaces},
    {"TUTTI_SPIN", "auto", ConfigKind::kNumber, "auto", 0, 10'000'000, false,
     "polls before a waiting thread yields its core; auto: depends on cores and ranks",
     &Config::spin},
    {"TUTTI_PROFILE", "auto", ConfigKind::kText, "", 1, 3500, false,
     "costs that tutti-tune measured on this machine: a file, auto (the user's, under "
     "~/.cache/tutti), or off; rank 0's are used",
     &Config::profile},
    {"TUTTI_TOPOLOGY", "auto", ConfigKind::kText, "", 1, 3500, false,
     "this host's topology, which orders the ranks in rings and trees: a file of hwloc or of NCCL, "
     "auto (detected where ranks run at different places), or off (rank numbers give the order)",
     &Config::topology},
    {"TUTTI_CLUSTER", "", ConfigKind::kText, "", 0, 3500, false,
     "cluster file: rails and switches between the hosts, which are in the order of their first "
     "ranks; rank 0's file is used",
     &Config::cluster},
    {"TUTTI_SEATS", "auto", ConfigKind::kText, "", 1, 4095, false,
     "processors or device of each rank of this host, e.g. 0-3/4-7 or GPU0/GPU1; auto: by their "
     "affinity",
     &Config::seats},
    {"TUTTI_CMA", "auto", ConfigKind::kChoice, kCmaChoices, 0, 0, false,
     "whether ranks read other ranks' memory by cross-memory attach, where the kernel permits it",
     &Config::cma},
    {"TUTTI_TRANSPORT", "auto", ConfigKind::kChoice, kTransportChoices, 0, 0, false,
     "how messages travel; auto: shared memory within a host, between hosts RDMA (verbs) where "
     "every rank has an active port, else TCP; equal on all ranks",
     &Config::transport},
    {"TUTTI_IB_HCA", "", ConfigKind::kText, "", 0, 1023, false,
     "RDMA devices that may be used: mlx5_0:1,mlx5_1 (prefixes, with or without a port), =mlx5_1, "
     "^mlx5_2; the first with an active port is used; not set: any",
     &Config::ib_hca},
    {"TUTTI_IB_GID_INDEX", "auto", ConfigKind::kNumber, "auto", 0, 255, false,
     "GID of the RDMA port, as `ibv_devinfo -v` numbers them; auto: RoCE v2 over IPv4 first",
     &Config::ib_gid_index},
    {"TUTTI_IB_TIMEOUT", "16", ConfigKind::kNumber, "", 1, 31, false,
     "how long an RDMA port waits for an answer: 4.096 us * 2^(this value)", &Config::ib_timeout},
    {"TUTTI_IB_RETRIES", "7", ConfigKind::kNumber, "", 0, 7, false,
     "how often an RDMA port retries before it reports the peer as lost", &Config::ib_retries},
    {"TUTTI_NT_BYTES", "0", ConfigKind::kBytes, "", 1, 1024 * kGiB, true,
     "results of at least this many bytes are stored past the cache (non-temporal stores)",
     &Config::nt_bytes},
    {"TUTTI_LAUNCHER", "auto", ConfigKind::kChoice, kLauncherChoices, 0, 0, false,
     "launcher whose ranks this process joins; none: the process runs alone, whatever launcher "
     "started it",
     &Config::launcher},
    {"TUTTI_RANK", "auto", ConfigKind::kNumber, "auto", 0, kMostRanks - 1, false,
     "this process's rank, without a launcher; auto: ask the launcher", &Config::rank},
    {"TUTTI_RANKS", "auto", ConfigKind::kNumber, "auto", 1, kMostRanks, false,
     "number of ranks, without a launcher; equal on all ranks", &Config::ranks},
    {"TUTTI_ROOT", "", ConfigKind::kText, "", 0, 511, false,
     "host:port at which the ranks meet rank 0, for launchers without a key-value store",
     &Config::root},
    {"TUTTI_SECRET_FILE", "", ConfigKind::kText, "", 0, 4095, false,
     "file with the job's secret, 32 bytes or more, mode 0600; needed with TUTTI_ROOT and with "
     "torchrun",
     &Config::secret_file},
    {"TUTTI_JOB", "", ConfigKind::kText, "", 0, 255, false,
     "name of this run, equal on all ranks: keeps runs with one secret and address apart",
     &Config::job},
    {"TUTTI_INSECURE", "0", ConfigKind::kChoice, kFlagChoices, 0, 0, false,
     "1: meet without a secret; anyone who can reach rank 0's port can join", &Config::insecure},
}};

// The index of `text` in "a|b|c".
std::optional<std::size_t> choice_index(std::string_view choices, std::string_view text) {
  for (std::size_t index = 0;; ++index) {
    const std::size_t bar = choices.find('|');
    if (choices.substr(0, bar) == text) return index;
    if (bar == std::string_view::npos) return std::nullopt;
    choices.remove_prefix(bar + 1);
  }
}

std::string_view choice_at(std::string_view choices, std::size_t index) {
  for (; index > 0; --index) choices.remove_prefix(choices.find('|') + 1);
  return choices.substr(0, choices.find('|'));
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Seconds as ns; only digits and one point, so that neither "nan" nor "1e400" gets through.
std::optional<std::uint64_t> parse_seconds_ns(std::string_view text) {
  if (text.find_first_not_of("0123456789.") != std::string_view::npos) return std::nullopt;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size() || seconds > 1e9)
    return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(seconds * 1e9));
}

// The number that `text` means for `variable`, if it is one and in range.
std::optional<std::uint64_t> parse_value(const ConfigVariable& variable, std::string_view text) {
  std::optional<std::uint64_t> value;
  switch (variable.kind) {
    case ConfigKind::kText:
      value = text.size();
      break;
    case ConfigKind::kNumber:
      if (!variable.choices.empty() && text == variable.choices) return kSpinAuto;
      value = parse_number(text);
      break;
    case ConfigKind::kBytes:
      value = parse_bytes(text);
      break;
    case ConfigKind::kSeconds:
      value = parse_seconds_ns(text);
      break;
    case ConfigKind::kChoice:
      // As in NCCL_DEBUG=INFO.
      if (std::holds_alternative<LogLevel Config::*>(variable.field))
        return choice_index(variable.choices, lower_case(text));
      return choice_index(variable.choices, text);
  }
  if (!value || (*value == 0 && variable.zero_is_auto)) return value;
  if (*value < variable.least || *value > variable.most) return std::nullopt;
  return value;
}

struct StoreValue {
  Config& config;
  std::string_view text;
  std::uint64_t value;
  void operator()(std::string Config::*field) const { config.*field = text; }
  template <typename T>
  void operator()(T Config::*field) const {
    config.*field = static_cast<T>(value);
  }
};

std::string bytes_text(std::uint64_t bytes) {
  if (bytes != 0 && bytes % kGiB == 0) return fmt::format("{}G", bytes / kGiB);
  if (bytes != 0 && bytes % kMiB == 0) return fmt::format("{}M", bytes / kMiB);
  if (bytes != 0 && bytes % kKiB == 0) return fmt::format("{}K", bytes / kKiB);
  return fmt::format("{}", bytes);
}

std::string seconds_text(std::uint64_t ns) {
  return fmt::format("{}", static_cast<double>(ns) / 1e9);
}

std::string number_text(ConfigKind kind, std::uint64_t value) {
  if (kind == ConfigKind::kBytes) return bytes_text(value);
  if (kind == ConfigKind::kSeconds) return seconds_text(value);
  return fmt::format("{}", value);
}

// Levenshtein distance: insertions, deletions and replacements that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  for (std::string_view suffix : {"iB", "B"})
    if (text.ends_with(suffix)) {
      text.remove_suffix(suffix.size());
      break;
    }
  std::uint64_t unit = 1;
  if (!text.empty()) {
    const char last = text.back();
    if (last == 'K' || last == 'k') unit = kKiB;
    if (last == 'M' || last == 'm') unit = kMiB;
    if (last == 'G' || last == 'g') unit = kGiB;
    if (unit > 1) text.remove_suffix(1);
  }
  const std::optional<std::uint64_t> count = parse_number(text);
  if (!count || *count > UINT64_MAX / unit) return std::nullopt;
  return *count * unit;
}

std::string_view name_of(ProtocolChoice choice) {
  return choice_at(kProtocolChoices, static_cast<std::size_t>(choice));
}
std::string_view name_of(TransportChoice choice) {
  return choice_at(kTransportChoices, static_cast<std::size_t>(choice));
}
std::string_view name_of(IsaChoice choice) {
  return choice_at(kIsaChoices, static_cast<std::size_t>(choice));
}

std::span<const ConfigVariable> config_table() { return kTable; }

std::string allowed_text(const ConfigVariable& variable) {
  switch (variable.kind) {
    case ConfigKind::kText:
      return fmt::format("a text of {} to {} bytes", variable.least, variable.most);
    case ConfigKind::kChoice:
      return std::string(variable.choices);
    case ConfigKind::kNumber:
    case ConfigKind::kBytes:
    case ConfigKind::kSeconds:
      break;
  }
  std::string range = fmt::format("{}..{}", number_text(variable.kind, variable.least),
                                  number_text(variable.kind, variable.most));
  if (variable.kind == ConfigKind::kBytes) range += " bytes; K, M and G are accepted, e.g. 64K";
  if (variable.kind == ConfigKind::kSeconds) range += " seconds";
  if (variable.zero_is_auto) return "0 (auto) or " + range;
  if (!variable.choices.empty()) return fmt::format("{} or {}", variable.choices, range);
  return range;
}

std::string value_text(const Config& config, const ConfigVariable& variable) {
  return std::visit(
      [&](auto field) -> std::string {
        const auto& value = config.*field;
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
          return value;
        } else {
          const auto number = static_cast<std::uint64_t>(value);
          if (variable.kind == ConfigKind::kChoice)
            return std::string(choice_at(variable.choices, number));
          if (!variable.choices.empty() && number == kSpinAuto)
            return std::string(variable.choices);
          return number_text(variable.kind, number);
        }
      },
      variable.field);
}

Result<Config> load_config(const Getenv& getenv_like) {
  Config config;
  for (const ConfigVariable& variable : kTable) {
    const char* set = getenv_like(std::string(variable.name).c_str());
    const std::string_view text = set != nullptr ? set : "";
    if (text.empty()) continue;
    const std::optional<std::uint64_t> value = parse_value(variable, text);
    if (!value)
      return make_error(
          Code::kInvalidArgument,
          fmt::format("{}={} is not a valid value; allowed: {} (default: {})", variable.name,
                      printable(text, 128), allowed_text(variable), variable.default_text));
    std::visit(StoreValue{config, text, *value}, variable.field);
  }
  return config;
}

const Result<Config>& process_config() {
  // Never destroyed: ranks may outlive main.
  static const auto* const config = new Result<Config>(
      load_config([](const char* name) -> const char* { return std::getenv(name); }));
  return *config;
}

std::vector<UnknownVariable> unknown_variables(const char* const* environment) {
  constexpr std::string_view kPrefix = "TUTTI_";
  std::vector<UnknownVariable> unknown;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, std::min(entry.find('='), std::size_t{128}));
    if (!name.starts_with(kPrefix)) continue;
    UnknownVariable found{std::string(name), ""};
    // At most three edits, and a third of what follows the prefix, rounded up: more is no slip of
    // the keyboard. Two letters that changed places are two edits.
    const std::size_t farthest = std::min<std::size_t>(3, (name.size() - kPrefix.size() + 2) / 3);
    std::size_t nearest = farthest + 1;
    for (const ConfigVariable& variable : kTable) {
      const std::size_t distance = edit_distance(name, variable.name);
      if (distance < nearest) {
        nearest = distance;
        found.nearest = variable.name;
      }
    }
    if (nearest > 0) unknown.push_back(std::move(found));
  }
  return unknown;
}

}  // namespace tutti
