// SPDX-License-Identifier: Apache-2.0
#include "comm/fp32_partials.hpp"

#include <cstring>
#include <utility>

#include "comm/made_ops.hpp"
#include "kernels/reduce_copy.hpp"

namespace tutti {

bool rounds_partials(const Call& call) {
  using enum ReduceOp;
  const bool adds = call.op == kSum || call.op == kAvg || call.op == kProd;
  return call.info().reduces() && adds && conversion_of(call.type).widen != nullptr;
}

// What reduces has the whole data as its input, on every rank.
Fp32Partials::Fp32Partials(Call& call, Rank rank, std::int32_t ranks, CallMemory& kept)
    : kept_(kept),
      memory_(CallMemory::take(kept, call.elements(ranks) * sizeof(float))),
      as_called_(call),
      rank_(rank),
      ranks_(ranks) {
  widen(call);
  if (call.sizes != nullptr)  // the copy has the blocks one behind the other
    call.sizes = std::make_shared<const BlockSizes>(call.sizes->counts);
  const bool own_block = call.info().output.extent == Extent::kOwnBlock;
  const std::uint64_t own = call.sizes != nullptr ? call.sizes->begin(rank)
                                                  : call.count * static_cast<std::uint64_t>(rank);
  float* const data = floats();
  if (call.has_output(rank)) result_ = data + (own_block ? own : 0);
  if (call.pre_multiplied) {
    PreMulSum op{.type = DataType::kFloat32};
    float scalar = 0;
    conversion_of(call.type).widen(call.pre_multiplied->scalar.data(), &scalar, 1);
    std::memcpy(op.scalar.data(), &scalar, sizeof scalar);
    scale(op, data, call.elements(ranks));
    call.pre_multiplied.reset();
  }
  call.input = data;
  call.output = result_;
  call.type = DataType::kFloat32;
}

void Fp32Partials::widen(const Call& call) {
  const FloatConversion conversion = conversion_of(call.type);
  if (call.sizes == nullptr) {
    conversion.widen(call.input, floats(), call.elements(ranks_));
    return;
  }
  const auto* const from = static_cast<const std::byte*>(call.input);
  float* to = floats();
  for (std::size_t block = 0; block < call.sizes->counts.size(); ++block) {
    conversion.widen(from + call.sizes->begins[block] * element_bytes(call.type), to,
                     call.sizes->counts[block]);
    to += call.sizes->counts[block];
  }
}

void Fp32Partials::finish() {
  if (result_ != nullptr) {
    const std::uint64_t bytes = as_called_.output_bytes(rank_, ranks_);
    conversion_of(as_called_.type)
        .narrow(result_, as_called_.output, bytes / element_bytes(as_called_.type));
  }
  kept_ = std::move(memory_);
}

}  // namespace tutti
