// SPDX-License-Identifier: Apache-2.0
// The names of hierarchies: which algorithms may be their parts, and what a refused one is told.
#include <fmt/core.h>

#include "algorithms/hierarchical.hpp"

namespace tutti {
namespace {

// Columns are runs of chunks: what sends strided ones cannot lie on them.
bool sends_strided(const Algorithm& algorithm, Collective collective) {
  constexpr std::int32_t kRanks = 8;  // enough to tell
  for (const Lane& lane : algorithm.program({.collective = collective, .ranks = kRanks}, 0).lanes)
    for (const Step& step : lane.steps)
      for (const Operand& operand : step.destinations)
        if (operand.span.repetitions > 1) return true;
  return false;
}

// The name of a part, put together from the parameters `key` and `key`.K.
class PartName {
 public:
  PartName(std::string_view key, std::string_view fallback) : key_(key), family_(fallback) {}

  // Is it one of this part's?
  bool take(const Parameter& parameter) {
    if (parameter.key == key_) {
      family_ = parameter.value;
      return given_ = true;
    }
    const std::size_t dot = key_.size();
    if (!parameter.key.starts_with(key_) || parameter.key.substr(dot, 1) != "." ||
        parameter.key.size() == dot + 1)
      return false;
    parameters_ += fmt::format(":{}={}", parameter.key.substr(dot + 1), parameter.value);
    return given_ = true;
  }
  // Null: no parameter names it.
  [[nodiscard]] Result<const Algorithm*> find() const {
    if (!given_) return nullptr;
    return find_algorithm(family_ + parameters_).map_error([&](Error error) {
      error.message = fmt::format("hierarchical: {}={}: {}", key_, family_, error.message);
      return error;
    });
  }

 private:
  std::string_view key_;
  std::string family_, parameters_;
  bool given_ = false;
};

Status refuse_part(std::string_view key, const Algorithm& algorithm, const std::string& why) {
  return make_error(Code::kInvalidArgument,
                    fmt::format("hierarchical: {}={}: {}", key, algorithm.name, why));
}

}  // namespace

// A part must serve the form's all-reduce, which needs more of it than any other collective.
Status Hierarchical::check_inner() const {
  const Form form = form_.value_or(Form::kRails);
  const Parts parts = parts_of(form, Collective::kAllReduce);
  const Algorithm& inner = inner_for(Collective::kAllReduce);
  const auto has_parts = [&](const Algorithm& algorithm) {
    return takes(algorithm, parts.gather, 2) && takes(algorithm, parts.spread, 2);
  };
  std::string suitable;
  for (const Algorithm* algorithm : all_algorithms())
    if (has_parts(*algorithm) && dynamic_cast<const Hierarchical*>(algorithm) == nullptr &&
        !sends_strided(*algorithm, parts.gather))
      suitable += fmt::format("{}{}", suitable.empty() ? "" : ", ", algorithm->name);
  const std::string_view form_name = form == Form::kRails ? "rails" : "leader";
  if (dynamic_cast<const Hierarchical*>(&inner) != nullptr)
    return refuse_part(
        "inner", inner,
        fmt::format("hierarchies of more than two levels are not built; form={} takes {}",
                    form_name, suitable));
  if (!has_parts(inner))
    return refuse_part(
        "inner", inner,
        fmt::format("it has no {} and {} of its own; form={} takes {}", name_of(parts.gather),
                    name_of(parts.spread), form_name, suitable));
  if (sends_strided(inner, parts.gather))
    return refuse_part(
        "inner", inner,
        fmt::format("its messages are strided, so it can only be outer; form={} takes {}",
                    form_name, suitable));
  // Parts are placed in buffers of one rank.
  if (is_direct(inner))
    return refuse_part("inner", inner,
                       "it works in its peers' memory, which no part of a hierarchy may do; choose "
                       "another algorithm");
  return {};
}

Status Hierarchical::check_outer() const {
  const Algorithm& outer = outer_for(Collective::kAllReduce);
  if (dynamic_cast<const Hierarchical*>(&outer) != nullptr)
    return refuse_part(
        "outer", outer,
        "hierarchies of more than two levels are not built; choose another algorithm");
  if (is_direct(outer))
    return refuse_part("outer", outer,
                       "it works in its peers' memory, which no part of a hierarchy may do; choose "
                       "another algorithm");
  return {};
}

Result<std::unique_ptr<Algorithm>> Hierarchical::with(std::span<const Parameter> given) const {
  std::optional<Form> form;
  for (const auto& [key, value] : given)
    if (key == "form") form = value == "leader" ? Form::kLeader : Form::kRails;
  PartName inner("inner", form == Form::kLeader ? one_shot().name : two_shot().name);
  PartName outer("outer", circulant().name);
  std::vector<std::int32_t> groups;
  for (const Parameter& parameter : given) {
    const auto [key, value] = parameter;
    if (key == "groups") {
      TUTTI_TRY_ASSIGN(groups, parse_groups(value));
    } else if (!(key == "form" && (value == "rails" || value == "leader")) &&
               !inner.take(parameter) && !outer.take(parameter)) {
      return refuse(parameter);
    }
  }
  TUTTI_TRY_ASSIGN(const Algorithm* const inside, inner.find());
  TUTTI_TRY_ASSIGN(const Algorithm* const between, outer.find());
  auto made = std::make_unique<Hierarchical>(form, inside, between, std::move(groups));
  TUTTI_TRY(made->check_outer());
  TUTTI_TRY(made->check_inner());
  return made;
}

}  // namespace tutti
