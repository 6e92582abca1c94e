// SPDX-License-Identifier: Apache-2.0
// The C boundary of sends and receives.
#include "api/point_to_point.hpp"

#include <fmt/core.h>
#include <tutti/tutti.h>

#include <cstdint>

#include "api/config.hpp"
#include "api/group.hpp"
#include "api/handle.hpp"
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

Result<Call> check_transfer(const RawTransfer& raw, const Communicator& communicator) {
  const char* const function = raw.function;
  TUTTI_TRY_ASSIGN(const DataType type, check_type(function, raw.type));
  if (raw.peer < 0 || raw.peer >= communicator.ranks())
    return bad_argument(function, fmt::format("peer {} is out of range: the communicator has {} "
                                              "ranks",
                                              raw.peer, communicator.ranks()));
  if (raw.count > SIZE_MAX / 2 / element_bytes(type))
    return bad_argument(function, fmt::format("count {} is larger than any memory", raw.count));
  const bool sends = raw.collective == Collective::kSend;
  if (raw.count > 0)
    TUTTI_TRY(check_host_buffer(function, sends ? "sendbuff" : "recvbuff",
                                sends ? raw.sendbuff : raw.recvbuff, type, communicator));
  return Call{.collective = raw.collective,
              .input = raw.sendbuff,
              .output = raw.recvbuff,
              .count = raw.count,
              .type = type,
              .root = raw.peer};
}

tuttiResult_t submit(const RawTransfer& raw, tuttiComm_t comm, tuttiStream_t stream) {
  return tutti::submit(raw.function, comm, stream, [&](Communicator& communicator) {
    return check_transfer(raw, communicator);
  });
}

}  // namespace

namespace tutti {

Status check_host_buffer(const char* function, const char* name, const void* buffer, DataType type,
                         const Communicator& communicator) {
  if (buffer == nullptr) return bad_argument(function, fmt::format("{} is NULL", name));
  const std::size_t bytes_each = element_bytes(type);
  if (reinterpret_cast<std::uintptr_t>(buffer) % bytes_each != 0)
    return bad_argument(function, fmt::format("{} is not aligned to the {} bytes of its data type",
                                              name, bytes_each));
  const RankOnDevice* const device = communicator.on_device();
  if (device != nullptr ? device->holds(buffer) : device::driver_knows_for_device(buffer))
    return make_error(Code::kNotSupported,
                      fmt::format("{}: this version sends and receives host memory, and {} is "
                                  "device memory; copy it to host memory first",
                                  function, name));
  return {};
}

}  // namespace tutti

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
