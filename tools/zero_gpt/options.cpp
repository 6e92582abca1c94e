// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/options.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <string_view>
#include <vector>

#include "perf/common/flags.hpp"

namespace tutti::gpt {
namespace {

constexpr int kBadUsage = 2;  // exit status

template <typename Value>
struct Word {
  std::string_view word;
  Value value;
};

enum class Sharing : std::uint8_t { kDdp, kZero1, kZero2, kZero3, kServers };
constexpr std::array<Word<Sharing>, 5> kSharings = {{{"ddp", Sharing::kDdp},
                                                     {"zero1", Sharing::kZero1},
                                                     {"zero2", Sharing::kZero2},
                                                     {"zero3", Sharing::kZero3},
                                                     {"ps", Sharing::kServers}}};
constexpr std::array<zero::Stage, 4> kStages = {zero::Stage::kDdp, zero::Stage::kZero1,
                                                zero::Stage::kZero2, zero::Stage::kZero3};
constexpr std::array<Word<zero::Order>, 2> kOrders = {
    {{"canonical", zero::Order::kCanonical}, {"fast", zero::Order::kFast}}};
constexpr std::array<Word<zero::Number>, 3> kNumbers = {{{"float", zero::Number::kFloat32},
                                                         {"bfloat16", zero::Number::kBfloat16},
                                                         {"half", zero::Number::kFloat16}}};
using Sync = zero::Config::Sync;
constexpr std::array<Word<Sync>, 3> kSyncs = {
    {{"stage", Sync::kByStage}, {"microstep", Sync::kEachMicrostep}, {"step", Sync::kOnce}}};
constexpr std::array<Word<Matmul>, 2> kMatmuls = {{{"own", Matmul::kOwn}, {"blas", Matmul::kBlas}}};

// CLI11's own texts show the greatest double.
CLI::Validator above_zero() {
  return CLI::Validator(
      [](const std::string& text) {
        const double value = std::strtod(text.c_str(), nullptr);
        return value > 0 && std::isfinite(value) ? std::string()
                                                 : fmt::format("{} is not a number above 0", text);
      },
      "ABOVE 0");
}
CLI::Validator at_least_zero() {
  return CLI::Validator(
      [](const std::string& text) {
        const double value = std::strtod(text.c_str(), nullptr);
        return value >= 0 && std::isfinite(value)
                   ? std::string()
                   : fmt::format("{} is not 0 or a number above it", text);
      },
      "AT LEAST 0");
}
// An unsigned number would wrap.
CLI::Validator no_sign() {
  return CLI::Validator(
      [](const std::string& text) {
        return text.starts_with('-') ? fmt::format("{} is negative", text) : std::string();
      },
      "");
}

// A flag whose value is one of a table's words.
template <typename Value, std::size_t kCount>
void add_words(CLI::App& app, const std::string& flag, Value& value,
               const std::array<Word<Value>, kCount>& words, const std::string& help) {
  std::string names, now;
  for (const Word<Value>& each : words) {
    names += (names.empty() ? "" : "|") + std::string(each.word);
    if (each.value == value) now = each.word;
  }
  app.add_option_function<std::string>(
         flag,
         [&value, &words, names, flag](const std::string& given) {
           for (const Word<Value>& each : words)
             if (each.word == given) {
               value = each.value;
               return;
             }
           throw CLI::ValidationError(flag, fmt::format("'{}' is none of {}", given, names));
         },
         fmt::format("{} [{}]", help, now))
      ->type_name(names);
}

// What the flags say that no field of Options holds as it is said.
struct Said {
  std::string size = "tiny", optimizer = "adamw";
  float weight_decay = 0.1F, momentum = 0.9F;
  zero::AdamW adamw;
  bool no_overlap = false;
  Sharing sharing = Sharing::kZero3;
  zero::Servers servers;
};

void add_training_flags(CLI::App& app, Options& options, Said& said) {
  app.add_option("--model", said.size, "Size of the model: " + size_names())->capture_default_str();
  app.add_option("--steps", options.steps, "Steps of the optimizer, those of --load included")
      ->check(CLI::Range(0, 100'000'000))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Sequences in a slot")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--lr", options.learning_rate,
                 "Learning rate after the warm-up; it falls to a tenth of it by the last step")
      ->check(above_zero())
      ->capture_default_str();
  app.add_option("--warmup", options.warmup_steps, "Steps in which the learning rate grows")
      ->check(CLI::Range(0, 100'000'000))
      ->capture_default_str();
  app.add_option("--optimizer", said.optimizer, "adamw or sgd")->capture_default_str();
  app.add_option("--weight-decay", said.weight_decay, "Of matrices")
      ->check(at_least_zero())
      ->capture_default_str();
  app.add_option("--beta1", said.adamw.beta1, "Of adamw: decay of the gradients' mean")
      ->check(CLI::Range(0.0, 0.999999))
      ->capture_default_str();
  app.add_option("--beta2", said.adamw.beta2, "Of adamw: decay of their squares' mean")
      ->check(CLI::Range(0.0, 0.999999))
      ->capture_default_str();
  app.add_option("--epsilon", said.adamw.epsilon, "Of adamw: least divisor")
      ->check(above_zero())
      ->capture_default_str();
  app.add_option("--momentum", said.momentum, "Of sgd")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of parameters, windows and samples")
      ->check(no_sign())
      ->capture_default_str();
  app.add_option("--text", options.text_path, "File to train on instead of the generated corpus");
  app.add_option("--threads", options.threads,
                 "Threads of a rank; 0: the cores divided among --procs, or 1 under a launcher")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  add_words(app, "--matmul", options.matmul, kMatmuls,
            "Code for products with parameters; bits may depend on batching with blas");
}

void add_engine_flags(CLI::App& app, zero::Config& config, Said& said) {
  const auto count = CLI::Range(1, 1 << 20);
  add_words(app, "--stage", said.sharing, kSharings,
            "What the ranks share; ps: parameter servers keep it");
  app.add_option("--slots", config.slots, "Microbatches of a step, whatever the number of ranks")
      ->check(count)
      ->capture_default_str();
  app.add_option("--microsteps", config.microsteps,
                 "Parts of a step, in each of which a rank computes some of its slots")
      ->check(count)
      ->capture_default_str();
  add_words(app, "--order", config.order, kOrders, "Order in which gradients are summed");
  add_words(app, "--compute", config.compute, kNumbers, "Type of the parameters in use");
  add_words(app, "--reduce", config.reduce, kNumbers, "Type of gradients on their way");
  add_words(app, "--sync", config.sync, kSyncs, "When gradients are reduced");
  app.add_option("--prefetch", config.prefetch, "zero3: units gathered ahead of use")
      ->check(CLI::Range(0, 1 << 16))
      ->capture_default_str();
  app.add_flag("--no-overlap", said.no_overlap, "Communicate while nothing computes");
  app.add_flag("--keep-after-forward", config.keep_after_forward,
               "zero3: keep parameters gathered from forward to backward");
  app.add_option("--shard-ranks", config.shard_ranks,
                 "Shard among so many ranks, replicate between the groups; 0: among all")
      ->check(CLI::Range(0, kMostProcesses))
      ->capture_default_str();
  config.clip_norm = 1;
  app.add_option("--clip", config.clip_norm, "Greatest norm of the gradients; 0: any")
      ->check(at_least_zero())
      ->capture_default_str();
  app.add_option("--loss-scale", config.loss_scaling.initial,
                 "First scale of the loss, a power of two; 0: none, or 65536 with half")
      ->check(at_least_zero())
      ->capture_default_str();
  app.add_option("--loss-growth", config.loss_scaling.growth_steps,
                 "Good steps after which the scale of the loss doubles")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  app.add_option("--units-in-use", config.units_in_use,
                 "Units that are open at once, of which the embeddings are one")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--memory-limit", config.memory_limit_bytes,
                 "Bytes that a rank's engine may allocate, like 64M; 0: any")
      ->check(no_sign())
      ->transform(CLI::AsSizeValue(false));
  app.add_flag("--poison", config.poison, "Fill freed buffers with NaN");
}

void add_server_flags(CLI::App& app, zero::Servers& servers) {
  const std::string group = "Parameter servers (--stage ps)";
  app.add_option("--servers", servers.count, "Ranks that keep the parameters, behind the workers")
      ->check(CLI::Range(1, kMostProcesses))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--colocated", servers.colocated, "The first workers are the servers")->group(group);
  app.add_flag("--async", servers.asynchronous, "Each worker's gradients are an update")
      ->group(group);
  app.add_option("--staleness", servers.staleness,
                 "--async: most updates of others since a worker's parameters; without it: any")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_option("--arrivals", servers.arrivals,
                 "--async: workers of the first updates in order, like 0,0,1; then as they come")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
}

// A flag that says nothing with what --stage is; or nothing.
std::string idle_flag(const CLI::App& app, bool servers) {
  const std::vector<const char*> of_engine = {"--sync", "--prefetch", "--no-overlap",
                                              "--keep-after-forward", "--shard-ranks"};
  const std::vector<const char*> of_servers = {"--servers", "--colocated", "--async", "--staleness",
                                               "--arrivals"};
  for (const char* const flag : servers ? of_engine : of_servers)
    if (app.count(flag) > 0)
      return fmt::format("{}: {} --stage ps", flag, servers ? "has no effect with" : "needs");
  return {};
}

void add_output_flags(CLI::App& app, Options& options) {
  app.add_option("--csv", options.csv_path, "File for the loss of each step");
  app.add_option("--svg", options.svg_path, "File for the loss curve as a picture");
  app.add_option("--sample", options.sample_bytes, "Bytes to print from the trained model")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--save", options.save_path, "Folder for checkpoints; the last one stays");
  app.add_option("--save-every", options.save_every, "Steps between checkpoints; 0: at the end")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--load", options.load_path, "Checkpoint to continue from, with any ranks");
  app.add_option("--eval-every", options.eval_every,
                 "Steps between measurements on the held-out text; 0: at the end")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--eval-windows", options.eval_windows,
                 "Windows of the held-out text to measure; 0: all")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--expect-margin", options.least_margin,
                 "Fail unless the held-out loss ends so many nats below the best trigram model's")
      ->check(at_least_zero());
  app.add_option("--log-every", options.log_every, "Steps between lines of progress")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

// Returns what is wrong, or nothing.
std::string complete(Options& options, const Said& said) {
  const Size* const size = find_size(said.size);
  if (size == nullptr) return fmt::format("--model: '{}' is none of {}", said.size, size_names());
  options.size = *size;
  if (said.optimizer == "adamw") {
    zero::AdamW adamw = said.adamw;
    adamw.weight_decay = said.weight_decay;
    options.optimizer = adamw;
  } else if (said.optimizer == "sgd")
    options.optimizer = zero::Sgd{.momentum = said.momentum, .weight_decay = said.weight_decay};
  else
    return fmt::format("--optimizer: '{}' is neither adamw nor sgd", said.optimizer);
  zero::Config& config = options.engine;
  if (said.sharing == Sharing::kServers)
    options.servers = said.servers;
  else
    config.stage = kStages[static_cast<std::size_t>(said.sharing)];
  config.overlap = !said.no_overlap;
  const bool half =
      config.compute == zero::Number::kFloat16 || config.reduce == zero::Number::kFloat16;
  const bool apart = options.servers && options.servers->asynchronous;
  if (half && apart)
    return "--async: half numbers need loss scaling, which asynchronous servers do not have; use "
           "bfloat16 or float";
  if (half && config.loss_scaling.initial == 0) config.loss_scaling.initial = 65536;
  if (options.save_every > 0 && options.save_path.empty())
    return "--save-every: needs --save DIR, the folder for the checkpoints";
  if (!apart) return {};
  if (options.save_every > 0 || options.eval_every > 0)
    return fmt::format("{}: asynchronous workers only meet at the end; leave out this or --async",
                       options.save_every > 0 ? "--save-every" : "--eval-every");
  return {};
}

// As perf::parse_flags, where another process prints.
std::optional<int> parse_mutely(CLI::App& app, int argc, char** argv) {
  perf::add_version_flag(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success&) {
    return EXIT_SUCCESS;
  } catch (const CLI::ParseError&) {
    return kBadUsage;
  }
  return std::nullopt;
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv, int launched, bool speaks) {
  Options options;
  Said said;
  CLI::App app(
      "Trains a byte-level GPT-2 on Tutti's sharded optimizer, on the processes of --procs or of "
      "mpirun, srun or torchrun.",
      "zero_gpt");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  auto* const procs = app.add_option("--procs", options.processes, "Processes to fork, one a rank")
                          ->check(CLI::Range(1, kMostProcesses))
                          ->capture_default_str();
  add_engine_flags(app, options.engine, said);
  add_server_flags(app, said.servers);
  add_training_flags(app, options, said);
  add_output_flags(app, options);
  if (const auto status =
          speaks ? perf::parse_flags(app, argc, argv) : parse_mutely(app, argc, argv))
    return {std::nullopt, *status};
  std::string wrong = complete(options, said);
  if (wrong.empty()) wrong = idle_flag(app, options.servers.has_value());
  if (launched > 1 && procs->count() > 0)
    wrong = fmt::format(
        "--procs: a launcher has started {} processes already; leave it out, or "
        "set TUTTI_LAUNCHER=none",
        launched);
  if (!wrong.empty()) {
    if (speaks) fmt::print(stderr, "zero_gpt: {}\n", wrong);
    return {std::nullopt, kBadUsage};
  }
  if (launched > 1) {
    options.launched = true;
    options.processes = launched;
  }
  return {options, 0};
}

float learning_rate(const Options& options, int step) {
  const double full = options.learning_rate, least = full / 10;
  if (step < options.warmup_steps)
    return static_cast<float>(full * (step + 1) / options.warmup_steps);
  const double length = std::max(1, options.steps - options.warmup_steps);
  const double share = std::min(1.0, (step - options.warmup_steps) / length);
  return static_cast<float>(least + (full - least) * (1 + std::cos(std::numbers::pi * share)) / 2);
}

}  // namespace tutti::gpt
