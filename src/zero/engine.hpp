// SPDX-License-Identifier: Apache-2.0
// The engine's parts, and what happens between them in each of its calls. Knows the order of
// things; the parts know how.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zero/fingerprint.hpp"
#include "zero/residency.hpp"
#include "zero/sums.hpp"
#include "zero/update.hpp"

namespace tutti::zero {

// Engine is exported, and would pass that on.
#define TUTTI_ZERO_HIDDEN __attribute__((visibility("hidden")))

struct TUTTI_ZERO_HIDDEN Engine::Implementation {
  // `beginning` is ready when all memory of State is there.
  Implementation(Beginning& beginning, std::span<const Unit> given, const Layout& layout,
                 const Plan& plan, int rank);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  void check_unit(int unit) const;
  void check_parameter(int unit, int parameter) const;
  // Throws the failure after which the engine can only be destroyed, such as what a scope's end
  // could not throw.
  void check_usable() const;
  // Throws std::invalid_argument where parameters are in use, and the other one also where a step
  // is under way.
  void check_unused(const char* function) const;
  void check_at_rest(const char* function) const;
  // Throws std::invalid_argument on a parameter server's worker, which keeps no state.
  void check_updates(const char* function) const;
  // Runs a part of a collective call: if it throws, the engine can only be destroyed.
  template <typename Function>
  auto collectively(Function&& function);
  // The same at the end of a scope, which cannot throw: the next call does.
  template <typename Function>
  void at_scope_end(Function&& function) noexcept;

  // An exception of the model came through a scope of a unit.
  void leave_scope(int unit) noexcept;

  template <typename Optimizer>
  float step(const Optimizer& optimizer);
  // What is kept has changed: the compute copies follow.
  void parameters_changed();
  [[nodiscard]] const std::byte* parameters(int unit);
  [[nodiscard]] Kept kept() { return {plan, layout, units, state, links}; }

  std::vector<Unit> units;
  Layout layout;
  Plan plan;
  State state;
  Links links;
  std::optional<Residency> residency;  // where parameters are gathered for each use
  Sums sums;
  Update update;
  std::vector<int> uses;  // open scopes of each unit
  Memory memory;
  std::exception_ptr failure;
  int exceptions = 0;  // in flight when this was made
};

}  // namespace tutti::zero
