// SPDX-License-Identifier: Apache-2.0
// The C boundary of new communicators made of old ones: split, shrink, and revoke before them.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "api/config.hpp"
#include "api/group.hpp"
#include "api/handle.hpp"

using namespace tutti;

namespace {

struct Regroup {
  bool member = true;         // this rank will be in the new communicator
  bool revoke_first = false;  // the old one
  // null: this rank is in none
  std::function<Result<std::unique_ptr<Communicator>>(Communicator& old,
                                                      const CommunicatorOptions& options)>
      make;
};

// Makes the communicator that the members of `parent` agree on, now or when the thread's group
// ends.
Status regroup(const char* function, tuttiComm_t parent, tuttiComm_t* newcomm,
               const tuttiConfig_t* config, const Regroup& how) {
  TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(parent, function));
  TUTTI_TRY_ASSIGN(CommunicatorOptions options,
                   make_options(communicator->config(), config, function));
  TUTTI_TRY(configured_plans(options.config));
  if (config == nullptr) options.blocks = communicator->blocks();
  if (communicator->on_device() != nullptr) options.device = communicator->on_device()->device();
  OwnedHandle made = make_handle();
  const Group::Task task = [=, own = made.get()](Communicator& old) -> Status {
    // This ends the call that another thread may be in.
    if (how.revoke_first) old.revoke();
    const InFlightCall in_flight(old.call_slot(), function);
    TUTTI_TRY(in_flight.status());
    if (!how.member) return how.make(old, options).map([](const auto&) {});
    // Also when the parent is aborted: its abort waits for this call.
    return start_handle(*own.comm, options, parent->aborted.get_token(),
                        [&](const CommunicatorOptions& all) { return how.make(old, all); });
  };
  Group& group = Group::current();
  if (Group::active()) {
    TUTTI_TRY_ASSIGN(const HandleRef handle, check_handle(parent, function));
    group.add_task(handle, task, how.member ? made.get() : HandleRef{});
  } else {
    TUTTI_TRY(task(*communicator));
  }
  if (how.member) *newcomm = made.release().comm;
  return {};
}

// Runs `body` as a call that may stand in a group.
template <typename Body>
tuttiResult_t grouped(const char* function, tuttiComm_t comm, Body&& body) {
  return guarded(function, comm, [&] {
    Status status = body();
    if (!status && Group::active()) Group::current().fail(status.error());
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
      return bad_argument(
          function, fmt::format("excluded rank {} is out of range: the communicator has {} ranks",
                                rank, comm.ranks()));
  if (std::ranges::adjacent_find(excluded) != excluded.end())
    return bad_argument(function, "a rank is excluded twice");
  if (std::ranges::binary_search(excluded, comm.rank()))
    return bad_argument(
        function,
        fmt::format("rank {} excludes itself; only the remaining ranks may call", comm.rank()));
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
      return regroup(kName, comm, newcomm, config,
                     {.member = color != TUTTI_SPLIT_NOCOLOR,
                      .make = [=](Communicator& old, const CommunicatorOptions& options) {
                        return old.split(color, key, options);
                      }});
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
    return regroup(kName, comm, newcomm, config,
                   {.revoke_first = revoke_first,
                    .make = [=](Communicator& parent, const CommunicatorOptions& options) {
                      return parent.shrink(excluded, revoke_first, options);
                    }});
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
