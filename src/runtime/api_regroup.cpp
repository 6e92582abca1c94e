// The C boundary of new communicators made of old ones: split, shrink, and revoke before them.
#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "runtime/api_config.hpp"
#include "runtime/group.hpp"
#include "runtime/handle.hpp"

using namespace tutti;

namespace {

using Agree = std::function<Result<std::unique_ptr<ControlPlane>>(Communicator&)>;

// Makes the communicator that the members of `parent` agree on, now or when the thread's group
// ends. `member`: this rank will be in it.
Status regroup(const char* function, tuttiComm_t parent, tuttiComm_t* newcomm,
               const tuttiConfig_t* config, bool member, const Agree& agree) {
  TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(parent, function));
  TUTTI_TRY_ASSIGN(CommunicatorOptions options,
                   make_options(communicator->config(), config, function));
  TUTTI_TRY(parse_forced(options.config.algo));
  if (config == nullptr) options.blocks = communicator->blocks();
  if (communicator->on_device() != nullptr) options.device = communicator->on_device()->device();
  OwnedHandle made = make_handle();
  const Group::Task task = [=, own = made.get()](Communicator& old) -> Status {
    TUTTI_TRY_ASSIGN(std::unique_ptr<ControlPlane> job, agree(old));
    if (job == nullptr) return {};
    // Also when the parent is aborted: its abort waits for this call.
    return start_handle(*own.comm, options, parent->aborted.get_token(),
                        [&job](const CommunicatorOptions& all) {
                          return Communicator::create(std::move(job), all);
                        });
  };
  Group& group = Group::current();
  if (group.active()) {
    TUTTI_TRY_ASSIGN(const HandleRef handle, check_handle(parent, function));
    group.add_task(handle, task, member ? made.get() : HandleRef{});
  } else {
    TUTTI_TRY(task(*communicator));
  }
  if (member) *newcomm = made.release().comm;
  return {};
}

// Runs `body` as a call that may stand in a group.
template <typename Body>
tuttiResult_t grouped(const char* function, tuttiComm_t comm, Body&& body) {
  return guarded(function, comm, [&] {
    const Status status = body();
    if (!status && Group::current().active()) Group::current().fail(status.error());
    return status;
  });
}

Result<std::vector<Rank>> read_excluded(const char* function, const int* list, int count,
                                        const Communicator& comm) {
  if (count < 0 || (count > 0 && list == nullptr))
    return bad_argument(function, "excludeRanksList is NULL or excludeRanksCount is negative");
  std::vector<Rank> excluded(list, list + count);
  std::ranges::sort(excluded);
  for (const Rank rank : excluded)
    if (rank < 0 || rank >= comm.ranks())
      return bad_argument(function,
                          fmt::format("excluded rank {} is none of {} ranks", rank, comm.ranks()));
  if (std::ranges::adjacent_find(excluded) != excluded.end())
    return bad_argument(function, "a rank is excluded twice");
  if (std::ranges::binary_search(excluded, comm.rank()))
    return bad_argument(function, fmt::format("rank {} excludes itself; only ranks that remain "
                                              "call",
                                              comm.rank()));
  return excluded;
}

}  // namespace

extern "C" {

tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* newcomm,
                             tuttiConfig_t* config) {
  constexpr const char* kName = "tuttiCommSplit";
  return grouped(kName, comm, [&]() -> Status {
    if (newcomm == nullptr) return bad_argument(kName, "newcomm is NULL");
    *newcomm = nullptr;
    if (color < 0 && color != TUTTI_SPLIT_NOCOLOR)
      return bad_argument(kName,
                          fmt::format("color is {}; use >= 0 or TUTTI_SPLIT_NOCOLOR", color));
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, kName));
    try {
      return regroup(kName, comm, newcomm, config, color != TUTTI_SPLIT_NOCOLOR,
                     [=](Communicator& old) { return old.split(color, key); });
    } catch (...) {  // also before it has come to the others
      communicator->cannot_come();
      throw;
    }
  });
}

tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int* excludeRanksList, int excludeRanksCount,
                              tuttiComm_t* newcomm, tuttiConfig_t* config, int shrinkFlags) {
  constexpr const char* kName = "tuttiCommShrink";
  return grouped(kName, comm, [&]() -> Status {
    if (newcomm == nullptr) return bad_argument(kName, "newcomm is NULL");
    *newcomm = nullptr;
    if (shrinkFlags != TUTTI_SHRINK_DEFAULT && shrinkFlags != TUTTI_SHRINK_ABORT)
      return bad_argument(kName, fmt::format("shrinkFlags is {}; use TUTTI_SHRINK_DEFAULT or "
                                             "TUTTI_SHRINK_ABORT",
                                             shrinkFlags));
    TUTTI_TRY_ASSIGN(const Communicator* const old, open_handle(comm, kName));
    TUTTI_TRY_ASSIGN(const std::vector<Rank> excluded,
                     read_excluded(kName, excludeRanksList, excludeRanksCount, *old));
    const bool revoke_first = shrinkFlags == TUTTI_SHRINK_ABORT;
    return regroup(kName, comm, newcomm, config, true,
                   [=](Communicator& parent) { return parent.shrink(excluded, revoke_first); });
  });
}

tuttiResult_t tuttiCommRevoke(tuttiComm_t comm, int revokeFlags) {
  constexpr const char* kName = "tuttiCommRevoke";
  return guarded(kName, comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, kName));
    if (revokeFlags != TUTTI_REVOKE_DEFAULT)
      return bad_argument(kName, fmt::format("revokeFlags is {}; use 0", revokeFlags));
    communicator->revoke();
    return {};
  });
}

}  // extern "C"
