// SPDX-License-Identifier: Apache-2.0
#include "common/memory.hpp"

#include <sys/mman.h>

#include <cstring>

namespace tutti::perf {
namespace {

class PrivatePages : public PageSource {
 public:
  void* allocate(std::size_t bytes) const override {
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
  }
  void release(void* memory, std::size_t bytes) const override { ::munmap(memory, bytes); }
};

}  // namespace

void PageSource::read(std::byte* to, const std::byte* from, std::size_t bytes) const {
  std::memcpy(to, from, bytes);
}
void PageSource::write(std::byte* to, const std::byte* from, std::size_t bytes) const {
  std::memcpy(to, from, bytes);
}
void PageSource::copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
  std::memcpy(to, from, bytes);
}

const PageSource& private_pages() {
  static const PrivatePages source;
  return source;
}

}  // namespace tutti::perf
