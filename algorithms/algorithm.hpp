// SPDX-License-Identifier: Apache-2.0
// An algorithm: pure functions from (problem, rank) to one rank's program.
// Knows no thread, pointer, size, CUDA or transport. Adding one is one file, one line in the list
// in families.hpp and the file's name in CMakeLists.txt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "algorithms/symmetry.hpp"
#include "base/result.hpp"
#include "schedule/schedule.hpp"

namespace tutti {

// One `key=value` of an algorithm's name, as in circulant:radix=4.
struct Parameter {
  std::string_view key, value;
};

// Names the order of a machine's ranks that suits an algorithm (model/rank_layout.hpp): one in
// which neighbours by number are close, or the one that is best for the edges of a tree.
enum class OrderKind : std::uint8_t { kRing, kTree };

// Immutable; any thread.
class Algorithm {
 public:
  virtual ~Algorithm() = default;

  std::string_view name;        // as on every command line and in every table
  std::string_view summary;     // one line: formula for steps and bytes, where it wins
  std::string_view source;      // the paper
  std::string_view parameters;  // what its name may carry, as "radix=2..64"; empty: nothing
  OrderKind order = OrderKind::kRing;
  bool takes_groups = false;  // works by groups of ranks that its name may carry and does not

  [[nodiscard]] virtual bool supports(const Problem& problem) const = 0;
  // Returns the facts that all ranks know without any rank's program. Its counts are the verified
  // ones, or, of a composition, at least as large.
  [[nodiscard]] virtual ScheduleShape shape(const Problem& problem) const = 0;
  // O(own steps) time and memory.
  [[nodiscard]] virtual RankProgram program(const Problem& problem, Rank rank) const = 0;
  // Is every value reduced left to right by rank, whatever the root, as a reduction that is not
  // commutative needs? A test compares it with the proofs. The algorithm must support the problem.
  [[nodiscard]] virtual bool in_rank_order(const Problem& /*problem*/) const { return false; }
  // Says which ranks are alike; by default none are. The algorithm must support the problem.
  [[nodiscard]] virtual Symmetry symmetry(const Problem& problem) const;

  // This family with other parameters; the caller names it. kInvalidArgument says which parameters
  // there are.
  [[nodiscard]] virtual Result<std::unique_ptr<Algorithm>> with(
      std::span<const Parameter> given) const;

 protected:
  constexpr Algorithm(std::string_view own_name, std::string_view own_summary,
                      std::string_view own_source, std::string_view own_parameters = {})
      : name(own_name), summary(own_summary), source(own_source), parameters(own_parameters) {}
  // For with(): a parameter that the family does not take, and those that it does.
  [[nodiscard]] tl::unexpected<Error> refuse(const Parameter& parameter) const;
};

// Every family there is with its default parameters, in the order in which tables list them.
[[nodiscard]] std::span<const Algorithm* const> all_algorithms();

// Their forms with remote operands, each under its full name: for ranks that can read each other's
// memory.
[[nodiscard]] std::span<const Algorithm* const> direct_algorithms();
[[nodiscard]] bool is_direct(const Algorithm& algorithm);

// The algorithm of a name `family` or `family:key=value:key=value`; lives as long as the process.
// kInvalidArgument names the families, or the family's parameters.
[[nodiscard]] Result<const Algorithm*> find_algorithm(std::string_view name);

// "ring, tree, ...", for messages.
[[nodiscard]] std::string known_algorithms();

// Is it a problem, and one that the algorithm covers? To be asked before shape() and program().
// kInvalidArgument, kNotSupported.
[[nodiscard]] Status check_problem(const Algorithm& algorithm, const Problem& problem);

// All ranks' programs: for proof, price and pictures. Errors as check_problem.
[[nodiscard]] Result<Schedule> build_schedule(const Algorithm& algorithm, const Problem& problem);

}  // namespace tutti
