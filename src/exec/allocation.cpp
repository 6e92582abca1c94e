// SPDX-License-Identifier: Apache-2.0
#include "exec/allocation.hpp"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "base/shared_file.hpp"

namespace tutti {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::uintptr_t, std::shared_ptr<const Allocation>> by_address;  // guarded by mutex
};

Registry& registry() {
  static auto* const instance = new Registry;  // never destroyed: ranks may outlive main
  return *instance;
}

std::uintptr_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

}  // namespace

Result<Mapping> Mapping::of(int fd, std::uint64_t offset, std::uint64_t bytes, int protection) {
  Mapping mapping;
  mapping.lead_ = offset % static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  mapping.mapped_bytes_ = mapping.lead_ + bytes;
  void* const pages = ::mmap(nullptr, mapping.mapped_bytes_, protection, MAP_SHARED, fd,
                             static_cast<off_t>(offset - mapping.lead_));
  if (pages == MAP_FAILED)
    return errno_error(fmt::format("cannot map {} bytes of shared memory", bytes), errno);
  mapping.pages_ = static_cast<std::byte*>(pages);
  // Fewer, larger pages where the machine gives them to shared memory; refused elsewhere.
  ::madvise(pages, mapping.mapped_bytes_, MADV_HUGEPAGE);
  return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept
    : pages_(std::exchange(other.pages_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      lead_(other.lead_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(pages_, other.pages_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(lead_, other.lead_);
  return *this;
}

Mapping::~Mapping() {
  if (pages_ != nullptr) ::munmap(pages_, mapped_bytes_);
}

Result<void*> allocate(std::uint64_t bytes) {
  Allocation allocation;
  TUTTI_TRY_ASSIGN(allocation.file, make_shared_file("memory", bytes));
  TUTTI_TRY_ASSIGN(allocation.memory,
                   Mapping::of(allocation.file.get(), 0, bytes, PROT_READ | PROT_WRITE));
  void* const memory = allocation.memory.data();
  const std::lock_guard lock(registry().mutex);
  registry().by_address.emplace(address_of(memory),
                                std::make_shared<const Allocation>(std::move(allocation)));
  return memory;
}

Status free_allocation(void* memory) {
  std::shared_ptr<const Allocation> last;  // unmapped after the lock is given back
  const std::lock_guard lock(registry().mutex);
  auto& by_address = registry().by_address;
  const auto found = by_address.find(address_of(memory));
  if (found == by_address.end())
    return make_error(Code::kInvalidArgument, "the pointer is not from tuttiMemAlloc");
  // Copies are handed out under the lock only, so none can come now.
  if (found->second.use_count() > 1)
    return make_error(Code::kInvalidUsage,
                      "the memory is part of a window; call tuttiCommWindowDeregister first");
  last = std::move(found->second);
  by_address.erase(found);
  return {};
}

std::shared_ptr<const Allocation> find_allocation(const void* memory, std::uint64_t bytes) {
  const std::lock_guard lock(registry().mutex);
  const auto& by_address = registry().by_address;
  auto found = by_address.upper_bound(address_of(memory));
  if (found == by_address.begin()) return nullptr;
  --found;
  const std::uint64_t before = address_of(memory) - found->first;
  const std::uint64_t all = found->second->memory.bytes();
  return before <= all && bytes <= all - before ? found->second : nullptr;
}

}  // namespace tutti
