// SPDX-License-Identifier: Apache-2.0
// The C boundary: checks arguments, turns errors into codes and texts, throws nothing.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "api/config.hpp"
#include "api/group.hpp"
#include "api/handle.hpp"
#include "control/handshake.hpp"
#include "control/interfaces.hpp"
#include "control/unique_id.hpp"
#include "device/driver.hpp"

using namespace tutti;

static_assert(TUTTI_UNIQUE_ID_BYTES == kUniqueIdBytes);
static_assert(static_cast<int>(tuttiNotSupported) == static_cast<int>(Code::kNotSupported));
static_assert(static_cast<std::size_t>(tuttiNumResults) == kCodeCount);
static_assert(static_cast<int>(tuttiFloat8e5m2) == static_cast<int>(DataType::kFloat8e5m2));
static_assert(static_cast<int>(tuttiNumTypes) == kDataTypeCount);
static_assert(static_cast<int>(tuttiAvg) == static_cast<int>(ReduceOp::kAvg));

namespace {

// Returns the calling thread's device; none if the program has not used CUDA, or this build has
// none.
std::optional<int> current_device() {
  device::Platform* const platform = device::cuda_platform();
  if (platform == nullptr) return std::nullopt;
  const Result<int> device = platform->current_device();
  return device ? std::optional(*device) : std::nullopt;
}

// How a rank joins, and by which function of the API.
struct Join {
  const char* function;
  int ranks, rank;
  std::span<const tuttiUniqueId> ids;
  const tuttiConfig_t* config = nullptr;
  std::optional<int> device = {};  // of the rank; none: the calling thread's
};

// Initializes now, or when the thread's group ends; *comm is written now in either case. Errors:
// also kInProgress, no error.
Status initialize(tuttiComm_t* comm, const Join& join) {
  const auto& [function, ranks, rank, ids, config, device] = join;
  if (comm == nullptr) return bad_argument(function, "comm is NULL");
  *comm = nullptr;
  if (ids.empty()) return bad_argument(function, "commIds is NULL or nId is not positive");
  if (ranks > control::kMaxRanks)
    return bad_argument(
        function, fmt::format("nranks is {}, but at most {} can join", ranks, control::kMaxRanks));
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return bad_argument(
        function, fmt::format("rank is {} and nranks is {}; use 0 <= rank < nranks", rank, ranks));
  const Result<Config>& environment = process_config();
  if (!environment) return tl::unexpected(environment.error());
  TUTTI_TRY_ASSIGN(CommunicatorOptions options, make_options(*environment, config, function));
  options.device = device ? device : current_device();
  TUTTI_TRY(configured_plans(options.config));
  std::vector<UniqueId> unique(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i)
    std::memcpy(unique[i].bytes.data(), ids[i].internal, kUniqueIdBytes);
  TUTTI_TRY(control::check_ids(unique, ranks).map_error([&join](Error error) {
    error.message = fmt::format("{}: {}", join.function, error.message);
    return error;
  }));
  const Group::Init create = [unique = std::move(unique), options, ranks = join.ranks,
                              rank = join.rank](tuttiComm& handle,
                                                const std::stop_token& cancel) -> Status {
    return start_handle(handle, options, cancel, [&](const CommunicatorOptions& all) {
      return Communicator::create(unique, rank, ranks, all);
    });
  };
  Group& group = Group::current();
  OwnedHandle handle = make_handle();
  if (Group::active()) {
    group.add_init(handle.get(), create, options.blocking);
  } else if (options.blocking) {
    TUTTI_TRY(create(*handle.get().comm, {}));
  } else {
    *comm = handle.get().comm;
    Status begun = start_later(handle.get(), [=](tuttiComm& own) { return create(own, {}); });
    if (begun.error().code == Code::kInProgress)
      static_cast<void>(handle.release());
    else
      *comm = nullptr;
    return begun;
  }
  *comm = handle.release().comm;
  return {};
}

// The same, for the C API; an error in a group is the group's too.
tuttiResult_t initialize_guarded(tuttiComm_t* comm, const Join& join) {
  return guarded(join.function, nullptr, [&]() -> Status {
    Status begun = initialize(comm, join);
    if (!begun && Group::active()) Group::current().fail(begun.error());
    return begun;
  });
}

template <std::size_t n>
void copy_text(char (&to)[n], const std::string& from) {
  const std::size_t bytes = std::min(from.size(), n - 1);
  std::memcpy(to, from.data(), bytes);
  to[bytes] = '\0';
}

}  // namespace

extern "C" {

tuttiResult_t tuttiGetVersion(int* version) {
  if (version == nullptr) return report(bad_argument("tuttiGetVersion", "version is NULL").value());
  *version = TUTTI_VERSION_CODE;
  return tuttiSuccess;
}

const char* tuttiGetErrorString(tuttiResult_t result) {
  return describe(static_cast<Code>(value_of(result)));
}

const char* tuttiGetLastError(tuttiComm_t comm) { return last_text(comm); }

tuttiResult_t tuttiGetUniqueId(tuttiUniqueId* uniqueId) {
  return guarded("tuttiGetUniqueId", nullptr, [&]() -> Status {
    if (uniqueId == nullptr) return bad_argument("tuttiGetUniqueId", "uniqueId is NULL");
    TUTTI_TRY_ASSIGN(const UniqueId id, create_unique_id());
    std::memcpy(uniqueId->internal, id.bytes.data(), id.bytes.size());
    return {};
  });
}

tuttiResult_t tuttiCommInitRank(tuttiComm_t* comm, int nranks, tuttiUniqueId commId, int rank) {
  return tuttiCommInitRankConfig(comm, nranks, commId, rank, nullptr);
}

tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t* comm, int nranks, tuttiUniqueId commId, int rank,
                                      tuttiConfig_t* config) {
  return initialize_guarded(comm, {.function = "tuttiCommInitRank",
                                   .ranks = nranks,
                                   .rank = rank,
                                   .ids = {&commId, 1},
                                   .config = config});
}

tuttiResult_t tuttiCommInitRankScalable(tuttiComm_t* newcomm, int nranks, int myrank, int nId,
                                        tuttiUniqueId* commIds, tuttiConfig_t* config) {
  const bool some = nId >= 1 && commIds != nullptr;
  return initialize_guarded(newcomm, {.function = "tuttiCommInitRankScalable",
                                      .ranks = nranks,
                                      .rank = myrank,
                                      .ids = {commIds, some ? static_cast<std::size_t>(nId) : 0},
                                      .config = config});
}

tuttiResult_t tuttiCommInitAll(tuttiComm_t* comm, int ndev, const int* devlist) {
  return guarded("tuttiCommInitAll", nullptr, [&]() -> Status {
    constexpr const char* kName = "tuttiCommInitAll";
    if (comm == nullptr) return bad_argument(kName, "comm is NULL");
    if (ndev < 1) return bad_argument(kName, fmt::format("ndev is {}; use >= 1", ndev));
    if (ndev > control::kMaxRanks)
      return bad_argument(
          kName, fmt::format("ndev is {}, but at most {} can join", ndev, control::kMaxRanks));
    device::Platform* const platform = device::cuda_platform(devlist != nullptr);
    const int devices = platform == nullptr ? 0 : platform->devices();
    if (devlist != nullptr && devices == 0)
      return make_error(
          Code::kNotSupported,
          fmt::format("{}: there is no CUDA device that this build can use; pass a NULL devlist "
                      "for ranks on host memory; tutti-info says why there is no device",
                      kName));
    for (int i = 0; devlist != nullptr && i < ndev; ++i) {
      if (devlist[i] < 0 || devlist[i] >= devices)
        return bad_argument(kName, fmt::format("devlist[{}] is {}, but there are {} CUDA devices",
                                               i, devlist[i], devices));
      TUTTI_TRY(platform->load(devlist[i]));
    }
    const auto device_of = [&](int rank) {
      return devices == 0 ? std::nullopt
                          : std::optional(devlist != nullptr ? devlist[rank] : rank % devices);
    };
    std::fill_n(comm, ndev, nullptr);
    // All ranks are in this process: nobody comes over the network.
    TUTTI_TRY_ASSIGN(const UniqueId id,
                     create_unique_id({.interfaces = control::loopback_choice()}));
    tuttiUniqueId plain;
    std::memcpy(plain.internal, id.bytes.data(), id.bytes.size());
    Group& group = Group::current();
    Group::start();
    for (int i = 0; i < ndev; ++i)
      if (const Status begun = initialize(&comm[i], {.function = kName,
                                                     .ranks = ndev,
                                                     .rank = i,
                                                     .ids = {&plain, 1},
                                                     .device = device_of(i)});
          !begun) {
        group.fail(begun.error());
        break;
      }
    Status ended = group.end();
    if (!ended) std::fill_n(comm, ndev, nullptr);  // the group has ended the handles
    return ended;
  });
}

tuttiResult_t tuttiCommFinalize(tuttiComm_t comm) {
  return guarded("tuttiCommFinalize", comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const OpenCall communicator, enter_handle(comm, "tuttiCommFinalize"));
    return communicator->finalize();
  });
}

tuttiResult_t tuttiCommDestroy(tuttiComm_t comm) {
  if (comm == nullptr) return tuttiSuccess;
  return guarded("tuttiCommDestroy", nullptr,
                 [&] { return destroy_handle(comm, "tuttiCommDestroy"); });
}

tuttiResult_t tuttiCommAbort(tuttiComm_t comm) {
  if (comm == nullptr) return tuttiSuccess;
  HandleRef handle;
  const tuttiResult_t result = guarded("tuttiCommAbort", comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(handle, check_handle(comm, "tuttiCommAbort"));
    abort_handle(*handle.comm);
    return {};
  });
  if (handle.comm == nullptr) return result;
  retire(handle);  // also where there was no memory to say why it ended
  return tuttiSuccess;
}

tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* asyncError) {
  return guarded("tuttiCommGetAsyncError", comm, [&]() -> Status {
    TUTTI_TRY(check_handle(comm, "tuttiCommGetAsyncError"));
    if (asyncError == nullptr) return bad_argument("tuttiCommGetAsyncError", "asyncError is NULL");
    TUTTI_TRY_ASSIGN(const Code state, state_of(comm, "tuttiCommGetAsyncError"));
    *asyncError = static_cast<tuttiResult_t>(state);
    return {};
  });
}

tuttiResult_t tuttiCommCount(const tuttiComm_t comm, int* count) {
  // Programs ask in every call.
  if (const HostMember member = host_member_of(comm); member.ranks > 0 && count != nullptr) {
    *count = member.ranks;
    return tuttiSuccess;
  }
  return guarded("tuttiCommCount", comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, "tuttiCommCount"));
    if (count == nullptr) return bad_argument("tuttiCommCount", "count is NULL");
    *count = communicator->ranks();
    return {};
  });
}

tuttiResult_t tuttiCommUserRank(const tuttiComm_t comm, int* rank) {
  if (const HostMember member = host_member_of(comm); member.ranks > 0 && rank != nullptr) {
    *rank = member.rank;
    return tuttiSuccess;
  }
  return guarded("tuttiCommUserRank", comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, "tuttiCommUserRank"));
    if (rank == nullptr) return bad_argument("tuttiCommUserRank", "rank is NULL");
    *rank = communicator->rank();
    return {};
  });
}

tuttiResult_t tuttiCommCuDevice(const tuttiComm_t comm, int* device) {
  return guarded("tuttiCommCuDevice", comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, "tuttiCommCuDevice"));
    if (device == nullptr) return bad_argument("tuttiCommCuDevice", "device is NULL");
    *device = communicator->on_device() == nullptr ? TUTTI_DEVICE_HOST
                                                   : communicator->on_device()->device();
    return {};
  });
}

tuttiResult_t tuttiGroupStart(void) {
  Group::start();
  return tuttiSuccess;
}

tuttiResult_t tuttiGroupSimulateEnd(tuttiSimInfo_t* simInfo) {
  constexpr const char* kName = "tuttiGroupSimulateEnd";
  return guarded(kName, nullptr, [&]() -> Status {
    if (simInfo == nullptr) return bad_argument(kName, "simInfo is NULL");
    if (simInfo->size != sizeof *simInfo || simInfo->magic != TUTTI_SIM_INFO_MAGIC)
      return bad_argument(kName, "simInfo does not begin as TUTTI_SIM_INFO_INITIALIZER");
    TUTTI_TRY_ASSIGN(const double time_ns, Group::current().simulate());
    simInfo->estimatedTime = static_cast<float>(time_ns * 1e-3);
    return {};
  });
}

tuttiResult_t tuttiGroupEnd(void) {
  return guarded("tuttiGroupEnd", nullptr, [] { return Group::current().end(); });
}

tuttiResult_t tuttiCommSetAlgorithm(tuttiComm_t comm, const char* name) {
  return guarded("tuttiCommSetAlgorithm", comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const OpenCall communicator, enter_handle(comm, "tuttiCommSetAlgorithm"));
    return communicator->set_algorithm(name == nullptr ? "" : name);
  });
}

tuttiResult_t tuttiCommInfo(const tuttiComm_t comm, tuttiCommInfo_t* info) {
  return guarded("tuttiCommInfo", comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const OpenCall communicator, enter_handle(comm, "tuttiCommInfo"));
    if (info == nullptr || info->size != sizeof *info || info->magic != TUTTI_COMM_INFO_MAGIC)
      return bad_argument("tuttiCommInfo",
                          "the info was not initialized; start from TUTTI_COMM_INFO_INITIALIZER");
    const Communicator::Info own = communicator->info();
    info->rank = communicator->rank();
    info->nRanks = communicator->ranks();
    info->hostRanks = own.host_ranks;
    info->poisoned = own.poisoned ? 1 : 0;
    copy_text(info->host, own.host);
    copy_text(info->transport, own.transport);
    copy_text(info->forcedAlgorithm, own.forced_algorithm);
    copy_text(info->lastAlgorithm, own.last_algorithm);
    copy_text(info->lastProtocol, own.last_protocol);
    info->lastPlanHash = own.last_plan;
    info->lastSlices = own.last_slices;
    info->lastReplicas = own.last_replicas;
    info->operations = own.operations;
    info->payloadBytesSent = own.payload_bytes_sent;
    info->messagesSent = own.messages_sent;
    info->mappedBytes = own.mapped_bytes;
    info->lentBytesSent = own.lent_bytes_sent;
    info->receivedInPlaceBytes = own.received_in_place_bytes;
    return {};
  });
}

}  // extern "C"
