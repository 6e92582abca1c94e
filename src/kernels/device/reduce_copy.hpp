// SPDX-License-Identifier: Apache-2.0
// destinations <- reduce(sources) by the threads of a block, one source for host and device: the
// hot loop of every step. Reads each source once, writes each destination once, folds the sources
// in the order given.
//
// Where all pointers agree modulo 16 bytes, the elements before and after the 16-byte aligned
// middle go one by one and the middle in 16-byte accesses, 8 of them in flight per thread (copies
// and two sources; 10 with more). Otherwise accesses are 8 or 4 bytes wide, as far as the pointers
// agree, or of one element.
//
// A thread stores an element after it has loaded it from every source, and no other thread touches
// it: a destination may equal a source. No barrier inside; the caller has acquired what says that
// the sources are there, and releases the destinations after all threads are done.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/accumulate.hpp"

namespace tutti::device {

// The operands of one call. The arrays may lie in any memory; elements in global memory, aligned to
// their size.
struct DeviceReduceCopy {
  const void* const* sources = nullptr;
  void* const* destinations = nullptr;
  std::uint32_t source_count = 0;       // >= 1
  std::uint32_t destination_count = 0;  // >= 1
  std::uint64_t elements = 0;
  std::uint32_t average_over = 0;  // divide the sum by this once; 0 or 1: do not. Sums only.
};

// This thread's place among those that share a call: index < count, count a multiple of kLanes,
// the number of neighbours that access memory together (a warp).
template <int kLanesTogether>
struct Threads {
  static constexpr std::uint32_t kLanes = kLanesTogether;
  std::uint32_t index = 0;
  std::uint32_t count = 1;
};
using BlockThreads = Threads<32>;
using HostThreads = Threads<1>;

// ---- where a thread's accesses of one batch lie: at(u) bytes from the operand's start ----------

// All are there, kStride bytes apart: the compiler puts them into the instructions' offsets.
template <std::uint64_t kStride>
struct FullBatch {
  std::uint64_t first;
  TUTTI_HD_INLINE std::uint64_t at(int u) const {
    return first + static_cast<std::uint64_t>(u) * kStride;
  }
  TUTTI_HD_INLINE bool has(int) const { return true; }
};
// Those before `end`.
struct LastBatch {
  std::uint64_t first;
  std::uint64_t stride;
  std::uint64_t end;
  TUTTI_HD_INLINE std::uint64_t at(int u) const {
    return first + static_cast<std::uint64_t>(u) * stride;
  }
  TUTTI_HD_INLINE bool has(int u) const { return at(u) < end; }
};

template <int kAccessBytes, int kUnits, class Batch>
TUTTI_HD_INLINE void load_batch(const Batch& batch, const void* source,
                                Register<kAccessBytes> (&into)[kUnits]) {
  const auto* from = static_cast<const std::byte*>(source);
  TUTTI_UNROLL
  for (int u = 0; u < kUnits; ++u)
    if (batch.has(u)) into[u] = load_bits<kAccessBytes>(from + batch.at(u));
}

template <int kAccessBytes, int kUnits, class Batch>
TUTTI_HD_INLINE void store_batch(const Batch& batch, void* destination,
                                 const Register<kAccessBytes> (&from)[kUnits]) {
  auto* to = static_cast<std::byte*>(destination);
  TUTTI_UNROLL
  for (int u = 0; u < kUnits; ++u)
    if (batch.has(u)) store_bits<kAccessBytes>(to + batch.at(u), from[u]);
}

// ---- what is done with a batch
// -------------------------------------------------------------------

// One source, nothing to compute.
struct Copying {
  static constexpr int kUnits = 8;
  DeviceReduceCopy call;
  const void* source;

  template <int kAccessBytes, class Batch>
  TUTTI_HD_INLINE void run(const Batch& batch) const {
    Register<kAccessBytes> bits[kUnits] = {};
    load_batch<kAccessBytes>(batch, source, bits);
    TUTTI_NO_UNROLL
    for (std::uint32_t m = 0; m < call.destination_count; ++m)
      store_batch<kAccessBytes>(batch, call.destinations[m], bits);
  }
};

template <class Fold>
inline constexpr bool kWidensFourfold = sizeof(typename Fold::template Accumulator<16>) >= 64;
// Before sm_89 fp8 is converted by instructions of its own, which need registers: fewer loads fit.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
template <class Fold>
inline constexpr bool kConvertsByCode = Fold::kElementBytes == 1 &&
                                        sizeof(typename Fold::template Accumulator<16>) > 16;
#else
template <class Fold>
inline constexpr bool kConvertsByCode = false;
#endif

// Two sources, one or two destinations, no average: pointers in registers.
template <class Fold>
struct FoldingTwo {
  static constexpr int kUnits = kConvertsByCode<Fold> ? 2 : 4;
  const void* one;
  const void* other;
  void* destination;
  void* second_destination;  // or nullptr

  template <int kAccessBytes, class Batch>
  TUTTI_HD_INLINE void run(const Batch& batch) const {
    Register<kAccessBytes> bits[kUnits] = {}, next[kUnits] = {};
    load_batch<kAccessBytes>(batch, one, bits);
    load_batch<kAccessBytes>(batch, other, next);
    TUTTI_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      auto value = Fold::load(bits[u]);
      Fold::fold(value, next[u]);
      bits[u] = Fold::store(value, 0);
    }
    store_batch<kAccessBytes>(batch, destination, bits);
    if (second_destination != nullptr) store_batch<kAccessBytes>(batch, second_destination, bits);
  }
};

// Any counts. The loads of several sources are issued together, then folded in their order.
template <class Fold>
struct FoldingAny {
  static constexpr int kUnits = 2;
  static constexpr std::uint32_t kTogether = kWidensFourfold<Fold> && kConvertsByCode<Fold> ? 2 : 4;
  DeviceReduceCopy call;

  template <int kAccessBytes, class Batch>
  TUTTI_HD_INLINE void run(const Batch& batch) const {
    constexpr int kBytes = sizeof(Register<kAccessBytes>);
    typename Fold::template Accumulator<kBytes> values[kUnits] = {};
    TUTTI_NO_UNROLL
    for (std::uint32_t k = 0; k < call.source_count; k += kTogether) {
      Register<kAccessBytes> bits[kTogether][kUnits] = {};
      TUTTI_UNROLL
      for (std::uint32_t j = 0; j < kTogether; ++j)
        if (k + j < call.source_count)
          load_batch<kAccessBytes>(batch, call.sources[k + j], bits[j]);
      TUTTI_UNROLL
      for (std::uint32_t j = 0; j < kTogether; ++j) {
        if (k + j >= call.source_count) break;
        TUTTI_UNROLL
        for (int u = 0; u < kUnits; ++u) {
          if (j == 0 && k == 0)
            values[u] = Fold::load(bits[j][u]);
          else
            Fold::fold(values[u], bits[j][u]);
        }
      }
    }
    Register<kAccessBytes> result[kUnits];
    TUTTI_UNROLL
    for (int u = 0; u < kUnits; ++u) result[u] = Fold::store(values[u], call.average_over);
    TUTTI_NO_UNROLL
    for (std::uint32_t m = 0; m < call.destination_count; ++m)
      store_batch<kAccessBytes>(batch, call.destinations[m], result);
  }
};

// ---- which bytes are whose -------------------------------------------------------------------

// Bytes [first, end), a multiple of kAccessBytes: in rounds, where each warp takes kUnits * kLanes
// neighbours; and a last one, spread over all threads, so that it too has one latency.
template <int kAccessBytes, class Threads, class Work>
TUTTI_HD_INLINE void sweep(const Threads& threads, std::uint64_t first, std::uint64_t end,
                           const Work& work) {
  constexpr std::uint64_t kStride = std::uint64_t{kAccessBytes} * Threads::kLanes;
  const std::uint64_t all_stride = std::uint64_t{kAccessBytes} * threads.count;
  const std::uint64_t round = all_stride * Work::kUnits;
  const std::uint32_t lane = threads.index % Threads::kLanes;
  const std::uint32_t warp = threads.index / Threads::kLanes;
  const std::uint64_t mine = warp * (kStride * Work::kUnits) + lane * kAccessBytes;
  TUTTI_NO_UNROLL
  for (; first + round <= end; first += round)
    work.template run<kAccessBytes>(FullBatch<kStride>{first + mine});
  if (first < end)
    work.template run<kAccessBytes>(
        LastBatch{first + std::uint64_t{kAccessBytes} * threads.index, all_stride, end});
}

// The bits in which the operands' addresses differ.
TUTTI_HD_INLINE std::uint32_t misalignment(const DeviceReduceCopy& call) {
  const auto address = [](const void* operand) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(operand));
  };
  const std::uint32_t first = address(call.sources[0]);
  std::uint32_t differs = 0;
  for (std::uint32_t k = 1; k < call.source_count; ++k) differs |= address(call.sources[k]) ^ first;
  for (std::uint32_t m = 0; m < call.destination_count; ++m)
    differs |= address(call.destinations[m]) ^ first;
  return differs;
}

// Bytes of `total` before the first multiple of kAccessBytes.
TUTTI_HD_INLINE std::uint64_t head_bytes(const void* operand, std::uint32_t access_bytes,
                                         std::uint64_t total) {
  const auto address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(operand));
  const std::uint64_t head = (0u - address) & (access_bytes - 1);
  return head < total ? head : total;
}

// The middle in accesses of kAccessBytes by `wide`; true if that is all there is to do.
struct Ends {
  std::uint64_t head;  // bytes [0, head) and [tail, total) remain
  std::uint64_t tail;
};
template <int kAccessBytes, class Threads, class Work>
TUTTI_HD_INLINE Ends sweep_middle(const Threads& threads, const void* operand, std::uint64_t total,
                                  const Work& work) {
  const std::uint64_t head = head_bytes(operand, kAccessBytes, total);
  const std::uint64_t tail = head + ((total - head) & ~std::uint64_t{kAccessBytes - 1});
  sweep<kAccessBytes>(threads, head, tail, work);
  return {head, tail};
}

// Handles the elements at both ends one by one, or all of them if no wider access fits.
template <int kAccessBytes, class Threads, class Work>
TUTTI_HD_INLINE void sweep_ends(const Threads& threads, const Ends& ends, std::uint64_t total,
                                const Work& work) {
  if (ends.head == 0 && ends.tail == total) return;
  TUTTI_NO_UNROLL
  for (int side = 0; side < 2; ++side)
    sweep<kAccessBytes>(threads, side == 0 ? 0 : ends.tail, side == 0 ? ends.head : total, work);
}

// ---- the two entries --------------------------------------------------------------------------

// One source, no average, any type. Every thread of `threads` calls it with the same `call`.
template <class Threads>
TUTTI_HD void copy(const Threads& threads, const DeviceReduceCopy& call,
                   std::uint32_t element_bytes) {
  compiler_fence();
  const Copying work{call, call.sources[0]};
  const std::uint64_t total = call.elements * element_bytes;
  const std::uint32_t differs = misalignment(call);
  Ends ends{0, 0};
  if ((differs & 15) == 0)
    ends = sweep_middle<16>(threads, work.source, total, work);
  else if ((differs & 7) == 0)
    ends = sweep_middle<8>(threads, work.source, total, work);
  else if ((differs & 3) == 0)
    ends = sweep_middle<4>(threads, work.source, total, work);
  sweep_ends<1>(threads, ends, total, work);
  compiler_fence();
}

// Any counts but the plain copy's, which it would round (a signalling NaN would not stay one).
template <class Fold, class Threads>
TUTTI_HD void reduce_copy(const Threads& threads, const DeviceReduceCopy& call) {
  compiler_fence();
  constexpr int kElement = Fold::kElementBytes;
  constexpr int kNarrow = kElement < 4 ? 4 : kElement;
  const FoldingAny<Fold> any{call};
  const std::uint64_t total = call.elements * kElement;
  const std::uint32_t differs = misalignment(call);
  Ends ends{0, 0};
  if ((differs & 15) == 0) {
    if (call.source_count == 2 && call.destination_count <= 2 && call.average_over <= 1) {
      const FoldingTwo<Fold> two{call.sources[0], call.sources[1], call.destinations[0],
                                 call.destination_count == 2 ? call.destinations[1] : nullptr};
      ends = sweep_middle<16>(threads, call.sources[0], total, two);
    } else {
      ends = sweep_middle<16>(threads, call.sources[0], total, any);
    }
  } else if (kNarrow > kElement && differs % kNarrow == 0) {
    ends = sweep_middle<kNarrow>(threads, call.sources[0], total, any);
  }
  sweep_ends<kElement>(threads, ends, total, any);
  compiler_fence();
}

// ---- the same as functions of their own -------------------------------------------------------

// For a kernel that holds much else and calls them once a piece, from several places: inlined, they
// take their registers beside all of the caller's (8-bit sums spilled in the interpreter) and their
// text at every call. Arguments by value: what a reference names has to lie in memory.
template <class Threads>
TUTTI_HD_COLD void copy_apart(const Threads threads, const DeviceReduceCopy call,
                              std::uint32_t element_bytes) {
  copy(threads, call, element_bytes);
}

template <class Fold, class Threads>
TUTTI_HD_COLD void reduce_copy_apart(const Threads threads, const DeviceReduceCopy call) {
  reduce_copy<Fold>(threads, call);
}

}  // namespace tutti::device
