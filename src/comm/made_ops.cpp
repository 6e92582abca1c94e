// SPDX-License-Identifier: Apache-2.0
#include "comm/made_ops.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/reduce_copy.hpp"

namespace tutti {

int MadeOps::add(const PreMulSum& op) {
  static std::atomic<int> next{0};
  const int number = next.fetch_add(1, std::memory_order_relaxed);  // guards nothing
  const std::lock_guard lock(mutex_);
  ops_.emplace(number, op);
  return number;
}

bool MadeOps::remove(int number) {
  const std::lock_guard lock(mutex_);
  return ops_.erase(number) != 0;
}

std::optional<PreMulSum> MadeOps::find(int number) const {
  const std::lock_guard lock(mutex_);
  const auto found = ops_.find(number);
  return found == ops_.end() ? std::nullopt : std::optional(found->second);
}

// By the kernel of products, whose other source is a piece that holds nothing but the scalar.
std::shared_ptr<const std::byte> scaled(const PreMulSum& op, const void* input,
                                        std::uint64_t count) {
  constexpr std::uint64_t kPieceElements = 1024;
  const std::size_t bytes_each = element_bytes(op.type);
  std::vector<std::byte> scalars(std::min(count, kPieceElements) * bytes_each);
  for (std::size_t at = 0; at < scalars.size(); at += bytes_each)
    std::memcpy(&scalars[at], op.scalar.data(), bytes_each);
  std::shared_ptr<std::byte[]> result(new std::byte[count * bytes_each]);
  const ReduceCopyFn multiply = reduce_copy_kernel(op.type, ReduceOp::kProd);
  for (std::uint64_t begin = 0; begin < count; begin += kPieceElements) {
    const void* const sources[] = {static_cast<const std::byte*>(input) + begin * bytes_each,
                                   scalars.data()};
    void* const destination = result.get() + begin * bytes_each;
    multiply({.sources = sources,
              .source_count = 2,
              .destinations = &destination,
              .destination_count = 1,
              .elements = std::min(count - begin, kPieceElements)});
  }
  return {result, result.get()};
}

}  // namespace tutti
