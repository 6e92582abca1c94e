// SPDX-License-Identifier: Apache-2.0
// Random numbers by counter: a number is a function of a seed and of what it is for, so that every
// rank, thread and machine draws the same one without drawing those before it.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011).
// Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti::gpt {

using PhiloxWords = std::array<std::uint32_t, 4>;

inline PhiloxWords philox(std::uint64_t key, PhiloxWords counter) {
  auto key_low = static_cast<std::uint32_t>(key);
  auto key_high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(second >> 32) ^ counter[1] ^ key_low,
               static_cast<std::uint32_t>(second),
               static_cast<std::uint32_t>(first >> 32) ^ counter[3] ^ key_high,
               static_cast<std::uint32_t>(first)};
    key_low += 0x9E3779B9;
    key_high += 0xBB67AE85;
  }
  return counter;
}

// What a number is drawn for. Different purposes never share a counter.
enum class Purpose : std::uint32_t { kCorpus, kWindow, kParameter, kSample };

// 64 random bits, number `index` of (seed, purpose, stream).
inline std::uint64_t random_bits(std::uint64_t seed, Purpose purpose, std::uint32_t stream,
                                 std::uint64_t index) {
  const PhiloxWords words =
      philox(seed, {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                    stream, static_cast<std::uint32_t>(purpose)});
  return std::uint64_t{words[1]} << 32 | words[0];
}

// Uniform in [0, bound), for a bound below 2^32, where the bias is below 2^-32.
inline std::uint64_t scale_to(std::uint64_t bits, std::uint64_t bound) {
  return (bits >> 32) * bound >> 32;
}

// FNV-1a, to make a stream of a name.
inline std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char each : text)
    hash = (hash ^ static_cast<unsigned char>(each)) * std::uint64_t{0x100000001B3};
  return hash;
}

// Mean 0 and variance 1, by parameter name and element: the sum of four uniform numbers, which is
// close to a normal one and, unlike logarithms and cosines, has the same bits on every machine.
inline float random_normal(std::uint64_t seed, std::uint64_t name_hash, std::uint64_t element) {
  const PhiloxWords words =
      philox(seed ^ name_hash,
             {static_cast<std::uint32_t>(element), static_cast<std::uint32_t>(element >> 32), 0,
              static_cast<std::uint32_t>(Purpose::kParameter)});
  std::int64_t sum = 0;
  for (const std::uint32_t word : words) sum += std::int64_t{word} - (std::int64_t{1} << 31);
  constexpr double kScale = 1.7320508075688772 / 4294967296.0;  // sqrt(3) / 2^32
  return static_cast<float>(static_cast<double>(sum) * kScale);
}

}  // namespace tutti::gpt
