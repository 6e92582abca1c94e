// SPDX-License-Identifier: Apache-2.0
#include "common/data.hpp"

namespace tutti::perf {
namespace {

using u64 = std::uint64_t;
using u128 = unsigned __int128;

// The finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits.
constexpr u64 mix(u64 x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
constexpr u64 kGolden = 0x9e3779b97f4a7c15ULL;
// Independent random words of one element.
constexpr u64 word(u64 element, u64 which) { return mix(element + which * kGolden); }
// Uniform in [0, bound], from a random word; bound may be 2^64-1.
constexpr u64 up_to(u64 random, u64 bound) {
  return static_cast<u64>((u128{random} * (u128{bound} + 1)) >> 64);
}

// Names of an element's words; words of cut k are kCutWord + k.
constexpr u64 kRotation = 1, kSize = 2, kSplit = 3, kExponent = 4, kFlip = 5, kHolder = 6,
              kMantissa = 7, kCutWord = 16;

// Random cuts 0 = at(0) <= ... <= at(ranks) <= budget, each in O(1).
struct Cuts {
  u64 ranks, budget, gap_bound;  // gap_bound 0: fewer units than ranks, so every stride-th has one
  u64 stride;

  Cuts(u64 ranks_, u64 budget_)
      : ranks(ranks_),
        budget(budget_),
        gap_bound(budget_ / ranks_),
        stride((ranks_ + budget_ - 1) / budget_) {}

  [[nodiscard]] u64 gap(u64 element) const {
    return gap_bound / 2 + 1 + up_to(word(element, kSize), gap_bound - gap_bound / 2 - 1);
  }
  [[nodiscard]] u64 at(u64 element, u64 k) const {
    if (gap_bound == 0) return k / stride;
    const u64 g = gap(element);
    if (k == 0 || k == ranks) return k * g;
    return k * g + up_to(word(element, kCutWord + k), g);
  }
};

// Returns which of the element's n parts belongs to `rank`.
u64 part_of(u64 element, u64 rank, u64 ranks) {
  const u64 part = rank + up_to(word(element, kRotation), ranks - 1);
  return part >= ranks ? part - ranks : part;
}

// The room a format leaves: sums are integers of kPrecision bits times 2^e, least <= e <= most;
// partial products stay within 2^+-product_budget. Chosen so that every partial and the average
// stay normal and finite.
struct Range {
  int least, most;
  u64 product_budget;
};
template <typename Format>
constexpr Range range_of() {
  if constexpr (std::is_same_v<Format, Float64>) return {-300, 300, 900};
  if constexpr (std::is_same_v<Format, Float32>) return {-60, 60, 100};
  if constexpr (std::is_same_v<Format, Bfloat16Format>) return {-60, 60, 100};
  if constexpr (std::is_same_v<Format, Float16>) return {-8, 4, 13};
  if constexpr (std::is_same_v<Format, Float8e5m2>) return {-8, 12, 13};
  static_assert(std::is_same_v<Format, Float64> || std::is_same_v<Format, Float32> ||
                    std::is_same_v<Format, Bfloat16Format> || std::is_same_v<Format, Float16> ||
                    std::is_same_v<Format, Float8e5m2> || std::is_same_v<Format, Float8e4m3>,
                "a new type needs a range");
  return {-3, 4, 5};  // Float8e4m3
}

template <typename Format>
struct FloatSum {
  Cuts cuts;
  bool average;
  FloatSum(u64 ranks, bool average_)
      : cuts(ranks, u64{1} << Format::kPrecision), average(average_) {}

  static int exponent(u64 element) {
    constexpr Range r = range_of<Format>();
    return r.least +
           static_cast<int>(up_to(word(element, kExponent), static_cast<u64>(r.most - r.least)));
  }
  static bool flip(u64 element) { return (word(element, kFlip) >> 63) != 0; }
  // Parts below the split are positive, the others negative (or the reverse: flip).
  [[nodiscard]] u64 split(u64 element) const { return up_to(word(element, kSplit), cuts.ranks); }

  [[nodiscard]] auto input(u64 element, u64 rank) const {
    const u64 part = part_of(element, rank, cuts.ranks);
    const u64 magnitude = cuts.at(element, part + 1) - cuts.at(element, part);
    return encode_exact<Format>((part >= split(element)) != flip(element), magnitude,
                                exponent(element));
  }
  [[nodiscard]] auto expected(u64 element) const {
    const u64 positive = cuts.at(element, split(element));
    const u64 negative = cuts.at(element, cuts.ranks) - positive;
    const u64 magnitude = positive >= negative ? positive - negative : negative - positive;
    const bool minus = (positive < negative) != flip(element);
    if (!average) return encode_exact<Format>(minus, magnitude, exponent(element));
    // Both are exact doubles; the quotient's double rounding is harmless for narrower formats,
    // because double has more than twice their precision (Figueroa 1995).
    const double quotient = static_cast<double>(magnitude) / static_cast<double>(cuts.ranks);
    return encode_nearest<Format>(std::ldexp(minus ? -quotient : quotient, exponent(element)));
  }
};

template <typename Format>
struct FloatProd {
  Cuts cuts;
  explicit FloatProd(u64 ranks) : cuts(ranks, range_of<Format>().product_budget) {}

  // The sign of rank's part is the difference of two of these bits, so signs telescope too.
  [[nodiscard]] static bool sign_at(u64 element, u64 k) {
    return k != 0 && (word(element, kCutWord + k) & 1) != 0;
  }
  [[nodiscard]] u64 split(u64 element) const { return up_to(word(element, kSplit), cuts.ranks); }
  [[nodiscard]] static u64 mantissa(u64 element) {
    const u64 top = u64{1} << Format::kMantissaBits;
    return top | (word(element, kMantissa) & (top - 1));
  }

  [[nodiscard]] auto input(u64 element, u64 rank) const {
    const u64 part = part_of(element, rank, cuts.ranks);
    const int units = static_cast<int>(cuts.at(element, part + 1) - cuts.at(element, part));
    const int exponent = part < split(element) ? units : -units;
    const bool minus = sign_at(element, part) != sign_at(element, part + 1);
    if (part != up_to(word(element, kHolder), cuts.ranks - 1))
      return encode_exact<Format>(minus, 1, exponent);
    return encode_exact<Format>(minus, mantissa(element), exponent - Format::kMantissaBits);
  }
  [[nodiscard]] auto expected(u64 element) const {
    const int positive = static_cast<int>(cuts.at(element, split(element)));
    const int whole = static_cast<int>(cuts.at(element, cuts.ranks));
    return encode_exact<Format>(sign_at(element, cuts.ranks), mantissa(element),
                                2 * positive - whole - Format::kMantissaBits);
  }
};

// Order-preserving keys 0..kLargest of all finite values, zero once and positive.
template <typename Format>
struct Keys {
  using Bits = typename Format::Bits;
  static constexpr u64 largest() {
    if constexpr (Format::kIsFloat)
      return 2 * u64{Format::kMaxFinite};
    else
      return std::numeric_limits<Bits>::max();
  }
  static Bits bits(u64 key) {
    if constexpr (Format::kIsFloat) {
      constexpr u64 zero = Format::kMaxFinite;
      return static_cast<Bits>(key >= zero ? key - zero : (zero - key) | Format::kSignBit);
    } else if constexpr (Format::kIsSigned) {
      return static_cast<Bits>(key ^ (u64{1} << (8 * sizeof(Bits) - 1)));
    } else {
      return static_cast<Bits>(key);
    }
  }
};

template <typename Format>
struct Extreme {
  u64 ranks;
  bool max;
  [[nodiscard]] static u64 winner(u64 element) {
    return up_to(word(element, kMantissa), Keys<Format>::largest());
  }
  [[nodiscard]] auto input(u64 element, u64 rank) const {
    const u64 key = winner(element), random = word(element, kCutWord + rank);
    if (rank == up_to(word(element, kHolder), ranks - 1)) return Keys<Format>::bits(key);
    return Keys<Format>::bits(max ? up_to(random, key)
                                  : key + up_to(random, Keys<Format>::largest() - key));
  }
  [[nodiscard]] auto expected(u64 element) const { return Keys<Format>::bits(winner(element)); }
};

template <typename Format>
struct IntegerSum {
  using Bits = typename Format::Bits;
  u64 ranks;
  bool average;
  [[nodiscard]] static u64 at(u64 element, u64 k) {
    return k == 0 ? 0 : word(element, kCutWord + k);
  }
  [[nodiscard]] Bits input(u64 element, u64 rank) const {
    const u64 part = part_of(element, rank, ranks);
    return static_cast<Bits>(at(element, part + 1) - at(element, part));
  }
  [[nodiscard]] Bits expected(u64 element) const {
    const auto sum = static_cast<Bits>(at(element, ranks));
    if (!average) return sum;
    if constexpr (Format::kIsSigned)
      return static_cast<Bits>(std::int64_t{static_cast<typename Format::Value>(sum)} /
                               static_cast<std::int64_t>(ranks));
    else
      return static_cast<Bits>(u64{sum} / ranks);
  }
};

// The inverse of an odd number modulo 2^64: each Newton step doubles the correct low bits.
constexpr u64 inverse_of_odd(u64 x) {
  u64 y = x;  // correct to 3 bits
  for (int step = 0; step < 5; ++step) y *= 2 - x * y;
  return y;
}
static_assert(inverse_of_odd(0x123456789abcdef1ULL) * 0x123456789abcdef1ULL == 1);

template <typename Format>
struct IntegerProd {
  using Bits = typename Format::Bits;
  u64 ranks;
  [[nodiscard]] static u64 at(u64 element, u64 k) {
    return k == 0 ? 1 : word(element, kCutWord + k) | 1;
  }
  [[nodiscard]] static unsigned twos(u64 element) {
    return static_cast<unsigned>(word(element, kExponent) & 3);
  }
  [[nodiscard]] Bits input(u64 element, u64 rank) const {
    const u64 part = part_of(element, rank, ranks);
    const u64 odd = at(element, part + 1) * inverse_of_odd(at(element, part));
    const bool holder = part == up_to(word(element, kHolder), ranks - 1);
    return static_cast<Bits>(holder ? odd << twos(element) : odd);
  }
  [[nodiscard]] Bits expected(u64 element) const {
    return static_cast<Bits>(at(element, ranks) << twos(element));
  }
};

// Calls use(generator) with the generator of (format, op).
template <typename Format, typename Use>
void with_generator(const DataSpec& spec, Use&& use) {
  const auto ranks = static_cast<u64>(spec.ranks);
  switch (spec.op) {
    case Op::kMax:
    case Op::kMin:
      return use(Extreme<Format>{ranks, spec.op == Op::kMax});
    case Op::kProd:
      if constexpr (Format::kIsFloat)
        return use(FloatProd<Format>(ranks));
      else
        return use(IntegerProd<Format>{ranks});
    default:
      if constexpr (Format::kIsFloat)
        return use(FloatSum<Format>(ranks, spec.op == Op::kAvg));
      else
        return use(IntegerSum<Format>{ranks, spec.op == Op::kAvg});
  }
}

// Applies value(generator, element) to a range of elements.
template <typename Value>
void fill(const DataSpec& spec, u64 first, u64 count, void* out, Value&& value) {
  const u64 stream = mix(spec.seed * kGolden + static_cast<u64>(spec.type) * kOpCount +
                         static_cast<u64>(spec.op) + 1);
  with_format(spec.type, [&](auto format) {
    using Format = decltype(format);
    with_generator<Format>(spec, [&](const auto& generator) {
      auto* elements = static_cast<typename Format::Bits*>(out);
      for (u64 i = 0; i < count; ++i)
        elements[i] = value(generator, mix(stream + (first + i) * kGolden));
    });
  });
}

}  // namespace

void fill_input(const DataSpec& spec, int rank, std::uint64_t first, std::uint64_t count,
                void* out) {
  fill(spec, first, count, out, [rank](const auto& generator, u64 element) {
    return generator.input(element, static_cast<u64>(rank));
  });
}

void fill_expected(const DataSpec& spec, std::uint64_t first, std::uint64_t count, void* out) {
  if (spec.copied_from) return fill_input(spec, *spec.copied_from, first, count, out);
  fill(spec, first, count, out,
       [](const auto& generator, u64 element) { return generator.expected(element); });
}

}  // namespace tutti::perf
