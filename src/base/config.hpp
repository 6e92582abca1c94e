// SPDX-License-Identifier: Apache-2.0
// Configuration: the TUTTI_* environment variables, each a documented field of one struct, all in
// one table. The library reads the environment once, through process_config(); everything else gets
// a Config (or a field of it) as a parameter. Any thread. Knows nothing of what the values steer.
//
//   TUTTI_TRY_ASSIGN(Config config, load_config([](const char* name) { return std::getenv(name);
//   }));
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"

namespace tutti {

enum class ProtocolChoice : std::uint8_t { kAuto, kFlagged, kSlots };
enum class IsaChoice : std::uint8_t { kAuto, kAvx512, kAvx2, kScalar };
enum class CmaChoice : std::uint8_t { kAuto, kOff };
// How messages travel; auto: shared memory within a host, the wire between hosts.
enum class TransportChoice : std::uint8_t { kAuto, kShm, kTcp, kVerbs };
// Does every message take the wire, those within a host too?
[[nodiscard]] constexpr bool forces_wire(TransportChoice choice) {
  return choice == TransportChoice::kTcp || choice == TransportChoice::kVerbs;
}
enum class LauncherChoice : std::uint8_t { kAuto, kNone };
[[nodiscard]] std::string_view name_of(ProtocolChoice choice);
[[nodiscard]] std::string_view name_of(TransportChoice choice);
[[nodiscard]] std::string_view name_of(IsaChoice choice);
// 4096, 64K, 2M, 1GiB: binary suffixes.
[[nodiscard]] std::optional<std::uint64_t> parse_bytes(std::string_view text);

inline constexpr std::uint32_t kSpinAuto = UINT32_MAX;
inline constexpr std::uint32_t kChosenGid = UINT32_MAX;     // TUTTI_IB_GID_INDEX: auto
inline constexpr std::uint32_t kFromLauncher = UINT32_MAX;  // TUTTI_RANK and TUTTI_RANKS: auto
inline constexpr std::uint32_t kMostRanks = 1 << 16;        // of a job (TUTTI_RANKS)
inline constexpr std::uint32_t kMostSlots = 64;    // that a connection can hold (TUTTI_SLOTS)
inline constexpr std::uint32_t kMostReplicas = 8;  // of a schedule (TUTTI_REPLICAS)
// Bytes of an algorithm's name with its parameters and a zero byte, and of a whole TUTTI_ALGO.
inline constexpr std::size_t kMaxAlgorithmName = 128;
inline constexpr std::size_t kMaxForcedText = 512;

// Defaults and ranges stand in the table in config.cpp; the values below are the same (tested).
struct Config {
  // TUTTI_ALGO: "auto" or an algorithm's name; the runtime knows which names exist.
  std::string algo = "auto";
  // The owner of the setting `algo`, for error texts.
  std::string_view algo_source = "TUTTI_ALGO";
  // TUTTI_PROTO: protocol of every connection, or chosen per plan.
  ProtocolChoice protocol = ProtocolChoice::kAuto;
  // TUTTI_REPLICAS, TUTTI_SLICES, TUTTI_SLOTS: shape of the plan; 0: chosen per plan.
  std::uint32_t replicas = 0;
  std::uint32_t slices = 0;
  std::uint32_t slots = 0;
  // TUTTI_SLOT_BYTES: payload of one slot; 0: chosen per plan.
  std::uint64_t slot_bytes = 0;
  // TUTTI_ARENA_BYTES: inbox arena of every rank. Must be equal on all ranks.
  std::uint64_t arena_bytes = std::uint64_t{2} << 20;
  // TUTTI_OP_TIMEOUT_S: an operation whose peers are alive but absent fails after this.
  std::int64_t op_timeout_ns = 600'000'000'000;
  // TUTTI_WARN_AFTER_S: and is warned of after this.
  std::int64_t warn_after_ns = 5'000'000'000;
  // TUTTI_INIT_TIMEOUT_S: how long joining a communicator waits for all ranks.
  std::int64_t init_timeout_ns = 60'000'000'000;
  // TUTTI_DEBUG: the most talkative level that is printed.
  LogLevel log_level = LogLevel::kWarn;
  // TUTTI_DEBUG_FILE: where the log goes; %h is the host, %p the pid; empty: stderr.
  std::string log_file;
  // TUTTI_FLIGHT_DIR: folder of the flight recorder's files; empty: the record is in memory alone.
  std::string flight_dir;
  // TUTTI_ISA: the widest vector instructions the kernels may use.
  IsaChoice isa = IsaChoice::kAuto;
  // TUTTI_HOST_ID: ranks with equal texts count as one host; empty: boot id + network namespace.
  std::string host_id;
  // TUTTI_IFNAME: the network interface for ranks of other hosts; empty: the first that is up.
  std::string interfaces;
  // TUTTI_SPIN: polls before a waiting thread yields its core; kSpinAuto: by cores and ranks.
  std::uint32_t spin = kSpinAuto;
  // TUTTI_PROFILE: a file, "auto" for the user's own of this machine, or "off".
  std::string profile = "auto";
  // TUTTI_TOPOLOGY: a file of this host's devices, "auto": discovered where it can matter, or
  // "off".
  std::string topology = "auto";
  // TUTTI_CLUSTER: a cluster file: what joins the hosts; rank 0's.
  std::string cluster;
  // TUTTI_SEATS: where this host's ranks sit, between slashes; "auto": by affinity.
  std::string seats = "auto";
  // TUTTI_CMA: whether peers' memory may be read by cross-memory attach, where the kernel permits.
  CmaChoice cma = CmaChoice::kAuto;
  TransportChoice transport = TransportChoice::kAuto;
  // TUTTI_IB_HCA: RDMA devices and ports that may be used; empty: any.
  std::string ib_hca;
  // TUTTI_IB_GID_INDEX: in the port's table; kChosenGid: RoCE v2 over IPv4 first.
  std::uint32_t ib_gid_index = kChosenGid;
  // TUTTI_IB_TIMEOUT: an answer may take 4.096 us * 2^this; TUTTI_IB_RETRIES: before a peer is
  // given up.
  std::uint32_t ib_timeout = 16;
  std::uint32_t ib_retries = 7;
  // TUTTI_NT_BYTES: stores go around the cache from this size on; 0: from the cache sizes.
  std::uint64_t nt_bytes = 0;
  // TUTTI_LAUNCHER: whether the environment is searched for a launcher.
  LauncherChoice launcher = LauncherChoice::kAuto;
  // TUTTI_RANK, TUTTI_RANKS: this process's rank and their number; kFromLauncher: not set by hand.
  std::uint32_t rank = kFromLauncher;
  std::uint32_t ranks = kFromLauncher;
  // TUTTI_ROOT: "host:port" where rank 0 is met; empty: the launcher says where.
  std::string root;
  // TUTTI_SECRET_FILE: file of the job's secret, for launchers without a key-value store.
  std::string secret_file;
  // TUTTI_JOB: this run's name, where ranks meet at an address.
  std::string job;
  // TUTTI_INSECURE: meet without a secret.
  bool insecure = false;
  // TUTTI_VERIFY: prove every plan when it is compiled.
  bool verify = false;
  // TUTTI_FP32_PARTIALS: sums of 8- and 16-bit floats travel as fp32.
  bool fp32_partials = false;
};

// How a variable is written and which field it fills.
enum class ConfigKind : std::uint8_t {
  kText,     // any text up to `most` bytes
  kNumber,   // decimal integer, or the word in `choices`
  kBytes,    // decimal integer, may end in K, M or G (powers of 1024)
  kSeconds,  // decimal, fractions allowed; `least` and `most` in ns
  kChoice,   // one of `choices`
};
using ConfigField =
    std::variant<std::string Config::*, std::uint32_t Config::*, std::uint64_t Config::*,
                 std::int64_t Config::*, bool Config::*, ProtocolChoice Config::*,
                 IsaChoice Config::*, CmaChoice Config::*, TransportChoice Config::*,
                 LauncherChoice Config::*, LogLevel Config::*>;

struct ConfigVariable {
  std::string_view name;
  std::string_view default_text;
  ConfigKind kind = ConfigKind::kText;
  std::string_view choices;  // kChoice: "a|b|c", in enum order; kNumber: one word for the default
  std::uint64_t least = 0;
  std::uint64_t most = 0;
  bool zero_is_auto = false;  // 0 is legal below `least` and means auto
  std::string_view help;
  ConfigField field;
};

// Every variable there is, in the order in which `tutti-info` prints them.
[[nodiscard]] std::span<const ConfigVariable> config_table();
// "0 (auto) or 1..64", "off|error|warn|version|info|trace": what the variable allows, for people.
[[nodiscard]] std::string allowed_text(const ConfigVariable& variable);
// The variable's value in `config`, written as it could be set.
[[nodiscard]] std::string value_text(const Config& config, const ConfigVariable& variable);

// nullptr: not set. An empty value counts as not set.
using Getenv = std::function<const char*(const char* name)>;
// Reads and checks every variable of the table. Error: kInvalidArgument with one line that names
// the first bad variable, its value and what is allowed.
[[nodiscard]] Result<Config> load_config(const Getenv& getenv_like);
// The process's configuration, read from its environment at the first call and kept.
[[nodiscard]] const Result<Config>& process_config();

struct UnknownVariable {
  std::string name;
  std::string nearest;  // the known name it resembles; empty if none does
};
// The TUTTI_* names in `environment` ("NAME=value", ends with nullptr; null: none) that the table
// does not have.
[[nodiscard]] std::vector<UnknownVariable> unknown_variables(const char* const* environment);

}  // namespace tutti
