// SPDX-License-Identifier: Apache-2.0
#include "board/board_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

#include "base/clock.hpp"
#include "base/host.hpp"
#include "base/shared_file.hpp"

namespace tutti::control {

BoardHeader make_board_header(const BoardName& name, std::size_t blocks) {
  BoardHeader header{};
  header.magic = kBoardMagic;
  header.layout = kBoardLayout;
  header.blocks = static_cast<std::uint32_t>(blocks);
  header.ranks = static_cast<std::uint32_t>(name.ranks);
  header.remembered = kRememberedOperations;
  header.session = name.session;
  header.boot = boot_identity();
  header.made_monotonic_ns = now_ns();
  header.made_realtime_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count();
  std::copy_n(name.host.data(), std::min(name.host.size(), header.host.size()), header.host.data());
  return header;
}

std::shared_ptr<BoardMemory> BoardMemory::alone() {
  const std::size_t bytes = board_bytes(1);
  auto* base = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kCacheLineBytes}));
  std::memset(base, 0, bytes);
  return std::shared_ptr<BoardMemory>(new BoardMemory(base, bytes, false, ProcessFd()));
}

Result<std::shared_ptr<BoardMemory>> BoardMemory::map(int fd, std::size_t ranks) {
  const std::size_t bytes = board_bytes(ranks);
  if (is_flight_file(fd)) {
    TUTTI_TRY(check_flight_file(fd, bytes));
  } else {
    TUTTI_TRY(check_shared_file(fd, "board", bytes));
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return errno_error("cannot map the status page", errno);
  // Without one the job runs as well, it is only harder to watch.
  ProcessFd kept = ProcessFd::from([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); });
  return std::shared_ptr<BoardMemory>(
      new BoardMemory(static_cast<std::byte*>(base), bytes, true, std::move(kept)));
}

BoardMemory::~BoardMemory() {
  if (mapped_) {
    ::munmap(base_, bytes_);
  } else {
    ::operator delete (base_, std::align_val_t{kCacheLineBytes});
  }
}

}  // namespace tutti::control
