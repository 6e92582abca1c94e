// SPDX-License-Identifier: Apache-2.0
// Tutti's sharded optimizer: data-parallel training in which the ranks share the optimizer's state
// (ZeRO-1), the gradients too (ZeRO-2), and the parameters too (ZeRO-3), or nothing (DDP). A
// library of its own: link tutti::zero (CMake) or tutti-zero (pkg-config).
//
//   std::vector<zero::Unit> units = ...;               // what is gathered and reduced together
//   zero::Engine engine(comm, units, {.stage = zero::Stage::kZero3});
//   engine.initialize(fill);                           // fill(parameter, first, values)
//   for (int step = 0; step < steps; ++step) {
//     for (int micro = 0; micro < engine.microsteps(); ++micro) {
//       forward:   { auto w = engine.use(unit, Pass::kForward); ... w[parameter] ... }
//       backward:  { auto w = engine.use(unit, Pass::kBackward);
//                    for (each slot of this microstep) { auto g = engine.gradients(unit); ... } }
//     }
//     engine.step(AdamW{.learning_rate = 3e-4F});
//   }
//
// Slots. The global batch of a step is `slots` microbatches, whatever the number of ranks: slot m's
// data depend on (seed, step, m) alone, and the loss of each is already divided by all of them, so
// that gradients are summed, never averaged. Each rank computes the slots that slots() names, in
// `microsteps` parts of equally many; within a part, every unit's gradients come slot by slot.
//
// Order. In canonical order, the default, gradients are summed along one binary tree over slots
// (0 + 1, 2 + 3, ..., then pairs of pairs), so that every bit of the result is the same for any
// number of ranks that can hold whole subtrees, any stage, any grouping into units, prefetch and
// overlap. What does not fit is refused with a text that says which numbers would. kFast sums in
// the order of the library's fastest reduce-scatter.
//
// Memory. The engine owns all model state: an arena of shards and a pool of unit-sized buffers,
// both allocated by the constructor. Peak memory is a constant of the configuration: memory_of()
// computes it, and the constructor compares it with Config::memory_limit_bytes first. The model
// sees parameters and gradients only through scopes (Parameters, Gradients).
//
// Threads and errors. One thread uses an engine. All ranks make the same calls in the same order.
// Constructor, initialize(), use(), step(), save(), load(), read() and fingerprint() are collective
// and block; so is the end of a Gradients scope that completes a unit's sum. A wrong argument
// throws std::invalid_argument, a failed call of the library tutti::Exception, a file that cannot
// be written or read std::runtime_error, on all ranks with the text of the first that failed. The
// constructor compares its arguments among the ranks, and step() its optimizer. After
// std::invalid_argument, a failed save(), and a load() that found an error before it changed
// anything, the engine is as it was; after any other exception it can only be destroyed. What a
// scope's end finds, the next call throws. An exception of the model that leaves a scope ends the
// engines of all ranks, as what they wait for does not come.
//
// After Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models,
// SC 2020; units are the flat parameters of PyTorch's FSDP (Zhao et al., VLDB 2023).
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

namespace tutti::zero {

enum class Stage : std::uint8_t { kDdp, kZero1, kZero2, kZero3 };
enum class Order : std::uint8_t { kCanonical, kFast };
enum class Pass : std::uint8_t { kForward, kBackward };
// What parameters are computed with, and what gradients travel as. The optimizer's state is fp32.
enum class Number : std::uint8_t { kFloat32, kBfloat16, kFloat16 };
[[nodiscard]] TUTTI_API std::size_t bytes_of(Number number);

struct TUTTI_API Parameter {
  std::string name;  // unique in the model; names it in checkpoints
  std::vector<std::int64_t> shape;
  bool decays = true;  // does AdamW's weight decay apply?
  [[nodiscard]] std::uint64_t elements() const;
};

// Parameters that are gathered, reduced and sharded as one flat piece of memory, like a block.
struct Unit {
  std::string name;
  std::vector<Parameter> parameters;
};

// Elements [begin, end).
struct Range {
  std::uint64_t begin = 0, end = 0;
  [[nodiscard]] std::uint64_t elements() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Where each parameter lies in its unit's flat memory, and which part of a unit each shard is. A
// unit is padded at its end to equal shards of whole cache lines. Pure.
class TUTTI_API Layout {
 public:
  // Throws std::invalid_argument if a name is given twice, a shape has a negative extent, or there
  // are no units.
  Layout(std::span<const Unit> units, int shards);

  [[nodiscard]] int units() const;
  [[nodiscard]] int shards() const;
  [[nodiscard]] std::uint64_t elements(int unit) const;         // without padding
  [[nodiscard]] std::uint64_t padded_elements(int unit) const;  // a multiple of shards()
  [[nodiscard]] Range parameter(int unit, int parameter) const;
  [[nodiscard]] Range shard(int unit, int shard) const;  // may reach into the padding
  [[nodiscard]] std::uint64_t elements() const;          // of the model, without padding
  [[nodiscard]] std::uint64_t padded_elements() const;
  [[nodiscard]] std::uint64_t largest_padded_elements() const;

 private:
  struct Extent {
    std::vector<Range> parameters;
    std::uint64_t elements = 0, padded_elements = 0;
  };
  std::vector<Extent> extents_;
  int shards_ = 1;
};

// fp16 gradients vanish below 6e-8: the loss is multiplied by a scale, and the gradients divided by
// it. A step whose gradients are not finite is left out and halves the scale; `growth_steps` good
// ones double it.
struct LossScaling {
  float initial = 0;  // 0: no scaling; a power of two
  int growth_steps = 1000;
};

struct Config {
  Stage stage = Stage::kZero3;
  Order order = Order::kCanonical;
  Number compute = Number::kFloat32;
  // What gradients are rounded to on their way; sums are in fp32. 16-bit numbers are rounded once a
  // rank, so with them the bits depend on the number of ranks.
  Number reduce = Number::kFloat32;
  int slots = 8;
  int microsteps = 1;
  // Reduce gradients after each microstep, or once a step? kZero2 and kZero3 without it need memory
  // for all gradients; kDdp and kZero1 with it send them `microsteps` times.
  enum class Sync : std::uint8_t { kByStage, kEachMicrostep, kOnce };
  Sync sync = Sync::kByStage;       // kDdp, kZero1: once; kZero2, kZero3: each microstep
  int prefetch = 1;                 // kZero3: units gathered ahead of use
  bool overlap = true;              // communicate while the model computes
  bool keep_after_forward = false;  // kZero3: parameters stay gathered from forward to backward
  // Hybrid sharding: shards among so many consecutive ranks (those of a host), replicas between the
  // groups. 0: among all ranks. Must divide the number of ranks.
  int shard_ranks = 0;
  // Units that the model uses at once (kZero3), or accumulates gradients of at once, like an
  // embedding that is held for the whole pass and the block at hand.
  int units_in_use = 2;
  float clip_norm = 0;  // of all gradients; 0: no clipping
  LossScaling loss_scaling = {};
  std::uint64_t memory_limit_bytes = 0;  // of this rank; 0: none
  bool poison = false;  // fill freed buffers with NaN, to find a use after the end of a scope
};

// What a rank's engine allocates, in bytes; `state` are the terms of the ZeRO paper.
struct Memory {
  std::uint64_t parameters = 0;  // in the compute type: whole, or the shard (kZero3)
  std::uint64_t gradients = 0;   // fp32: whole, or the shard (kZero2, kZero3)
  std::uint64_t optimizer = 0;   // fp32 master copy where the compute type has 16 bits; moments
  std::uint64_t gathered = 0;    // pool: parameters of units in use and on their way
  std::uint64_t reducing = 0;    // pool: gradients of units at hand and on their way
  [[nodiscard]] std::uint64_t state() const { return parameters + gradients + optimizer; }
  [[nodiscard]] std::uint64_t total() const { return state() + gathered + reducing; }
};
// Pure: what an Engine of these arguments will allocate. Throws std::invalid_argument as Engine.
[[nodiscard]] TUTTI_API Memory memory_of(std::span<const Unit> units, const Config& config,
                                         int ranks);

// Throws std::runtime_error where save() would refuse the path: what it is to lie in is no folder
// or cannot be written, or it is there and is no checkpoint. For programs that ask before they
// train.
TUTTI_API void check_checkpoint_path(const std::filesystem::path& path);
// Would load() find a checkpoint there? What it holds is not looked at.
[[nodiscard]] TUTTI_API bool is_checkpoint(const std::filesystem::path& path);

// Decoupled weight decay (Loshchilov and Hutter, 2019): decay applies to the parameters that have
// `decays`, and is not part of the moments.
struct AdamW {
  float learning_rate = 3e-4F, beta1 = 0.9F, beta2 = 0.95F, epsilon = 1e-8F, weight_decay = 0;
};
// Without momentum it keeps the moments' memory unused.
struct Sgd {
  float learning_rate = 0.1F, momentum = 0, weight_decay = 0;
};

// Since the engine was made, or since reset_usage(). Bytes are payload that this rank sent.
struct Usage {
  std::uint64_t forward_gather_bytes = 0, backward_gather_bytes = 0;  // of parameters before use
  std::uint64_t update_gather_bytes = 0;  // of parameters after the optimizer (kZero1, kZero2)
  std::uint64_t gradient_bytes = 0;       // all ways of reducing, and kDdp's gathering
  std::uint64_t other_bytes = 0;          // norm, agreement
  std::uint64_t gathers = 0, prefetch_hits = 0;
  std::uint64_t peak_gathered_bytes = 0, peak_reducing_bytes = 0;  // of the pool, in use at once
  double stall_seconds = 0;         // the model waited for communication
  std::uint64_t skipped_steps = 0;  // loss scaling found what is not finite
};

class TUTTI_API Engine {
 public:
  // `comm` must outlive the engine, which makes calls on it and on communicators split off it.
  // Parameters and moments are 0 at first.
  Engine(Communicator& comm, std::span<const Unit> units, const Config& config);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Fills the parameters: `fill` is called for pieces of parameters that this rank keeps, with the
  // number of the first element within the parameter and memory for the values. To give the same
  // model on any number of ranks, a value must depend on name and element alone.
  using Fill = std::function<void(const Parameter&, std::uint64_t first, std::span<float> values)>;
  void initialize(const Fill& fill);

  // This rank's slots of a microstep: consecutive numbers.
  [[nodiscard]] Range slots(int microstep) const;
  [[nodiscard]] int microsteps() const;
  // The factor by which the loss is to be multiplied (loss scaling); 1 without.
  [[nodiscard]] float loss_scale() const;

  // A unit's parameters in the compute type, gathered for as long as the scope lives.
  class TUTTI_API Parameters {
   public:
    Parameters(Parameters&& other) noexcept;
    Parameters& operator=(Parameters&&) = delete;
    ~Parameters();
    [[nodiscard]] const void* operator[](int parameter) const;
    template <Element T>
    [[nodiscard]] const T* as(int parameter) const {
      return static_cast<const T*>((*this)[parameter]);
    }

   private:
    friend class Engine;
    Parameters(Engine* engine, int unit)
        : engine_(engine), unit_(unit), exceptions_(std::uncaught_exceptions()) {}
    Engine* engine_;
    int unit_, exceptions_;
  };
  // Waits for the gather if it is still on its way, and starts those of the next units: those that
  // followed in the step before.
  [[nodiscard]] Parameters use(int unit, Pass pass);

  // Memory for one slot's gradients of a unit, zero at first, to accumulate into. The end of the
  // scope hands them in; the last slot's end starts the reduction where one is due.
  class TUTTI_API Gradients {
   public:
    Gradients(Gradients&& other) noexcept;
    Gradients& operator=(Gradients&&) = delete;
    ~Gradients();
    [[nodiscard]] float* operator[](int parameter) const;

   private:
    friend class Engine;
    Gradients(Engine* engine, int unit)
        : engine_(engine), unit_(unit), exceptions_(std::uncaught_exceptions()) {}
    Engine* engine_;
    int unit_, exceptions_;
  };
  [[nodiscard]] Gradients gradients(int unit);

  // Ends a step: waits for the reductions, clips, updates what this rank keeps and spreads it.
  // Every unit must have had the gradients of all slots. Returns the norm of all gradients before
  // clipping, the same on all ranks. Not finite: with loss scaling the step is left out, without it
  // std::runtime_error is thrown.
  float step(const AdamW& optimizer);
  float step(const Sgd& optimizer);

  // Saves parameters and optimizer state for any number of ranks and any stage: into a folder whose
  // name appears only when all of it is on disk. `note` is given back by load(), for what else the
  // program has to remember. All ranks must see the same folder. Replaces one of that name.
  void save(const std::filesystem::path& path, const std::string& note = {});
  // Checks version, checksums, names and shapes before anything is changed. Returns the note.
  std::string load(const std::filesystem::path& path);

  // Writes one parameter's fp32 values, whole, on every rank. Collective.
  void read(int unit, int parameter, std::span<float> values);
  // Of the bits of all fp32 parameters and moments, whatever the sharding. Collective.
  [[nodiscard]] std::uint64_t fingerprint();

  [[nodiscard]] const Layout& layout() const;
  [[nodiscard]] const Memory& memory() const;
  [[nodiscard]] Usage usage() const;
  void reset_usage();
  // What the library counted on the engine's communicators since it was made (tuttiCommInfo): in
  // canonical order the sum of all kinds of bytes of usage(). Blocks until what is on its way has
  // ended.
  [[nodiscard]] std::uint64_t library_bytes() const;

 private:
  friend class ParameterServer;  // whose worker() it is
  struct Implementation;
  explicit Engine(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> it_;
};

}  // namespace tutti::zero
