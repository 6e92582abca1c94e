// SPDX-License-Identifier: Apache-2.0
// Any collective through the C API, checked on the calling rank against a result that is computed
// here from the interface's own words, element by element.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/collective.hpp"

namespace tutti::test {

struct CallCase {
  Collective collective = Collective::kNone;
  std::size_t count = 0;  // as in the call
  int root = 0;
  bool in_place = false;
  int salt = 0;  // so that calls differ
};

// Element i of the whole data at `rank`.
inline std::int32_t call_value(int rank, std::size_t i, int salt) {
  return rank * 1000 + salt + static_cast<std::int32_t>(i % 997);
}

namespace calls {

constexpr std::size_t kGuard = 16;  // elements before and behind a buffer
constexpr std::int32_t kUntouched = -7;

inline bool has_blocks(Collective c) {
  using enum Collective;
  return c == kAllGather || c == kReduceScatter || c == kGather || c == kScatter || c == kAllToAll;
}

// What element i of the data must be in the end.
inline std::int32_t wanted(const CallCase& c, int rank, int ranks, std::size_t i) {
  if (c.collective == Collective::kScatter) return call_value(c.root, i, c.salt);
  if (c.collective == Collective::kGather)
    return call_value(static_cast<int>(i / c.count), i, c.salt);
  if (c.collective == Collective::kAllToAll)
    return call_value(static_cast<int>(i / c.count),
                      static_cast<std::size_t>(rank) * c.count + i % c.count, c.salt);
  if (c.collective == Collective::kBroadcast) return call_value(c.root, i, c.salt);
  if (c.collective == Collective::kAllGather)
    return call_value(static_cast<int>(i / c.count), i, c.salt);
  std::int32_t sum = 0;
  for (int peer = 0; peer < ranks; ++peer) sum += call_value(peer, i, c.salt);
  return sum;
}

inline tuttiResult_t issue(tuttiComm_t comm, const CallCase& c, const void* send, void* receive) {
  switch (c.collective) {
    case Collective::kAllReduce:
      return tuttiAllReduce(send, receive, c.count, tuttiInt32, tuttiSum, comm, nullptr);
    case Collective::kReduce:
      return tuttiReduce(send, receive, c.count, tuttiInt32, tuttiSum, c.root, comm, nullptr);
    case Collective::kBroadcast:
      return tuttiBroadcast(send, receive, c.count, tuttiInt32, c.root, comm, nullptr);
    case Collective::kReduceScatter:
      return tuttiReduceScatter(send, receive, c.count, tuttiInt32, tuttiSum, comm, nullptr);
    case Collective::kAllGather:
      return tuttiAllGather(send, receive, c.count, tuttiInt32, comm, nullptr);
    case Collective::kGather:
      return tuttiGather(send, receive, c.count, tuttiInt32, c.root, comm, nullptr);
    case Collective::kScatter:
      return tuttiScatter(send, receive, c.count, tuttiInt32, c.root, comm, nullptr);
    case Collective::kAllToAll:
      return tuttiAlltoAll(send, receive, c.count, tuttiInt32, comm, nullptr);
    default:
      return tuttiNotSupported;
  }
}

inline std::string differs(const char* what, int rank, std::size_t i, std::int32_t got,
                           std::int32_t want) {
  return std::string(what) + ": rank " + std::to_string(rank) + " index " + std::to_string(i) +
         " got " + std::to_string(got) + " want " + std::to_string(want);
}

}  // namespace calls

// Empty if right, else what is wrong: the result, what lies around it, or an input that was
// written. Ranks without a buffer (the root's alone) pass NULL for it.
inline std::string check_call(tuttiComm_t comm, int rank, int ranks, const CallCase& c) {
  using namespace calls;
  using enum Collective;
  const std::size_t blocks = has_blocks(c.collective) ? static_cast<std::size_t>(ranks) : 1;
  const std::size_t data = c.count * blocks, own = c.count * static_cast<std::size_t>(rank);
  const bool own_input = c.collective == kAllGather || c.collective == kGather;
  const bool own_output = c.collective == kReduceScatter || c.collective == kScatter;
  const bool sends = (c.collective != kBroadcast && c.collective != kScatter) || rank == c.root;
  const bool receives = (c.collective != kReduce && c.collective != kGather) || rank == c.root;
  // Both hold the whole data here; a call with one block gets a pointer into it.
  std::vector<std::int32_t> in(data + 2 * kGuard, kUntouched), out = in;
  for (std::size_t i = 0; i < data; ++i) in[kGuard + i] = call_value(rank, i, c.salt);
  const std::vector<std::int32_t> kept = in;
  std::vector<std::int32_t>& target = c.in_place ? in : out;
  const std::vector<std::int32_t> before = target;
  const std::int32_t* const send = in.data() + kGuard + (own_input ? own : 0);
  std::int32_t* const receive = target.data() + kGuard + (own_output ? own : 0);
  const bool shares = c.in_place && sends && receives;
  const tuttiResult_t result =
      calls::issue(comm, c, sends ? send : (c.in_place ? receive : nullptr),
                   receives ? receive : (c.in_place ? const_cast<std::int32_t*>(send) : nullptr));
  if (result != tuttiSuccess) return tuttiGetLastError(comm);
  const std::size_t first = kGuard + (own_output ? own : 0);
  const std::size_t last = receives ? first + (own_output ? c.count : data) : first;
  for (std::size_t i = 0; i < target.size(); ++i) {
    const bool inside = i >= first && i < last;
    const std::int32_t want = inside ? wanted(c, rank, ranks, i - kGuard) : before[i];
    if (target[i] != want)
      return differs(inside ? "result" : "around the result", rank, i - kGuard, target[i], want);
  }
  for (std::size_t i = 0; !shares && &target != &in && i < in.size(); ++i)
    if (in[i] != kept[i]) return differs("input", rank, i - kGuard, in[i], kept[i]);
  return {};
}

}  // namespace tutti::test
