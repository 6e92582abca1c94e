// SPDX-License-Identifier: Apache-2.0
// The profile of a machine: what its plans cost, as measured on it, in a file of its own.
//
// tutti-tune writes it under the fingerprint of the hardware, bench_device_words the devices' part
// and tutti-validate the times of whole calls, and each keeps the others'; rank 0 of a job reads
// the one of its machine and prices with it. A profile that is damaged, of another hardware or of
// another layout is refused in one line, and the library's own costs are used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/collective.hpp"
#include "base/result.hpp"
#include "model/device_costs.hpp"
#include "model/host_costs.hpp"

namespace tutti {

// A plan's time at one size.
struct MeasuredTime {
  std::uint64_t bytes = 0;  // of the whole data
  double time_us = 0;       // median
  bool operator==(const MeasuredTime&) const = default;
};

// How long one plan took as a whole, among ranks of one host.
struct MeasuredPlan {
  Collective collective = Collective::kNone;
  std::int32_t ranks = 0;
  std::int32_t cores = 0;             // that these ranks had, together
  bool windows = false;               // buffers in symmetric windows, or ranks of one process
  std::string name;                   // forces it: "ring@slots:replicas=2:slot=64K"
  std::vector<MeasuredTime> times{};  // by size, the least first
  bool operator==(const MeasuredPlan&) const = default;
};

// What a block of the machine's devices costs, by bench_device_words.
struct DeviceProfile {
  std::string name;  // of the device, for people: "NVIDIA H100 80GB HBM3"
  DeviceCosts costs;
  bool operator==(const DeviceProfile&) const = default;
};

struct MachineProfile {
  std::string machine;                 // its description, of which the fingerprint is the hash
  std::string created;                 // when, for people
  CostSet costs = prior_costs();       // in the file unless they are the priors
  double residual = 0;                 // median of |predicted / measured - 1| over the fit's points
  std::vector<MeasuredPlan> measured;  // whole operations, where somebody measured them
  std::optional<DeviceProfile> device = std::nullopt;  // nothing: nobody has measured one
  // False: the costs among ranks of a host are the library's.
  [[nodiscard]] bool has_host() const { return costs != prior_costs() || !measured.empty(); }
  bool operator==(const MachineProfile&) const = default;
};

// CPU model, cores that may be used, caches: what a profile holds for.
[[nodiscard]] std::string describe_machine();
// 16 hexadecimal digits.
[[nodiscard]] std::string fingerprint_of(std::string_view machine);

// `setting` as TUTTI_PROFILE: a path; "auto" for the user's own, under XDG_CACHE_HOME or
// ~/.cache; nothing for "off" and where there is no home.
[[nodiscard]] std::optional<std::string> profile_path(std::string_view setting);
// The file that a job reads by `setting`: one that was named, or the user's own if there is one.
[[nodiscard]] std::optional<std::string> profile_to_read(std::string_view setting);
// The file that this process's jobs read, by TUTTI_PROFILE; where that is "off", the user's own.
// Nothing where there is no home.
[[nodiscard]] std::optional<std::string> profile_to_write();

// Errors: kSystemError where the file cannot be read or written; kInvalidArgument with file and
// place for what is no profile, and for one of another machine.
[[nodiscard]] Result<MachineProfile> parse_profile(std::string_view text, const std::string& file);
[[nodiscard]] Result<MachineProfile> read_profile(const std::string& path);
[[nodiscard]] std::string to_json(const MachineProfile& profile);
// Makes folders, writes beside and renames, so that a reader sees the old one or the new one.
[[nodiscard]] Status write_profile(const MachineProfile& profile, const std::string& path);

}  // namespace tutti
