// SPDX-License-Identifier: Apache-2.0
// Algorithms by name: the tables of the families that families.hpp lists, and the variants made of
// them by parameters.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/families.hpp"

namespace tutti {
namespace {

#define TUTTI_NONE(name)
#define TUTTI_ADDRESS(name) &name(),

const auto& families() {
  static const std::array kAll{TUTTI_FAMILIES(TUTTI_ADDRESS, TUTTI_NONE)};
  return kAll;
}

const auto& direct_forms() {
  static const std::array kAll{TUTTI_FAMILIES(TUTTI_NONE, TUTTI_ADDRESS)};
  return kAll;
}

#undef TUTTI_NONE
#undef TUTTI_ADDRESS

// Those that were asked for by parameters, by name: made once, kept for the process.
class Variants {
 public:
  Result<const Algorithm*> find(std::string_view name);

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Algorithm>, std::less<>> made_;  // guarded by mutex_
};

Result<const Algorithm*> family_of(std::string_view name) {
  const auto all = all_algorithms();
  const std::string_view family = name.substr(0, name.find(':'));
  const auto found =
      std::ranges::find_if(all, [&](const Algorithm* each) { return each->name == family; });
  if (found != all.end()) return *found;
  return make_error(Code::kInvalidArgument, fmt::format("unknown algorithm '{}'; choose one of {}",
                                                        family, known_algorithms()));
}

Result<std::vector<Parameter>> parse_parameters(std::string_view name) {
  std::vector<Parameter> parameters;
  for (std::size_t at = name.find(':'); at != std::string_view::npos;) {
    const std::size_t end = name.find(':', at + 1);
    const std::string_view text = name.substr(at + 1, end - at - 1);
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string_view::npos || equals + 1 == text.size())
      return make_error(Code::kInvalidArgument,
                        fmt::format("'{}' in '{}' is not of the form key=value", text, name));
    const Parameter parameter{text.substr(0, equals), text.substr(equals + 1)};
    if (std::ranges::find(parameters, parameter.key, &Parameter::key) != parameters.end())
      return make_error(Code::kInvalidArgument,
                        fmt::format("'{}' appears twice in '{}'", parameter.key, name));
    parameters.push_back(parameter);
    at = end;
  }
  return parameters;
}

// Made outside of the lock: a composition finds its parts here.
Result<const Algorithm*> Variants::find(std::string_view name) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = made_.find(name); found != made_.end()) return found->second.get();
  }
  TUTTI_TRY_ASSIGN(const Algorithm* const family, family_of(name));
  TUTTI_TRY_ASSIGN(const std::vector<Parameter> parameters, parse_parameters(name));
  TUTTI_TRY_ASSIGN(std::unique_ptr<Algorithm> made, family->with(parameters));
  const std::lock_guard lock(mutex_);
  const auto [kept, first] = made_.emplace(name, std::move(made));
  if (first) kept->second->name = kept->first;
  return kept->second.get();
}

}  // namespace

tl::unexpected<Error> Algorithm::refuse(const Parameter& parameter) const {
  if (parameters.empty())
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{} takes no parameters, so '{}' cannot be set", name, parameter.key));
  return make_error(Code::kInvalidArgument,
                    fmt::format("{} does not accept '{}={}'; it takes {}", name, parameter.key,
                                parameter.value, parameters));
}

Result<std::unique_ptr<Algorithm>> Algorithm::with(std::span<const Parameter> given) const {
  return refuse(given.front());
}

Symmetry Algorithm::symmetry(const Problem& /*problem*/) const { return {}; }

std::span<const Algorithm* const> all_algorithms() { return families(); }
std::span<const Algorithm* const> direct_algorithms() { return direct_forms(); }

bool is_direct(const Algorithm& algorithm) {
  return std::ranges::find(direct_algorithms(), &algorithm) != direct_algorithms().end();
}

Result<const Algorithm*> find_algorithm(std::string_view name) {
  if (name.find(':') == std::string_view::npos) return family_of(name);
  const auto direct = direct_algorithms();
  const auto found = std::ranges::find(direct, name, &Algorithm::name);
  if (found != direct.end()) return *found;
  static auto* const variants = new Variants;  // never destroyed: ranks may outlive main
  return variants->find(name);
}

std::string known_algorithms() {
  std::string names;
  for (const Algorithm* algorithm : all_algorithms())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", algorithm->name);
  return names;
}

Status check_problem(const Algorithm& algorithm, const Problem& problem) {
  if (problem.ranks < 1)
    return make_error(Code::kInvalidArgument,
                      fmt::format("a schedule needs at least 1 rank, not {}", problem.ranks));
  if (problem.root < 0 || problem.root >= problem.ranks)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("root {} is out of range: there are {} ranks", problem.root, problem.ranks));
  if (!algorithm.supports(problem))
    return make_error(Code::kNotSupported,
                      fmt::format("{} does not implement {} for {} ranks", algorithm.name,
                                  name_of(problem.collective), problem.ranks));
  return {};
}

Result<Schedule> build_schedule(const Algorithm& algorithm, const Problem& problem) {
  TUTTI_TRY(check_problem(algorithm, problem));
  Schedule schedule{algorithm.shape(problem), {}};
  schedule.ranks.reserve(static_cast<std::size_t>(problem.ranks));
  for (Rank rank = 0; rank < problem.ranks; ++rank)
    schedule.ranks.push_back(algorithm.program(problem, rank));
  return schedule;
}

}  // namespace tutti
