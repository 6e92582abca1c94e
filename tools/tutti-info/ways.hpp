// By which way messages would travel from ranks of this machine, and why: what a communicator
// decides once it knows its ranks (its own choice is in tuttiCommInfo).
#pragma once

#include <vector>

#include "base/config.hpp"
#include "facts.hpp"

namespace tutti::info {

[[nodiscard]] std::vector<Fact> way_facts(const Config& config);

}  // namespace tutti::info
