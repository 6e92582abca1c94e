// SPDX-License-Identifier: Apache-2.0
// The same numbers as JSON: bytes and seconds, not rounded.
#include <cmath>
#include <nlohmann/json.hpp>

#include "report.hpp"

namespace tutti::zero_memory {
namespace {

using nlohmann::json;

json model_json(const Model& model, const Accounting& accounting) {
  json object{{"name", model.name},
              {"parameters", model.parameters},
              {"bytes_per_parameter",
               {{"parameter", accounting.parameter},
                {"gradient", accounting.gradient},
                {"optimizer", accounting.optimizer}}}};
  if (model.shape)
    object["shape"] = {{"layers", model.shape->layers},
                       {"hidden", model.shape->hidden},
                       {"heads", model.shape->heads},
                       {"sequence", model.shape->sequence},
                       {"vocabulary", model.shape->vocabulary}};
  return object;
}

json volume_json(const VolumeBytes& volume) {
  return {{"gradients", volume.gradients},
          {"gathered", volume.gathered},
          {"replicas", volume.replicas},
          {"total", volume.total()}};
}

json stage_json(const StageRow& row) {
  json object{{"stage", name_of(row.stage)},
              {"parameters_bytes", row.state.parameters},
              {"gradients_bytes", row.state.gradients},
              {"optimizer_bytes", row.state.optimizer},
              {"state_bytes", row.state.total()},
              {"saves", row.reduction},
              {"limit", row.limit},
              {"sent_bytes", volume_json(row.volume)},
              {"least_ranks", nullptr},
              {"largest_model", row.largest_model}};
  if (std::isinf(row.limit)) object["limit"] = nullptr;
  if (row.least_ranks) object["least_ranks"] = *row.least_ranks;
  return object;
}

}  // namespace

json to_json(const Report& report) {
  const ReportQuestion& asked = report.question;
  json object{{"model", model_json(asked.model, asked.accounting)},
              {"ranks", asked.ranks},
              {"gpu_memory_bytes", asked.memory_bytes},
              {"microbatch", asked.microbatch},
              {"microsteps", asked.microsteps},
              {"stages", json::array()},
              {"activations", json::array()},
              {"tokens", asked.tokens},
              {"flops", report.flops},
              {"attention_flops", report.attention_flops},
              {"peak_flops", asked.peak_flops},
              {"mfu", asked.mfu},
              {"training_seconds", report.seconds},
              {"step_tokens", report.step_tokens},
              {"step_seconds", report.step_seconds},
              {"days", asked.days},
              {"ranks_for_days", report.ranks_for_days},
              {"bubble_of_ideal", report.bubble.of_ideal},
              {"bubble_of_total", report.bubble.of_total}};
  for (const StageRow& row : report.stages) object["stages"].push_back(stage_json(row));
  for (const ActivationRow& row : report.activations)
    object["activations"].push_back({{"recomputation", name_of(row.recomputation)},
                                     {"layer_bytes", row.layer},
                                     {"stored_bytes", row.bytes.stored},
                                     {"working_bytes", row.bytes.working},
                                     {"output_bytes", row.bytes.output},
                                     {"total_bytes", row.bytes.total()},
                                     {"more_operations", row.more_operations}});
  return object;
}

json to_json(const std::vector<Figure>& figures) {
  json array = json::array();
  for (const Figure& figure : figures) {
    json object{{"article", title_of(figure.article)},
                {"figure", figure.what},
                {"unit", figure.unit},
                {"said", nullptr},
                {"right", figure.right},
                {"ours", figure.ours},
                {"agrees", agrees(figure)},
                {"why", figure.why}};
    if (figure.said) object["said"] = *figure.said;
    array.push_back(std::move(object));
  }
  return {{"articles", array}};
}

json to_json(const AdviseQuestion& question, const std::vector<Advice>& advice) {
  json object{{"model", model_json(question.model, question.accounting)},
              {"ranks", question.ranks},
              {"ranks_per_host", question.ranks_per_host},
              {"batch", question.batch},
              {"sequence", question.sequence},
              {"gpu_memory_bytes", question.memory_bytes},
              {"reserve_bytes", question.reserve_bytes},
              {"peak_flops", question.peak_flops},
              {"mfu", question.mfu},
              {"memory_GBps", question.memory_GBps},
              {"strategies", json::array()}};
  for (const Advice& each : advice) {
    json row{{"strategy", each.name()},
             {"possible", each.impossible.empty()},
             {"recomputation", name_of(each.recomputation)},
             {"microbatch", each.microbatch},
             {"microsteps", each.sharding.microsteps},
             {"memory_bytes",
              {{"parameters", each.memory.state.parameters},
               {"gradients", each.memory.state.gradients},
               {"optimizer", each.memory.state.optimizer},
               {"gathered", each.memory.transient.gathered},
               {"reducing", each.memory.transient.reducing},
               {"activations", each.memory.activations},
               {"total", each.memory.total()}}},
             {"sent_bytes", volume_json(each.volume)}};
    if (each.impossible.empty())
      row["seconds"] = {{"compute", each.time.compute},
                        {"communication", each.time.communication},
                        {"hidden", each.time.communication - each.time.exposed},
                        {"exposed", each.time.exposed},
                        {"update", each.time.update},
                        {"total", each.time.total()}};
    else
      row["why"] = each.impossible;
    object["strategies"].push_back(std::move(row));
  }
  return object;
}

}  // namespace tutti::zero_memory
