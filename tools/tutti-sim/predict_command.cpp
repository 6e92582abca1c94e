// SPDX-License-Identifier: Apache-2.0
#include "predict_command.hpp"

#include <fmt/core.h>

#include "algorithms/algorithm.hpp"
#include "lab/predict.hpp"

namespace tutti::sim {

Result<AlgorithmProfile> resolve_algorithm(Profile& profile, const std::string& name) {
  if (const AlgorithmProfile* const found = profile.find(name)) return *found;
  const auto schedule = find_algorithm(name);
  if (!schedule) {
    std::string known;
    for (const AlgorithmProfile& each : profile.algorithms)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", each.name);
    return make_error(Code::kInvalidArgument,
                      fmt::format("profile {} has {}; as a schedule of Tutti: {}", profile.name,
                                  known, schedule.error().message));
  }
  profile.algorithms.push_back({.name = name, .schedule = name});
  return profile.algorithms.back();
}

Status predict_table(const PredictOptions& options, std::FILE* out) {
  Profile profile = options.profile;
  std::vector<Predictor> predictors;
  for (const std::string& name : options.algorithms) {
    TUTTI_TRY_ASSIGN(const AlgorithmProfile algorithm, resolve_algorithm(profile, name));
    TUTTI_TRY_ASSIGN(Predictor predictor,
                     Predictor::make(options.cluster, profile, algorithm, options.collective));
    predictors.push_back(std::move(predictor));
  }
  const double factor = info_of(options.collective).bus_factor(options.cluster.ranks());
  if (options.csv) {
    fmt::print(out, "size_bytes,algorithm,time_us\n");
  } else {
    fmt::print(out, "# {} of {} ranks on {} ({} nodes), profile {}: {}\n",
               name_of(options.collective), options.cluster.ranks(), options.cluster.name,
               options.cluster.nodes, profile.name, options.simulate ? "simulated" : "predicted");
    fmt::print(out, "#{:>13}  {:<12} {:<9}{:>7}{:>13}{:>10}{:>10}\n", "size", "algorithm",
               "protocol", "slices", "time", "algbw", "busbw");
    fmt::print(out, "#{:>13}  {:<12} {:<9}{:>7}{:>13}{:>10}{:>10}\n", "(B)", "", "", "", "(us)",
               "(GB/s)", "(GB/s)");
  }
  for (const std::uint64_t size : options.sizes_bytes)
    for (std::size_t i = 0; i < predictors.size(); ++i) {
      TUTTI_TRY_ASSIGN(const Prediction best, options.simulate
                                                  ? predictors[i].simulate(profile, size)
                                                  : predictors[i].predict(profile, size));
      const std::string& name = options.algorithms[i];
      if (options.csv) {
        fmt::print(out, "{},{},{:.3f}\n", size, name, best.time_ns / 1e3);
        continue;
      }
      const double GBps = static_cast<double>(size) / best.time_ns;
      fmt::print(out, "{:>14}  {:<12} {:<9}{:>7}{:>13.2f}{:>10.2f}{:>10.2f}\n", size, name,
                 profile.protocols[best.protocol].name, best.slices, best.time_ns / 1e3, GBps,
                 GBps * factor);
    }
  return {};
}

}  // namespace tutti::sim
