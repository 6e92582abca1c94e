// SPDX-License-Identifier: Apache-2.0
// The C boundary of sends and receives.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include <cstdint>

#include "api/buffers.hpp"
#include "api/config.hpp"
#include "api/group.hpp"
#include "api/handle.hpp"

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

tuttiResult_t submit(const RawTransfer& raw, tuttiComm_t comm, tuttiStream_t stream) {
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
