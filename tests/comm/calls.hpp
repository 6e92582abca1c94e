// SPDX-License-Identifier: Apache-2.0
// Any collective through the C API, checked on the calling rank against a result that is computed
// here from the interface's own words, element by element.
#pragma once

#include <tutti/tutti.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
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
  tuttiDataType_t type = tuttiInt32;
  tuttiRedOp_t op = tuttiSum;
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

// What element i of the data must be in the end. Of `values`: input(rank, i), and reduced(i) of all
// ranks.
template <class Values>
auto wanted(const CallCase& c, int rank, std::size_t i, const Values& values) {
  switch (c.collective) {
    case Collective::kScatter:
    case Collective::kBroadcast:
      return values.input(c.root, i);
    case Collective::kGather:
    case Collective::kAllGather:
      return values.input(static_cast<int>(i / c.count), i);
    case Collective::kAllToAll:
      return values.input(static_cast<int>(i / c.count),
                          static_cast<std::size_t>(rank) * c.count + i % c.count);
    default:
      return values.reduced(i);
  }
}

// The values of a case that says no others.
struct CallValues {
  using Element = std::int32_t;
  int ranks, salt;
  [[nodiscard]] Element input(int rank, std::size_t i) const { return call_value(rank, i, salt); }
  [[nodiscard]] Element reduced(std::size_t i) const {
    // The ranks' values are an arithmetic progression: a rank's is the one before plus a
    // difference.
    const Element first = call_value(0, i, salt), difference = call_value(1, i, salt) - first;
    return ranks * first + ranks * (ranks - 1) / 2 * difference;
  }
};

inline tuttiResult_t issue(tuttiComm_t comm, const CallCase& c, const void* send, void* receive) {
  switch (c.collective) {
    case Collective::kAllReduce:
      return tuttiAllReduce(send, receive, c.count, c.type, c.op, comm, nullptr);
    case Collective::kReduce:
      return tuttiReduce(send, receive, c.count, c.type, c.op, c.root, comm, nullptr);
    case Collective::kBroadcast:
      return tuttiBroadcast(send, receive, c.count, c.type, c.root, comm, nullptr);
    case Collective::kReduceScatter:
      return tuttiReduceScatter(send, receive, c.count, c.type, c.op, comm, nullptr);
    case Collective::kAllGather:
      return tuttiAllGather(send, receive, c.count, c.type, comm, nullptr);
    case Collective::kGather:
      return tuttiGather(send, receive, c.count, c.type, c.root, comm, nullptr);
    case Collective::kScatter:
      return tuttiScatter(send, receive, c.count, c.type, c.root, comm, nullptr);
    case Collective::kAllToAll:
      return tuttiAlltoAll(send, receive, c.count, c.type, comm, nullptr);
    default:
      return tuttiNotSupported;
  }
}

// The first index at which two unequal vectors of one size differ.
template <class Element>
std::size_t first_difference(const std::vector<Element>& a, const std::vector<Element>& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

template <class Element>
std::string differs(const char* what, int rank, std::size_t i, Element got, Element want) {
  return std::string(what) + ": rank " + std::to_string(rank) + " index " + std::to_string(i) +
         " got " + std::to_string(got) + " want " + std::to_string(want);
}

}  // namespace calls

// Empty if right, else what is wrong: the result, what lies around it, or an input that was
// written. Ranks without a buffer (the root's alone) pass NULL for it. An Element of the values has
// the size of the case's type; its bits are compared.
template <class Values>
std::string check_call(tuttiComm_t comm, int rank, int ranks, const CallCase& c,
                       const Values& values) {
  using namespace calls;
  using Element = typename Values::Element;
  using enum Collective;
  const std::size_t blocks = has_blocks(c.collective) ? static_cast<std::size_t>(ranks) : 1;
  const std::size_t data = c.count * blocks, own = c.count * static_cast<std::size_t>(rank);
  const bool own_input = c.collective == kAllGather || c.collective == kGather;
  const bool own_output = c.collective == kReduceScatter || c.collective == kScatter;
  const bool sends = (c.collective != kBroadcast && c.collective != kScatter) || rank == c.root;
  const bool receives = (c.collective != kReduce && c.collective != kGather) || rank == c.root;
  // Both hold the whole data here; a call with one block gets a pointer into it.
  std::vector<Element> in(data + 2 * kGuard, static_cast<Element>(kUntouched)), out = in;
  Element* const values_in = in.data() + kGuard;
  for (std::size_t i = 0; i < data; ++i) values_in[i] = values.input(rank, i);
  const std::vector<Element> kept = in;
  std::vector<Element>& target = c.in_place ? in : out;
  std::vector<Element> want = target;
  const std::size_t first = own_output ? own : 0;
  const std::size_t last = receives ? first + (own_output ? c.count : data) : first;
  Element* const values_out = want.data() + kGuard;
  for (std::size_t i = first; i < last; ++i) values_out[i] = wanted(c, rank, i, values);
  const Element* const send = in.data() + kGuard + (own_input ? own : 0);
  Element* const receive = target.data() + kGuard + first;
  const tuttiResult_t result =
      calls::issue(comm, c, sends ? send : (c.in_place ? receive : nullptr),
                   receives ? receive : (c.in_place ? const_cast<Element*>(send) : nullptr));
  if (result != tuttiSuccess) return tuttiGetLastError(comm);
  if (target != want) {
    const std::size_t i = first_difference(target, want) - kGuard;
    const bool inside = i >= first && i < last;
    return differs(inside ? "result" : "around the result", rank, i, target[i + kGuard],
                   want[i + kGuard]);
  }
  if (!c.in_place && in != kept) {
    const std::size_t i = first_difference(in, kept);
    return differs("input", rank, i - kGuard, in[i], kept[i]);
  }
  return {};
}
inline std::string check_call(tuttiComm_t comm, int rank, int ranks, const CallCase& c) {
  return check_call(comm, rank, ranks, c, calls::CallValues{ranks, c.salt});
}

}  // namespace tutti::test
