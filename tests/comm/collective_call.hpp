// SPDX-License-Identifier: Apache-2.0
// Every collective that a program can call, in one shape: with buffers of its own, on a stream or
// not, with arguments that a test may spoil, and with a result that is checked element by element
// against the interface's own words.
#pragma once

#include <tutti/stream.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "calls.hpp"

namespace tutti::test {

enum class Form {
  kAllReduce,
  kReduce,
  kBroadcast,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kGather,
  kScatter,
  kBarrier,
  kSendRecv,  // a group: each rank sends to the next one and receives from the one before it
  kAllGatherV,
  kReduceScatterV,
  kAllToAllV,
  kGatherV,
  kScatterV,
};

// Whose part the end of a rank's own part depends on.
enum class Flow {
  kFromAll,   // every rank's
  kToRoot,    // on the root every rank's, elsewhere nobody's
  kFromRoot,  // the root's, on the root nobody's
  kFromPrevious,
};

struct FormInfo {
  const char* name;
  Flow flow;
  bool reduces = false;
  bool uneven = false;     // blocks have sizes of their own
  bool transfers = false;  // made of sends and receives, which are compared pair by pair
  [[nodiscard]] bool rooted() const { return flow == Flow::kToRoot || flow == Flow::kFromRoot; }
};
// Indexed by Form; the names are those of errors.
inline constexpr FormInfo kForms[] = {
    {"all_reduce", Flow::kFromAll, true},
    {"reduce", Flow::kToRoot, true},
    {"broadcast", Flow::kFromRoot},
    {"reduce_scatter", Flow::kFromAll, true},
    {"all_gather", Flow::kFromAll},
    {"alltoall", Flow::kFromAll},
    {"gather", Flow::kToRoot},
    {"scatter", Flow::kFromRoot},
    {"barrier", Flow::kFromAll},
    {"send_recv", Flow::kFromPrevious, false, false, true},
    {"all_gather_v", Flow::kFromAll, false, true},
    {"reduce_scatter_v", Flow::kFromAll, true, true},
    {"alltoall_v", Flow::kFromAll, false, true, true},
    {"gather_v", Flow::kToRoot, false, true, true},
    {"scatter_v", Flow::kFromRoot, false, true, true},
};
inline constexpr int kFormCount = static_cast<int>(std::size(kForms));
inline const FormInfo& info_of(Form form) { return kForms[static_cast<std::size_t>(form)]; }

struct Arguments {
  Form form = Form::kAllReduce;
  std::size_t count = 1000;           // of a block; uneven, of that of rank r: count + r
  tuttiDataType_t type = tuttiInt32;  // of 4 bytes; the result can be checked for this one
  tuttiRedOp_t op = tuttiSum;
  int root = 0;
};

// One rank's call. Ranks that have no use for a buffer pass one all the same.
class CollectiveCall {
 public:
  CollectiveCall(const Arguments& arguments, int rank, int ranks)
      : arguments_(arguments), info_(info_of(arguments.form)), rank_(rank), ranks_(ranks) {
    for (int r = 0; r < ranks; ++r) {
      begins_.push_back(length_);
      sizes_.push_back(block_elems(r));
      to_each_.push_back(block_elems(rank));
      to_begins_.push_back(static_cast<std::size_t>(r) * block_elems(rank));
      length_ += block_elems(r);
    }
    const std::size_t longest =
        static_cast<std::size_t>(ranks) * (arguments.count + static_cast<std::size_t>(ranks));
    in_.resize(longest);
    out_.assign(longest, calls::kUntouched);
    for (std::size_t i = 0; i < longest; ++i) in_[i] = call_value(rank, i, 0);
  }

  tuttiResult_t issue(tuttiComm_t comm, tuttiStream_t stream) {
    const auto& [form, count, type, op, root] = arguments_;
    const std::size_t me = static_cast<std::size_t>(rank_), own = sizes_[me];
    const std::int32_t *in = in_.data(), *own_in = in + begins_[me];
    std::int32_t* const out = out_.data();
    switch (form) {
      case Form::kAllReduce:
        return tuttiAllReduce(in, out, count, type, op, comm, stream);
      case Form::kReduce:
        return tuttiReduce(in, out, count, type, op, root, comm, stream);
      case Form::kBroadcast:
        return tuttiBroadcast(in, out, count, type, root, comm, stream);
      case Form::kReduceScatter:
        return tuttiReduceScatter(in, out, count, type, op, comm, stream);
      case Form::kAllGather:
        return tuttiAllGather(own_in, out, count, type, comm, stream);
      case Form::kAllToAll:
        return tuttiAlltoAll(in, out, count, type, comm, stream);
      case Form::kGather:
        return tuttiGather(own_in, out, count, type, root, comm, stream);
      case Form::kScatter:
        return tuttiScatter(in, out, count, type, root, comm, stream);
      case Form::kBarrier:
        return tuttiBarrier(comm, stream);
      case Form::kSendRecv:
        return send_and_receive(comm, stream);
      case Form::kAllGatherV:
        return tuttiAllGatherv(own_in, own, out, sizes_.data(), begins_.data(), type, comm, stream);
      case Form::kReduceScatterV:
        return tuttiReduceScatterv(in, sizes_.data(), begins_.data(), out, own, type, op, comm,
                                   stream);
      case Form::kAllToAllV:
        return tuttiAlltoAllv(in, to_each_.data(), to_begins_.data(), out, sizes_.data(),
                              begins_.data(), type, comm, stream);
      case Form::kGatherV:
        return tuttiGatherv(own_in, own, out, sizes_.data(), begins_.data(), type, root, comm,
                            stream);
      case Form::kScatterV:
        return tuttiScatterv(in, sizes_.data(), begins_.data(), out, own, type, root, comm, stream);
    }
    return tuttiInternalError;
  }

  // Empty if what the call left is right, else what is wrong: the result, or what lies behind it.
  [[nodiscard]] std::string check() const {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const std::int32_t want = wanted(i).value_or(calls::kUntouched);
      if (out_[i] != want) return calls::differs(info_.name, rank_, i, out_[i], want);
    }
    return {};
  }

  // The count that errors say was called.
  [[nodiscard]] std::size_t called_count() const {
    return info_.uneven ? length_ : arguments_.count;
  }

 private:
  [[nodiscard]] std::size_t block_elems(int rank) const {
    return arguments_.count + (info_.uneven ? static_cast<std::size_t>(rank) : 0);
  }

  tuttiResult_t send_and_receive(tuttiComm_t comm, tuttiStream_t stream) {
    const tuttiResult_t begun = tuttiGroupStart();
    if (begun != tuttiSuccess) return begun;
    // An error of these ends the group, whose end tells it again.
    static_cast<void>(tuttiSend(in_.data(), arguments_.count, arguments_.type, (rank_ + 1) % ranks_,
                                comm, stream));
    static_cast<void>(
        tuttiRecv(out_.data(), arguments_.count, arguments_.type, previous(), comm, stream));
    return tuttiGroupEnd();
  }

  [[nodiscard]] int previous() const { return (rank_ + ranks_ - 1) % ranks_; }
  [[nodiscard]] std::int32_t sum(std::size_t i) const {
    std::int32_t all = 0;
    for (int peer = 0; peer < ranks_; ++peer) all += call_value(peer, i, 0);
    return all;
  }
  // The rank whose block holds element i of all blocks.
  [[nodiscard]] std::size_t owner(std::size_t i) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(begins_, i) - begins_.begin()) - 1;
  }

  // Element i of the output; nullopt: the call does not write there.
  [[nodiscard]] std::optional<std::int32_t> wanted(std::size_t i) const {
    const std::size_t me = static_cast<std::size_t>(rank_), count = arguments_.count;
    const bool is_root = rank_ == arguments_.root, in_own = i < sizes_[me], in_all = i < length_;
    const auto only_if = [](bool written, auto&& value) {
      return written ? std::optional<std::int32_t>(value()) : std::nullopt;
    };
    switch (arguments_.form) {
      case Form::kAllReduce:
        return only_if(i < count, [&] { return sum(i); });
      case Form::kReduce:
        return only_if(is_root && i < count, [&] { return sum(i); });
      case Form::kBroadcast:
        return only_if(i < count, [&] { return call_value(arguments_.root, i, 0); });
      case Form::kReduceScatter:
      case Form::kReduceScatterV:
        return only_if(in_own, [&] { return sum(begins_[me] + i); });
      case Form::kAllGather:
      case Form::kAllGatherV:
        return only_if(in_all, [&] { return call_value(static_cast<int>(owner(i)), i, 0); });
      case Form::kGather:
      case Form::kGatherV:
        return only_if(is_root && in_all,
                       [&] { return call_value(static_cast<int>(owner(i)), i, 0); });
      case Form::kAllToAll:
      case Form::kAllToAllV:
        return only_if(in_all, [&] {
          const std::size_t from = owner(i), at = me * sizes_[from] + i - begins_[from];
          return call_value(static_cast<int>(from), at, 0);
        });
      case Form::kScatter:
      case Form::kScatterV:
        return only_if(in_own, [&] { return call_value(arguments_.root, begins_[me] + i, 0); });
      case Form::kSendRecv:
        return only_if(i < count, [&] { return call_value(previous(), i, 0); });
      case Form::kBarrier:
        break;
    }
    return std::nullopt;
  }

  const Arguments arguments_;
  const FormInfo info_;
  const int rank_, ranks_;
  std::size_t length_ = 0;
  // Blocks one behind the other: where each begins and how long it is, and those that this rank
  // sends in an all-to-all.
  std::vector<std::size_t> begins_, sizes_, to_begins_, to_each_;
  std::vector<std::int32_t> in_, out_;
};

}  // namespace tutti::test
