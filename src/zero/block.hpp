// SPDX-License-Identifier: Apache-2.0
// Zeroed memory of the engine, whole pages. Move-only.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <utility>

namespace tutti::zero {

class Block {
 public:
  Block() = default;
  // Throws std::system_error if there is no memory. 0 bytes: no memory.
  explicit Block(std::uint64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* const made =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
      throw std::system_error(errno, std::generic_category(),
                              "cannot allocate " + std::to_string(bytes) + " bytes");
    data_ = static_cast<std::byte*>(made);
    // Fewer page faults on the first pass; what the kernel makes of it does not matter.
    static_cast<void>(madvise(made, bytes, MADV_HUGEPAGE));
  }
  Block(Block&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(data_); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// NaN in each type of Number: found by whoever uses memory after it was given back.
inline constexpr int kPoisonByte = 0xFF;

}  // namespace tutti::zero
