// SPDX-License-Identifier: Apache-2.0
#include "comm/made_ops.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/reduce_copy.hpp"

namespace tutti {

int MadeOps::add(const MadeOp& op) {
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

std::optional<MadeOp> MadeOps::find(int number) const {
  const std::lock_guard lock(mutex_);
  const auto found = ops_.find(number);
  return found == ops_.end() ? std::nullopt : std::optional(found->second);
}

namespace {

// By the kernel of products, whose other source is a piece that holds nothing but the scalar.
class Scaler {
 public:
  Scaler(const PreMulSum& op, std::uint64_t most)
      : bytes_each_(element_bytes(op.type)),
        multiply_(reduce_copy_kernel(op.type, ReduceOp::kProd)),
        scalars_(std::min(most, kPieceElements) * bytes_each_) {
    for (std::size_t at = 0; at < scalars_.size(); at += bytes_each_)
      std::memcpy(&scalars_[at], op.scalar.data(), bytes_each_);
  }
  // At most as many elements as the constructor was told.
  void run(const void* from, std::byte* to, std::uint64_t count) const {
    for (std::uint64_t begin = 0; begin < count; begin += kPieceElements) {
      const void* const sources[] = {static_cast<const std::byte*>(from) + begin * bytes_each_,
                                     scalars_.data()};
      void* const destination = to + begin * bytes_each_;
      multiply_({.sources = sources,
                 .source_count = 2,
                 .destinations = &destination,
                 .destination_count = 1,
                 .elements = std::min(count - begin, kPieceElements)});
    }
  }

 private:
  static constexpr std::uint64_t kPieceElements = 1024;
  const std::size_t bytes_each_;
  const ReduceCopyFn multiply_;
  std::vector<std::byte> scalars_;
};

}  // namespace

void scale(const PreMulSum& op, void* data, std::uint64_t count) {
  Scaler(op, count).run(data, static_cast<std::byte*>(data), count);
}

std::shared_ptr<const std::byte> scaled(const PreMulSum& op, const void* input,
                                        std::uint64_t count) {
  std::shared_ptr<std::byte[]> result(new std::byte[count * element_bytes(op.type)]);
  Scaler(op, count).run(input, result.get(), count);
  return {result, result.get()};
}

std::shared_ptr<const std::byte> scaled(const PreMulSum& op, const void* input,
                                        const BlockSizes& sizes) {
  const std::size_t bytes_each = element_bytes(op.type);
  std::shared_ptr<std::byte[]> result(new std::byte[sizes.total() * bytes_each]);
  const Scaler scaler(op, sizes.largest());
  std::byte* to = result.get();
  for (std::size_t i = 0; i < sizes.counts.size(); ++i) {
    scaler.run(static_cast<const std::byte*>(input) + sizes.begins[i] * bytes_each, to,
               sizes.counts[i]);
    to += sizes.counts[i] * bytes_each;
  }
  return {result, result.get()};
}

}  // namespace tutti
