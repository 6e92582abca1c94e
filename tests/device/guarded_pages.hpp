// SPDX-License-Identifier: Apache-2.0
// Zeroed memory between two pages that nobody may touch. The kernel zeroes a page when it is first
// touched, so a sanitizer needs no shadow for pages that never are.
#pragma once

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <new>

namespace tutti::test {

class GuardedPages {
 public:
  explicit GuardedPages(std::size_t bytes)
      : base_(::mmap(nullptr, whole(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
              Unmap{whole(bytes)}) {
    if (base_.get() == MAP_FAILED) {
      static_cast<void>(base_.release());
      throw std::bad_alloc();
    }
    const std::size_t inside = whole(bytes) - 2 * page();
    if (::mprotect(data(), inside, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    ASAN_POISON_MEMORY_REGION(data() + bytes, inside - bytes);
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(base_.get()) + page(); }

 private:
  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  static std::size_t whole(std::size_t bytes) {
    return (bytes + page() - 1) / page() * page() + 2 * page();
  }
  struct Unmap {
    std::size_t bytes;
    void operator()(void* base) const {
      ASAN_UNPOISON_MEMORY_REGION(base, bytes);
      ::munmap(base, bytes);
    }
  };
  std::unique_ptr<void, Unmap> base_;
};

}  // namespace tutti::test
