// SPDX-License-Identifier: Apache-2.0
// Windows: memory that all ranks of a communicator register together, so that ranks in other
// processes of the host use it by plain loads and stores.
//
// Each rank lends the descriptor of the shared file behind its part; the others map it: a symmetric
// one to read and write, another one to read. A mapping stays good whatever its owner does, so a
// peer's word can at worst lead to wrong bytes inside its own windows, and what is read counts only
// if its call record still stands afterwards (peer_memory.hpp). One user thread at a time; the
// service thread lends.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "control/control_plane.hpp"
#include "exec/allocation.hpp"
#include "exec/peer_windows.hpp"

namespace tutti {

struct WindowRequest {
  std::uint64_t id = 0;  // from new_window_id()
  void* memory = nullptr;
  std::uint64_t bytes = 0;
  bool symmetric = false;  // collectives may take it that all ranks' buffers lie in windows
};
// Never 0, never the same twice in a process.
[[nodiscard]] std::uint64_t new_window_id();

class WindowTable {
 public:
  // Begins to lend; `control` outlives the object.
  explicit WindowTable(ControlPlane& control);

  // Collective, in the same order on all ranks. The outer error: the exchange broke down, and the
  // ranks may not agree. The inner one: refused, on all ranks alike, and nothing has changed;
  // kInvalidArgument for memory that is not aligned or not from tuttiMemAlloc, kInvalidUsage where
  // another rank's part is not, or the flags differ.
  [[nodiscard]] Result<Status> add(const WindowRequest& request, Deadline deadline);
  // Removes the window on this rank only: its calls no longer treat the memory as a window.
  // kInvalidArgument if there is none with this id.
  [[nodiscard]] Status remove(std::uint64_t id);

  // Does all of the memory lie in a symmetric window?
  [[nodiscard]] bool cover(const void* memory, std::uint64_t bytes) const;
  [[nodiscard]] bool empty() const { return windows_.empty(); }
  // Valid as long as the table; changes with add() and remove().
  [[nodiscard]] const PeerWindows& of(Rank peer) const {
    return peers_[static_cast<std::size_t>(peer)];
  }
  [[nodiscard]] std::uint64_t mapped_bytes() const;

 private:
  struct Window {
    WindowRequest request;
    std::shared_ptr<const Allocation> allocation;
  };
  // Holds what a rank tells about its part.
  struct Part {
    std::uint64_t address = 0, bytes = 0, offset = 0, file_bytes = 0;
    std::uint32_t symmetric = 0, refused = 0;
  };
  class Lender;

  [[nodiscard]] Result<Part> own_part(const WindowRequest& request,
                                      const std::shared_ptr<const Allocation>& allocation) const;
  [[nodiscard]] Status agree(const Result<Part>& own, const std::vector<Part>& parts) const;
  [[nodiscard]] Result<Mapping> map(Rank peer, const Part& part, Deadline deadline);
  [[nodiscard]] Result<std::vector<Mapping>> map_all(const std::vector<Part>& parts,
                                                     Deadline deadline);

  ControlPlane& control_;
  std::shared_ptr<Lender> lender_;
  std::vector<Window> windows_;
  std::vector<PeerWindows> peers_;  // by rank; of ranks of this process: empty
};

}  // namespace tutti
