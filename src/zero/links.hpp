// SPDX-License-Identifier: Apache-2.0
// The engine's way to the other ranks: communicators of its own, so that its calls on streams never
// wait behind the program's, the two streams, what was sent, and small agreements.
//
// Gathers and reductions have a communicator each, because the calls of one run in the order of
// issue: a gather that the model waits for must not stand behind a reduction that waits for others.
//
// The engine's thread uses all of it; functions on the streams use none of it.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "zero/plan.hpp"
#include "zero/settings.hpp"

namespace tutti::zero {

// An error that all ranks have agreed on before anything was changed.
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An error after which the engine can only be destroyed, and of which all ranks know: nobody waits.
class Agreed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the function threw, or empty: for Links::agree().
template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Ends all calls of a communicator, if there is one, so that nobody waits for this rank.
void abort(Communicator& comm) noexcept;

// Errors of the part of a constructor that comes before the first split: whoever made this calls
// ready() or refuse(), and all ranks of the communicator do the same. Collective.
class Beginning {
 public:
  // `settings` must be the same on all ranks.
  explicit Beginning(Communicator& comm, std::vector<Setting> settings = {})
      : comm_(comm), settings_(std::move(settings)) {}
  // Throws std::invalid_argument with the text of the first rank that refused, if one did, or with
  // which of the settings are not the same on all ranks.
  Communicator& ready();
  // Throws as ready(). Returns where ready() came before: then it is an error of this rank alone.
  void refuse(const std::string& why);

 private:
  void tell(const std::string& why);
  Communicator& comm_;
  const std::vector<Setting> settings_;
  bool told_ = false;
};

class Links {
 public:
  // Collective.
  Links(Communicator& comm, const Plan& plan);
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int shard() const { return shard_; }  // which one this rank keeps
  [[nodiscard]] int shard_ranks() const { return shard_ranks_; }
  // The rank of whom keeps a shard of this rank's replica.
  [[nodiscard]] int rank_of(std::size_t shard) const {
    return rank_ - shard_ + static_cast<int>(shard);
  }
  [[nodiscard]] int group() const { return group_; }
  [[nodiscard]] int groups() const { return groups_; }

  // Of the ranks that share a replica, in the order of shards; empty if that is this rank alone.
  Communicator gathers, reductions;
  // Of the ranks that keep the same shard, in the order of groups; empty if that is this one alone.
  Communicator replicas;
  Stream gather_stream, reduce_stream;
  Usage usage;

  // Blocks until the work before the event has ended, and adds the time to usage.stall_seconds.
  // Throws if a communicator failed.
  void wait(const Event& event);
  void check_state() const;
  // After an error peers may not come any more: ends all calls, so that nobody waits for them.
  void give_up() noexcept;
  // All ranks know that this is the end: neither this nor the destructor ends calls of others.
  void agree_on_end() { end_is_agreed_ = true; }

  // Blocking calls among all ranks of a replica: `own` of each rank, in the order of shards.
  [[nodiscard]] std::vector<std::uint64_t> collect(std::span<const std::uint64_t> own);
  // The value of rank 0 of all.
  [[nodiscard]] std::uint64_t from_first(std::uint64_t value);
  // Returns if `error` is empty on all ranks. Otherwise all of them throw Refused with the
  // text of the first that has one.
  void agree(const std::string& error);

  // Counted by the library: payload that this rank sent on the engine's communicators.
  [[nodiscard]] std::uint64_t library_bytes() const;

 private:
  [[nodiscard]] bool any(Communicator& comm, int ranks, bool here, int& first);

  int rank_ = 0, shard_ = 0, shard_ranks_ = 1, group_ = 0, groups_ = 1;
  int exceptions_ = 0;  // in flight when this was made
  bool end_is_agreed_ = false;
};

}  // namespace tutti::zero
