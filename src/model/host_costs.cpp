// SPDX-License-Identifier: Apache-2.0
#include "model/host_costs.hpp"

namespace tutti {
namespace {

// Prior costs of the two protocols over shared memory, until a calibration replaces them. Measured
// with perf/bench_connection and bench_kernels on an AMD EPYC (Zen 5, 2 cores of a virtual machine,
// 32 MiB L3), November 2026; those of small calls, with perf/regret on a Zen 3. docs/performance.md
// holds the runs.
constexpr HostCosts kFlaggedPrior{.alpha_ns = 45,
                                  .step_ns = 35,
                                  .beta_ns_per_byte = 0.02,
                                  .message_ns_per_byte = 0.07,
                                  .switch_ns = 900,
                                  .slices_ns = 500,
                                  .other_message_ns = 20,
                                  .long_message_ns = 100};
constexpr HostCosts kSlottedPrior{.alpha_ns = 200,
                                  .step_ns = 35,
                                  .beta_ns_per_byte = 0.01,
                                  .message_ns_per_byte = 0.02,
                                  .switch_ns = 900,
                                  .slices_ns = 500,
                                  .other_message_ns = 100};
// Reading a peer's memory instead, weighed against the slots above: these constants are what makes
// the ratio of times right on that machine. Cross-memory attach, with its look-up of each page,
// takes 1.7 to 2.4 of the time by slots from 128 KiB to 8 MiB between two processes, whether their
// cores share a cache or not. Plain loads and stores take 0.4 to 0.7 (on a Zen 3), and no more
// among ranks that share cores (docs/performance.md, "Direct forms of rooted collectives").
constexpr HostCosts kAttachedPrior{.alpha_ns = 45,
                                   .step_ns = 35,
                                   .beta_ns_per_byte = 0.01,
                                   .switch_ns = 900,
                                   .remote_ns = 900,
                                   .remote_ns_per_byte = 0.13,
                                   .remote_crowd_ns_per_byte = 0.08};
constexpr HostCosts kMappedPrior{.alpha_ns = 45,
                                 .step_ns = 35,
                                 .beta_ns_per_byte = 0.01,
                                 .switch_ns = 900,
                                 .slices_ns = 200,
                                 .rooted_ns = 600,
                                 .remote_ns = 150,
                                 .remote_ns_per_byte = 0.018,
                                 .remote_crowd_ns_per_byte = 0.004};
constexpr CostSet kPriorCosts{kFlaggedPrior, kSlottedPrior, kAttachedPrior, kMappedPrior};

}  // namespace

const CostSet& prior_costs() { return kPriorCosts; }

}  // namespace tutti
