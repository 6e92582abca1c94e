// SPDX-License-Identifier: Apache-2.0
// The C boundary of collectives whose blocks have sizes of their own, known to the two ranks that a
// block concerns and to nobody else: groups of sends and receives. Each pair compares its counts.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

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
  const Communicator& communicator;
  Parts parts;
  DataType type = DataType::kFloat32;
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
  Parts& parts = blocks.parts;
  if (parts.transfers.empty() || parts.transfers.back().direction != side.direction) {
    TUTTI_TRY_ASSIGN(const bool on_device,
                     is_in_device_memory(blocks.function, side.buffer, blocks.communicator));
    if (!parts.transfers.empty() && parts.on_device != on_device)
      return tl::unexpected(mixed_memory(blocks.function, sends ? !on_device : on_device));
    parts.on_device = on_device;
  }
  auto* const at = static_cast<std::byte*>(const_cast<void*>(side.buffer)) + first * bytes_each;
  parts.transfers.push_back({side.direction, blocks.type, peer, count, at});
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
Parts parts_of(Blocks& blocks) {
  static std::atomic<std::uint64_t> made{0};
  Parts& parts = blocks.parts;
  if (parts.transfers.empty())
    parts.transfers.push_back({Collective::kSend, blocks.type, blocks.communicator.rank()});
  parts.made_by = made.fetch_add(1, std::memory_order_relaxed) + 1;  // a name, no more
  return std::move(parts);
}

// Room for the blocks of all ranks, of which one side or both may be needed.
Blocks begin_blocks(const char* function, Whole whole, const Communicator& communicator,
                    tuttiStream_t stream, std::size_t most) {
  Blocks blocks{function, communicator, {.whole = whole, .stream = stream}};
  blocks.parts.transfers.reserve(most);
  return blocks;
}

// A gather or a scatter: `own`, of `count` elements, is this rank's block, which goes to the root
// or comes from there; `all`, on the root, those of all ranks.
tuttiResult_t move_with_root(const char* function, Whole whole, tuttiComm_t comm, int type,
                             int root, tuttiStream_t stream, const Side& own, std::size_t count,
                             const Side& all) {
  const auto check = [&](Communicator& communicator) -> Result<Parts> {
    const bool is_root = communicator.rank() == root;
    const auto ranks = static_cast<std::size_t>(communicator.ranks());
    Blocks blocks = begin_blocks(function, whole, communicator, stream, is_root ? ranks + 1 : 1);
    TUTTI_TRY_ASSIGN(blocks.type, check_type(function, type));
    TUTTI_TRY(check_root(function, root, communicator.ranks()));
    TUTTI_TRY(add_block(blocks, own, root, count, 0));
    if (is_root) TUTTI_TRY(add_all(blocks, all));
    return parts_of(blocks);
  };
  return submit_several(function, comm, stream, std::cref(check));  // which needs no memory
}

}  // namespace

extern "C" {

tuttiResult_t tuttiAlltoAllv(const void* sendbuff, const size_t sendcounts[],
                             const size_t sdispls[], void* recvbuff, const size_t recvcounts[],
                             const size_t rdispls[], tuttiDataType_t datatype, tuttiComm_t comm,
                             tuttiStream_t stream) {
  constexpr const char* kName = "tuttiAlltoAllv";
  const auto check = [&](Communicator& communicator) -> Result<Parts> {
    const auto ranks = static_cast<std::size_t>(communicator.ranks());
    Blocks blocks = begin_blocks(kName, Whole::kAllToAllV, communicator, stream, 2 * ranks);
    TUTTI_TRY_ASSIGN(blocks.type, check_type(kName, value_of(datatype)));
    if (sendbuff == recvbuff && sendbuff != nullptr)
      return bad_argument(kName, "sendbuff and recvbuff are equal; it has no in-place form");
    TUTTI_TRY(add_all(blocks, {Collective::kSend, "sendbuff", sendbuff, sendcounts, sdispls}));
    TUTTI_TRY(add_all(blocks, {Collective::kRecv, "recvbuff", recvbuff, recvcounts, rdispls}));
    return parts_of(blocks);
  };
  return submit_several(kName, comm, stream, std::cref(check));
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
