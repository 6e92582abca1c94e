// SPDX-License-Identifier: Apache-2.0
// The few types, numbers and names of libpmix's binary interface that are used here, so that
// neither building nor starting needs PMIx. They are the PMIx standard's and have kept their values
// since version 3; where PMIx's headers are installed a test compares them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::launch::pmix {

using Status = int;
using RankNumber = std::uint32_t;
using Scope = std::uint8_t;

inline constexpr Status kOk = 0;
inline constexpr RankNumber kAllRanks = UINT32_MAX - 1;
inline constexpr Scope kGlobal = 3;
inline constexpr std::uint16_t kBool = 1, kString = 3, kUint16 = 13, kUint32 = 14;

inline constexpr const char* kJobSize = "pmix.job.size";      // uint32
inline constexpr const char* kLocalSize = "pmix.local.size";  // uint32
inline constexpr const char* kLocalRank = "pmix.lrank";       // uint16
inline constexpr const char* kCollect = "pmix.collect";       // bool

struct Proc {
  char nspace[256];
  RankNumber rank;
};
struct Value {
  std::uint16_t type;
  union {
    bool flag;
    char* string;
    std::uint16_t uint16;
    std::uint32_t uint32;
    // The largest member of the real union, pmix_envar_t: two pointers and a character.
    struct {
      char* name;
      char* text;
      char separator;
    } widest;
  } data;
};
struct Info {
  char key[512];
  std::uint32_t flags;
  Value value;
};

using InitCall = Status (*)(Proc*, Info*, std::size_t);
using FinalizeCall = Status (*)(const Info*, std::size_t);
using PutCall = Status (*)(Scope, const char*, Value*);
using CommitCall = Status (*)();
using FenceCall = Status (*)(const Proc*, std::size_t, const Info*, std::size_t);
using GetCall = Status (*)(const Proc*, const char*, const Info*, std::size_t, Value**);
using ErrorStringCall = const char* (*)(Status);

}  // namespace tutti::launch::pmix
