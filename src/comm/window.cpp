// SPDX-License-Identifier: Apache-2.0
#include "comm/window.hpp"

#include <fmt/core.h>
#include <sys/mman.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/shared_file.hpp"
#include "board/faults.hpp"

namespace tutti {
namespace {

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

}  // namespace

std::uint64_t new_window_id() {
  static std::atomic<std::uint64_t> last{0};  // relaxed: only to differ
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Holds the file of the part that is being registered, which the service thread hands out.
class WindowTable::Lender {
 public:
  void lend(std::shared_ptr<const Allocation> allocation) {
    const std::lock_guard lock(mutex_);
    lent_ = std::move(allocation);
  }
  Result<HandlerReply> answer() {
    const std::lock_guard lock(mutex_);
    if (lent_ == nullptr)
      return make_error(Code::kInvalidUsage, "this rank is not registering a window");
    return HandlerReply{.payload = {}, .lent_fd = lent_->file.get(), .keep = lent_};
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const Allocation> lent_;  // guarded by mutex_
};

WindowTable::WindowTable(ControlPlane& control)
    : control_(control), lender_(std::make_shared<Lender>()), peers_(control.peers().size()) {
  const std::vector<PeerInfo>& peers = control.peers();
  const std::uint64_t host = peers[static_cast<std::size_t>(control.rank())].host_id;
  control_.serve(RequestKind::kWindow, [lender = lender_, peers, host](const Request& request) {
    if (peers[static_cast<std::size_t>(request.from)].host_id != host)
      return Result<HandlerReply>(
          make_error(Code::kInvalidUsage, "windows are only for ranks of one host"));
    return lender->answer();
  });
}

Result<WindowTable::Part> WindowTable::own_part(
    const WindowRequest& request, const std::shared_ptr<const Allocation>& allocation) const {
  const std::uint64_t address = address_of(request.memory);
  if (address % TUTTI_WIN_REQUIRED_ALIGNMENT != 0)
    return make_error(Code::kInvalidArgument, fmt::format("the window's memory is not aligned to "
                                                          "{} bytes",
                                                          TUTTI_WIN_REQUIRED_ALIGNMENT));
  if (request.bytes == 0)
    return make_error(Code::kInvalidArgument, "the window has 0 bytes; pass a larger size");
  if (allocation == nullptr)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("the window's {} bytes do not all come from one tuttiMemAlloc", request.bytes));
  return Part{.address = address,
              .bytes = request.bytes,
              .offset = address - address_of(allocation->memory.data()),
              .file_bytes = allocation->memory.bytes(),
              .symmetric = request.symmetric ? 1U : 0U,
              .refused = 0};
}

// Equal on all ranks but for whose error it is.
Status WindowTable::agree(const Result<Part>& own, const std::vector<Part>& parts) const {
  if (!own) return tl::unexpected(own.error());
  const auto refused = std::ranges::find_if(parts, [](const Part& part) { return part.refused; });
  if (refused != parts.end()) {
    const auto rank = static_cast<Rank>(refused - parts.begin());
    return make_error(
        Code::kInvalidUsage,
        fmt::format("{} could not register its part of the window; its own error message says why",
                    describe_rank(control_.peers(), rank)),
        rank);
  }
  const auto other = std::ranges::find_if(
      parts, [&](const Part& part) { return part.symmetric != parts.front().symmetric; });
  if (other == parts.end()) return {};
  const auto rank = static_cast<Rank>(other - parts.begin());
  return make_error(
      Code::kInvalidUsage,
      fmt::format("{} and {} registered a window with different flags",
                  describe_rank(control_.peers(), 0), describe_rank(control_.peers(), rank)),
      rank);
}

Result<Mapping> WindowTable::map(Rank peer, const Part& part, Deadline deadline) {
  if (!lies_in(part.offset, part.bytes, 0, part.file_bytes))
    return make_error(Code::kRemoteError,
                      "a peer's part of a window lies outside its file; start all ranks with the "
                      "same version of Tutti",
                      peer);
  TUTTI_TRY_ASSIGN(const Reply reply, control_.call(peer, RequestKind::kWindow, {}, deadline));
  TUTTI_TRY(check_shared_file(reply.fd.get(), "window", part.file_bytes));
  const int protection = part.symmetric != 0 ? PROT_READ | PROT_WRITE : PROT_READ;
  return Mapping::of(reply.fd.get(), part.offset, part.bytes, protection);
}

// Empty mappings for the ranks of this process.
Result<std::vector<Mapping>> WindowTable::map_all(const std::vector<Part>& parts,
                                                  Deadline deadline) {
  const std::vector<PeerInfo>& peers = control_.peers();
  const std::uint64_t own = peers[static_cast<std::size_t>(control_.rank())].process_token;
  std::vector<Mapping> mappings(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (peers[i].process_token != own) {
      TUTTI_TRY_ASSIGN(mappings[i], map(peers[i].rank, parts[i], deadline));
    }
  return mappings;
}

Result<Status> WindowTable::add(const WindowRequest& request, Deadline deadline) {
  Window window{request, find_allocation(request.memory, request.bytes)};
  const Result<Part> own = own_part(request, window.allocation);
  if (own) lender_->lend(window.allocation);
  const struct Withdraw {
    Lender& lender;
    ~Withdraw() { lender.lend(nullptr); }
  } at_the_end{*lender_};
  TUTTI_TRY_ASSIGN(const std::vector<Part> parts,
                   control_.allgather_values(own.value_or(Part{.refused = 1}), deadline));
  if (Status agreed = agree(own, parts); !agreed) return agreed;
  Result<std::vector<Mapping>> mappings = map_all(parts, deadline);
  // All have what they need of each other, or nobody has the window.
  Part outcome = *own;
  outcome.refused = mappings ? 0U : 1U;
  TUTTI_TRY_ASSIGN(const std::vector<Part> outcomes, control_.allgather_values(outcome, deadline));
  if (!mappings) return Status(tl::unexpected(std::move(mappings).error()));
  if (Status agreed = agree(own, outcomes); !agreed) return agreed;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if ((*mappings)[i].bytes() > 0)
      peers_[i].push_back({.id = request.id,
                           .address = parts[i].address,
                           .writable = parts[i].symmetric != 0,
                           .memory = std::move((*mappings)[i])});
  windows_.push_back(std::move(window));
  return Status();
}

Status WindowTable::remove(std::uint64_t id) {
  const auto found =
      std::ranges::find_if(windows_, [&](const Window& w) { return w.request.id == id; });
  if (found == windows_.end())
    return make_error(Code::kInvalidArgument, "this communicator has no such window");
  for (PeerWindows& parts : peers_)
    std::erase_if(parts, [&](const PeerWindow& part) { return part.id == id; });
  windows_.erase(found);
  return {};
}

bool WindowTable::cover(const void* memory, std::uint64_t bytes) const {
  return std::ranges::any_of(windows_, [&](const Window& window) {
    return window.request.symmetric &&
           lies_in(address_of(memory), bytes, address_of(window.request.memory),
                   window.request.bytes);
  });
}

std::uint64_t WindowTable::mapped_bytes() const {
  std::uint64_t bytes = 0;
  for (const PeerWindows& windows : peers_)
    for (const PeerWindow& window : windows) bytes += window.memory.bytes();
  return bytes;
}

}  // namespace tutti
