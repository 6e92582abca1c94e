// SPDX-License-Identifier: Apache-2.0
#include "tutti-tune/fit_costs.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "lab/fit.hpp"
#include "plan/choice.hpp"

namespace tutti::tune {
namespace {

// A cost that is fitted, and how well it is known: a factor that is no surprise.
struct Factor {
  HostCosts CostSet::*costs;
  double HostCosts::*value;
  double spread;
};

// The reading protocols' messages are flagged cells, so what those cost holds for them.
std::vector<Factor> factors() {
  std::vector<Factor> all;
  for (const auto costs : {&CostSet::flagged, &CostSet::slotted})
    for (const auto value :
         {&HostCosts::alpha_ns, &HostCosts::step_ns, &HostCosts::beta_ns_per_byte,
          &HostCosts::message_ns_per_byte, &HostCosts::switch_ns})
      all.push_back({costs, value, 3});
  for (const auto costs : {&CostSet::attached, &CostSet::mapped})
    for (const auto value : {&HostCosts::beta_ns_per_byte, &HostCosts::remote_ns,
                             &HostCosts::remote_ns_per_byte, &HostCosts::remote_crowd_ns_per_byte})
      all.push_back({costs, value, 5});
  return all;
}

CostSet scaled(std::span<const Factor> factors, std::span<const double> by) {
  CostSet costs = prior_costs();
  for (std::size_t i = 0; i < factors.size(); ++i)
    costs.*factors[i].costs.*factors[i].value *= by[i];
  for (const auto reading : {&CostSet::attached, &CostSet::mapped}) {
    (costs.*reading).alpha_ns = costs.flagged.alpha_ns;
    (costs.*reading).step_ns = costs.flagged.step_ns;
    (costs.*reading).switch_ns = costs.flagged.switch_ns;
  }
  return costs;
}

// The samples' contenders, counted once.
class Pricing {
 public:
  static Result<Pricing> of(std::span<const Sample> samples, int cores) {
    Pricing pricing;
    TUTTI_TRY_ASSIGN(pricing.settings_, make_settings(Config{}, cores));
    for (const Sample& sample : samples) {
      TUTTI_TRY_ASSIGN(const Forced forced, parse_forced(sample.plan));
      auto& found = pricing.contenders_[{sample.plan, sample.ranks}];
      if (found.empty()) {
        // tutti-tune measures all-reduces.
        const Problem problem{.collective = Collective::kAllReduce, .ranks = sample.ranks};
        TUTTI_TRY_ASSIGN(found, contenders(pricing.settings_, forced, problem));
      }
    }
    return pricing;
  }

  Result<std::vector<double>> times_us(std::span<const Sample> samples, const CostSet& costs) {
    settings_.costs = costs;
    std::vector<double> times;
    for (const Sample& sample : samples) {
      const PeerAccess access = sample.windows ? PeerAccess::kMapped : PeerAccess::kAttach;
      TUTTI_TRY_ASSIGN(const std::vector<Priced> priced,
                       price_candidates(settings_, contenders_.at({sample.plan, sample.ranks}),
                                        sample.bytes, access));
      times.push_back(priced.front().cost.time_ns / 1e3);
    }
    return times;
  }

 private:
  Settings settings_;
  std::map<std::pair<std::string, int>, std::vector<Contender>> contenders_;
};

std::string name_of(const Factor& factor) {
  std::string name;
  for (const CostSetMember& set : kCostSetMembers)
    for (const HostCostsMember& member : kHostCostsMembers)
      if (set.costs == factor.costs && member.value == factor.value)
        name = std::string(set.name) + " " + std::string(member.name);
  return name;
}

double median_residual(std::span<const Sample> samples, const std::vector<double>& predicted) {
  std::vector<double> all;
  for (std::size_t i = 0; i < samples.size(); ++i)
    all.push_back(std::abs(predicted[i] / samples[i].time_us - 1));
  const auto half = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, half);
  return *half;
}

}  // namespace

Result<Fitted> fit_costs(std::span<const Sample> samples, int cores) {
  TUTTI_TRY_ASSIGN(Pricing pricing, Pricing::of(samples, cores));
  const std::vector<Factor> tuned = factors();
  FitProblem problem;
  problem.outliers = true;
  for (const Sample& sample : samples) problem.measured.push_back(sample.time_us);
  for (const Factor& factor : tuned) problem.spreads.push_back(factor.spread);
  problem.predict = [&](std::span<const double> by) {
    return pricing.times_us(samples, scaled(tuned, by));
  };
  TUTTI_TRY_ASSIGN(const FitResult fit, fit_factors(problem));
  Fitted fitted{.costs = scaled(tuned, fit.factors)};
  TUTTI_TRY_ASSIGN(const std::vector<double> before, pricing.times_us(samples, prior_costs()));
  TUTTI_TRY_ASSIGN(fitted.predicted_us, pricing.times_us(samples, fitted.costs));
  for (std::size_t i = 0; i < tuned.size(); ++i)
    if (fit.at_bound[i]) fitted.at_bound.push_back(name_of(tuned[i]));
  fitted.residual_before = median_residual(samples, before);
  fitted.residual = median_residual(samples, fitted.predicted_us);
  return fitted;
}

}  // namespace tutti::tune
