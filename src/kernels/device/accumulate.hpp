// SPDX-License-Identifier: Apache-2.0
// How the elements of a step are accumulated, for host and device alike: Fold<Element, Op> loads
// the first source's bits into an accumulator, folds the next sources into it one after another,
// and stores the result's bits, divided by average_over where that is above 1 (sums only).
//
// The same bits as the host's kernels give (src/kernels/reduce_copy.hpp has the rules). 8- and
// 16-bit floats are summed in fp32 and rounded once a step; their minimum and maximum are exact, so
// they stay packed. Pure functions of registers: they know no memory and no thread.
//
// Elements work in groups of one 32-bit word, or of one element of 8 bytes. A single element of 1
// or 2 bytes is folded as a word whose other elements are zeros.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/device/operations.hpp"

namespace tutti::device {

// ---- elements --------------------------------------------------------------------------------

template <typename T>
struct Integer {
  using Value = T;
  static constexpr int kBytes = sizeof(T);
};
template <typename T>
struct Real {
  using Value = T;
  static constexpr int kBytes = sizeof(T);
};
// Formats whose sums are taken in fp32 (small_float.hpp).
template <typename Type>
struct Small {
  using Format = Type;
  static constexpr int kBytes = 4 / Type::kPerWord;
};

using Float16 = Small<Half>;
using BrainFloat16 = Small<Bfloat16>;
using Float8e4m3 = Small<E4m3>;
using Float8e5m2 = Small<E5m2>;

// ---- groups: Word, Accumulator, load, fold, store --------------------------------------------

template <class Element, class Op>
struct Group;

// Elements of 4 and 8 bytes.
template <typename T, class Op>
struct WholeGroup {
  using Word = UnsignedOf<T>;
  using Accumulator = T;
  static TUTTI_HD_INLINE T load(Word word) { return bit_cast<T>(word); }
  static TUTTI_HD_INLINE void fold(T& value, Word word) {
    value = Op::template apply<T>(value, bit_cast<T>(word));
  }
  static TUTTI_HD_INLINE Word store(T value, std::uint32_t average_over) {
    if constexpr (std::is_same_v<Op, Sum>)
      if (average_over > 1) value = divide(value, average_over);
    if constexpr (std::is_floating_point_v<T>) value = canonical(value);
    return bit_cast<Word>(value);
  }
};
template <typename T, class Op>
struct Group<Integer<T>, Op> : WholeGroup<T, Op> {};
template <typename T, class Op>
struct Group<Real<T>, Op> : WholeGroup<T, Op> {};

// Four integers of a byte each in a word.
template <typename T, class Op>
struct ByteGroup {
  using Word = std::uint32_t;
  using Accumulator = std::uint32_t;
  static TUTTI_HD_INLINE T element(std::uint32_t word, int i) {
    return static_cast<T>(word >> (8 * i) & 0xff);
  }
  static TUTTI_HD_INLINE std::uint32_t placed(T value, int i) {
    return static_cast<std::uint32_t>(static_cast<std::uint8_t>(value)) << (8 * i);
  }
  static TUTTI_HD_INLINE std::uint32_t load(std::uint32_t word) { return word; }
  static TUTTI_HD_INLINE void fold(std::uint32_t& value, std::uint32_t word) {
    constexpr std::uint32_t kTopBits = 0x80808080u;
    if constexpr (std::is_same_v<Op, Sum>) {
      // No carry leaves its byte: the top bits are added without one.
      value = ((value & ~kTopBits) + (word & ~kTopBits)) ^ ((value ^ word) & kTopBits);
      return;
    }
#if TUTTI_ON_DEVICE
    if constexpr (kSelects<Op>) {
      constexpr bool kMinimum = std::is_same_v<Op, Minimum>;
      if constexpr (std::is_signed_v<T>)
        value = kMinimum ? __vmins4(value, word) : __vmaxs4(value, word);
      else
        value = kMinimum ? __vminu4(value, word) : __vmaxu4(value, word);
      return;
    }
#endif
    std::uint32_t result = 0;
    TUTTI_UNROLL
    for (int i = 0; i < 4; ++i)
      result |= placed(Op::template apply<T>(element(value, i), element(word, i)), i);
    value = result;
  }
  static TUTTI_HD_INLINE std::uint32_t store(std::uint32_t value, std::uint32_t average_over) {
    if constexpr (!std::is_same_v<Op, Sum>) return value;
    if (average_over <= 1) return value;
    // ceil(2^16 / d) is above 2^16 / d by less than 1; for |value| <= 255 that shifts the quotient
    // by less than 1 / d, and it is at least 1 / d below the next integer. Above 255 all gives 0.
    const std::uint32_t reciprocal = 65535 / average_over + 1;
    std::uint32_t result = 0;
    TUTTI_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int whole = element(value, i);
      const auto magnitude = static_cast<std::uint32_t>(whole < 0 ? -whole : whole);
      const int quotient = static_cast<int>(magnitude * reciprocal >> 16);
      result |= placed(static_cast<T>(whole < 0 ? -quotient : quotient), i);
    }
    return result;
  }
};
template <class Op>
struct Group<Integer<std::int8_t>, Op> : ByteGroup<std::int8_t, Op> {};
template <class Op>
struct Group<Integer<std::uint8_t>, Op> : ByteGroup<std::uint8_t, Op> {};

// Sums and products of 8- and 16-bit floats, in fp32.
template <class Type, class Op>
struct WideningGroup {
  using Word = std::uint32_t;
  static constexpr int kCount = Type::kPerWord;
  struct Accumulator {
    float values[kCount];
  };
  static TUTTI_HD_INLINE Accumulator load(std::uint32_t word) {
    Accumulator loaded;
    Type::widen(word, loaded.values);
    return loaded;
  }
  static TUTTI_HD_INLINE void fold(Accumulator& into, std::uint32_t word) {
    const Accumulator next = load(word);
    TUTTI_UNROLL
    for (int i = 0; i < kCount; ++i)
      into.values[i] = Op::template apply<float>(into.values[i], next.values[i]);
  }
  static TUTTI_HD_INLINE std::uint32_t store(Accumulator result, std::uint32_t average_over) {
    if constexpr (std::is_same_v<Op, Sum>) {
      if (average_over > 1) {
        TUTTI_UNROLL
        for (int i = 0; i < kCount; ++i) result.values[i] = divide(result.values[i], average_over);
      }
    }
    return Type::narrow(result.values);
  }
};

// Minimum or maximum of the two 16-bit floats in each of two words, NaNs canonical. The device's
// instruction: either NaN gives NaN, +0 above -0 (cuda_fp16.h and cuda_bf16.h, __hmin2_nan).
template <class Type, class Op>
TUTTI_HD_INLINE std::uint32_t select_halves(std::uint32_t a, std::uint32_t b) {
#if TUTTI_ON_DEVICE
  constexpr bool kMinimum = std::is_same_v<Op, Minimum>;
  std::uint32_t result;
  if constexpr (std::is_same_v<Type, Half>) {
    if constexpr (kMinimum)
      asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    else
      asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else {
    if constexpr (kMinimum)
      asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    else
      asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  }
  return result;
#else
  float one[2], other[2];
  Type::widen(a, one);
  Type::widen(b, other);
  for (int i = 0; i < 2; ++i) one[i] = Op::template apply<float>(one[i], other[i]);
  return Type::narrow(one);
#endif
}

template <class Type, class Op>
struct SelectingGroup {
  using Word = std::uint32_t;
  using Accumulator = std::uint32_t;
  static TUTTI_HD_INLINE std::uint32_t load(std::uint32_t word) { return word; }
  static TUTTI_HD_INLINE void fold(std::uint32_t& value, std::uint32_t word) {
    value = select_halves<Type, Op>(value, word);
  }
  static TUTTI_HD_INLINE std::uint32_t store(std::uint32_t value, std::uint32_t /*none*/) {
    return canonical_halves(value, Type::kNans);
  }
};

// 8-bit floats are selected as halves, which hold them exactly.
template <class Type, class Op>
struct SelectingEightGroup {
  using Word = std::uint32_t;
  struct Accumulator {
    std::uint32_t halves[2];
  };
  static TUTTI_HD_INLINE Accumulator load(std::uint32_t word) {
    Accumulator loaded;
    Type::to_halves(word, loaded.halves);
    return loaded;
  }
  static TUTTI_HD_INLINE void fold(Accumulator& into, std::uint32_t word) {
    const Accumulator next = load(word);
    TUTTI_UNROLL
    for (int i = 0; i < 2; ++i)
      into.halves[i] = select_halves<Half, Op>(into.halves[i], next.halves[i]);
  }
  static TUTTI_HD_INLINE std::uint32_t store(const Accumulator& result, std::uint32_t /*none*/) {
    float low[2], high[2];
    Half::widen(result.halves[0], low);
    Half::widen(result.halves[1], high);
    return Type::narrow({low[0], low[1], high[0], high[1]});
  }
};

template <class Type, class Op>
struct Group<Small<Type>, Op>
    : std::conditional_t<!kSelects<Op>, WideningGroup<Type, Op>,
                         std::conditional_t<Type::kPerWord == 2, SelectingGroup<Type, Op>,
                                            SelectingEightGroup<Type, Op>>> {};

// ---- the fold ----------------------------------------------------------------------------------

template <class ElementType, class Op>
struct Fold {
  using Element = ElementType;
  static constexpr int kElementBytes = Element::kBytes;
  using Grouped = Group<Element, Op>;
  using Word = typename Grouped::Word;

  template <int kBytes>
  struct Accumulator {
    typename Grouped::Accumulator groups[kBytes / sizeof(Word)];
  };

  template <int kBytes>
  static TUTTI_HD_INLINE Accumulator<kBytes> load(const Bits<kBytes>& bits) {
    Accumulator<kBytes> loaded;
    TUTTI_UNROLL
    for (int i = 0; i < groups_in(kBytes); ++i)
      loaded.groups[i] = Grouped::load(word_at<Word>(bits, i));
    return loaded;
  }
  template <int kBytes>
  static TUTTI_HD_INLINE void fold(Accumulator<kBytes>& into, const Bits<kBytes>& bits) {
    TUTTI_UNROLL
    for (int i = 0; i < groups_in(kBytes); ++i)
      Grouped::fold(into.groups[i], word_at<Word>(bits, i));
  }
  // average_over: 0 or 1 for none; of sums alone.
  template <int kBytes>
  static TUTTI_HD_INLINE Bits<kBytes> store(const Accumulator<kBytes>& result,
                                            std::uint32_t average_over) {
    Bits<kBytes> bits;
    TUTTI_UNROLL
    for (int i = 0; i < groups_in(kBytes); ++i)
      set_word<Word>(bits, i, Grouped::store(result.groups[i], average_over));
    return bits;
  }

 private:
  static constexpr TUTTI_HD int groups_in(int bytes) {
    return bytes / static_cast<int>(sizeof(Word));
  }
};

}  // namespace tutti::device
