// SPDX-License-Identifier: Apache-2.0
#include "facts.hpp"

#include <dlfcn.h>
#include <fmt/core.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "algorithms/algorithm.hpp"
#include "base/config.hpp"
#include "base/host.hpp"
#include "device/platform.hpp"
#include "kernels/reduce_copy.hpp"
#include "model/machine_profile.hpp"
#include "plan/settings.hpp"
#include "topology/hwloc_reader.hpp"
#include "transports/registry.hpp"
#include "tutti/tutti.h"
#include "ways.hpp"

namespace tutti::info {
namespace {

std::string version_text() {
  return fmt::format("{}.{}.{}", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
}

std::string compiler_text() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string sanitizer_text() {
#if defined(__SANITIZE_ADDRESS__)
  return "address";
#elif defined(__SANITIZE_THREAD__)
  return "thread";
#else
  return "none";
#endif
}

// Data types for which there is a sum kernel, by name.
std::string reduced_types() {
  std::string text;
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    if (reduce_copy_kernel(type, ReduceOp::kSum) == nullptr) continue;
    if (!text.empty()) text += ' ';
    text += name_of(type);
  }
  return text;
}

std::string isa_text() {
  std::string offered;
  for (const char* isa : {"avx512", "avx2", "scalar"}) {
    if (reduce_copy_kernel_for(isa, DataType::kFloat32, ReduceOp::kSum) == nullptr) continue;
    if (!offered.empty()) offered += ", ";
    offered += isa;
  }
  return fmt::format("{} (usable here: {})", kernel_isa(), offered);
}

const char* yes_no(bool value) { return value ? "yes" : "no"; }

std::string transports_text() {
  std::string text;
  for (const TransportInfo& info : all_transports())
    if (info.built) text += fmt::format("{}{}", text.empty() ? "" : ", ", info.name);
  return text;
}

// Those that some algorithm carries out.
std::string collectives_text() {
  std::string text;
  for (std::size_t i = 1; i < kCollectiveCount; ++i) {
    const Problem problem{.collective = static_cast<Collective>(i), .ranks = 2};
    const bool runs = std::ranges::any_of(
        all_algorithms(), [&](const Algorithm* algorithm) { return algorithm->supports(problem); });
    if (runs)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", info_of(problem.collective).name);
  }
  return text;
}

std::vector<Fact> build_facts() {
  std::vector<Fact> facts{
      {"version", version_text()},
      {"NCCL API", fmt::format("as of {}", TUTTI_NCCL_VERSION_CODE)},
      {"compiler", compiler_text()},
      {"sanitizer", sanitizer_text()},
      {"transports", transports_text()},
      {"collectives", collectives_text()},
      {"kernels", isa_text()},
      {"data types", reduced_types()},
      {"CUDA", *TUTTI_BUILT_CUDA != '\0' ? TUTTI_BUILT_CUDA : "no"},
      {"hwloc", yes_no(topology::has_hwloc())},
  };
  return facts;
}

std::string kernel_text() {
  utsname name{};
  return ::uname(&name) == 0 ? fmt::format("{} {} {}", name.sysname, name.release, name.machine)
                             : std::string("unknown");
}

std::string processor_text() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "unknown";
}

std::string cache_text(std::size_t bytes) {
  return bytes == 0 ? std::string("unknown") : fmt::format("{} KiB", bytes / 1024);
}

// "packages 1, NUMA nodes 1, caches 1, cores 2, GPUs 0, NICs 1"; or why that is not known.
std::string topology_text() {
  using topology::DeviceKind;
  const auto graph = topology::read_host([](const char* name) { return std::getenv(name); });
  if (!graph) return graph.error().message;
  return fmt::format("packages {}, NUMA nodes {}, shared caches {}, cores {}, GPUs {}, NICs {}",
                     graph->count(DeviceKind::kPackage), graph->count(DeviceKind::kNuma),
                     graph->count(DeviceKind::kCache), graph->count(DeviceKind::kCore),
                     graph->count(DeviceKind::kGpu), graph->count(DeviceKind::kNic));
}

// Can this build's kernels run here? If not, why.
std::string cuda_device_text() {
  if (device::Platform* const platform = device::cuda_platform(true)) {
    const Status loaded = platform->load(0);
    return loaded ? "usable" : loaded.error().message;
  }
  if (*TUTTI_BUILT_CUDA == '\0')
    return "built without CUDA: configure with TUTTI_CUDA=ON where nvcc 12.3 or newer is";
  const std::string_view fault = device::cuda_fault();
  return fault.empty() ? "no driver, or no device" : std::string(fault);
}

// A line for each port that may be used; the first active one is.
std::vector<Fact> rdma_facts(const Config& config) {
  const auto ports = verbs_ports({.hca = config.ib_hca, .gid_index = config.ib_gid_index});
  if (!ports) return {{"RDMA", ports.error().message}};
  if (ports->empty()) return {{"RDMA", "no port"}};
  std::vector<Fact> facts;
  for (const VerbsPort& port : *ports) facts.push_back({"RDMA", text_of(port)});
  return facts;
}

std::vector<Fact> machine_facts(const Config& config) {
  const std::string& host_id = config.host_id;
  std::vector<Fact> facts{
      {"host", host_name()},
      {"host id", fmt::format("{:016x}{}", host_identity(host_id),
                              host_id.empty() ? "" : " (from TUTTI_HOST_ID)")},
      {"kernel", kernel_text()},
      {"processor", processor_text()},
      {"cpus allowed", std::to_string(usable_cpus())},
      {"L2 cache", cache_text(l2_cache_bytes())},
      {"L3 cache", cache_text(l3_cache_bytes())},
      {"memfd", yes_no(has_memfd())},
      {"pidfd", has_pidfd() ? "yes" : "no: the library detects dead peers by reading /proc"},
      {"cross-memory attach", yes_no(has_cross_memory_attach())},
      {"CUDA device", cuda_device_text()},
  };
  facts.push_back({"topology", topology_text()});
  for (Fact& fact : rdma_facts(config)) facts.push_back(std::move(fact));
  return facts;
}

// As apply_profile() takes them: where the profile is refused, it goes on with the built-in ones.
std::string costs_text(const Config& config, std::vector<std::string>& warnings) {
  const std::optional<std::string> path = profile_to_read(config.profile);
  if (!path) return "built in";
  const Result<MachineProfile> profile = read_profile(*path);
  if (profile) {
    const std::string file = fmt::format("{}, measured {}", *path, profile->created);
    return fmt::format("{}; of devices {}", profile->has_host() ? file : "built in",
                       profile->device ? file : "built in");
  }
  warnings.push_back(profile.error().message);
  return "built in, since the profile cannot be used: see the warning";
}

std::string position_text(int rank, int ranks) {
  return rank < 0 ? std::string("not said")
                  : fmt::format("{} of {}", rank, ranks < 0 ? "?" : std::to_string(ranks));
}

// Errors go to `warnings`.
std::vector<Fact> launcher_facts(std::vector<std::string>& warnings) {
  void* const pmix = ::dlopen("libpmix.so.2", RTLD_LAZY | RTLD_LOCAL);
  const Fact library{"libpmix.so.2", yes_no(pmix != nullptr)};
  if (pmix != nullptr) ::dlclose(pmix);
  tuttiLauncher_t launcher = TUTTI_LAUNCHER_INITIALIZER;
  if (tuttiGetLauncher(&launcher) != tuttiSuccess) {
    warnings.emplace_back(tuttiGetLastError(nullptr));
    return {{"found", "the variables contradict each other, see the warning"}, library};
  }
  return {{"found", launcher.name},
          {"rank", position_text(launcher.rank, launcher.nRanks)},
          {"rank on this host", position_text(launcher.localRank, launcher.localRanks)},
          {"unique id comes by", launcher.store},
          library};
}

std::vector<VariableRow> variable_rows(const Config& config) {
  const Config defaults;
  std::vector<VariableRow> rows;
  for (const ConfigVariable& variable : config_table()) {
    const std::string value = value_text(config, variable);
    rows.push_back({std::string(variable.name), value, std::string(variable.default_text),
                    allowed_text(variable), std::string(variable.help),
                    value != value_text(defaults, variable)});
  }
  return rows;
}

}  // namespace

Facts gather(const char* const* environment) {
  Facts facts;
  facts.version = version_text();
  const auto config = load_config([](const char* name) { return std::getenv(name); });
  if (!config) {
    facts.warnings.push_back(config.error().message);
    facts.config_ok = false;
  } else if (const Result<ForcedSet> known = configured_plans(*config); !known) {
    facts.warnings.push_back(known.error().message);
    facts.config_ok = false;
  }
  for (const UnknownVariable& unknown : unknown_variables(environment))
    facts.warnings.push_back(unknown.nearest.empty()
                                 ? fmt::format("{} is set but unknown", unknown.name)
                                 : fmt::format("{} is set but unknown; did you mean {}?",
                                               unknown.name, unknown.nearest));
  facts.build = build_facts();
  facts.machine = machine_facts(config.value_or(Config{}));
  if (config) {
    const std::size_t before = facts.warnings.size();
    facts.launcher = launcher_facts(facts.warnings);
    facts.config_ok = facts.config_ok && facts.warnings.size() == before;
    facts.ways = way_facts(*config);
    facts.machine.push_back({"costs", costs_text(*config, facts.warnings)});
  }
  for (const Algorithm* algorithm : all_algorithms())
    facts.algorithms.push_back({std::string(algorithm->name), std::string(algorithm->summary),
                                std::string(algorithm->source),
                                std::string(algorithm->parameters)});
  facts.variables = variable_rows(config.value_or(Config{}));
  return facts;
}

}  // namespace tutti::info
