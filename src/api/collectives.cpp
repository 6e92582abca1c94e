// SPDX-License-Identifier: Apache-2.0
// The C boundary of collectives: a function each, and the checks that they have in common, which
// read the table of collectives.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "api/buffers.hpp"
#include "api/config.hpp"
#include "api/group.hpp"
#include "api/handle.hpp"
#include "base/call.hpp"
#include "comm/run_on_devices.hpp"

using namespace tutti;

namespace {

// Says whether a call's buffers are in device memory or in host memory; empty ones are in neither.
// kInvalidArgument for one of each.
Result<bool> in_device_memory(const Communicator& communicator, const Call& call,
                              const char* function) {
  const Rank rank = communicator.rank();
  const std::int32_t ranks = communicator.ranks();
  const bool input = call.has_input(rank) && call.input_bytes(rank, ranks) > 0;
  const bool output = call.has_output(rank) && call.output_bytes(rank, ranks) > 0;
  if (!input && !output) return false;
  const void* const first = output ? call.output : call.input;
  TUTTI_TRY_ASSIGN(const bool held, is_in_device_memory(function, first, communicator));
  if (!output || !input || call.input == call.output) return held;
  TUTTI_TRY_ASSIGN(const bool other, is_in_device_memory(function, call.input, communicator));
  if (other != held) return tl::unexpected(mixed_memory(function, held));
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
  // Of blocks that differ by rank: elements, and where each begins. Null places: one behind the
  // other.
  const std::size_t* sizes = nullptr;
  const std::size_t* places = nullptr;
};

// Buffers that this rank has, by the table of collectives. In place means that equal elements have
// equal addresses; any other overlap is refused.
Status check_buffers(const Call& call, Rank rank, std::int32_t ranks, const char* function) {
  const std::uint64_t input_bytes = call.input_bytes(rank, ranks);
  const std::uint64_t output_bytes = call.output_bytes(rank, ranks);
  const bool input = call.has_input(rank) && input_bytes > 0;
  const bool output = call.has_output(rank) && output_bytes > 0;
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
  if (from < to + output_bytes && to < from + input_bytes)
    return bad_argument(
        function, call.info().input.extent == call.info().output.extent
                      ? "sendbuff and recvbuff overlap; pass the same pointer for in place"
                      : "sendbuff and recvbuff overlap; in place, the smaller one is this rank's "
                        "block of the larger one");
  return {};
}

// Sets what the call reduces by: an operation of the API, or one that was made for the
// communicator.
Status set_operation(Call& call, int op, Communicator& communicator, const char* function) {
  const std::optional<MadeOp> made =
      op < tuttiFirstMadeOp ? std::nullopt : communicator.made_ops().find(op - tuttiFirstMadeOp);
  if (made && std::holds_alternative<PreMulSum>(*made)) {
    call.pre_multiplied = std::get<PreMulSum>(*made);
    call.op = ReduceOp::kSum;
    return {};
  }
  if (made) {
    call.user_op = std::get<UserOp>(*made);
    call.op = call.user_op->commutative ? ReduceOp::kUser : ReduceOp::kUserInOrder;
    return {};
  }
  const std::optional<ReduceOp> known = reduce_op_of(op);
  if (!known)
    return bad_argument(
        function,
        fmt::format("{} is not a valid tuttiRedOp_t{}", op,
                    op < tuttiFirstMadeOp
                        ? ""
                        : " of this communicator: it was destroyed, or made for another"));
  call.op = *known;
  return {};
}

Status check_operation(const Call& call, Communicator& communicator, const char* function) {
  if (call.pre_multiplied && call.pre_multiplied->type != call.type)
    return bad_argument(function,
                        fmt::format("the operation was made for {}, and the call is of {}",
                                    name_of(call.pre_multiplied->type), name_of(call.type)));
  if (call.on_device && (call.pre_multiplied || call.user_op))
    return make_error(
        Code::kNotSupported,
        fmt::format("{}: an operation that the program made takes host memory", function));
  if (call.on_device && communicator.plans().carries_fp32(call))
    return make_error(Code::kNotSupported,
                      fmt::format("{}: with fp32Partials a sum of {} takes host memory", function,
                                  name_of(call.type)));
  if (!call.info().reduces() || !takes_integers_only(call.op)) return {};
  if (!is_integer(call.type))
    return bad_argument(
        function, fmt::format("{} takes integers, not {}", name_of(call.op), name_of(call.type)));
  if (!call.on_device) return {};
  return make_error(Code::kNotSupported,
                    fmt::format("{}: {} takes integers in host memory, not in device memory",
                                function, name_of(call.op)));
}

// The sizes of a call whose blocks differ by rank; null where they do not. Its count becomes the
// largest.
Result<std::shared_ptr<const BlockSizes>> check_sizes(RawCall& raw, Rank rank, std::int32_t ranks,
                                                      DataType type) {
  if (!has_sizes(raw.collective)) return nullptr;
  if (raw.sizes == nullptr) return bad_argument(raw.function, "the counts are NULL");
  const auto n = static_cast<std::size_t>(ranks);
  const std::uint64_t most = SIZE_MAX / 2 / element_bytes(type);
  std::vector<std::uint64_t> counts(raw.sizes, raw.sizes + n), begins(n);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (counts[i] == 0) continue;  // where it would lie says nothing
    begins[i] = raw.places != nullptr ? raw.places[i] : total;
    if (counts[i] > most - total || begins[i] > most || counts[i] > most - begins[i])
      return bad_argument(raw.function,
                          fmt::format("the block of rank {} has {} elements from {} on: larger "
                                      "than any memory",
                                      i, counts[i], begins[i]));
    total += counts[i];
  }
  const auto own = static_cast<std::size_t>(rank);
  if (raw.sizes[own] != raw.count)
    return bad_argument(raw.function, fmt::format("the own block has {} elements, but the counts "
                                                  "say {} for rank {}",
                                                  raw.count, raw.sizes[own], rank));
  const auto sizes = std::make_shared<const BlockSizes>(std::move(counts), std::move(begins));
  raw.count = sizes->largest();
  return sizes;
}

Result<Call> check_call(RawCall raw, Communicator& communicator, tuttiStream_t stream) {
  const char* const function = raw.function;
  TUTTI_TRY_ASSIGN(const DataType type, check_type(function, raw.type));
  const std::int32_t ranks = communicator.ranks();
  TUTTI_TRY(check_root(function, raw.root, ranks));
  TUTTI_TRY_ASSIGN(std::shared_ptr<const BlockSizes> sizes,
                   check_sizes(raw, communicator.rank(), ranks, type));
  const bool barrier = raw.collective == Collective::kBarrier;
  Call call{.collective = raw.collective,
            .input = barrier ? communicator.barrier_data() : raw.sendbuff,
            .output = barrier ? communicator.barrier_data() : raw.recvbuff,
            .count = raw.count,
            .type = type,
            .root = raw.root,
            .stream = stream,
            .sizes = std::move(sizes)};
  TUTTI_TRY(set_operation(call, raw.op, communicator, function));
  const std::uint64_t blocks = call.info().blocks_among(ranks);
  if (call.sizes == nullptr && raw.count > SIZE_MAX / 2 / element_bytes(call.type) / blocks)
    return bad_argument(function, fmt::format("count {} is larger than any memory", raw.count));
  if (raw.count > 0) TUTTI_TRY(check_buffers(call, communicator.rank(), ranks, function));
  TUTTI_TRY_ASSIGN(call.on_device, in_device_memory(communicator, call, function));
  TUTTI_TRY(check_operation(call, communicator, function));
  return call;
}

// Runs the call if it repeats another one (comm/repeats.hpp), and says in `code` how it ended.
// False: it takes the ordinary way, before which nothing is put together.
[[gnu::always_inline]] inline bool repeat(const RawCall& raw, tuttiComm_t comm,
                                          tuttiStream_t stream, tuttiResult_t& code) {
  if (stream != nullptr || raw.count > Repeats::kMostBytes || raw.type < 0 ||
      raw.type >= kDataTypeCount || Group::active())
    return false;
  const std::optional<ReduceOp> op = reduce_op_of(raw.op);
  if (!op) return false;
  const HandleCall held(comm, info_of(raw.collective).name.data());
  Communicator* const own = held.communicator();
  if (own == nullptr) return false;
  const bool barrier = raw.collective == Collective::kBarrier;
  try {
    const Repeats::Ran ran = own->repeats().run(
        {.kind = SmallCall::kind_of(raw.collective, static_cast<DataType>(raw.type), *op, raw.root),
         .count = raw.count,
         .input = barrier ? own->barrier_data() : raw.sendbuff,
         .output = barrier ? own->barrier_data() : raw.recvbuff});
    if (ran == Repeats::Ran::kNot) return false;
    code = ran == Repeats::Ran::kWell ? tuttiSuccess : report(own->repeats().ended(), comm);
  } catch (...) {
    code = report_caught(raw.function, comm);
  }
  return true;
}

// By value and apart, so that a call that repeats puts nothing together for it.
[[gnu::noinline]] tuttiResult_t submit_checked(RawCall raw, tuttiComm_t comm,
                                               tuttiStream_t stream) {
  return submit(raw.function, comm, stream,
                [&](Communicator& own) { return check_call(raw, own, stream); });
}

[[gnu::always_inline]] inline tuttiResult_t submit(const RawCall& raw, tuttiComm_t comm,
                                                   tuttiStream_t stream) {
  tuttiResult_t code = tuttiSuccess;
  if (raw.sizes == nullptr && repeat(raw, comm, stream, code)) return code;
  return submit_checked(raw, comm, stream);
}

}  // namespace

extern "C" {

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

tuttiResult_t tuttiAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                              const size_t recvcounts[], const size_t displs[],
                              tuttiDataType_t datatype, tuttiComm_t comm, tuttiStream_t stream) {
  return submit({.function = "tuttiAllGatherv",
                 .collective = Collective::kAllGatherV,
                 .sendbuff = sendbuff,
                 .recvbuff = recvbuff,
                 .count = sendcount,
                 .type = value_of(datatype),
                 .sizes = recvcounts,
                 .places = displs},
                comm, stream);
}

tuttiResult_t tuttiReduceScatterv(const void* sendbuff, const size_t sendcounts[],
                                  const size_t displs[], void* recvbuff, size_t recvcount,
                                  tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
                                  tuttiStream_t stream) {
  return submit({.function = "tuttiReduceScatterv",
                 .collective = Collective::kReduceScatterV,
                 .sendbuff = sendbuff,
                 .recvbuff = recvbuff,
                 .count = recvcount,
                 .type = value_of(datatype),
                 .op = value_of(op),
                 .sizes = sendcounts,
                 .places = displs},
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
