// SPDX-License-Identifier: Apache-2.0
// Builds legal programs: steps are added, and what they need before them is put in. Two steps that
// touch the same elements, one of them writing, must be ordered by the rules of tutti/stream.h, and
// what is reduced must be values whose reduction is exact. Where that is not so, Order adds events,
// waits and fills of its own, marked `derived`.
//
// It tracks for every rank which steps have ended before the next one on a stream, of a
// communicator, or in the calling thread can begin.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "program.hpp"

namespace tutti::programs {

inline constexpr std::size_t kMostSteps = 512;
inline constexpr int kEvents = 4;
inline constexpr int kMostComms = 32;

class Order {
 public:
  // A program without steps.
  explicit Order(const Program& program);

  // Adds a step, or the steps of a group. False: they are wrong (a communicator that is not there,
  // buffers of two types, steps of a group that touch the same elements, too many steps); none
  // of them is added then.
  [[nodiscard]] bool add(std::span<const Step> unit);

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const Parts& parts(int comm) const;
  [[nodiscard]] int comms() const { return static_cast<int>(parts_.size()); }
  [[nodiscard]] bool is_there(int comm) const;

 private:
  using Set = std::bitset<kMostSteps>;
  // What one rank knows to have ended.
  struct Known {
    Set thread;
    std::vector<Set> streams, events, comms;
  };
  struct Buffer {
    double bound;           // of the size of its values on any rank
    bool has_zero = false;  // then a product may be -0, of which max makes either zero
  };

  [[nodiscard]] bool is_legal(std::span<const Step> unit) const;
  [[nodiscard]] bool is_legal(const Step& step) const;
  [[nodiscard]] bool conflicts(const Step& a, const Step& b, int rank) const;
  [[nodiscard]] Set before(std::span<const Step> unit, const Step& step, int rank) const;
  [[nodiscard]] bool surely_runs(const Step& step, int rank) const;
  // The buffer that must be filled before the step.
  [[nodiscard]] std::optional<int> wants_fill(const Step& step) const;
  [[nodiscard]] bool order_after_conflicts(std::span<const Step> unit);
  [[nodiscard]] bool append(std::span<const Step> unit);
  void note_values(const Step& step);
  void note_work(std::span<const Step> unit, int rank, std::size_t first);
  void note_order(const Step& step, int rank);

  Program program_;
  std::vector<Parts> parts_;     // by communicator; of one that is destroyed they stay
  std::vector<bool> destroyed_;  // by communicator
  std::vector<Known> known_;     // by rank
  std::vector<Buffer> values_;   // by buffer
  std::uint32_t derived_ = 0;
};

// The program without its derived steps and with those that it needs. nullopt: a step is wrong.
[[nodiscard]] std::optional<Program> complete(const Program& program);

}  // namespace tutti::programs
