// SPDX-License-Identifier: Apache-2.0
#include "flags.hpp"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace tutti::zero_memory {
namespace {

constexpr std::uint64_t kMostRanks = 1 << 21, kMostBatch = std::uint64_t{1} << 36;
constexpr std::uint64_t kMostMemory = 1'000'000'000'000'000, kMostPipeline = 1 << 20;
constexpr std::uint64_t kMostBytes = 64, kMostUnits = 1 << 16;
constexpr double kMostTokens = 1e18, kMostFlops = 1e18;

// An H100's: dense bf16.
double gpu_memory(const Flags& flags) { return flags.gpu_memory.value_or(80e9); }
double peak_flops(const Flags& flags) { return flags.peak_flops.value_or(989.4e12); }
constexpr std::string_view kDefaultGpu = "h100";

Result<std::uint64_t> whole(std::string_view flag, double value, std::uint64_t least,
                            std::uint64_t most) {
  if (std::isfinite(value) && value == std::floor(value) && value >= static_cast<double>(least) &&
      value <= static_cast<double>(most))
    return static_cast<std::uint64_t>(value);
  return make_error(Code::kInvalidArgument, fmt::format("{} {} is not a whole number from {} to {}",
                                                        flag, value, least, most));
}

Status positive(std::string_view flag, double value, double most) {
  if (value > 0 && value <= most) return {};
  return make_error(Code::kInvalidArgument,
                    fmt::format("{} {} is not above 0 and at most {:.4g}", flag, value, most));
}

Result<GptShape> shape_of(const Flags& flags) {
  GptShape shape;
  struct Field {
    std::string_view flag;
    const std::optional<double>& given;
    std::uint64_t& value;
  };
  const auto fields = std::to_array<Field>({{"--layers", flags.layers, shape.layers},
                                            {"--hidden", flags.hidden, shape.hidden},
                                            {"--heads", flags.heads, shape.heads},
                                            {"--sequence", flags.sequence, shape.sequence},
                                            {"--vocabulary", flags.vocabulary, shape.vocabulary}});
  for (const Field& field : fields) {
    if (!field.given)
      return make_error(Code::kInvalidArgument,
                        fmt::format("a shape needs --layers, --hidden, --heads, --sequence and "
                                    "--vocabulary; {} is missing",
                                    field.flag));
    TUTTI_TRY_ASSIGN(field.value, whole(field.flag, *field.given, 1, std::uint64_t{1} << 32));
  }
  TUTTI_TRY(check_shape(shape));
  return shape;
}

// What the report and the advice both check.
Status check_rates(const Flags& flags) {
  TUTTI_TRY(positive("--tokens", flags.tokens, kMostTokens));
  TUTTI_TRY(positive("--peak-flops", peak_flops(flags), kMostFlops));
  TUTTI_TRY(positive("--mfu", flags.mfu, 1));
  return positive("--days", flags.days, 1e6);
}

// The tokens of a step are counted in 64 bits.
Status check_tokens(const ReportQuestion& question) {
  const std::uint64_t sequence = question.model.shape ? question.model.shape->sequence : 1;
  const double tokens = static_cast<double>(question.ranks) *
                        static_cast<double>(question.microbatch) *
                        static_cast<double>(question.microsteps) * static_cast<double>(sequence);
  if (tokens <= kMostTokens) return {};
  return make_error(Code::kInvalidArgument,
                    fmt::format("--ranks x --microbatch x --microsteps are {:.4g} tokens in a "
                                "step; the most are {:.4g}",
                                tokens, kMostTokens));
}

Status check_pipeline(const ReportQuestion& question) {
  if (question.chunks > 1 && question.stages == 1)
    return make_error(Code::kInvalidArgument, "--chunks needs a pipeline; give --pipeline as well");
  const std::uint64_t parts = question.stages * question.chunks;
  if (question.model.shape && question.model.shape->layers % parts != 0)
    return make_error(Code::kInvalidArgument,
                      fmt::format("--pipeline {} with --chunks {} does not divide the {} layers",
                                  question.stages, question.chunks, question.model.shape->layers));
  return {};
}

Result<TensorParallel> tensor_of(const Flags& flags, const Model& model) {
  TUTTI_TRY_ASSIGN(const std::uint64_t ranks,
                   whole("--tensor-parallel", flags.tensor_parallel, 1, kMostRanks));
  if (ranks > 1 && model.shape && model.shape->heads % ranks != 0)
    return make_error(Code::kInvalidArgument,
                      fmt::format("--tensor-parallel {} does not divide the {} heads", ranks,
                                  model.shape->heads));
  return TensorParallel{ranks, flags.sequence_parallel};
}

// --batch says how many microsteps there are, or --microsteps does.
Result<std::uint64_t> microsteps_of(const Flags& flags, std::uint64_t ranks,
                                    std::uint64_t microbatch) {
  if (!flags.batch) return whole("--microsteps", flags.microsteps.value_or(1), 1, 1 << 20);
  TUTTI_TRY_ASSIGN(const std::uint64_t batch, whole("--batch", *flags.batch, 1, kMostBatch));
  if (batch % (ranks * microbatch) != 0)
    return make_error(Code::kInvalidArgument,
                      fmt::format("--batch {} is not divisible by {} ranks of microbatch {}", batch,
                                  ranks, microbatch));
  return batch / (ranks * microbatch);
}

}  // namespace

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--model", flags.model, fmt::format("one of {}", known_models()));
  app.add_option("--parameters", flags.parameters, "number of parameters, e.g. 7e9");
  app.add_option("--layers", flags.layers, "of a GPT; with --parameters, its activations");
  app.add_option("--hidden", flags.hidden, "elements of a hidden state");
  app.add_option("--heads", flags.heads, "attention heads");
  app.add_option("--sequence", flags.sequence, "tokens in a sequence; with --model, instead");
  app.add_option("--vocabulary", flags.vocabulary, "tokens in the vocabulary");
  auto* bytes =
      app.add_option("--bytes", flags.bytes,
                     "bytes per parameter of parameters, gradients, optimizer (default 2,2,12)");
  app.add_flag("--fp32", flags.fp32, "4,4,8: no 16-bit copy")->excludes(bytes);
  app.add_option("--ranks", flags.ranks, "ranks that share the model (default 64)");
  app.add_option("--gpu-memory", flags.gpu_memory, "bytes of memory of a rank (default 80e9)");
  app.add_option("--reserve", flags.reserve, "bytes of it that --advise leaves to others");
  app.add_option("--microbatch", flags.microbatch, "sequences in a microstep (default 1)");
  auto* microsteps = app.add_option("--microsteps", flags.microsteps,
                                    "microsteps in an optimizer step (default 1)");
  app.add_option("--batch", flags.batch, "sequences in a step, of all ranks")->excludes(microsteps);
  app.add_option("--tensor-parallel", flags.tensor_parallel, "ranks that split each layer");
  app.add_flag("--sequence-parallel", flags.sequence_parallel, "split norms and dropout as well");
  app.add_option("--pipeline", flags.pipeline, "stages of a pipeline");
  app.add_option("--pipeline-microbatches", flags.pipeline_microbatches,
                 "microbatches that go through it (default 8)");
  app.add_option("--chunks", flags.chunks, "chunks of layers on a stage (interleaved schedule)");
  app.add_option("--tokens", flags.tokens, "tokens to train on (default 300e9)");
  app.add_option("--peak-flops", flags.peak_flops, "FLOP/s of a rank (default 989.4e12)");
  app.add_option("--mfu", flags.mfu, "share of the peak that is reached (default 0.4)");
  app.add_option("--days", flags.days, "how many ranks train in so many days? (default 30)");
  app.add_flag("--articles", flags.articles, "the figures of articles, the right ones and ours");
  app.add_option("--svg", flags.svg, "write a picture of memory by stage and ranks to this file");
  app.add_flag("--json", flags.json, "print JSON");
  app.add_option("--advise", flags.cluster,
                 "rank the strategies on the cluster of this file (src/topology/README.md)");
  app.add_option("--profile", flags.profile,
                 "prices of collectives: a name or a JSON file (default tutti)");
  app.add_flag("--attention", flags.attention, "--advise: count the attention's operations too");
  app.add_option("--units", flags.units, "--advise: units of a model without a shape");
  app.add_option("--units-in-use", flags.units_in_use,
                 "--advise: units that the model uses at once");
  app.add_option("--prefetch", flags.prefetch, "--advise: units on their way, 0 or 1");
}

Result<Model> model_of(const Flags& flags) {
  const bool shaped = flags.layers || flags.hidden || flags.heads || flags.vocabulary;
  if (!flags.model.empty()) {
    if (shaped || flags.parameters)
      return make_error(Code::kInvalidArgument,
                        "--model says the shape already; leave out --parameters, --layers, "
                        "--hidden, --heads and --vocabulary");
    TUTTI_TRY_ASSIGN(Model model, find_model(flags.model));
    if (flags.sequence) {
      const bool counted = count_parameters(*model.shape).total() == model.parameters;
      TUTTI_TRY_ASSIGN(model.shape->sequence,
                       whole("--sequence", *flags.sequence, 1, std::uint64_t{1} << 32));
      TUTTI_TRY(check_shape(*model.shape));
      if (counted) model.parameters = count_parameters(*model.shape).total();
    }
    return model;
  }
  Model model{.name = "model", .parameters = 0, .shape = {}};
  if (shaped) {
    TUTTI_TRY_ASSIGN(model.shape, shape_of(flags));
    model.parameters = count_parameters(*model.shape).total();
  }
  if (flags.parameters) {
    TUTTI_TRY_ASSIGN(model.parameters,
                     whole("--parameters", *flags.parameters, 1, kMostParameters));
  }
  if (model.parameters > 0) return model;
  return make_error(Code::kInvalidArgument,
                    "which model? use --model, --parameters, or --layers, --hidden, --heads, "
                    "--sequence and --vocabulary");
}

Result<Accounting> accounting_of(const Flags& flags) {
  if (flags.fp32) return kFloat32;
  std::array<std::uint64_t, 3> numbers{};
  const char* at = flags.bytes.data();
  const char* const end = at + flags.bytes.size();
  bool good = true;
  for (std::size_t i = 0; i < numbers.size() && good; ++i) {
    if (i > 0) good = at != end && *at++ == ',';
    const auto [rest, error] = std::from_chars(at, end, numbers[i]);
    good = good && error == std::errc() && numbers[i] <= kMostBytes;
    at = rest;
  }
  if (good && at == end && numbers[0] > 0) return Accounting{numbers[0], numbers[1], numbers[2]};
  return make_error(Code::kInvalidArgument,
                    fmt::format("--bytes '{}' is not three numbers of at most {}, for example "
                                "2,2,12",
                                flags.bytes, kMostBytes));
}

Result<ReportQuestion> report_question(const Flags& flags) {
  ReportQuestion question;
  TUTTI_TRY_ASSIGN(question.model, model_of(flags));
  TUTTI_TRY_ASSIGN(question.accounting, accounting_of(flags));
  TUTTI_TRY_ASSIGN(question.ranks, whole("--ranks", flags.ranks.value_or(64), 1, kMostRanks));
  TUTTI_TRY_ASSIGN(question.memory_bytes, whole("--gpu-memory", gpu_memory(flags), 1, kMostMemory));
  TUTTI_TRY_ASSIGN(question.microbatch,
                   whole("--microbatch", flags.microbatch.value_or(1), 1, 1 << 20));
  TUTTI_TRY_ASSIGN(question.microsteps, microsteps_of(flags, question.ranks, question.microbatch));
  TUTTI_TRY(check_tokens(question));
  TUTTI_TRY_ASSIGN(question.tensor, tensor_of(flags, question.model));
  TUTTI_TRY_ASSIGN(question.stages, whole("--pipeline", flags.pipeline, 1, kMostPipeline));
  TUTTI_TRY_ASSIGN(question.pipeline_microbatches,
                   whole("--pipeline-microbatches", flags.pipeline_microbatches, 1, kMostPipeline));
  TUTTI_TRY_ASSIGN(question.chunks, whole("--chunks", flags.chunks, 1, kMostPipeline));
  TUTTI_TRY(check_pipeline(question));
  TUTTI_TRY(check_rates(flags));
  question.tokens = flags.tokens;
  question.peak_flops = peak_flops(flags);
  question.mfu = flags.mfu;
  question.days = flags.days;
  return question;
}

Result<AdviseQuestion> advise_question(const Flags& flags, std::uint64_t ranks,
                                       std::uint64_t ranks_per_host, std::string_view gpu) {
  if (flags.ranks || flags.microbatch || flags.microsteps)
    return make_error(Code::kInvalidArgument,
                      "--advise takes the ranks from the cluster and finds microbatch and "
                      "microsteps: leave out --ranks, --microbatch and --microsteps");
  if (flags.tensor_parallel != 1 || flags.pipeline != 1)
    return make_error(Code::kNotSupported,
                      "--advise knows data parallelism alone: leave out --tensor-parallel and "
                      "--pipeline");
  if (gpu != kDefaultGpu && (!flags.gpu_memory || !flags.peak_flops))
    return make_error(
        Code::kInvalidArgument,
        fmt::format(
            "the ranks of this cluster are {}; say their memory and speed with --gpu-memory "
            "and --peak-flops (the defaults are an H100's)",
            gpu.empty() ? "cores" : fmt::format("GPUs of the model {}", gpu)));
  AdviseQuestion question;
  TUTTI_TRY_ASSIGN(question.model, model_of(flags));
  TUTTI_TRY_ASSIGN(question.accounting, accounting_of(flags));
  question.ranks = ranks;
  question.ranks_per_host = ranks_per_host;
  TUTTI_TRY_ASSIGN(
      question.batch,
      whole("--batch", flags.batch.value_or(static_cast<double>(ranks)), 1, kMostBatch));
  const double own = question.model.shape ? static_cast<double>(question.model.shape->sequence)
                                          : flags.sequence.value_or(2048);
  TUTTI_TRY_ASSIGN(question.sequence, whole("--sequence", own, 1, std::uint64_t{1} << 24));
  TUTTI_TRY_ASSIGN(question.memory_bytes, whole("--gpu-memory", gpu_memory(flags), 1, kMostMemory));
  TUTTI_TRY_ASSIGN(question.reserve_bytes, whole("--reserve", flags.reserve, 0, kMostMemory));
  TUTTI_TRY_ASSIGN(question.units, whole("--units", flags.units, 1, kMostUnits));
  TUTTI_TRY_ASSIGN(question.buffers.units_in_use,
                   whole("--units-in-use", flags.units_in_use, 1, 16));
  TUTTI_TRY_ASSIGN(question.buffers.prefetch, whole("--prefetch", flags.prefetch, 0, 1));
  TUTTI_TRY(check_rates(flags));
  question.peak_flops = peak_flops(flags);
  question.mfu = flags.mfu;
  question.attention = flags.attention;
  return question;
}

}  // namespace tutti::zero_memory
