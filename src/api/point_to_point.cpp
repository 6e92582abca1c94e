// SPDX-License-Identifier: Apache-2.0
// The C boundary of sends and receives.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "api/buffers.hpp"
#include "api/config.hpp"
#include "api/group.hpp"
#include "api/handle.hpp"
#include "comm/run_operations.hpp"
#include "comm/transfer.hpp"
#include "device/driver.hpp"

using namespace tutti;

namespace {

// As the C functions take it, before anything has been checked.
struct RawTransfer {
  const char* function;
  Collective collective;  // kSend or kRecv
  const void* sendbuff;
  void* recvbuff;
  std::size_t count;
  int type;
  int peer;
};

Result<Call> check_transfer(const RawTransfer& raw, const Communicator& communicator,
                            tuttiStream_t stream) {
  const char* const function = raw.function;
  TUTTI_TRY_ASSIGN(const DataType type, check_type(function, raw.type));
  if (raw.peer < 0 || raw.peer >= communicator.ranks())
    return bad_argument(function, fmt::format("peer {} is out of range: the communicator has {} "
                                              "ranks",
                                              raw.peer, communicator.ranks()));
  if (raw.count > SIZE_MAX / 2 / element_bytes(type))
    return bad_argument(function, fmt::format("count {} is larger than any memory", raw.count));
  const bool sends = raw.collective == Collective::kSend;
  const void* const buffer = sends ? raw.sendbuff : raw.recvbuff;
  bool on_device = false;
  if (raw.count > 0) {
    TUTTI_TRY(check_buffer(function, sends ? "sendbuff" : "recvbuff", buffer, type));
    TUTTI_TRY_ASSIGN(on_device, is_in_device_memory(function, buffer, communicator));
  }
  return Call{.collective = raw.collective,
              .input = raw.sendbuff,
              .output = raw.recvbuff,
              .count = raw.count,
              .type = type,
              .root = raw.peer,
              .on_device = on_device,
              .stream = stream};
}

// What most calls are: with host memory, on no stream, and right. Everything else the ordinary way
// tells.
bool is_plain(const RawTransfer& raw, tuttiStream_t stream, std::int32_t ranks) {
  if (stream != nullptr || raw.peer < 0 || raw.peer >= ranks) return false;
  if (raw.type < 0 || raw.type >= kDataTypeCount) return false;
  const std::size_t bytes_each = element_bytes(static_cast<DataType>(raw.type));
  if (raw.count > SIZE_MAX / 2 / bytes_each) return false;
  if (raw.count == 0) return true;
  const void* const buffer = raw.collective == Collective::kSend ? raw.sendbuff : raw.recvbuff;
  return buffer != nullptr && reinterpret_cast<std::uintptr_t>(buffer) % bytes_each == 0 &&
         !(device::driver_was_found() && device::driver_knows_for_device(buffer));
}

// A plain one outside of a group.
tuttiResult_t run_now(HandleRef handle, const Transfer& transfer, const char* function) {
  return guarded(function, handle.comm, [&](tuttiComm* held) -> Status {
    if (held == nullptr || held->life != handle.life)
      return bad_argument(function, "the communicator was destroyed");
    TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(held, function));
    return run_transfers(*communicator, std::span(&transfer, 1),
                         info_of(transfer.direction).name.data());
  });
}

tuttiResult_t submit(const RawTransfer& raw, tuttiComm_t comm, tuttiStream_t stream) {
  const HostMember on = host_member_of(comm);
  if (on.ranks > 0 && is_plain(raw, stream, on.ranks)) {
    const bool sends = raw.collective == Collective::kSend;
    const Transfer transfer{
        raw.collective, static_cast<DataType>(raw.type), raw.peer, raw.count,
        static_cast<std::byte*>(sends ? const_cast<void*>(raw.sendbuff) : raw.recvbuff)};
    Group& group = Group::current();
    if (Group::active() && group.add_transfer(on.handle, transfer)) return tuttiSuccess;
    if (!Group::active()) return run_now(on.handle, transfer, raw.function);
  }
  return tutti::submit(raw.function, comm, stream, [&](Communicator& communicator) {
    return check_transfer(raw, communicator, stream);
  });
}

}  // namespace

extern "C" {

tuttiResult_t tuttiSend(const void* sendbuff, size_t count, tuttiDataType_t datatype, int peer,
                        tuttiComm_t comm, tuttiStream_t stream) {
  return submit({.function = "tuttiSend",
                 .collective = Collective::kSend,
                 .sendbuff = sendbuff,
                 .recvbuff = nullptr,
                 .count = count,
                 .type = value_of(datatype),
                 .peer = peer},
                comm, stream);
}

tuttiResult_t tuttiRecv(void* recvbuff, size_t count, tuttiDataType_t datatype, int peer,
                        tuttiComm_t comm, tuttiStream_t stream) {
  return submit({.function = "tuttiRecv",
                 .collective = Collective::kRecv,
                 .sendbuff = nullptr,
                 .recvbuff = recvbuff,
                 .count = count,
                 .type = value_of(datatype),
                 .peer = peer},
                comm, stream);
}

}  // extern "C"
