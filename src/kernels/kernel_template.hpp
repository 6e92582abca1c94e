// SPDX-License-Identifier: Apache-2.0
// The kernels, as one source for every instruction set. Included exactly once by each
// kernels_<isa>.cpp, which says how wide a vector is and how its lookup function is called.
//
// Invariants, also of kernel_packs.hpp and kernel_types.hpp:
// * Same bits everywhere: one IEEE operation per source in the order given, no contraction, and
//   every NaN result is the canonical quiet NaN (processors and compilers disagree on the payload).
// * Element i of every destination is stored after element i of every source was loaded, and no
//   element is processed twice: a destination may equal a source.
// * Everything is in an unnamed namespace and no std function is called (see kernel_tables.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_tables.hpp"
#include "kernels/kernel_types.hpp"

namespace tutti::kernels {
namespace {

constexpr std::size_t kVectorBytes = TUTTI_KERNEL_VECTOR_BYTES;
constexpr int kUnroll = 4;  // packs in flight: hides the latency of an add (4 cycles)

// ---- operations ---------------------------------------------------------------------------------

template <typename T>
constexpr bool kIsFloat = static_cast<T>(0.5) != 0;

template <std::size_t Bytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = std::uint8_t;
};
template <>
struct UnsignedOf<4> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = std::uint64_t;
};
template <typename T>
using Unsigned = typename UnsignedOf<sizeof(T)>::type;

// Integers wrap, hence unsigned arithmetic (and 8-bit scalars are promoted, hence the casts).
struct Sum {
  template <typename T, int N>
  static TUTTI_INLINE Pack<T, N> apply(Pack<T, N> a, Pack<T, N> b) {
    if constexpr (kIsFloat<T>) return a + b;
    using U = Pack<Unsigned<T>, N>;
    return bits<Pack<T, N>>(static_cast<U>(bits<U>(a) + bits<U>(b)));
  }
};
struct Product {
  template <typename T, int N>
  static TUTTI_INLINE Pack<T, N> apply(Pack<T, N> a, Pack<T, N> b) {
    if constexpr (kIsFloat<T>) return a * b;
    using U = Pack<Unsigned<T>, N>;
    return bits<Pack<T, N>>(static_cast<U>(bits<U>(a) * bits<U>(b)));
  }
};
// IEEE 754-2019 minimum and maximum: NaN wins, -0 < +0. So they commute and associate, and every
// algorithm has the same result. Both selections keep an operand where the two are equal or
// unordered: OR then makes -0 of two zeros and keeps a NaN a NaN; elsewhere both are the same.
struct Min {
  template <typename T, int N>
  static TUTTI_INLINE Pack<T, N> apply(Pack<T, N> a, Pack<T, N> b) {
    using P = Pack<T, N>;
    const P one = b < a ? b : a;
    if constexpr (!kIsFloat<T>) return one;
    using U = Pack<Unsigned<T>, N>;
    const P other = a < b ? a : b;
    return bits<P>(static_cast<U>(bits<U>(one) | bits<U>(other)));
  }
};
struct Max {
  template <typename T, int N>
  static TUTTI_INLINE Pack<T, N> apply(Pack<T, N> a, Pack<T, N> b) {
    using P = Pack<T, N>;
    const P one = a < b ? b : a;
    if constexpr (!kIsFloat<T>) return one;
    // The same with the signs turned round: zeros give +0.
    using U = Pack<Unsigned<T>, N>;
    constexpr Unsigned<T> kSign = Unsigned<T>{1} << (sizeof(T) * 8 - 1);
    const P other = b < a ? a : b;
    return bits<P>(static_cast<U>(((bits<U>(one) ^ kSign) | (bits<U>(other) ^ kSign)) ^ kSign));
  }
};

// Bitwise operations, of unsigned integers.
struct BitAnd {
  template <typename T, int N>
  static TUTTI_INLINE Pack<T, N> apply(Pack<T, N> a, Pack<T, N> b) {
    return static_cast<Pack<T, N>>(a & b);
  }
};
struct BitOr {
  template <typename T, int N>
  static TUTTI_INLINE Pack<T, N> apply(Pack<T, N> a, Pack<T, N> b) {
    return static_cast<Pack<T, N>>(a | b);
  }
};
struct BitXor {
  template <typename T, int N>
  static TUTTI_INLINE Pack<T, N> apply(Pack<T, N> a, Pack<T, N> b) {
    return static_cast<Pack<T, N>>(a ^ b);
  }
};
// The same of truth values: 0, and 1 for all others.
template <class Bitwise>
struct Logical {
  template <typename T, int N>
  static TUTTI_INLINE Pack<T, N> truth(Pack<T, N> a) {
    using P = Pack<T, N>;
    const P zero = broadcast<P, T, N>(0), one = broadcast<P, T, N>(1);
    return a != zero ? one : zero;
  }
  template <typename T, int N>
  static TUTTI_INLINE Pack<T, N> apply(Pack<T, N> a, Pack<T, N> b) {
    return Bitwise::template apply<T, N>(truth<T, N>(a), truth<T, N>(b));
  }
};

// value / divisor, integers towards zero. Up to 32 bits a double's quotient is exact enough: with
// |value| < 2^32 and divisor d the quotient is an integer or at least 1/d away from the next one,
// and its rounding error is below 2^-20 / d.
template <typename T, int N>
TUTTI_INLINE Pack<T, N> divide(Pack<T, N> value, std::uint32_t divisor) {
  if constexpr (kIsFloat<T>) {
    return value / static_cast<T>(divisor);
  } else {
    T elements[N];
    __builtin_memcpy(elements, &value, sizeof(elements));
    for (int i = 0; i < N; ++i) {
      if constexpr (sizeof(T) <= 4)
        elements[i] = static_cast<T>(static_cast<double>(elements[i]) / divisor);
      else
        elements[i] = elements[i] / static_cast<T>(divisor);
    }
    return load_pack<Pack<T, N>>(elements);
  }
}

// ---- the loop -----------------------------------------------------------------------------------

// The arguments as local values: stores to destinations cannot be thought to change them.
struct Work {
  const void* const* sources;
  void* const* destinations;
  std::uint32_t source_count;
  std::uint32_t destination_count;
  std::uint64_t elements;
  std::uint64_t stream_mask;
  std::uint32_t average_over;
};

// Does one pack of stored elements become two of accumulators? A type's narrow_pair() then puts
// their elements back to where widen_pair() has found them.
template <typename Type>
concept InPairs = requires {
  Type::kInPairs;
};

// One loop over the elements. K, M: counts known to the compiler, with the pointers in registers;
// Streamed: the destinations that are stored around the cache. K = M = 0: any counts, and division
// and streaming as the work says.
template <typename Type, typename Op, int K, int M, unsigned Streamed = 0>
struct Loop {
  using Storage = typename Type::Storage;
  using Accumulator = typename Type::Accumulator;
  static constexpr bool kGeneral = K == 0;
  static constexpr bool kStreams = kGeneral || Streamed != 0;
  static constexpr unsigned kLanes = kVectorBytes / sizeof(Accumulator);
  static constexpr int kPacks = InPairs<Type> ? 2 : 1;  // of accumulators, for a stored one
  static constexpr std::size_t kPackBytes = kPacks * kLanes * sizeof(Storage);
  static constexpr int kAtOnce = kUnroll / kPacks;

  Work work;
  const std::byte* sources[kGeneral ? 1 : K];
  std::byte* destinations[kGeneral ? 1 : M];

  explicit Loop(const Work& of) : work(of) {
    if constexpr (!kGeneral) {
      for (int k = 0; k < K; ++k) sources[k] = static_cast<const std::byte*>(of.sources[k]);
      for (int m = 0; m < M; ++m) destinations[m] = static_cast<std::byte*>(of.destinations[m]);
    }
  }

  TUTTI_INLINE const std::byte* source(std::uint32_t k) const {
    if constexpr (kGeneral)
      return static_cast<const std::byte*>(work.sources[k]);
    else
      return sources[k];
  }
  TUTTI_INLINE std::byte* destination(std::uint32_t m) const {
    if constexpr (kGeneral)
      return static_cast<std::byte*>(work.destinations[m]);
    else
      return destinations[m];
  }

  // Of stored elements for N lanes of accumulators; a single element is no pair.
  template <int N>
  static constexpr int kPer = N == 1 ? 1 : kPacks;
  template <int N>
  using Stored = Pack<Storage, N * kPer<N>>;

  // U packs from byte `at` on.
  template <int N, int U>
  TUTTI_INLINE void step(std::size_t at) const {
    constexpr int kValues = U * kPer<N>;
    using Value = Pack<Accumulator, N>;
    const std::uint32_t source_count = kGeneral ? work.source_count : K;
    const std::uint32_t destination_count = kGeneral ? work.destination_count : M;
    Value value[kValues];
    load<N, U>(source(0) + at, value);
    for (std::uint32_t k = 1; k < source_count; ++k) {
      Value next[kValues];
      load<N, U>(source(k) + at, next);
#pragma GCC unroll 8
      for (int v = 0; v < kValues; ++v)
        value[v] = Op::template apply<Accumulator, N>(value[v], next[v]);
    }
    if constexpr (kGeneral) {
      if (work.average_over > 1)
        for (int v = 0; v < kValues; ++v)
          value[v] = divide<Accumulator, N>(value[v], work.average_over);
    }
    Stored<N> stored[U];
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) {
      if constexpr (kPer<N> == 2)
        stored[u] = Type::template narrow_pair<N>(value + 2 * u);
      else
        stored[u] = Type::template narrow<N>(value[u]);
    }
    for (std::uint32_t m = 0; m < destination_count; ++m) {
      std::byte* to = destination(m) + at;
      // Only whole packs are streamed: single elements come before and after the aligned part.
      const std::uint64_t mask = kGeneral ? work.stream_mask : Streamed;
      const bool streams = kStreams && N > 1 && m < 64 && (mask >> m & 1) != 0;
#pragma GCC unroll 8
      for (int u = 0; u < U; ++u, to += sizeof(Stored<N>)) {
        if (streams)
          stream_pack(to, stored[u]);
        else
          store_pack(to, stored[u]);
      }
    }
  }

  template <int N, int U>
  static TUTTI_INLINE void load(const std::byte* from, Pack<Accumulator, N>* value) {
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u, from += sizeof(Stored<N>)) {
      const auto stored = load_pack<Stored<N>>(from);
      if constexpr (kPer<N> == 2)
        Type::template widen_pair<N>(stored, value + 2 * u);
      else
        value[u] = Type::template widen<N>(stored);
    }
  }

  // Elements before the first one at which a streamed destination is aligned; drops from the mask
  // the destinations that are not aligned there.
  std::uint64_t align() {
    std::uint64_t head = 0, mask = 0;
    for (std::uint32_t m = 0; m < work.destination_count && m < 64; ++m) {
      if ((work.stream_mask >> m & 1) == 0) continue;
      const auto address = reinterpret_cast<std::uintptr_t>(work.destinations[m]);
      if (mask == 0) head = (0 - address) % kCacheLineBytes / sizeof(Storage);
      if ((address + head * sizeof(Storage)) % kCacheLineBytes == 0) mask |= std::uint64_t{1} << m;
    }
    work.stream_mask = mask;
    return head < work.elements ? head : work.elements;
  }

  void run() {
    const std::size_t end = work.elements * sizeof(Storage);
    std::size_t at = 0;
    if (kStreams && work.stream_mask != 0) {
      const std::size_t head = align() * sizeof(Storage);
      for (; at < head; at += sizeof(Storage)) step<1, 1>(at);
    }
    for (; at + kAtOnce * kPackBytes <= end; at += kAtOnce * kPackBytes) step<kLanes, kAtOnce>(at);
    for (; at + kPackBytes <= end; at += kPackBytes) step<kLanes, 1>(at);
    for (; at < end; at += sizeof(Storage)) step<1, 1>(at);
    if (kStreams && work.stream_mask != 0) stream_fence();
  }
};

// ---- copy: one source, nothing to compute
// ---------------------------------------------------------

// Several destinations are written block by block, so that the source is read from L1 but once.
constexpr std::size_t kCopyBlockBytes = 4096;

void stream_bytes(std::byte* to, const std::byte* from, std::size_t count) {
  using Line = Pack<std::uint8_t, kVectorBytes>;
  const std::size_t before = (0 - reinterpret_cast<std::uintptr_t>(to)) % kCacheLineBytes;
  const std::size_t head = before < count ? before : count;
  __builtin_memcpy(to, from, head);
  std::size_t at = head;
  for (; at + 4 * kVectorBytes <= count; at += 4 * kVectorBytes) {
    Line line[4];
#pragma GCC unroll 4
    for (unsigned u = 0; u < 4; ++u) line[u] = load_pack<Line>(from + at + u * kVectorBytes);
#pragma GCC unroll 4
    for (unsigned u = 0; u < 4; ++u) stream_pack(to + at + u * kVectorBytes, line[u]);
  }
  __builtin_memcpy(to + at, from + at, count - at);
}

void copy(const Work& work, std::size_t element_bytes) {
  const auto* from = static_cast<const std::byte*>(work.sources[0]);
  const std::size_t total_bytes = work.elements * element_bytes;
  const std::size_t block_bytes = work.destination_count == 1 ? total_bytes : kCopyBlockBytes;
  for (std::size_t at = 0; at < total_bytes; at += block_bytes) {
    const std::size_t left = total_bytes - at;
    const std::size_t count = left < block_bytes ? left : block_bytes;
    for (std::uint32_t m = 0; m < work.destination_count; ++m) {
      auto* to = static_cast<std::byte*>(work.destinations[m]);
      if (to == from) continue;
      if (m < 64 && (work.stream_mask >> m & 1) != 0)
        stream_bytes(to + at, from + at, count);
      else
        __builtin_memcpy(to + at, from + at, count);
    }
  }
  if (work.stream_mask != 0) stream_fence();
}

// ---- conversions
// ------------------------------------------------------------------------------------

constexpr int kFloats = kVectorBytes / sizeof(float);

template <typename Type>
void widen_all(const void* from, float* to, std::uint64_t elements) {
  using Storage = typename Type::Storage;
  const auto* const stored = static_cast<const std::byte*>(from);
  std::uint64_t i = 0;
  for (; i + kFloats <= elements; i += kFloats)
    store_pack(to + i, Type::template widen<kFloats>(
                           load_pack<Pack<Storage, kFloats>>(stored + i * sizeof(Storage))));
  for (; i < elements; ++i)
    store_pack(to + i, Type::template widen<1>(load_pack<Storage>(stored + i * sizeof(Storage))));
}

template <typename Type>
void narrow_all(const float* from, void* to, std::uint64_t elements) {
  using Storage = typename Type::Storage;
  auto* const stored = static_cast<std::byte*>(to);
  std::uint64_t i = 0;
  for (; i + kFloats <= elements; i += kFloats)
    store_pack(stored + i * sizeof(Storage),
               Type::template narrow<kFloats>(load_pack<Pack<float, kFloats>>(from + i)));
  for (; i < elements; ++i)
    store_pack(stored + i * sizeof(Storage), Type::template narrow<1>(load_pack<float>(from + i)));
}

template <typename Type>
constexpr FloatConversion kConversion{widen_all<Type>, narrow_all<Type>};

// ---- the table
// ------------------------------------------------------------------------------------

// Two sources, one destination, nothing else: most calls of a few elements. Apart from the rest, so
// that it saves no registers.
template <typename Type, typename Op>
__attribute__((noinline)) void reduce_pair(const ReduceCopyArgs& args) {
  const Work work{args.sources, args.destinations, 2, 1, args.elements, 0, 0};
  Loop<Type, Op, 2, 1>(work).run();
}

// Destinations to store around the cache. What is a source as well is in it already.
std::uint64_t stream_mask_of(const ReduceCopyArgs& args) {
  std::uint64_t mask = 0;
  for (std::uint32_t m = 0; m < args.destination_count && m < 64; ++m) {
    std::uint32_t k = 0;
    while (k < args.source_count && args.destinations[m] != args.sources[k]) ++k;
    if (k == args.source_count) mask |= args.nontemporal_mask & std::uint64_t{1} << m;
  }
  return mask;
}

// Two sources to two destinations, of which the second, or both, are stored around the cache: the
// step that sums in large calls of two ranks.
template <typename Storage>
bool streams_pair(const Work& work) {
  const auto aligned = [&](std::uint32_t d) {
    return (work.stream_mask >> d & 1) == 0 ||
           reinterpret_cast<std::uintptr_t>(work.destinations[d]) % sizeof(Storage) == 0;
  };
  if (work.source_count != 2 || work.destination_count != 2 || work.average_over > 1) return false;
  if (!aligned(0) || !aligned(1)) return false;
  const auto apart = reinterpret_cast<std::uintptr_t>(work.destinations[0]) -
                     reinterpret_cast<std::uintptr_t>(work.destinations[1]);
  return work.stream_mask == 2 || (work.stream_mask == 3 && apart % kCacheLineBytes == 0);
}

template <typename Type, typename Op>
__attribute__((noinline)) void reduce_any(const ReduceCopyArgs& args) {
  const std::uint64_t stream_mask = args.nontemporal_mask == 0 ? 0 : stream_mask_of(args);
  const Work work{args.sources,  args.destinations, args.source_count, args.destination_count,
                  args.elements, stream_mask,       args.average_over};
  if (work.source_count == 1 && work.average_over <= 1)
    return copy(work, sizeof(typename Type::Storage));
  const bool plain = work.average_over <= 1 && work.stream_mask == 0;
  const std::uint32_t k = plain ? work.source_count : 0, m = work.destination_count;
  if (k == 2 && m == 2) return Loop<Type, Op, 2, 2>(work).run();
  if (k == 3 && m == 1) return Loop<Type, Op, 3, 1>(work).run();
  if (k == 3 && m == 2) return Loop<Type, Op, 3, 2>(work).run();
  if (streams_pair<typename Type::Storage>(work)) {
    if (stream_mask == 2) return Loop<Type, Op, 2, 2, 2>(work).run();
    return Loop<Type, Op, 2, 2, 3>(work).run();
  }
  Loop<Type, Op, 0, 0>(work).run();
}

template <typename Type, typename Op>
void reduce_copy(const ReduceCopyArgs& args) {
  const bool pair = args.source_count == 2 && args.destination_count == 1 &&
                    args.nontemporal_mask == 0 && args.average_over <= 1;
  return pair ? reduce_pair<Type, Op>(args) : reduce_any<Type, Op>(args);
}

template <typename Type>
ReduceCopyFn of_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return reduce_copy<Type, Sum>;
    case ReduceOp::kProd:
      return reduce_copy<Type, Product>;
    case ReduceOp::kMax:
      return reduce_copy<Type, Max>;
    case ReduceOp::kMin:
      return reduce_copy<Type, Min>;
    default:
      return nullptr;
  }
}

// Those that integers alone have; a sign makes no difference.
template <typename T>
ReduceCopyFn of_integer_op(ReduceOp op) {
  using Bits = IntegerType<Unsigned<T>>;
  switch (op) {
    case ReduceOp::kBitAnd:
      return reduce_copy<Bits, BitAnd>;
    case ReduceOp::kBitOr:
      return reduce_copy<Bits, BitOr>;
    case ReduceOp::kBitXor:
      return reduce_copy<Bits, BitXor>;
    case ReduceOp::kLogicalAnd:
      return reduce_copy<Bits, Logical<BitAnd>>;
    case ReduceOp::kLogicalOr:
      return reduce_copy<Bits, Logical<BitOr>>;
    case ReduceOp::kLogicalXor:
      return reduce_copy<Bits, Logical<BitXor>>;
    default:
      return of_op<IntegerType<T>>(op);
  }
}

}  // namespace

ReduceCopyFn TUTTI_KERNEL_LOOKUP(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kInt8:
      return of_integer_op<std::int8_t>(op);
    case DataType::kUint8:
      return of_integer_op<std::uint8_t>(op);
    case DataType::kInt32:
      return of_integer_op<std::int32_t>(op);
    case DataType::kUint32:
      return of_integer_op<std::uint32_t>(op);
    case DataType::kInt64:
      return of_integer_op<std::int64_t>(op);
    case DataType::kUint64:
      return of_integer_op<std::uint64_t>(op);
    case DataType::kFloat16:
      return of_op<HalfType>(op);
    case DataType::kFloat32:
      return of_op<FloatType<float>>(op);
    case DataType::kFloat64:
      return of_op<FloatType<double>>(op);
    case DataType::kBfloat16:
      return of_op<Bfloat16Type>(op);
    case DataType::kFloat8e4m3:
      return of_op<E4m3Type>(op);
    case DataType::kFloat8e5m2:
      return of_op<E5m2Type>(op);
  }
  return nullptr;
}

FloatConversion TUTTI_KERNEL_LOOKUP(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return kConversion<HalfType>;
    case DataType::kBfloat16:
      return kConversion<Bfloat16Type>;
    case DataType::kFloat8e4m3:
      return kConversion<E4m3Type>;
    case DataType::kFloat8e5m2:
      return kConversion<E5m2Type>;
    default:
      return {};
  }
}

}  // namespace tutti::kernels
