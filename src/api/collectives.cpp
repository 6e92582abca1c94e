// SPDX-License-Identifier: Apache-2.0
// The C boundary of collectives: a function each, and the checks that they have in common, which
// read the table of collectives.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "api/config.hpp"
#include "api/group.hpp"
#include "api/handle.hpp"
#include "base/call.hpp"
#include "comm/run_on_devices.hpp"
#include "device/driver.hpp"

using namespace tutti;

namespace {

Error no_device(const Communicator& communicator, const char* function, const char* what) {
  return {Code::kNotSupported,
          fmt::format("{}: {}, but rank {} has no CUDA device; use CUDA before the rank joins; "
                      "tutti-info says whether this build can use a device",
                      function, what, communicator.rank())};
}

// Says whether a call's buffers are in device memory or in host memory. kInvalidArgument for one of
// each.
Result<bool> in_device_memory(const Communicator& communicator, const Call& call,
                              const char* function) {
  const RankOnDevice* const device = communicator.on_device();
  if (call.count == 0) return false;
  const bool input = call.has_input(communicator.rank());
  const bool output = call.has_output(communicator.rank());
  if (device == nullptr) {
    if ((input && device::driver_knows_for_device(call.input)) ||
        (output && device::driver_knows_for_device(call.output)))
      return tl::unexpected(no_device(communicator, function, "device memory"));
    return false;
  }
  if (!output) return device->holds(call.input);
  const bool held = device->holds(call.output);
  if (input && call.input != call.output && device->holds(call.input) != held)
    return bad_argument(
        function,
        fmt::format("sendbuff is {} memory and recvbuff is {} memory; use the same for both",
                    held ? "host" : "device", held ? "device" : "host"));
  return held;
}

// NCCL's operations by their value; MPI's stand behind them in one block.
std::optional<ReduceOp> reduce_op_of(int value) {
  constexpr int kShift = static_cast<int>(tuttiBitAnd) - static_cast<int>(ReduceOp::kBitAnd);
  static_assert(tuttiLogicalXor - kShift == static_cast<int>(ReduceOp::kLogicalXor) &&
                tuttiLogicalXor - kShift == kReduceOpCount - 1);
  if (value >= 0 && value < tuttiNumOps) return static_cast<ReduceOp>(value);
  if (value >= tuttiBitAnd && value <= tuttiLogicalXor)
    return static_cast<ReduceOp>(value - kShift);
  return std::nullopt;
}

// A call as the C functions take it, before anything has been checked. A barrier has no buffers.
struct RawCall {
  const char* function;
  Collective collective;
  const void* sendbuff;
  void* recvbuff;
  std::size_t count;
  int type;
  int op = tuttiSum;
  int root = 0;
};

// Buffers that this rank has, by the table of collectives. In place means that equal elements have
// equal addresses; any other overlap is refused.
Status check_buffers(const Call& call, Rank rank, std::int32_t ranks, const char* function) {
  const bool input = call.has_input(rank), output = call.has_output(rank);
  if (input && call.input == nullptr) return bad_argument(function, "sendbuff is NULL");
  if (output && call.output == nullptr) return bad_argument(function, "recvbuff is NULL");
  const std::size_t bytes_each = element_bytes(call.type);
  const auto from = reinterpret_cast<std::uintptr_t>(call.input);
  const auto to = reinterpret_cast<std::uintptr_t>(call.output);
  if ((input && from % bytes_each != 0) || (output && to % bytes_each != 0))
    return bad_argument(
        function,
        fmt::format("a buffer is not aligned to the {} bytes of its data type", bytes_each));
  const bool in_place = call.input_base(rank) == call.output_base(rank);
  if (!input || !output || in_place) return {};
  if (from < to + call.output_bytes(ranks) && to < from + call.input_bytes(ranks))
    return bad_argument(
        function, call.info().input.extent == call.info().output.extent
                      ? "sendbuff and recvbuff overlap; pass the same pointer for in place"
                      : "sendbuff and recvbuff overlap; in place, the smaller one is this rank's "
                        "block of the larger one");
  return {};
}

// nullopt if the call has none that was made for the communicator.
std::optional<PreMulSum> made_op(int op, Communicator& communicator) {
  return op < tuttiFirstMadeOp ? std::nullopt : communicator.made_ops().find(op - tuttiFirstMadeOp);
}

Status check_operation(const Call& call, const char* function) {
  if (call.pre_multiplied && call.pre_multiplied->type != call.type)
    return bad_argument(function,
                        fmt::format("the operation was made for {}, and the call is of {}",
                                    name_of(call.pre_multiplied->type), name_of(call.type)));
  if (call.pre_multiplied && call.on_device)
    return make_error(Code::kNotSupported,
                      fmt::format("{}: a pre-multiplied sum takes host memory", function));
  if (!call.info().reduces() || !takes_integers_only(call.op)) return {};
  if (is_integer(call.type) && !call.on_device) return {};
  return make_error(
      Code::kNotSupported,
      fmt::format("{}: {} takes integers in host memory, not {} in {} memory", function,
                  name_of(call.op), name_of(call.type), call.on_device ? "device" : "host"));
}

Result<Call> check_call(const RawCall& raw, Communicator& communicator, tuttiStream_t stream) {
  const char* const function = raw.function;
  TUTTI_TRY_ASSIGN(const DataType type, check_type(function, raw.type));
  const std::optional<PreMulSum> made = made_op(raw.op, communicator);
  const std::optional<ReduceOp> op = made ? ReduceOp::kSum : reduce_op_of(raw.op);
  if (!op) return bad_argument(function, fmt::format("{} is not a valid tuttiRedOp_t", raw.op));
  const std::int32_t ranks = communicator.ranks();
  TUTTI_TRY(check_root(function, raw.root, ranks));
  const bool barrier = raw.collective == Collective::kBarrier;
  Call call{.collective = raw.collective,
            .input = barrier ? communicator.barrier_data() : raw.sendbuff,
            .output = barrier ? communicator.barrier_data() : raw.recvbuff,
            .count = raw.count,
            .type = type,
            .op = *op,
            .root = raw.root,
            .stream = stream,
            .pre_multiplied = made};
  const std::uint64_t blocks = call.info().blocks_among(ranks);
  if (raw.count > SIZE_MAX / 2 / element_bytes(call.type) / blocks)
    return bad_argument(function, fmt::format("count {} is larger than any memory", raw.count));
  if (raw.count > 0) TUTTI_TRY(check_buffers(call, communicator.rank(), ranks, function));
  TUTTI_TRY_ASSIGN(call.on_device, in_device_memory(communicator, call, function));
  TUTTI_TRY(check_operation(call, function));
  if (stream != nullptr && !call.on_device && raw.count > 0)
    return communicator.on_device() == nullptr
               ? tl::unexpected(no_device(communicator, function, "a stream"))
               : make_error(Code::kNotSupported,
                            fmt::format("{}: with host memory the calling thread runs the "
                                        "operation; pass a NULL stream, or device memory",
                                        function));
  return call;
}

tuttiResult_t submit(const RawCall& raw, tuttiComm_t comm, tuttiStream_t stream) {
  return tutti::submit(raw.function, comm, [&](Communicator& communicator) {
    return check_call(raw, communicator, stream);
  });
}

}  // namespace

extern "C" {

tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t* op, void* scalar, tuttiDataType_t datatype,
                                        tuttiScalarResidence_t residence, tuttiComm_t comm) {
  constexpr const char* kName = "tuttiRedOpCreatePreMulSum";
  return guarded(kName, comm, [&]() -> Status {
    if (op == nullptr || scalar == nullptr)
      return bad_argument(kName, fmt::format("{} is NULL", op == nullptr ? "op" : "scalar"));
    TUTTI_TRY_ASSIGN(const DataType type, check_type(kName, value_of(datatype)));
    if (value_of(residence) == tuttiScalarDevice)
      return make_error(Code::kNotSupported,
                        fmt::format("{}: the scalar must be in host memory; pass "
                                    "tuttiScalarHostImmediate",
                                    kName));
    if (value_of(residence) != tuttiScalarHostImmediate)
      return bad_argument(
          kName, fmt::format("{} is not a valid tuttiScalarResidence_t", value_of(residence)));
    TUTTI_TRY_ASSIGN(const OpenCall communicator, enter_handle(comm, kName));
    PreMulSum made{.type = type};
    std::memcpy(made.scalar.data(), scalar, element_bytes(made.type));
    *op = static_cast<tuttiRedOp_t>(tuttiFirstMadeOp + communicator->made_ops().add(made));
    return {};
  });
}

tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm) {
  constexpr const char* kName = "tuttiRedOpDestroy";
  return guarded(kName, comm, [&]() -> Status {
    TUTTI_TRY_ASSIGN(const OpenCall communicator, enter_handle(comm, kName));
    const int number = value_of(op);
    if (number >= tuttiFirstMadeOp && communicator->made_ops().remove(number - tuttiFirstMadeOp))
      return {};
    return bad_argument(kName, fmt::format("{} is not an operation that was made for this "
                                           "communicator",
                                           number));
  });
}

tuttiResult_t tuttiAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                             tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
                             tuttiStream_t stream) {
  return submit({.function = "tuttiAllReduce",
                 .collective = Collective::kAllReduce,
                 .sendbuff = sendbuff,
                 .recvbuff = recvbuff,
                 .count = count,
                 .type = value_of(datatype),
                 .op = value_of(op)},
                comm, stream);
}

tuttiResult_t tuttiReduce(const void* sendbuff, void* recvbuff, size_t count,
                          tuttiDataType_t datatype, tuttiRedOp_t op, int root, tuttiComm_t comm,
                          tuttiStream_t stream) {
  return submit({.function = "tuttiReduce",
                 .collective = Collective::kReduce,
                 .sendbuff = sendbuff,
                 .recvbuff = recvbuff,
                 .count = count,
                 .type = value_of(datatype),
                 .op = value_of(op),
                 .root = root},
                comm, stream);
}

tuttiResult_t tuttiBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                             tuttiDataType_t datatype, int root, tuttiComm_t comm,
                             tuttiStream_t stream) {
  return submit({.function = "tuttiBroadcast",
                 .collective = Collective::kBroadcast,
                 .sendbuff = sendbuff,
                 .recvbuff = recvbuff,
                 .count = count,
                 .type = value_of(datatype),
                 .root = root},
                comm, stream);
}

tuttiResult_t tuttiBcast(void* buff, size_t count, tuttiDataType_t datatype, int root,
                         tuttiComm_t comm, tuttiStream_t stream) {
  return submit({.function = "tuttiBcast",
                 .collective = Collective::kBroadcast,
                 .sendbuff = buff,
                 .recvbuff = buff,
                 .count = count,
                 .type = value_of(datatype),
                 .root = root},
                comm, stream);
}

tuttiResult_t tuttiReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                 tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
                                 tuttiStream_t stream) {
  return submit({.function = "tuttiReduceScatter",
                 .collective = Collective::kReduceScatter,
                 .sendbuff = sendbuff,
                 .recvbuff = recvbuff,
                 .count = recvcount,
                 .type = value_of(datatype),
                 .op = value_of(op)},
                comm, stream);
}

tuttiResult_t tuttiAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                             tuttiDataType_t datatype, tuttiComm_t comm, tuttiStream_t stream) {
  return submit({.function = "tuttiAllGather",
                 .collective = Collective::kAllGather,
                 .sendbuff = sendbuff,
                 .recvbuff = recvbuff,
                 .count = sendcount,
                 .type = value_of(datatype)},
                comm, stream);
}

tuttiResult_t tuttiAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                            tuttiDataType_t datatype, tuttiComm_t comm, tuttiStream_t stream) {
  return submit({.function = "tuttiAlltoAll",
                 .collective = Collective::kAllToAll,
                 .sendbuff = sendbuff,
                 .recvbuff = recvbuff,
                 .count = count,
                 .type = value_of(datatype)},
                comm, stream);
}

tuttiResult_t tuttiGather(const void* sendbuff, void* recvbuff, size_t count,
                          tuttiDataType_t datatype, int root, tuttiComm_t comm,
                          tuttiStream_t stream) {
  return submit({.function = "tuttiGather",
                 .collective = Collective::kGather,
                 .sendbuff = sendbuff,
                 .recvbuff = recvbuff,
                 .count = count,
                 .type = value_of(datatype),
                 .root = root},
                comm, stream);
}

tuttiResult_t tuttiScatter(const void* sendbuff, void* recvbuff, size_t count,
                           tuttiDataType_t datatype, int root, tuttiComm_t comm,
                           tuttiStream_t stream) {
  return submit({.function = "tuttiScatter",
                 .collective = Collective::kScatter,
                 .sendbuff = sendbuff,
                 .recvbuff = recvbuff,
                 .count = count,
                 .type = value_of(datatype),
                 .root = root},
                comm, stream);
}

tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream) {
  return submit({.function = "tuttiBarrier",
                 .collective = Collective::kBarrier,
                 .sendbuff = nullptr,
                 .recvbuff = nullptr,
                 .count = 1,
                 .type = tuttiUint8,
                 .op = tuttiBitOr},
                comm, stream);
}

}  // extern "C"
