// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/train.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tutti/zero.hpp"
#include "zero_gpt/checkpoint_note.hpp"
#include "zero_gpt/curve.hpp"
#include "zero_gpt/engine_store.hpp"
#include "zero_gpt/gpt.hpp"
#include "zero_gpt/learner.hpp"
#include "zero_gpt/products.hpp"
#include "zero_gpt/random.hpp"
#include "zero_gpt/report.hpp"
#include "zero_gpt/same_flags.hpp"
#include "zero_gpt/trigram.hpp"

namespace tutti::gpt {
namespace {

using Clock = std::chrono::steady_clock;

int threads_of(const Options& options) {
  if (options.threads > 0) return options.threads;
  if (options.launched) return 1;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / options.processes);
}

// A file that rank 0 writes line by line.
class Output {
 public:
  explicit Output(const std::string& path)
      : path_(path), file_(path.empty() ? nullptr : std::fopen(path.c_str(), "w")) {
    if (!path.empty() && file_ == nullptr) fail();
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    if (file_ != nullptr) static_cast<void>(std::fclose(file_));
  }
  void write(const std::string& text) {
    if (file_ == nullptr) return;
    if (std::fputs(text.c_str(), file_) < 0 || std::fflush(file_) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const {
    throw std::runtime_error(fmt::format("{} cannot be written: {}", path_, std::strerror(errno)));
  }
  std::string path_;
  std::FILE* file_;
};

class Trainer {
 public:
  Trainer(Communicator& comm, const Options& options, const TextSource& source, const Text& text);
  [[nodiscard]] std::string run();

 private:
  [[nodiscard]] bool speaks() const { return comm_.rank() == 0; }
  void choose_products();
  void measure_products(StartFacts& facts);
  void say_start();
  void open_csv(int first);
  int load();
  void save(int steps);
  void train_together(int first);
  void train_apart(int first);
  void compute(int step, std::span<double> losses);
  [[nodiscard]] zero::Optimizer optimizer_of(int step) const;
  Point train_step(int step);
  void say_progress(const Point& point);
  double held_out_loss();
  double say_held_out(int step);
  std::string sample(int bytes);
  [[nodiscard]] std::string finish();

  Communicator& comm_;
  const Options& options_;
  const TextSource& source_;
  const Text& text_;
  Threads threads_;
  const LayerSet set_ = layer_sets().front();
  Learner learner_;
  zero::Engine* const model_;  // null on a rank that only serves
  std::optional<EngineStore> store_;
  std::optional<Blas> blas_;
  std::unique_ptr<Gpt<float>> gpt_;
  int most_sequences_ = 0;
  Batch batch_;
  double peak_flops_ = 1, trigram_ = 0;
  std::unique_ptr<Output> csv_;
  std::vector<Point> points_;
  Progress since_;  // the last line of progress
  Clock::time_point line_time_;
};

Trainer::Trainer(Communicator& comm, const Options& options, const TextSource& source,
                 const Text& text)
    : comm_(comm),
      options_(options),
      source_(source),
      text_(text),
      threads_(threads_of(options)),
      learner_(comm, engine_units(options.size), options),
      model_(learner_.model()) {
  blas_ = find_blas(threads_.count());
  if (model_ == nullptr) return;
  store_.emplace(*model_, options.engine.compute);
  for (int micro = 0; micro < model_->microsteps(); ++micro)
    most_sequences_ = std::max(most_sequences_,
                               static_cast<int>(model_->slots(micro).elements()) * options.batch);
  gpt_ = std::make_unique<Gpt<float>>(options.size, most_sequences_, set_.of<float>(), threads_);
  choose_products();
}

void Trainer::choose_products() {
  if (options_.matmul != Matmul::kBlas) return;
  if (!blas_) throw std::runtime_error("there is no BLAS");  // main() has looked for it
  gpt_->set_multiply(blas_->multiply);
}

// ---- the start ----------------------------------------------------------------------------------

void Trainer::measure_products(StartFacts& facts) {
  constexpr double kSeconds = 0.05;
  comm_.barrier();
  facts.own_flops = measure_flops(own_multiply(set_.of<float>(), threads_), kSeconds);
  if (blas_) {
    comm_.barrier();
    facts.blas_flops = measure_flops(blas_->multiply, kSeconds);
    facts.blas = blas_->name;
  }
  std::vector<double> sum = {options_.matmul == Matmul::kBlas ? facts.blas_flops : facts.own_flops};
  if (model_ == nullptr) sum[0] = 0;
  comm_.all_reduce(sum, tuttiSum);
  facts.peak_flops = peak_flops_ = sum[0];
}

void Trainer::say_start() {
  StartFacts facts;
  measure_products(facts);
  if (!speaks()) return;
  trigram_ =
      best_trigram(text_.training(), text_.held_out(), options_.size.vocabulary).nats_per_token;
  facts.instruction_set = set_.name;
  facts.threads = threads_.count();
  facts.memory = learner_.memory();
  if (options_.servers && !options_.servers->colocated)
    facts.server_bytes = zero::memory_of(engine_units(options_.size), options_.engine,
                                         *options_.servers, comm_.nranks(), comm_.nranks() - 1)
                             .total();
  facts.activation_bytes = gpt_->bytes() + store_->widened_bytes();
  facts.text = source_.name;
  facts.training_bytes = text_.training().size();
  facts.held_out_bytes = text_.held_out().size();
  facts.trigram = trigram_;
  facts.floor = source_.entropy;
  fmt::print("{}", start_text(options_, facts));
  static_cast<void>(std::fflush(stdout));
}

// The curve's rows before step `first` stay: training goes on where they end.
void Trainer::open_csv(int first) {
  if (!speaks()) return;
  const std::string before = first > 0 ? csv_before(options_.csv_path, first) : csv_head();
  csv_ = std::make_unique<Output>(options_.csv_path);
  csv_->write(before);
}

// Fills the parameters or loads them; returns the number of steps done.
int Trainer::load() {
  if (!options_.load_path.empty()) {
    const std::string text = learner_.load(options_.load_path);
    const CheckpointNote note = parse_note(text);
    for (const std::string& difference : differences(note, note_of(options_, note.steps)))
      if (speaks())
        fmt::print(stderr, "# note: {}: the checkpoint was trained with {}\n", options_.load_path,
                   difference);
    if (note.steps > options_.steps)
      throw std::runtime_error(
          fmt::format("--steps {}: the checkpoint {} has {} steps already; give --steps {} to only "
                      "evaluate it, more to train on",
                      options_.steps, options_.load_path, note.steps, note.steps));
    return note.steps;
  }
  std::vector<Tensor> tensors;
  for (TensorUnit& unit : units_of(options_.size))
    std::ranges::move(unit.tensors, std::back_inserter(tensors));
  learner_.initialize(
      [&](const zero::Parameter& parameter, std::uint64_t first, std::span<float> values) {
        const auto tensor = std::ranges::find(tensors, parameter.name, &Tensor::name);
        fill_tensor(*tensor, options_.seed, first, values);
      });
  return 0;
}

void Trainer::save(int steps) {
  if (options_.save_path.empty()) return;
  learner_.save(options_.save_path, to_text(note_of(options_, steps)));
  if (speaks()) fmt::print("# saved {} after {} steps\n", options_.save_path, steps);
}

// ---- training -----------------------------------------------------------------------------------

std::string Trainer::run() {
  say_start();
  const int first = load();
  open_csv(first);
  learner_.reset_usage();
  line_time_ = Clock::now();
  if (learner_.asynchronous(options_))
    train_apart(first);
  else
    train_together(first);
  return finish();
}

void Trainer::train_together(int first) {
  for (int step = first; step < options_.steps; ++step) {
    const Point point = train_step(step);
    points_.push_back(point);
    if (speaks()) csv_->write(csv_line(point));
    const int done = step + 1;
    if (step % options_.log_every == 0 || step == first || done == options_.steps)
      say_progress(point);
    if (options_.eval_every > 0 && done % options_.eval_every == 0 && done < options_.steps)
      static_cast<void>(say_held_out(done));
    if (options_.save_every > 0 && done % options_.save_every == 0 && done < options_.steps)
      save(done);
  }
}

zero::Optimizer Trainer::optimizer_of(int step) const {
  zero::Optimizer optimizer = options_.optimizer;
  std::visit([&](auto& each) { each.learning_rate = learning_rate(options_, step); }, optimizer);
  return optimizer;
}

// A step's passes. `losses` has one for each slot; this rank's are written.
void Trainer::compute(int step, std::span<double> losses) {
  if (model_ == nullptr) return;
  const float factor = model_->loss_scale() / static_cast<float>(options_.tokens_per_step());
  for (int micro = 0; micro < model_->microsteps(); ++micro) {
    const zero::Range mine = model_->slots(micro);
    batch_.slots = static_cast<int>(mine.elements());
    batch_.sequences_per_slot = options_.batch;
    text_.read_slots(options_.seed, step, static_cast<int>(mine.begin), batch_);
    gpt_->train(*store_, batch_, factor, losses.subspan(mine.begin, mine.elements()));
  }
}

// Asynchronous: workers meet at the end only, and learn each other's losses then. The learning rate
// follows the updates, of which each worker's step is one.
void Trainer::train_apart(int first) {
  zero::ParameterServer& servers = *learner_.servers();
  const auto slots = static_cast<std::size_t>(options_.engine.slots);
  std::vector<double> losses(slots * static_cast<std::size_t>(std::max(0, options_.steps - first)));
  if (model_ == nullptr)
    servers.serve([&](std::uint64_t update) {
      return optimizer_of(
          first + static_cast<int>(update / static_cast<std::uint64_t>(options_.workers())));
    });
  for (int step = first; model_ != nullptr && step < options_.steps; ++step) {
    const auto own =
        std::span(losses).subspan(static_cast<std::size_t>(step - first) * slots, slots);
    compute(step, own);
    Point point{step, 0, learning_rate(options_, step), servers.push()};
    point.loss = std::accumulate(own.begin(), own.end(), 0.0) /
                 static_cast<double>(options_.tokens_per_step()) * options_.workers();
    points_.push_back(point);
    ++since_.steps_since;
    if (step % options_.log_every == 0 || step == first || step + 1 == options_.steps)
      say_progress(point);
  }
  if (model_ != nullptr) servers.finish();
  comm_.all_reduce(losses, tuttiSum);
  const zero::Usage usage = learner_.usage();
  std::vector<double> shared = {
      static_cast<double>(usage.gradient_bytes + usage.update_gather_bytes + usage.other_bytes),
      model_ != nullptr ? usage.stall_seconds / options_.workers() : 0};
  comm_.all_reduce(shared, tuttiSum);
  for (std::size_t i = 0; speaks() && i < points_.size(); ++i) {
    const auto of_step = std::span(losses).subspan(i * slots, slots);
    points_[i].loss = std::accumulate(of_step.begin(), of_step.end(), 0.0) /
                      static_cast<double>(options_.tokens_per_step());
    csv_->write(csv_line(points_[i]));
  }
  if (!speaks()) return;
  fmt::print("# sent {} by all ranks; a worker was stalled for {:.3f} s on average\n",
             bytes_text(shared[0]), shared[1]);
  fmt::print("{}", arrivals_text(servers.arrivals()));
}

// The loss of a step is that before its update: the sum of the slots' losses in the order of slots,
// each of which a single rank contributes, so that its digits do not depend on the ranks.
Point Trainer::train_step(int step) {
  const auto slots = static_cast<std::size_t>(options_.engine.slots);
  const auto tokens = static_cast<double>(options_.tokens_per_step());
  std::vector<double> shared(slots + 2);  // losses, bytes sent, seconds stalled
  compute(step, shared);
  Point point{step, 0, learning_rate(options_, step), learner_.step(optimizer_of(step))};
  const zero::Usage usage = learner_.usage();
  learner_.reset_usage();
  shared[slots] =
      static_cast<double>(usage.forward_gather_bytes + usage.backward_gather_bytes +
                          usage.update_gather_bytes + usage.gradient_bytes + usage.other_bytes);
  shared[slots + 1] = usage.stall_seconds / options_.processes;
  comm_.all_reduce(shared, tuttiSum);
  point.loss = std::accumulate(shared.begin(), shared.end() - 2, 0.0) / tokens;
  since_.sent_bytes += shared[slots];
  since_.stall_seconds += shared[slots + 1];
  ++since_.steps_since;
  return point;
}

void Trainer::say_progress(const Point& point) {
  since_.step = point.step;
  since_.loss = point.loss;
  since_.learning_rate = point.learning_rate;
  since_.gradient_norm = point.gradient_norm;
  since_.seconds = std::chrono::duration<double>(Clock::now() - line_time_).count();
  if (speaks()) {
    fmt::print("{}", learner_.asynchronous(options_)
                         ? worker_line(options_, since_)
                         : progress_line(options_, since_, peak_flops_));
    static_cast<void>(std::fflush(stdout));
  }
  since_ = {};
  line_time_ = Clock::now();
}

// ---- what the model has learnt ------------------------------------------------------------------

// Nats per token of the held-out windows. Ranks take turns, each as many windows as it has memory
// for; all make the same calls, and the windows' losses are added in order.
double Trainer::held_out_loss() {
  const int all = text_.held_out_windows(), ranks = options_.workers();
  const int windows = options_.eval_windows == 0 ? all : std::min(all, options_.eval_windows);
  std::vector<double> losses(static_cast<std::size_t>(windows));
  std::vector<double> some(static_cast<std::size_t>(most_sequences_));
  batch_.slots = most_sequences_;
  batch_.sequences_per_slot = 1;
  for (int round = 0; model_ != nullptr && round < windows; round += ranks * most_sequences_) {
    const int first = round + comm_.rank() * most_sequences_;
    text_.read_held_out(first, batch_);
    gpt_->evaluate(*store_, batch_, some);
    for (int i = 0; i < most_sequences_ && first + i < windows; ++i)
      losses[static_cast<std::size_t>(first + i)] = some[static_cast<std::size_t>(i)];
  }
  comm_.all_reduce(losses, tuttiSum);
  return std::accumulate(losses.begin(), losses.end(), 0.0) /
         (static_cast<double>(windows) * options_.size.context);
}

// Is no part of training: neither of its time nor of what it sends.
double Trainer::say_held_out(int step) {
  const Clock::time_point begin = Clock::now();
  const double loss = held_out_loss();
  learner_.reset_usage();
  line_time_ += Clock::now() - begin;
  if (!speaks()) return loss;
  fmt::print(
      "# held out: {:.4f} nats per byte after {} step{}, {:.4f} {} the best trigram model's "
      "{:.4f}\n",
      loss, step, step == 1 ? "" : "s", std::abs(trigram_ - loss),
      loss <= trigram_ ? "below" : "above", trigram_);
  static_cast<void>(std::fflush(stdout));
  return loss;
}

// Every rank computes the same bytes, since gathering needs all of them.
std::string Trainer::sample(int bytes) {
  if (model_ == nullptr) return {};
  const int vocabulary = options_.size.vocabulary;
  const auto context = static_cast<std::size_t>(options_.size.context);
  std::vector<std::uint8_t> tokens = {token_of('\n', vocabulary)};
  std::string text;
  batch_ = {1, 1, std::vector<std::int32_t>(context), std::vector<std::int32_t>(context)};
  for (int i = 0; i < bytes; ++i) {
    const std::size_t seen = std::min(tokens.size(), context);
    std::copy(tokens.end() - static_cast<std::ptrdiff_t>(seen), tokens.end(),
              batch_.inputs.begin());
    double loss = 0;
    gpt_->evaluate(*store_, batch_, std::span(&loss, 1));
    const float* const row =
        gpt_->probabilities() + (seen - 1) * static_cast<std::size_t>(vocabulary);
    const std::uint64_t bits =
        random_bits(options_.seed, Purpose::kSample, 0, static_cast<std::uint64_t>(i));
    double left = static_cast<double>(bits >> 11) * 0x1p-53;
    int token = 0;
    while (token + 1 < vocabulary && left >= static_cast<double>(row[token])) left -= row[token++];
    tokens.push_back(static_cast<std::uint8_t>(token));
    const char byte = byte_of(tokens.back(), vocabulary);
    text += byte == '\n' || (byte >= ' ' && byte <= '~') ? byte : '?';  // fit to be printed
  }
  return text;
}

std::string Trainer::finish() {
  save(options_.steps);
  const double loss = say_held_out(options_.steps);
  const std::string text = sample(options_.sample_bytes);
  const std::uint64_t fingerprint = learner_.fingerprint();
  if (!speaks()) return {};
  fmt::print("# fingerprint of parameters and moments: {:016x}\n", fingerprint);
  if (!text.empty()) fmt::print("{}\n", text);
  std::vector<Level> levels = {{"best trigram", trigram_}};
  if (source_.entropy > 0) levels.push_back({"grammar", source_.entropy});
  Output(options_.svg_path)
      .write(curve_svg(fmt::format("zero_gpt {}, loss of each step", options_.size.name), points_,
                       levels));
  if (options_.least_margin == 0 || trigram_ - loss >= static_cast<double>(options_.least_margin))
    return {};
  return fmt::format(
      "--expect-margin: the held-out loss is {:.4f}, {:.4f} {} the best trigram model's, and not "
      "{} "
      "below it",
      loss, std::abs(trigram_ - loss), loss <= trigram_ ? "below" : "above", options_.least_margin);
}

}  // namespace

std::string train(Communicator& comm, const Options& options, const TextSource& source,
                  const Text& text) {
  check_same_flags(comm, options, text);
  return Trainer(comm, options, source, text).run();
}

}  // namespace tutti::gpt
