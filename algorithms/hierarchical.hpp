// SPDX-License-Identifier: Apache-2.0
// The family of hierarchies, for its own files alone: hierarchical.cpp has the page and the
// schedules, hierarchical_names.cpp the names. Immutable; any thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "algorithms/families.hpp"
#include "algorithms/grouping.hpp"

namespace tutti {

enum class Form : std::uint8_t { kRails, kLeader };

// The collectives of the parts, in the order of the data: inside the groups, between them, inside
// them. kNone: there is no such part.
struct Parts {
  Collective gather = Collective::kNone, between = Collective::kNone, spread = Collective::kNone;
};

// Parts of kNone alone: the form does not have the collective.
[[nodiscard]] Parts parts_of(Form form, Collective collective);

[[nodiscard]] inline bool takes(const Algorithm& algorithm, Collective collective,
                                std::int32_t ranks) {
  return algorithm.supports({.collective = collective, .ranks = ranks});
}

class Hierarchical final : public Algorithm {
 public:
  // Of what is not given, each collective has its own.
  Hierarchical(std::optional<Form> form, const Algorithm* inner, const Algorithm* outer,
               std::vector<std::int32_t> groups);

  [[nodiscard]] bool supports(const Problem& problem) const override;
  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override;
  [[nodiscard]] Symmetry symmetry(const Problem& problem) const override;
  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override;
  [[nodiscard]] Result<std::unique_ptr<Algorithm>> with(
      std::span<const Parameter> given) const override;

 private:
  struct Layout;   // of one problem
  class Assembly;  // of one rank's program

  // May it be a part? kInvalidArgument says which one may not, and why.
  [[nodiscard]] Status check_inner() const;
  [[nodiscard]] Status check_outer() const;

  [[nodiscard]] std::shared_ptr<const Grouping> grouping(const Problem& problem) const;
  [[nodiscard]] Form form_for(Collective collective) const;
  [[nodiscard]] const Algorithm& inner_for(Collective collective) const;
  [[nodiscard]] const Algorithm& outer_for(Collective collective) const;
  [[nodiscard]] Parts parts_for(Collective collective) const {
    return parts_of(form_for(collective), collective);
  }
  // Do the spans of the parts lie in the buffers that this collective has on every rank?
  [[nodiscard]] bool parts_fit(const Problem& problem, const Grouping& groups) const;

  std::optional<Form> form_;
  const Algorithm* inner_;                  // null: by inner_for
  const Algorithm* outer_;                  // null: by outer_for
  std::shared_ptr<const Grouping> groups_;  // null: by grouping
};

}  // namespace tutti
