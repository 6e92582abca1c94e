// SPDX-License-Identifier: Apache-2.0
#include "comm/made_ops.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/reduce_copy.hpp"

namespace tutti {

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
