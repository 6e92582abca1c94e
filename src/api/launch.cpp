// SPDX-License-Identifier: Apache-2.0
// The C boundary of launchers: checks, texts, and that a process takes part in one exchange only.
#include "launch/launch.hpp"

#include <fmt/core.h>
#include <tutti/tutti.h>

#include <atomic>
#include <cstring>

#include "api/handle.hpp"

using namespace tutti;

namespace {

template <std::size_t n>
void copy_text(char (&to)[n], std::string_view from) {
  const std::size_t bytes = std::min(from.size(), n - 1);
  std::memcpy(to, from.data(), bytes);
  to[bytes] = '\0';
}

struct Launched {
  Config config;
  launch::Place place;
  Deadline deadline;
};

Result<Launched> find_launcher() {
  const Result<Config>& config = process_config();
  if (!config) return tl::unexpected(config.error());
  const Deadline deadline = Deadline::in_ns(config->init_timeout_ns);
  TUTTI_TRY_ASSIGN(const launch::Place place, launch::place_of_process(*config, deadline));
  return Launched{*config, place, deadline};
}

// The log of the configuration, with stderr where its file cannot be opened.
Log log_of(const Launched& launched) {
  const Config& config = launched.config;
  const auto log = Log::open(config.log_level, config.log_file, launched.place.rank);
  return log ? *log : Log(config.log_level, launched.place.rank);
}

}  // namespace

extern "C" {

tuttiResult_t tuttiGetLauncher(tuttiLauncher_t* launcher) {
  return guarded("tuttiGetLauncher", nullptr, [&]() -> Status {
    if (launcher == nullptr || launcher->size != sizeof(tuttiLauncher_t) ||
        launcher->magic != TUTTI_LAUNCHER_MAGIC)
      return make_error(Code::kInvalidArgument,
                        "tuttiGetLauncher: the launcher structure was not initialized; start from "
                        "TUTTI_LAUNCHER_INITIALIZER");
    TUTTI_TRY_ASSIGN(const Launched launched, find_launcher());
    const launch::Place& place = launched.place;
    launcher->rank = place.rank;
    launcher->nRanks = place.ranks;
    launcher->localRank = place.local_rank;
    launcher->localRanks = place.local_ranks;
    copy_text(launcher->name, place.launcher);
    copy_text(launcher->store, launch::name_of(place.store));
    return {};
  });
}

tuttiResult_t tuttiGetLauncherUniqueId(tuttiUniqueId* uniqueId) {
  return guarded("tuttiGetLauncherUniqueId", nullptr, [&]() -> Status {
    if (uniqueId == nullptr)
      return make_error(Code::kInvalidArgument, "tuttiGetLauncherUniqueId: uniqueId is NULL");
    TUTTI_TRY_ASSIGN(const Launched launched, find_launcher());
    // Relaxed: only who came first matters.
    static std::atomic<bool> called{false};
    if (called.exchange(true, std::memory_order_relaxed))
      return make_error(
          Code::kInvalidUsage,
          "tuttiGetLauncherUniqueId: the process has called it before; make further ids with "
          "tuttiGetUniqueId on one rank and send them over the first communicator");
    TUTTI_TRY_ASSIGN(const UniqueId id, launch::meet(launched.place, launched.config,
                                                     launched.deadline, log_of(launched)));
    std::memcpy(uniqueId->internal, id.bytes.data(), id.bytes.size());
    return {};
  });
}

}  // extern "C"
