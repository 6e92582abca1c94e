// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <fmt/core.h>

#include <cmath>

namespace tutti::zero_memory {
namespace {

constexpr double kGB = 1e9;

std::string describe(const Model& model) {
  std::string text = fmt::format("{}: {} parameters", model.name, model.parameters);
  if (model.shape)
    text += fmt::format(" ({} layers, hidden {}, {} heads, sequence {}, vocabulary {})",
                        model.shape->layers, model.shape->hidden, model.shape->heads,
                        model.shape->sequence, model.shape->vocabulary);
  return text;
}

std::string describe(const Accounting& accounting) {
  return fmt::format("{} + {} + {} bytes per parameter (parameters, gradients, optimizer)",
                     accounting.parameter, accounting.gradient, accounting.optimizer);
}

std::string stage_table(const Report& report) {
  const ReportQuestion& asked = report.question;
  std::string text = fmt::format(
      "\n# on each of {} ranks, in GB; reduced, gathered: sent by each in a step, G = {}\n"
      "#{:<7}{:>11}{:>11}{:>11}{:>11}{:>8}{:>7}{:>11}{:>11}{:>9}{:>15}\n",
      asked.ranks, asked.microsteps, "stage", "parameters", "gradients", "optimizer", "state",
      "saves", "limit", "reduced", "gathered", "least", "largest");
  for (const StageRow& row : report.stages)
    text += fmt::format(
        "{:<8}{:>11.4g}{:>11.4g}{:>11.4g}{:>11.4g}{:>7.4g}x{:>7}{:>11.4g}{:>11.4g}{:>9}{:>15.4g}\n",
        name_of(row.stage), row.state.parameters / kGB, row.state.gradients / kGB,
        row.state.optimizer / kGB, row.state.total() / kGB, row.reduction,
        std::isinf(row.limit) ? "N x" : fmt::format("{:.3g}x", row.limit),
        row.volume.gradients / kGB, row.volume.gathered / kGB,
        row.least_ranks ? fmt::format("{}", *row.least_ranks) : "none",
        static_cast<double>(row.largest_model));
  return text + fmt::format(
                    "# least: ranks whose state fits into {:.4g} GB; largest: parameters whose "
                    "state fits on {} ranks\n",
                    static_cast<double>(asked.memory_bytes) / kGB, asked.ranks);
}

std::string activation_table(const Report& report) {
  if (report.activations.empty()) return "\n# activations: unknown without the model's shape\n";
  const ReportQuestion& asked = report.question;
  std::string text = fmt::format(
      "\n# activations of a rank with all layers, in GB (b = {}, t = {}{})\n"
      "#{:<13}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}\n",
      asked.microbatch, asked.tensor.ranks,
      asked.tensor.sequence_parallel ? ", sequence parallel" : "", "recomputation", "layer",
      "stored", "working", "output", "total", "operations");
  for (const ActivationRow& row : report.activations)
    text += fmt::format("{:<14}{:>11.4g}{:>11.4g}{:>11.4g}{:>11.4g}{:>11.4g}{:>+10.3g}%\n",
                        name_of(row.recomputation), row.layer / kGB, row.bytes.stored / kGB,
                        row.bytes.working / kGB, row.bytes.output / kGB, row.bytes.total() / kGB,
                        100 * row.more_operations);
  return text;
}

std::string time_lines(const Report& report) {
  const ReportQuestion& asked = report.question;
  std::string text = fmt::format(
      "\n# {:.4g} tokens: {:.4g} operations (6 P D){}\n"
      "# {} ranks of {:.4g} FLOP/s at {:.3g} % MFU: {:.4g} days; {} ranks for {:.4g} days\n",
      asked.tokens, report.flops,
      asked.model.shape
          ? fmt::format(", the attention's in addition {:.4g}", report.attention_flops)
          : "",
      asked.ranks, asked.peak_flops, 100 * asked.mfu, report.seconds / kSecondsPerDay,
      report.ranks_for_days, asked.days);
  if (report.step_tokens > 0)
    text += fmt::format("# a step of {} tokens computes for {:.4g} s, without communication\n",
                        report.step_tokens, report.step_seconds);
  if (asked.stages > 1 || asked.tensor.ranks > 1)
    text +=
        "# the state above is of data parallelism among all ranks; --tensor-parallel divides the "
        "activations alone, --pipeline nothing\n";
  if (asked.stages > 1)
    text += fmt::format(
        "# pipeline of {} stages, {} microbatches, {} chunks a stage: bubble {:.4g} % of the "
        "ideal time, {:.4g} % of the total\n",
        asked.stages, asked.pipeline_microbatches, asked.chunks, 100 * report.bubble.of_ideal,
        100 * report.bubble.of_total);
  return text;
}

}  // namespace

Report make_report(const ReportQuestion& question) {
  Report report;
  report.question = question;
  const std::uint64_t parameters = question.model.parameters;
  const auto count = static_cast<double>(parameters);
  for (const Stage stage : kStages)
    report.stages.push_back(
        {stage, state_bytes(parameters, stage, question.accounting, question.ranks),
         reduction(stage, question.accounting, question.ranks),
         reduction_limit(stage, question.accounting),
         volume_bytes(parameters, question.accounting,
                      {stage, question.ranks, 0, question.microsteps}),
         least_ranks(parameters, stage, question.accounting, question.memory_bytes),
         largest_model(stage, question.accounting, question.ranks, question.memory_bytes)});
  report.flops = training_flops(count, question.tokens);
  report.seconds = training_seconds(report.flops, static_cast<double>(question.ranks),
                                    question.peak_flops, question.mfu);
  report.ranks_for_days =
      ranks_for(report.flops, question.days * kSecondsPerDay, question.peak_flops, question.mfu);
  report.bubble = pipeline_bubble(question.stages, question.pipeline_microbatches, question.chunks);
  if (!question.model.shape) return report;
  const GptShape& shape = *question.model.shape;
  report.attention_flops = attention_flops(shape, question.tokens);
  report.step_tokens = question.ranks * question.microbatch * question.microsteps * shape.sequence;
  report.step_seconds =
      training_seconds(training_flops(count, static_cast<double>(report.step_tokens)),
                       static_cast<double>(question.ranks), question.peak_flops, question.mfu);
  for (const Recomputation each : kRecomputations)
    report.activations.push_back(
        {each, layer_activation_bytes(shape, question.microbatch, each, question.tensor),
         activation_bytes(shape, question.microbatch, each, question.tensor),
         recomputation_flops(count, shape, 1, each) / training_flops(count, 1)});
  return report;
}

std::string to_text(const Report& report) {
  return fmt::format("# {}\n# {}; GB = 1e9 bytes\n{}{}{}", describe(report.question.model),
                     describe(report.question.accounting), stage_table(report),
                     activation_table(report), time_lines(report));
}

std::string to_text(const AdviseQuestion& question, const std::vector<Advice>& advice) {
  std::string text = fmt::format(
      "# {}\n# {}; GB = 1e9 bytes\n"
      "# {} ranks, {} in a host, {} sequences of {} tokens in a step; {:.4g} FLOP/s at {:.3g} % "
      "MFU\n"
      "# of {:.4g} GB a rank has, others need {:.4g}; the update moves 28 bytes per parameter at "
      "{:.4g} GB/s\n",
      describe(question.model), describe(question.accounting), question.ranks,
      question.ranks_per_host, question.batch, question.sequence, question.peak_flops,
      100 * question.mfu, static_cast<double>(question.memory_bytes) / kGB,
      static_cast<double>(question.reserve_bytes) / kGB, question.memory_GBps);
  if (!question.model.shape) text += "# activations are not counted: the shape is unknown\n";
  text += fmt::format(
      "#{:<16}{:>10}{:>10}{:>6}{:>6} | {:>10}{:>10}{:>10}{:>10}{:>10}{:>10} | "
      "{:>9} {:>9} {:>9} {:>9} | {:>9}\n",
      "strategy", "time (ms)", "recompute", "b", "G", "compute", "communic.", "hidden", "exposed",
      "update", "MFU (%)", "state", "units", "activat.", "total", "sent (GB)");
  for (const Advice& each : advice) {
    if (!each.impossible.empty()) continue;
    const AdvisedTime& time = each.time;
    const double flops = training_flops(static_cast<double>(question.model.parameters),
                                        static_cast<double>(question.batch * question.sequence));
    text += fmt::format(
        "{:<17}{:>10.4g}{:>10}{:>6}{:>6} | {:>10.4g}{:>10.4g}{:>10.4g}{:>10.4g}{:>10.4g}{:>10.3g} "
        "| {:>9.3g} {:>9.3g} {:>9.3g} {:>9.3g} | {:>9.3g}\n",
        each.name(), 1e3 * time.total(), name_of(each.recomputation), each.microbatch,
        each.sharding.microsteps, 1e3 * time.compute, 1e3 * time.communication,
        1e3 * (time.communication - time.exposed), 1e3 * time.exposed, 1e3 * time.update,
        100 * utilization(flops, time.total(), static_cast<double>(question.ranks),
                          question.peak_flops),
        static_cast<double>(each.memory.state.total()) / kGB,
        static_cast<double>(each.memory.transient.total()) / kGB, each.memory.activations / kGB,
        each.memory.total() / kGB, each.volume.total() / kGB);
  }
  for (const Advice& each : advice)
    if (!each.impossible.empty())
      text += fmt::format("{:<17}impossible: {}\n", each.name(), each.impossible);
  return text;
}

}  // namespace tutti::zero_memory
