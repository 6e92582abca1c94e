// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace tutti::gpt {
namespace {

std::string products_text(const Options& options, const StartFacts& facts) {
  std::string text = fmt::format("# products: own code ({}) {:.1f} GFLOP/s", facts.instruction_set,
                                 facts.own_flops / 1e9);
  text += facts.blas.empty()
              ? ", no BLAS was found when this was built"
              : fmt::format(", {} {:.1f} GFLOP/s", facts.blas, facts.blas_flops / 1e9);
  text += fmt::format(" (a rank of {} thread{}, while all ranks measure)\n", facts.threads,
                      facts.threads == 1 ? "" : "s");
  if (options.matmul == Matmul::kBlas)
    return text + "# products: BLAS is used; bits may depend on how many slots a rank computes\n";
  return text + "# products: own code is used; bits do not depend on ranks or threads\n";
}

// A rank's memory, a line for each term.
std::string memory_text(const StartFacts& facts) {
  const zero::Memory& memory = facts.memory;
  struct Row {
    const char* name;
    std::uint64_t bytes;
  };
  const std::array rows = {
      Row{"parameters", memory.parameters},   Row{"gradients", memory.gradients},
      Row{"optimizer", memory.optimizer},     Row{"state", memory.state()},
      Row{"gathered units", memory.gathered}, Row{"units reducing", memory.reducing},
      Row{"engine", memory.total()},          Row{"activations", facts.activation_bytes}};
  std::string text;
  for (const Row& row : rows)
    text += fmt::format("# memory  : {:<15}{:>14} bytes a {}\n", row.name, row.bytes,
                        facts.server_bytes > 0 ? "worker" : "rank");
  if (facts.server_bytes > 0)
    text += fmt::format("# memory  : {:<15}{:>14} bytes a server\n", "all", facts.server_bytes);
  return text;
}

std::string stage_text(const Options& options) {
  constexpr std::array<std::string_view, 4> kWords = {"ddp", "zero1", "zero2", "zero3"};
  if (!options.servers) return std::string(kWords[static_cast<std::size_t>(options.engine.stage)]);
  const zero::Servers& servers = *options.servers;
  return fmt::format("{} parameter server{} ({}{})", servers.count, servers.count == 1 ? "" : "s",
                     servers.asynchronous ? "asynchronous" : "synchronous",
                     servers.colocated ? ", colocated" : "");
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

std::string start_text(const Options& options, const StartFacts& facts) {
  const Size& size = options.size;
  std::string text = fmt::format(
      "# zero_gpt: {} ({} parameters, {} layers, {} channels, context {}), {} on {} rank{}, "
      "{} slots of {} sequences\n",
      size.name, parameters_of(size), size.layers, size.channels, size.context, stage_text(options),
      options.processes, options.processes == 1 ? "" : "s", options.engine.slots, options.batch);
  text += products_text(options, facts) + memory_text(facts);
  text += fmt::format(
      "# text    : {}, {} bytes to train on, {} held out; the best trigram model has {:.4f} nats "
      "per byte there",
      facts.text, facts.training_bytes, facts.held_out_bytes, facts.trigram);
  if (facts.floor > 0) text += fmt::format(", the grammar itself {:.4f}", facts.floor);
  if (options.servers && options.servers->asynchronous) return text + "\n";
  return text + fmt::format(
                    "\n# MFU is a share of {:.1f} GFLOP/s, which the products above reach on all "
                    "ranks together\n",
                    facts.peak_flops / 1e9);
}

std::string worker_line(const Options& options, const Progress& progress) {
  const double tokens =
      static_cast<double>(options.tokens_per_step()) / options.workers() * progress.steps_since;
  return fmt::format(
      "step {:>6}  loss {:.4f}  lr {:.2e}  norm {:.3f}  {:>7.0f} tokens/s of worker 0\n",
      progress.step, progress.loss, progress.learning_rate, progress.gradient_norm,
      tokens / progress.seconds);
}

std::string arrivals_text(const std::vector<zero::Arrival>& arrivals) {
  constexpr std::size_t kMostListed = 64;
  double sum = 0;
  int most = 0;
  std::string list;
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    sum += arrivals[i].staleness;
    most = std::max(most, arrivals[i].staleness);
    if (i < kMostListed) list += fmt::format(" {}:{}", arrivals[i].worker, arrivals[i].staleness);
  }
  if (arrivals.empty()) return {};
  return fmt::format(
      "# staleness: {:.2f} updates on average, {} at most, of {}\n"
      "# worker:staleness of the {}:{}\n",
      sum / static_cast<double>(arrivals.size()), most, arrivals.size(),
      arrivals.size() > kMostListed ? "first updates" : "updates", list);
}

std::string progress_line(const Options& options, const Progress& progress, double peak_flops) {
  const double steps = progress.steps_since;
  const double tokens = static_cast<double>(options.tokens_per_step()) * steps;
  const double flops = tokens * static_cast<double>(options.size.flops_per_token());
  return fmt::format(
      "step {:>6}  loss {:.4f}  lr {:.2e}  norm {:.3f}  {:>7.0f} tokens/s  MFU {:4.1f} %  "
      "all ranks sent {}/step  stall {:.2f} ms/step\n",
      progress.step, progress.loss, progress.learning_rate, progress.gradient_norm,
      tokens / progress.seconds, 100 * flops / progress.seconds / peak_flops,
      bytes_text(progress.sent_bytes / steps), 1e3 * progress.stall_seconds / steps);
}

}  // namespace tutti::gpt
