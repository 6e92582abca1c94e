// The C boundary: checks arguments, turns errors into codes and texts, throws nothing.
#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>

#include "runtime/api_config.hpp"
#include "runtime/control/handshake.hpp"
#include "runtime/control/interfaces.hpp"
#include "runtime/device/driver.hpp"
#include "runtime/group.hpp"
#include "runtime/handle.hpp"

using namespace tutti;

static_assert(TUTTI_UNIQUE_ID_BYTES == kUniqueIdBytes);
static_assert(static_cast<int>(tuttiNotSupported) == static_cast<int>(Code::kNotSupported));
static_assert(static_cast<int>(tuttiBfloat16) == static_cast<int>(DataType::kBfloat16));
static_assert(static_cast<int>(tuttiAvg) == static_cast<int>(ReduceOp::kAvg));

namespace {

// The value of an enumeration that a C caller may have set to anything.
template <typename Enum>
int value_of(const Enum& caller_s) {
  int value;
  static_assert(sizeof value == sizeof caller_s);
  std::memcpy(&value, &caller_s, sizeof value);
  return value;
}

Error no_device(const Communicator& communicator, const char* function, const char* what) {
  return {Code::kNotSupported,
          fmt::format("{}: {}, and rank {} has no CUDA device: it began before the program used "
                      "CUDA, or tutti-info says why there is none",
                      function, what, communicator.rank())};
}

// Which buffers a call has: device memory, or host memory. kInvalidArgument for one of each.
Result<bool> in_device_memory(const Communicator& communicator, const AllReduceCall& call,
                              const char* function) {
  const RankOnDevice* const rank = communicator.on_device();
  if (call.count == 0) return false;
  if (rank == nullptr) {
    if (device::driver_knows_for_device(call.input) || device::driver_knows_for_device(call.output))
      return tl::unexpected(no_device(communicator, function, "device memory"));
    return false;
  }
  const bool device = rank->holds(call.output);
  if (call.input != call.output && rank->holds(call.input) != device)
    return bad_argument(function,
                        fmt::format("sendbuff is {} memory and recvbuff {} memory",
                                    device ? "host" : "device", device ? "device" : "host"));
  return device;
}

// Of the calling thread; none where the program has not used CUDA, or this build has none.
std::optional<int> current_device() {
  device::Platform* const platform = device::cuda_platform();
  if (platform == nullptr) return std::nullopt;
  const Result<int> device = platform->current_device();
  return device ? std::optional(*device) : std::nullopt;
}

// Initializes now, or when the thread's group ends; *comm is written now in either case.
// `device`: of the rank; none: the calling thread's.
Result<HandleRef> initialize(tuttiComm_t* comm, int ranks, const tuttiUniqueId& id, int rank,
                             const tuttiConfig_t* config, const char* function,
                             std::optional<int> device = {}) {
  if (comm == nullptr) return bad_argument(function, "comm is NULL");
  *comm = nullptr;
  if (ranks > control::kMaxRanks)
    return bad_argument(
        function, fmt::format("nranks is {}; at most {} can join", ranks, control::kMaxRanks));
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return bad_argument(
        function, fmt::format("rank {} of {} ranks; a rank is 0 <= rank < nranks", rank, ranks));
  const Result<Config>& environment = process_config();
  if (!environment) return tl::unexpected(environment.error());
  TUTTI_TRY_ASSIGN(CommunicatorOptions options, make_options(*environment, config, function));
  options.device = device ? device : current_device();
  TUTTI_TRY(parse_forced(options.config.algo));
  UniqueId unique;
  std::memcpy(unique.bytes.data(), id.internal, unique.bytes.size());
  const Group::Init create = [=](tuttiComm& handle, const std::stop_token& cancel) -> Status {
    return start_handle(handle, options, cancel, [&](const CommunicatorOptions& all) {
      return Communicator::create(unique, rank, ranks, all);
    });
  };
  Group& group = Group::current();
  OwnedHandle handle = make_handle();
  if (group.active()) {
    group.add_init(handle.get(), create);
  } else {
    TUTTI_TRY(create(*handle.get().comm, {}));
  }
  *comm = handle.get().comm;
  return handle.release();
}

Status all_reduce(const void* sendbuff, void* recvbuff, std::size_t count, int type, int op,
                  tuttiComm_t comm, tuttiStream_t stream) {
  constexpr const char* kName = "tuttiAllReduce";
  TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, kName));
  if (type < 0 || type >= kDataTypeCount)
    return bad_argument(kName, fmt::format("data type {} is none", type));
  if (op < 0 || op >= kReduceOpCount)
    return bad_argument(kName, fmt::format("operation {} is none", op));
  AllReduceCall call{.input = sendbuff,
                     .output = recvbuff,
                     .count = count,
                     .type = static_cast<DataType>(type),
                     .op = static_cast<ReduceOp>(op),
                     .stream = stream};
  const std::size_t bytes_each = element_bytes(call.type);
  if (count > SIZE_MAX / 2 / bytes_each)
    return bad_argument(kName, fmt::format("count {} is more than memory can hold", count));
  if (count > 0 && (sendbuff == nullptr || recvbuff == nullptr))
    return bad_argument(kName, sendbuff == nullptr ? "sendbuff is NULL" : "recvbuff is NULL");
  const auto from = reinterpret_cast<std::uintptr_t>(sendbuff);
  const auto to = reinterpret_cast<std::uintptr_t>(recvbuff);
  if ((from | to) % bytes_each != 0)
    return bad_argument(kName, fmt::format("a buffer is not aligned to {} bytes", bytes_each));
  if (from != to && from < to + count * bytes_each && to < from + count * bytes_each)
    return bad_argument(kName, "sendbuff and recvbuff overlap; pass the same pointer for in place");
  TUTTI_TRY_ASSIGN(call.on_device, in_device_memory(*communicator, call, kName));
  if (stream != nullptr && !call.on_device && count > 0)
    return communicator->on_device() == nullptr
               ? tl::unexpected(no_device(*communicator, kName, "a stream"))
               : make_error(Code::kNotSupported,
                            fmt::format("{}: with host memory the calling thread runs the "
                                        "operation; pass a NULL stream, or device memory",
                                        kName));
  Group& group = Group::current();
  if (group.active()) {
    TUTTI_TRY_ASSIGN(const HandleRef handle, check_handle(comm, kName));
    group.add(handle, call);
    return {};
  }
  HeldCall one{communicator, call, nullptr};
  return call.on_device ? run_on_devices({&one, 1}) : run_operations({&one, 1});
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
  return guarded("tuttiCommInitRank", nullptr, [&]() -> Status {
    const auto handle = initialize(comm, nranks, commId, rank, config, "tuttiCommInitRank");
    if (handle) return {};
    if (Group::current().active()) Group::current().fail(handle.error());
    return tl::unexpected(handle.error());
  });
}

tuttiResult_t tuttiCommInitRankScalable(tuttiComm_t* newcomm, int nranks, int myrank, int nId,
                                        tuttiUniqueId* commIds, tuttiConfig_t* config) {
  if (nId == 1 && commIds != nullptr)
    return tuttiCommInitRankConfig(newcomm, nranks, commIds[0], myrank, config);
  return guarded("tuttiCommInitRankScalable", nullptr, [&]() -> Status {
    if (newcomm != nullptr) *newcomm = nullptr;
    if (commIds == nullptr || nId < 1)
      return bad_argument("tuttiCommInitRankScalable", "commIds is NULL or nId is not positive");
    return make_error(Code::kNotSupported,
                      "tuttiCommInitRankScalable: more than one id is not in this version");
  });
}

tuttiResult_t tuttiCommInitAll(tuttiComm_t* comm, int ndev, const int* devlist) {
  return guarded("tuttiCommInitAll", nullptr, [&]() -> Status {
    constexpr const char* kName = "tuttiCommInitAll";
    if (comm == nullptr) return bad_argument(kName, "comm is NULL");
    if (ndev < 1) return bad_argument(kName, fmt::format("ndev is {}; use >= 1", ndev));
    device::Platform* const platform = device::cuda_platform(devlist != nullptr);
    const int devices = platform == nullptr ? 0 : platform->devices();
    if (devlist != nullptr && devices == 0)
      return make_error(Code::kNotSupported,
                        fmt::format("{}: there is no CUDA device that this build can use; "
                                    "pass a NULL devlist for ranks on host memory, and see "
                                    "tutti-info",
                                    kName));
    for (int i = 0; devlist != nullptr && i < ndev; ++i) {
      if (devlist[i] < 0 || devlist[i] >= devices)
        return bad_argument(kName, fmt::format("devlist[{}] is {}; there are {} CUDA devices", i,
                                               devlist[i], devices));
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
    group.start();
    for (int i = 0; i < ndev; ++i)
      if (const auto handle = initialize(&comm[i], ndev, plain, i, nullptr, kName, device_of(i));
          !handle) {
        group.fail(handle.error());
        break;
      }
    const Status ended = group.end();
    if (!ended) std::fill_n(comm, ndev, nullptr);  // the group has ended the handles
    return ended;
  });
}

tuttiResult_t tuttiCommFinalize(tuttiComm_t comm) {
  return guarded("tuttiCommFinalize", comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, "tuttiCommFinalize"));
    return communicator->finalize();
  });
}

tuttiResult_t tuttiCommDestroy(tuttiComm_t comm) {
  if (comm == nullptr) return tuttiSuccess;
  return guarded("tuttiCommDestroy", nullptr, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const HandleRef handle, check_handle(comm, "tuttiCommDestroy"));
    retire(handle);
    return {};
  });
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
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, "tuttiCommGetAsyncError"));
    if (asyncError == nullptr) return bad_argument("tuttiCommGetAsyncError", "asyncError is NULL");
    const auto error = communicator->error();
    *asyncError = error ? static_cast<tuttiResult_t>(error->code) : tuttiSuccess;
    return {};
  });
}

tuttiResult_t tuttiCommCount(const tuttiComm_t comm, int* count) {
  return guarded("tuttiCommCount", comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, "tuttiCommCount"));
    if (count == nullptr) return bad_argument("tuttiCommCount", "count is NULL");
    *count = communicator->ranks();
    return {};
  });
}

tuttiResult_t tuttiCommUserRank(const tuttiComm_t comm, int* rank) {
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

tuttiResult_t tuttiAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                             tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
                             tuttiStream_t stream) {
  const tuttiResult_t result = guarded("tuttiAllReduce", comm, [&] {
    const Status status =
        all_reduce(sendbuff, recvbuff, count, value_of(datatype), value_of(op), comm, stream);
    if (!status && Group::current().active()) Group::current().fail(status.error());
    return status;
  });
  return result;
}

tuttiResult_t tuttiGroupStart(void) {
  Group::current().start();
  return tuttiSuccess;
}

tuttiResult_t tuttiGroupEnd(void) {
  return guarded("tuttiGroupEnd", nullptr, [] { return Group::current().end(); });
}

tuttiResult_t tuttiCommSetAlgorithm(tuttiComm_t comm, const char* name) {
  return guarded("tuttiCommSetAlgorithm", comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, "tuttiCommSetAlgorithm"));
    return communicator->set_algorithm(name == nullptr ? "" : name);
  });
}

tuttiResult_t tuttiCommInfo(const tuttiComm_t comm, tuttiCommInfo_t* info) {
  return guarded("tuttiCommInfo", comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, "tuttiCommInfo"));
    if (info == nullptr || info->size != sizeof *info || info->magic != TUTTI_COMM_INFO_MAGIC)
      return bad_argument("tuttiCommInfo", "start the info from TUTTI_COMM_INFO_INITIALIZER");
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
    return {};
  });
}

}  // extern "C"
