// SPDX-License-Identifier: Apache-2.0
#include "article_figures.hpp"

#include <fmt/core.h>

#include "activations.hpp"
#include "base/technology.hpp"
#include "gpt_shape.hpp"
#include "model_state.hpp"
#include "training_time.hpp"

namespace tutti::zero_memory {
namespace {

constexpr double kGB = 1e9, kTB = 1e12;
constexpr std::uint64_t kBillion = 1'000'000'000;
constexpr std::uint64_t k7B = 7 * kBillion, k100B = 100 * kBillion, k175B = 175 * kBillion;
constexpr std::uint64_t kTrillion = 1000 * kBillion, k80GB = 80 * kBillion;
// Dense BF16 peaks of NVIDIA's data sheets.
constexpr double kA100Flops = 312e12, kH100Flops = 989.4e12;
constexpr Accounting kMixed{};
using enum Article;

GptShape gpt3() { return find_model("gpt3")->shape.value(); }
StateBytes ddp(std::uint64_t parameters) { return state_bytes(parameters, Stage::kDdp, kMixed, 1); }
double state(std::uint64_t parameters, Stage stage, std::uint64_t ranks) {
  return state_bytes(parameters, stage, kMixed, ranks).total();
}
// A stage's volume over DDP's.
double volume(Stage stage, std::uint64_t ranks, std::uint64_t microsteps) {
  const auto of = [&](Stage each) {
    return volume_bytes(kTrillion, kMixed, {each, ranks, 0, microsteps}).total();
  };
  return of(stage) / of(Stage::kDdp);
}

void add_giants(std::vector<Figure>& to) {
  const StateBytes trillion = ddp(kTrillion);
  to.push_back({kGiants, "1T: parameters", "TB", 2, 2, trillion.parameters / kTB, ""});
  to.push_back({kGiants, "1T: gradients", "TB", 2, 2, trillion.gradients / kTB, ""});
  to.push_back({kGiants, "1T: optimizer", "TB", 12, 12, trillion.optimizer / kTB, ""});
  to.push_back({kGiants, "1T: state, DDP", "TB", 16, 16, trillion.total() / kTB, ""});
  to.push_back({kGiants, "1T: state, ZeRO-3 on 1024", "GB", 16, 15.625,
                state(kTrillion, Stage::kZero3, 1024) / kGB, "rounded"});
  const GptShape shape = find_model("1t")->shape.value();
  const std::vector<std::uint64_t> block{count_parameters(shape).block,
                                         count_parameters(shape).block};
  const auto units = static_cast<double>(
      transient_bytes(padded_units(block, 1024), Stage::kZero3, kMixed, {}).total());
  to.push_back({kGiants, "1T: with unit buffers, on 1024", "GB", 16, 78.54,
                (state(kTrillion, Stage::kZero3, 1024) + units) / kGB,
                "'ample room': but two gathered blocks and two blocks' gradients take 63 GB"});
  to.push_back({kGiants, "ring all-reduce: sent / S, N = 1024", "", 2, 1.998,
                volume_bytes(k7B, kMixed, {Stage::kDdp, 1024}).total() / ddp(k7B).gradients, ""});
  to.push_back({kGiants, "ring all-reduce: rounds, N = 64", "", std::nullopt, 126,
                static_cast<double>(ring_rounds(64)),
                fmt::format("'reduces the rounds': it has the most (Rabenseifner: {}), and the "
                            "least volume",
                            rabenseifner_rounds(64))});
  to.push_back({kGiants, "ZeRO-1: saves, N = 64", "x", 4, 3.82,
                reduction(Stage::kZero1, kMixed, 64), "4 is the limit of many ranks"});
  to.push_back({kGiants, "ZeRO-2: saves, N = 64", "x", 8, 7.21,
                reduction(Stage::kZero2, kMixed, 64), "8 is the limit of many ranks"});
  to.push_back({kGiants, "ZeRO-1: limit", "x", 4, 4, reduction_limit(Stage::kZero1, kMixed), ""});
  to.push_back({kGiants, "ZeRO-2: limit", "x", 8, 8, reduction_limit(Stage::kZero2, kMixed), ""});
  to.push_back(
      {kGiants, "ZeRO-3: saves, N = 64", "x", 64, 64, reduction(Stage::kZero3, kMixed, 64), ""});
}

void add_giants_work(std::vector<Figure>& to) {
  to.push_back({kGiants, "ZeRO-1: volume / DDP's", "x", 1, 1, volume(Stage::kZero1, 64, 1), ""});
  to.push_back({kGiants, "ZeRO-2: volume / DDP's, G = 4", "x", 1, 2.5, volume(Stage::kZero2, 64, 4),
                "'same as DDP' holds for G = 1; else (G + 1) P"});
  to.push_back(
      {kGiants, "ZeRO-3: volume / DDP's", "x", 1.5, 1.5, volume(Stage::kZero3, 64, 1), ""});
  const double tokens = 10e12;
  const double flops = training_flops(static_cast<double>(kTrillion), tokens);
  to.push_back({kGiants, "ZeRO-3: compute / DDP's", "x", 1.5, 1,
                training_flops(static_cast<double>(kTrillion) / 64, tokens) * 64 / flops,
                "it is the volume that grows to 1.5; the ranks compute what they did"});
  to.push_back({kGiants, "1T, 10T tokens: operations", "1e25", 6, 6, flops / 1e25, ""});
  to.push_back({kGiants, "the same on one H100", "years", 400, 1922,
                training_seconds(flops, 1, kH100Flops, 1) / kSecondsPerYear,
                "4000 TFLOPS are FP8 with 2:4 sparsity; BF16 dense is 989.4"});
  to.push_back({kGiants, "the same at 40 % MFU", "years", std::nullopt, 4804,
                training_seconds(flops, 1, kH100Flops, 0.4) / kSecondsPerYear,
                "a peak is never reached"});
  const GptShape shape = gpt3();
  const double one_tensor = 2 * static_cast<double>(shape.sequence * shape.hidden);
  to.push_back({kGiants, "GPT-3 layer, b = 1: activations", "GB", one_tensor / kGB, 2.869,
                layer_activation_bytes(shape, 1, Recomputation::kNone) / kGB,
                "b s h L counts one tensor a layer; there are 57 of 16 bits"});
}

void add_systems_state(std::vector<Figure>& to) {
  const StateBytes seven = ddp(k7B);
  to.push_back({kSystems, "7B: parameters", "GB", 14, 14, seven.parameters / kGB, ""});
  to.push_back({kSystems, "7B: gradients", "GB", 14, 14, seven.gradients / kGB, ""});
  to.push_back({kSystems, "7B: optimizer", "GB", 56, 84, seven.optimizer / kGB,
                "the fp32 master copy is missing; its own 56 do not exceed 80 GB either"});
  const std::string twelve = "12 P without the master copy; the article itself says 16 P later";
  to.push_back({kSystems, "7B: state", "GB", 84, 112, seven.total() / kGB, twelve});
  to.push_back({kSystems, "100B: state", "TB", 1.2, 1.6, ddp(k100B).total() / kTB, twelve});
  to.push_back({kSystems, "175B: state", "TB", 2.1, 2.8, ddp(k175B).total() / kTB, twelve});
  to.push_back({kSystems, "K: fp32 momentum", "B", 8, 4, double{AdamBytes{}.momentum},
                "K = 12 is 4 master + 4 momentum + 4 variance"});
  to.push_back({kSystems, "largest model on 80 GB, DDP", "1e9", 40, 5,
                static_cast<double>(largest_model(Stage::kDdp, kMixed, 1, k80GB)) / kGB,
                "80 / 16; 40 B need 640 GB"});
  to.push_back({kSystems, "ZeRO-1: optimizer per parameter, N = 64", "B", 0.1875, 0.1875,
                state_bytes(64 * kBillion, Stage::kZero1, kMixed, 64).optimizer /
                    static_cast<double>(64 * kBillion),
                ""});
  to.push_back({kSystems, "1T: state, ZeRO-3 on 1024", "GB", 16, 15.625,
                state(kTrillion, Stage::kZero3, 1024) / kGB, "rounded"});
  to.push_back({kSystems, "ZeRO-2: volume / DDP's, G = 4", "x", 1, 2.5,
                volume(Stage::kZero2, 64, 4), "'no additional communication' holds for G = 1"});
  to.push_back(
      {kSystems, "ZeRO-3: volume / DDP's", "x", 1.5, 1.5, volume(Stage::kZero3, 64, 1), ""});
  to.push_back({kSystems, "ZeRO-Offload: GPU state saved", "x", 2, 8,
                seven.total() / seven.parameters, "14 of 16 bytes leave the GPU"});
  const double zero3 = 3 * seven.parameters;  // M for each of two gathers and the reduce-scatter
  to.push_back({kSystems, "ZeRO++: inter-host volume saved", "x", 4, 4,
                zero3 / zeropp_cross_host_bytes(k7B),
                "between hosts only; the volume inside them rises"});
}

void add_systems_parallel(std::vector<Figure>& to) {
  const GptShape shape = gpt3();
  const double wrong = 5 * static_cast<double>(shape.sequence * shape.sequence * shape.hidden);
  to.push_back({kSystems, "GPT-3 layer, b = 1: scores", "GB", wrong / kGB, 2.013,
                layer_parts(shape, 1).scores / kGB, "5 b s^2 a: heads, not hidden"});
  to.push_back({kSystems, "GPT-3 layer, b = 1: the rest", "GB", 0.856, 0.856,
                layer_activation_bytes(shape, 1, Recomputation::kSelective) / kGB, "34 s b h"});
  const Bubble bubble = pipeline_bubble(4, 8);
  to.push_back({kSystems, "bubble, P = 4, M = 8: of the total", "%", 37.5, 27.27,
                100 * bubble.of_total, "(P - 1) / M is the share of the ideal time"});
  to.push_back(
      {kSystems, "bubble, P = 4, M = 8: of the ideal", "%", 37.5, 37.5, 100 * bubble.of_ideal, ""});
  to.push_back({kSystems, "1F1B: microbatches held, P = 4, M = 8", "", std::nullopt, 4,
                static_cast<double>(
                    microbatches_in_flight(PipelineSchedule::kOneForwardOneBackward, 4, 8, 0)),
                "'reduces bubbles': they are GPipe's; it holds 4 microbatches, not 8"});
  to.push_back({kSystems, "tensor parallel: all-reduces a block", "", 1, 4,
                double{kTensorParallelAllReduces}, "two in forward, two in backward"});
  to.push_back({kSystems, "175B, t = 8, p = 4: parameters", "GB", 0.44, 10.94,
                ddp(k175B).parameters / (8 * 4) / kGB, "it divides the 14 GB of a 7B model"});
  to.push_back({kSystems, "175B, p = 4: layers a stage", "", 32, 24,
                static_cast<double>(shape.layers) / 4, "96 / 4"});
  const double nvlink4 = (*find_technology("nvlink4"))->GBps;
  to.push_back({kSystems, "NVLink 4: both directions", "GB/s", 1800, 900, 2 * nvlink4,
                "1.8 TB/s is NVLink 5"});
  to.push_back({kSystems, "H100 all-to-all: a direction", "GB/s", 900, 450, nvlink4,
                "900 GB/s are both directions"});
}

void add_course(std::vector<Figure>& to) {
  to.push_back({kCourse, "bytes per parameter", "B", 16, 16, double(kMixed.total()), ""});
  to.push_back({kCourse, "7B: state", "GB", 112, 112, ddp(k7B).total() / kGB, ""});
  const double one = ddp(kBillion).total();
  to.push_back({kCourse, "1B on 16 GPUs, DDP: state of all", "GB", 256, 256, 16 * one / kGB, ""});
  to.push_back({kCourse, "of it redundant", "GB", 240, 240,
                16 * (one - state(kBillion, Stage::kZero3, 16)) / kGB, ""});
  to.push_back({kCourse, "largest model on 80 GB, DDP", "1e9", 3.5, 5,
                static_cast<double>(largest_model(Stage::kDdp, kMixed, 1, k80GB)) / kGB,
                "3.5 leaves 24 GB to activations; 5 is the limit of state"});
  to.push_back({kCourse, "largest model on 64 x 80 GB, ZeRO-3", "1e9", 175, 320,
                static_cast<double>(largest_model(Stage::kZero3, kMixed, 64, k80GB)) / kGB,
                "175 leaves 36 of 80 GB to the rest; 320 is the limit of state"});
}

void add_chapter(std::vector<Figure>& to) {
  constexpr std::uint64_t k75B = 7'500'000'000;
  const double wrong = (2 + 14.0 / 64) * static_cast<double>(k75B);
  const auto on64 = [](Stage stage) { return state(k75B, stage, 64) / kGB; };
  to.push_back({kChapter, "7.5B: DDP, N = 64", "GB", 120, 120, on64(Stage::kDdp), ""});
  to.push_back({kChapter, "7.5B: ZeRO-1, N = 64", "GB", wrong / kGB, 31.4, on64(Stage::kZero1),
                "2 P + 14 P / N is ZeRO-2; ZeRO-1 is 4 P + 12 P / N"});
  to.push_back(
      {kChapter, "7.5B: ZeRO-2, N = 64", "GB", wrong / kGB, 16.64, on64(Stage::kZero2), ""});
  to.push_back({kChapter, "7.5B: ZeRO-3, N = 64", "GB", 1.875, 1.875, on64(Stage::kZero3), ""});
  to.push_back({kChapter, "optimizer / 16-bit parameters", "x", 13, 6,
                ddp(k7B).optimizer / ddp(k7B).parameters,
                "'12-14x the parameter size': 12 are bytes per parameter"});
  const StateBytes gpt = ddp(k175B);
  to.push_back({kChapter, "175B: parameters + gradients", "GB", 700, 700,
                (gpt.parameters + gpt.gradients) / kGB, ""});
  to.push_back({kChapter, "175B: optimizer", "TB", 2.1, 2.1, gpt.optimizer / kTB, ""});
  to.push_back({kChapter, "175B: state", "TB", 2.8, 2.8, gpt.total() / kTB, ""});
  to.push_back({kChapter, "175B: least GPUs of 80 GB", "", 35, 35,
                static_cast<double>(least_ranks(k175B, Stage::kZero3, kMixed, k80GB).value_or(0)),
                ""});
  to.push_back({kChapter, "embedding, V = 50000, h = 12000", "1e6", 600, 600,
                static_cast<double>(count_parameters({1, 12000, 1, 1, 50000}).embedding) / 1e6,
                "'hundreds of millions'"});
  const double flops = training_flops(static_cast<double>(k175B), 300e9);
  to.push_back({kChapter, "175B, 300B tokens: operations", "1e23", 3.14, 3.15, flops / 1e23,
                "3.14 rounds GPT-3's 174.6 B"});
  to.push_back({kChapter, "the same in 30 days: A100s at 50 %", "", std::nullopt, 780,
                static_cast<double>(ranks_for(flops, 30 * kSecondsPerDay, kA100Flops, 0.5)),
                "'may require thousands'"});
  to.push_back({kChapter, "ring all-reduce: steps, N = 4", "", 6, 6,
                static_cast<double>(ring_rounds(4)), ""});
}

void add_chapter_activations(std::vector<Figure>& to) {
  const GptShape shape = gpt3();
  const LayerParts parts = layer_parts(shape, 1);
  const auto sbh = static_cast<double>(shape.sequence * shape.hidden);
  to.push_back({kChapter, "layer: perceptron / sbh", "B", 2 + 8 + 1, 19, parts.perceptron / sbh,
                "2 + 8 + 8 + 1: the second matrix's input is missing"});
  to.push_back({kChapter, "layer: attention / sbh", "B", 11, 11, parts.attention / sbh, ""});
  to.push_back({kChapter, "layer: norms / sbh", "B", std::nullopt, 4, parts.norms / sbh,
                "not in its list, but in its sum of 34"});
  to.push_back({kChapter, "layer: sum without scores / sbh", "B", 34, 34,
                (parts.total() - parts.scores) / sbh, ""});
  to.push_back({kChapter, "GPT-3, b = 1, no recomputation", "GB", std::nullopt, 275.4,
                activation_bytes(shape, 1, Recomputation::kNone).stored / kGB,
                "'hundreds of GB' is one sequence; 3.2M tokens, over all ranks, are 430 TB"});
  to.push_back({kChapter, "GPT-3, b = 1, full recomputation", "GB", 2 * sbh / kGB, 4.83,
                activation_bytes(shape, 1, Recomputation::kFull).stored / kGB,
                "each layer's input is kept, not the network's alone"});
  const double work = training_flops(1, 1);
  to.push_back({kChapter, "full recomputation: more operations", "%", std::nullopt, 33.33,
                100 * recomputation_flops(1, GptShape{}, 1, Recomputation::kFull) / work,
                "'30 % to 40 %' of the time: one more forward"});
}

}  // namespace

std::string_view letter_of(Article article) {
  constexpr std::array<std::string_view, 4> kLetters{"A", "B", "C", "D"};
  return kLetters[static_cast<std::size_t>(article)];
}

std::string_view title_of(Article article) {
  constexpr std::array<std::string_view, 4> kTitles{
      "Mission Impossible: Fitting Trillion-Parameter Giants into 80GB GPUs (article)",
      "an article on how distributed training broke the memory wall",
      "a course page on memory in DDP and FSDP (ApX Machine Learning)",
      "a lecture chapter on distributed training for LLMs"};
  return kTitles[static_cast<std::size_t>(article)];
}

std::vector<Figure> article_figures() {
  std::vector<Figure> figures;
  add_giants(figures);
  add_giants_work(figures);
  add_systems_state(figures);
  add_systems_parallel(figures);
  add_course(figures);
  add_chapter(figures);
  add_chapter_activations(figures);
  return figures;
}

std::string article_table(const std::vector<Figure>& figures) {
  std::string text;
  for (const Article article : {kGiants, kSystems, kCourse, kChapter})
    text += fmt::format("# {}: {}\n", letter_of(article), title_of(article));
  text +=
      "# GB = 1e9 bytes, TB = 1e12; * the article differs, or says it in words: the reason stands "
      "beside it\n";
  text += fmt::format("#  {:<40} {:>9} {:>9} {:>9} {:<5}\n", "figure", "article", "right", "ours",
                      "unit");
  for (const Figure& figure : figures) {
    std::string line =
        fmt::format("{}{} {:<40} {:>9} {:>9.4g} {:>9.4g} {:<5} {}", letter_of(figure.article),
                    agrees(figure) ? ' ' : '*', figure.what,
                    figure.said ? fmt::format("{:.4g}", *figure.said) : "-", figure.right,
                    figure.ours, figure.unit, figure.why);
    text += line.erase(line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace tutti::zero_memory
