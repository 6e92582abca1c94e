// SPDX-License-Identifier: Apache-2.0
// The C boundary of collectives whose blocks have sizes of their own, known to the two ranks that a
// block concerns and to nobody else: groups of sends and receives. Each pair compares its counts.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "api/buffers.hpp"
#include "api/config.hpp"
#include "api/group.hpp"
#include "api/handle.hpp"

using namespace tutti;

namespace {

// What the blocks of one side of a call have in common.
struct Side {
  Collective direction;  // kSend or kRecv
  const char* buffer_name;
  const void* buffer;
  const std::size_t* counts;  // by peer
  const std::size_t* displacements;
};

// One call, as its checks see it.
struct Blocks {
  const char* function;
  Whole whole;
  const Communicator& communicator;
  tuttiStream_t stream = nullptr;
  DataType type = DataType::kFloat32;
  std::vector<Call> calls = {};
};

// The block for `peer` or from it: `count` elements from `first` on.
Status add_block(Blocks& blocks, const Side& side, Rank peer, std::size_t count,
                 std::size_t first) {
  if (count == 0) return {};
  const std::size_t bytes_each = element_bytes(blocks.type), most = SIZE_MAX / 2 / bytes_each;
  if (count > most || first > most - count)
    return bad_argument(blocks.function,
                        fmt::format("the block of rank {} has {} elements from {} on: larger than "
                                    "any memory",
                                    peer, count, first));
  TUTTI_TRY(check_buffer(blocks.function, side.buffer_name, side.buffer, blocks.type));
  const bool sends = side.direction == Collective::kSend;
  bool on_device = !blocks.calls.empty() && blocks.calls.back().on_device;
  if (blocks.calls.empty() || blocks.calls.back().collective != side.direction) {
    TUTTI_TRY_ASSIGN(on_device,
                     is_in_device_memory(blocks.function, side.buffer, blocks.communicator));
    if (!blocks.calls.empty() && blocks.calls.back().on_device != on_device)
      return tl::unexpected(mixed_memory(blocks.function, sends ? !on_device : on_device));
  }
  auto* const at = static_cast<std::byte*>(const_cast<void*>(side.buffer)) + first * bytes_each;
  blocks.calls.push_back({.collective = side.direction,
                          .input = sends ? at : nullptr,
                          .output = sends ? nullptr : at,
                          .count = count,
                          .type = blocks.type,
                          .root = peer,
                          .on_device = on_device,
                          .stream = blocks.stream,
                          .whole = blocks.whole});
  return {};
}

// A block for every rank of the communicator.
Status add_all(Blocks& blocks, const Side& side) {
  if (side.counts == nullptr || side.displacements == nullptr)
    return bad_argument(
        blocks.function,
        fmt::format("the {} of {} are NULL", side.counts == nullptr ? "counts" : "displacements",
                    side.buffer_name));
  for (Rank peer = 0; peer < blocks.communicator.ranks(); ++peer) {
    const auto i = static_cast<std::size_t>(peer);
    TUTTI_TRY(add_block(blocks, side, peer, side.counts[i], side.displacements[i]));
  }
  return {};
}

// Also where this rank has nothing to move its communicator is asked, which may be of no use.
std::vector<Call> calls_of(Blocks& blocks) {
  if (blocks.calls.empty())
    blocks.calls.push_back({.collective = Collective::kSend,
                            .type = blocks.type,
                            .root = blocks.communicator.rank(),
                            .whole = blocks.whole});
  static std::atomic<std::uint64_t> made{0};
  const std::uint64_t number = made.fetch_add(1, std::memory_order_relaxed) + 1;  // a name, no more
  for (Call& call : blocks.calls) call.made_by = number;
  return std::move(blocks.calls);
}

// A gather or a scatter: `own`, of `count` elements, is this rank's block, which goes to the root
// or comes from there; `all`, on the root, those of all ranks.
tuttiResult_t move_with_root(const char* function, Whole whole, tuttiComm_t comm, int type,
                             int root, tuttiStream_t stream, const Side& own, std::size_t count,
                             const Side& all) {
  return submit_several(function, comm, stream,
                        [&](Communicator& communicator) -> Result<std::vector<Call>> {
                          Blocks blocks{function, whole, communicator, stream};
                          TUTTI_TRY_ASSIGN(blocks.type, check_type(function, type));
                          TUTTI_TRY(check_root(function, root, communicator.ranks()));
                          TUTTI_TRY(add_block(blocks, own, root, count, 0));
                          if (communicator.rank() == root) TUTTI_TRY(add_all(blocks, all));
                          return calls_of(blocks);
                        });
}

}  // namespace

extern "C" {

tuttiResult_t tuttiAlltoAllv(const void* sendbuff, const size_t sendcounts[],
                             const size_t sdispls[], void* recvbuff, const size_t recvcounts[],
                             const size_t rdispls[], tuttiDataType_t datatype, tuttiComm_t comm,
                             tuttiStream_t stream) {
  constexpr const char* kName = "tuttiAlltoAllv";
  return submit_several(
      kName, comm, stream, [&](Communicator& communicator) -> Result<std::vector<Call>> {
        Blocks blocks{kName, Whole::kAllToAllV, communicator, stream};
        TUTTI_TRY_ASSIGN(blocks.type, check_type(kName, value_of(datatype)));
        if (sendbuff == recvbuff && sendbuff != nullptr)
          return bad_argument(kName, "sendbuff and recvbuff are equal; it has no in-place form");
        TUTTI_TRY(add_all(blocks, {Collective::kSend, "sendbuff", sendbuff, sendcounts, sdispls}));
        TUTTI_TRY(add_all(blocks, {Collective::kRecv, "recvbuff", recvbuff, recvcounts, rdispls}));
        return calls_of(blocks);
      });
}

tuttiResult_t tuttiGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                           const size_t recvcounts[], const size_t displs[],
                           tuttiDataType_t datatype, int root, tuttiComm_t comm,
                           tuttiStream_t stream) {
  return move_with_root("tuttiGatherv", Whole::kGatherV, comm, value_of(datatype), root, stream,
                        {Collective::kSend, "sendbuff", sendbuff, nullptr, nullptr}, sendcount,
                        {Collective::kRecv, "recvbuff", recvbuff, recvcounts, displs});
}

tuttiResult_t tuttiScatterv(const void* sendbuff, const size_t sendcounts[], const size_t displs[],
                            void* recvbuff, size_t recvcount, tuttiDataType_t datatype, int root,
                            tuttiComm_t comm, tuttiStream_t stream) {
  return move_with_root("tuttiScatterv", Whole::kScatterV, comm, value_of(datatype), root, stream,
                        {Collective::kRecv, "recvbuff", recvbuff, nullptr, nullptr}, recvcount,
                        {Collective::kSend, "sendbuff", sendbuff, sendcounts, displs});
}

}  // extern "C"
