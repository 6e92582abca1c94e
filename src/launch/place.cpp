// SPDX-License-Identifier: Apache-2.0
#include "launch/place.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <charconv>
#include <cstdlib>
#include <optional>

#include "base/text.hpp"

namespace tutti::launch {
namespace {

constexpr std::int32_t kMost = static_cast<std::int32_t>(kMostRanks);
constexpr std::int32_t kMostPort = 65535;

std::optional<std::int32_t> parse_number(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A launcher's variables, read by name.
class Variables {
 public:
  explicit Variables(const Getenv& getenv_like) : getenv_(getenv_like) {}

  // Empty: not set.
  [[nodiscard]] std::string text(const char* name) const {
    const char* const value = getenv_(name);
    return value != nullptr ? value : "";
  }
  template <typename... Names>
  [[nodiscard]] bool have(Names... names) const {
    return (!text(names).empty() && ...);
  }
  [[nodiscard]] Result<std::int32_t> number(const char* name, std::int32_t least,
                                            std::int32_t most) const {
    const std::string value = text(name);
    const std::optional<std::int32_t> parsed = parse_number(value);
    if (parsed && *parsed >= least && *parsed <= most) return *parsed;
    return make_error(Code::kInvalidArgument,
                      fmt::format("the launcher's variable {} is '{}', not a number in {}..{}; "
                                  "TUTTI_LAUNCHER=none runs this process alone",
                                  name, printable(value, 64), least, most));
  }
  // kUnknown where it is not set.
  [[nodiscard]] Result<std::int32_t> number_if_set(const char* name) const {
    if (!have(name)) return kUnknown;
    return number(name, 0, kMost);
  }

 private:
  const Getenv& getenv_;
};

// The variables in which a launcher gives the four numbers; nullptr: it does not.
struct Names {
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* local_ranks;
};

// A place of which nothing is known yet.
Place somewhere() {
  Place place;
  place.rank = place.ranks = place.local_rank = place.local_ranks = kUnknown;
  return place;
}

Result<Place> read_place(const Variables& variables, const Names& names) {
  Place place = somewhere();
  TUTTI_TRY_ASSIGN(place.rank, variables.number(names.rank, 0, kMost - 1));
  if (names.ranks != nullptr) {
    TUTTI_TRY_ASSIGN(place.ranks, variables.number(names.ranks, 1, kMost));
  }
  if (names.local_rank != nullptr) {
    TUTTI_TRY_ASSIGN(place.local_rank, variables.number_if_set(names.local_rank));
  }
  if (names.local_ranks != nullptr) {
    TUTTI_TRY_ASSIGN(place.local_ranks, variables.number_if_set(names.local_ranks));
  }
  return place;
}

// The entry of node `node` in Slurm's "2(x3),1": three nodes of two tasks and one of one.
std::int32_t slurm_tasks_on(std::string_view counts, std::int32_t node) {
  while (!counts.empty() && node >= 0) {
    const std::string_view entry = counts.substr(0, counts.find(','));
    counts.remove_prefix(std::min(counts.size(), entry.size() + 1));
    const std::size_t open = entry.find("(x");
    const auto tasks = parse_number(entry.substr(0, open));
    std::optional<std::int32_t> nodes = 1;
    if (open != std::string_view::npos && entry.ends_with(')'))
      nodes = parse_number(entry.substr(open + 2, entry.size() - open - 3));
    if (!tasks || !nodes || *nodes < 1) return kUnknown;
    if (node < *nodes) return *tasks;
    node -= *nodes;
  }
  return kUnknown;
}

void read_slurm_locals(const Variables& variables, Place& place) {
  const auto node = parse_number(variables.text("SLURM_NODEID"));
  place.local_rank = parse_number(variables.text("SLURM_LOCALID")).value_or(kUnknown);
  place.local_ranks =
      node ? slurm_tasks_on(variables.text("SLURM_STEP_TASKS_PER_NODE"), *node) : kUnknown;
}

using Found = Result<std::optional<Place>>;

Found by_hand(const Config& config, const Variables&, const Surroundings&) {
  const bool rank = config.rank != kFromLauncher, ranks = config.ranks != kFromLauncher;
  if (!rank && !ranks) return std::nullopt;
  if (!rank || !ranks)
    return make_error(Code::kInvalidArgument,
                      fmt::format("TUTTI_RANK{} is set and TUTTI_RANK{} is not: set both, or unset "
                                  "both and use a launcher",
                                  rank ? "" : "S", rank ? "S" : ""));
  Place place = somewhere();
  place.launcher = kByHand;
  place.store = Store::kAddress;
  place.rank = static_cast<std::int32_t>(config.rank);
  place.ranks = static_cast<std::int32_t>(config.ranks);
  return place;
}

// MASTER_PORT is where torch's own store listens, so rank 0 is met one port further.
Result<std::string> torch_root(const Variables& variables) {
  if (!variables.have("MASTER_ADDR", "MASTER_PORT")) return std::string();
  TUTTI_TRY_ASSIGN(const std::int32_t port, variables.number("MASTER_PORT", 1, kMostPort));
  const std::string host = variables.text("MASTER_ADDR");
  const std::int32_t next = port < kMostPort ? port + 1 : port - 1;
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, next)
                                             : fmt::format("[{}]:{}", host, next);
}

Found torch_variables(const Variables& variables, const char* launcher) {
  TUTTI_TRY_ASSIGN(Place place,
                   read_place(variables, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}));
  place.launcher = launcher;
  place.store = Store::kAddress;
  TUTTI_TRY_ASSIGN(place.root, torch_root(variables));
  // A restarted job must not meet what is left of the one before.
  place.job = fmt::format("torch {} {}", variables.text("TORCHELASTIC_RUN_ID"),
                          variables.text("TORCHELASTIC_RESTART_COUNT"));
  return place;
}

Found torchrun(const Config&, const Variables& variables, const Surroundings&) {
  if (!variables.have("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE")) return std::nullopt;
  return torch_variables(variables, "torchrun");
}

// The same variables set by something else; a RANK alone may mean anything.
Found torch(const Config&, const Variables& variables, const Surroundings&) {
  if (!variables.have("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")) return std::nullopt;
  return torch_variables(variables, "torch");
}

Found pmi_place(const Variables& variables, int fd) {
  TUTTI_TRY_ASSIGN(Place place, read_place(variables, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                                       "MPI_LOCALNRANKS"}));
  const bool hydra = variables.have("MPI_LOCALRANKID");
  const bool slurm = !hydra && variables.have("SLURM_STEP_ID");
  place.launcher = hydra ? "hydra" : slurm ? "srun" : "pmi";
  if (slurm) read_slurm_locals(variables, place);
  place.store = Store::kPmi;
  place.pmi_fd = fd;
  return place;
}

Found pmi(const Config&, const Variables& variables, const Surroundings& around) {
  if (!variables.have("PMI_FD", "PMI_RANK", "PMI_SIZE")) return std::nullopt;
  const std::optional<std::int32_t> fd = parse_number(variables.text("PMI_FD"));
  // Inherited by a process that was not handed the descriptor: another launcher's, or none.
  if (!fd || *fd < 0 || !around.is_socket(*fd)) return std::nullopt;
  return pmi_place(variables, *fd);
}

// The last one asked: these variables and no descriptor. To run alone would be a silent error.
Found pmi_without_socket(const Config&, const Variables& variables, const Surroundings&) {
  if (!variables.have("PMI_FD", "PMI_RANK", "PMI_SIZE")) return std::nullopt;
  return pmi_place(variables, -1);
}

Found pmix(const Config&, const Variables& variables, const Surroundings&) {
  if (!variables.have("PMIX_RANK", "PMIX_NAMESPACE")) return std::nullopt;
  const bool slurm = variables.text("PMIX_NAMESPACE").starts_with("slurm.") &&
                     variables.have("SLURM_STEP_NUM_TASKS");
  const bool open_mpi = !slurm && variables.have("OMPI_COMM_WORLD_SIZE");
  Names names{"PMIX_RANK", nullptr, nullptr, nullptr};
  if (slurm) names.ranks = "SLURM_STEP_NUM_TASKS";
  if (open_mpi)
    names = {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE"};
  TUTTI_TRY_ASSIGN(Place place, read_place(variables, names));
  if (slurm) read_slurm_locals(variables, place);
  place.launcher = slurm ? "srun" : open_mpi ? "openmpi" : "pmix";
  place.store = Store::kPmix;
  return place;
}

// A step without a key-value store. A batch script has SLURM_PROCID too, but is no step's task.
Found slurm(const Config&, const Variables& variables, const Surroundings&) {
  if (!variables.have("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")) return std::nullopt;
  TUTTI_TRY_ASSIGN(Place place, read_place(variables, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                                                       nullptr, nullptr}));
  read_slurm_locals(variables, place);
  place.launcher = "srun";
  place.store = Store::kAddress;
  place.job =
      fmt::format("slurm {}.{}", variables.text("SLURM_JOB_ID"), variables.text("SLURM_STEP_ID"));
  return place;
}

// The innermost launcher first: torchrun is started under the others and never the other way
// round, and a PMI descriptor that is open was handed to this very process.
constexpr Found (*kFinders[])(const Config&, const Variables&, const Surroundings&) = {
    by_hand, torchrun, pmi, pmix, slurm, torch, pmi_without_socket};

}  // namespace

std::string_view name_of(Store store) {
  constexpr std::string_view kNames[] = {"none", "PMI", "PMIx", "address"};
  return kNames[static_cast<std::size_t>(store)];
}

Surroundings process_surroundings() {
  return {[](const char* name) -> const char* { return std::getenv(name); },
          [](int fd) {
            struct stat status {};
            return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
          }};
}

void settle(Place& place) {
  if (place.ranks != 1) return;
  place.store = Store::kNone;
  place.local_rank = 0;
  place.local_ranks = 1;
}

Status check_place(const Place& place) {
  const auto fits = [](std::int32_t rank, std::int32_t ranks) {
    return rank == kUnknown || ranks == kUnknown || (rank >= 0 && rank < ranks);
  };
  if (!fits(place.rank, place.ranks) || !fits(place.local_rank, place.local_ranks) ||
      (place.ranks != kUnknown && place.local_ranks > place.ranks)) {
    if (place.launcher == kByHand)
      return make_error(Code::kInvalidArgument,
                        fmt::format("TUTTI_RANK is {} and TUTTI_RANKS is {}; ranks are numbered "
                                    "from 0 to TUTTI_RANKS - 1",
                                    place.rank, place.ranks));
    const bool local = place.local_rank != kUnknown || place.local_ranks != kUnknown;
    return make_error(
        Code::kInvalidArgument,
        fmt::format(
            "the launcher says rank {} of {}{} ({}), which is impossible; start the job again, or "
            "set TUTTI_LAUNCHER=none to run this process alone",
            place.rank, place.ranks,
            local ? fmt::format(" (on this host {} of {})", place.local_rank, place.local_ranks)
                  : std::string{},
            place.launcher));
  }
  return {};
}

Result<Place> find_place(const Config& config, const Surroundings& around) {
  if (config.launcher == LauncherChoice::kNone) return Place{};
  const Variables variables(around.getenv);
  for (const auto finder : kFinders) {
    TUTTI_TRY_ASSIGN(std::optional<Place> place, finder(config, variables, around));
    if (!place) continue;
    TUTTI_TRY(check_place(*place));
    settle(*place);
    if (!config.root.empty() && place->store != Store::kNone) {
      place->store = Store::kAddress;  // whoever names a meeting point means it
      place->root = config.root;
    }
    return *std::move(place);
  }
  return Place{};
}

}  // namespace tutti::launch
