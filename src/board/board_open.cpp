// SPDX-License-Identifier: Apache-2.0
// How the ranks of a host come to share a board.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <map>
#include <utility>

#include "base/process_fd.hpp"
#include "base/shared_file.hpp"
#include "board/board.hpp"
#include "board/board_memory.hpp"
#include "board/board_words.hpp"
#include "board/flight_file.hpp"

namespace tutti {
namespace control {
namespace {

// Ranks that are threads of one process share one mapping, so that they see the same addresses (and
// ThreadSanitizer their races). Guarded by process_registry_mutex(); never destroyed.
using MappingKey = std::pair<std::array<std::byte, kSessionIdBytes>, std::uint64_t>;
std::map<MappingKey, std::weak_ptr<BoardMemory>>& mappings() {
  static auto* const instance = new std::map<MappingKey, std::weak_ptr<BoardMemory>>;
  return *instance;
}

Result<std::shared_ptr<BoardMemory>> map_once(const MappingKey& key, int fd, std::size_t ranks) {
  const std::lock_guard lock(process_registry_mutex());
  std::erase_if(mappings(), [](const auto& entry) { return entry.second.expired(); });
  const auto known = mappings().find(key);
  if (known != mappings().end()) {
    if (std::shared_ptr<BoardMemory> memory = known->second.lock()) return memory;
  }
  Result<std::shared_ptr<BoardMemory>> memory = BoardMemory::map(fd, ranks);
  if (memory) mappings()[key] = *memory;
  return memory;
}

// A new segment with its header.
Result<UniqueFd> make_segment(const BoardName& name, std::size_t blocks,
                              const BoardOptions& options) {
  const std::size_t bytes = board_bytes(blocks);
  UniqueFd segment;
  if (!options.flight_dir.empty()) {
    Result<UniqueFd> file = make_flight_file(options.flight_dir, name, bytes);
    if (file)
      segment = *std::move(file);
    else
      TUTTI_LOG(options.log, LogLevel::kError,
                "{}; there is no flight recorder file, so the record of this communicator is lost "
                "when its last rank ends; correct TUTTI_FLIGHT_DIR",
                file.error().message);
  }
  if (!segment) {
    TUTTI_TRY_ASSIGN(segment, make_shared_file("board", bytes));
  }
  const BoardHeader header = make_board_header(name, blocks);
  if (::pwrite(segment.get(), &header, sizeof header, 0) != sizeof header)
    return errno_error("cannot write the status page's header", errno);
  return segment;
}

// The first rank of the host makes the segment and lends it to who asks.
Result<UniqueFd> make_and_serve(ControlPlane& control, std::size_t blocks,
                                const BoardOptions& options) {
  const std::vector<PeerInfo> peers = control.peers();
  const PeerInfo& self = peers[static_cast<std::size_t>(control.rank())];
  const BoardName name{.session = control.session(),
                       .host = self.host,
                       .first = self.rank,
                       .ranks = static_cast<std::int32_t>(peers.size())};
  TUTTI_TRY_ASSIGN(UniqueFd segment, make_segment(name, blocks, options));
  auto lent = std::make_shared<UniqueFd>(::fcntl(segment.get(), F_DUPFD_CLOEXEC, 0));
  if (!*lent) return errno_error("cannot duplicate the status page's descriptor", errno);
  control.serve(RequestKind::kBoard,
                [lent, host = self.host_id, peers](const Request& request) -> Result<HandlerReply> {
                  if (peers[static_cast<std::size_t>(request.from)].host_id != host) {
                    return make_error(Code::kInvalidUsage,
                                      "the status page is only for ranks of its host");
                  }
                  return HandlerReply{.payload = {}, .lent_fd = lent->get()};
                });
  return segment;
}

Result<UniqueFd> fetch(ControlPlane& control, Rank first, Deadline deadline) {
  TUTTI_TRY_ASSIGN(Reply reply, control.call(first, RequestKind::kBoard, {}, deadline));
  if (!reply.fd) {
    return make_error(Code::kRemoteError,
                      fmt::format("rank {} did not send the status page", first), first);
  }
  return std::move(reply.fd);
}

}  // namespace
}  // namespace control

Result<std::unique_ptr<Board>> Board::open(ControlPlane& control, Deadline deadline,
                                           const BoardOptions& options) {
  const std::vector<PeerInfo>& peers = control.peers();
  const Rank rank = control.rank();
  const std::uint64_t host = peers[static_cast<std::size_t>(rank)].host_id;
  std::vector<Rank> local;
  for (const PeerInfo& peer : peers) {
    if (peer.host_id == host) local.push_back(peer.rank);
  }
  const auto shared = [&]() -> Result<std::shared_ptr<control::BoardMemory>> {
    TUTTI_TRY_ASSIGN(const UniqueFd segment,
                     local.front() == rank ? control::make_and_serve(control, local.size(), options)
                                           : control::fetch(control, local.front(), deadline));
    return control::map_once({control.session(), host}, segment.get(), local.size());
  };
  Result<std::shared_ptr<control::BoardMemory>> memory = shared();
  // A rank that is alone needs no segment but to be watched.
  if (!memory && local.size() == 1) memory = control::BoardMemory::alone();
  if (!memory) return tl::unexpected(std::move(memory).error());
  return std::unique_ptr<Board>(new Board(*std::move(memory), control, local));
}

}  // namespace tutti
