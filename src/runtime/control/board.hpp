// The board: one small shared record for every rank of a host, in one memfd made by the host's
// lowest rank. Says what each rank is doing, since when, and whom it waits for, readable also after
// its SIGKILL, and by other programs (board_view.hpp); carries the poison that ends everyone's
// calls. Written by its owner only, except the poison, which the first writer wins. Readers
// validate: nothing here is trusted as an index or a bound.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/call_record.hpp"
#include "runtime/control/control_plane.hpp"

namespace tutti {

// What an operation is; must be equal on all ranks.
struct OperationSignature {
  std::uint64_t operation = 0;  // number in the communicator, from 1
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Rank root = 0;
  std::uint64_t count = 0;  // elements
  std::uint64_t plan = 0;   // plan id
  bool in_windows = false;  // input and output lie in symmetric windows
  bool on_device = false;   // the same in devices' memory
  bool operator==(const OperationSignature&) const = default;
  // 64-bit hash, never 0. Travels with every message.
  [[nodiscard]] std::uint64_t hash() const;
  // "all_reduce #12 count 1024 float sum plan 9af3..."
  [[nodiscard]] std::string to_string() const;
};

// kFailed: alive, but its last operation ended in an error; it will send nothing more.
enum class RankState : std::uint32_t {
  kAbsent = 0,
  kAlive = 1,
  kLeaving = 2,
  kLeft = 3,
  kFailed = 4,
};

// A collective that is no operation, in which a rank waits for the others to come.
enum class Gathering : std::uint32_t { kNone = 0, kSplit = 1, kShrink = 2, kWindow = 3 };
inline constexpr Gathering kLastGathering = Gathering::kWindow;
[[nodiscard]] std::string_view name_of(Gathering gathering);

// Why the communicator is dead.
struct Poison {
  Code code = Code::kRemoteError;
  Rank culprit = kNoRank;   // the rank that died, failed or disagrees
  Rank reporter = kNoRank;  // the rank that saw it, if it is of another host; else who poisons
  enum class Kind : std::uint32_t {
    kDeath = 1,     // culprit's process ended
    kMismatch = 2,  // mine (reporter) and theirs (culprit) differ
    kTimeout = 3,   // culprit did not come within op_timeout
    kAbort = 4,     // culprit called abort
    kFailure = 5,   // culprit met a local error
    kNoWay = 6,     // reporter could not connect to culprit, which may be well
    kLeft = 7,      // culprit left in order, without the call that reporter is in
    kStopped = 8,   // kTimeout, and culprit's process is stopped
    kCut = 9,       // reporter's connection to culprit broke, which may be well
  } kind = Kind::kDeath;
  // Of a death: what the dead one was in, and where that is nothing, what it had left last.
  OperationSignature mine{}, theirs{};
};

// How many of a rank's last operations the board keeps.
inline constexpr std::size_t kRememberedOperations = 64;

// Where in a plan a rank waits, and since when (now_ns()).
struct WaitPlace {
  std::uint32_t lane = 0, step = 0, slice = 0;
  std::int64_t since_ns = 0;
};

struct BoardOptions {
  // TUTTI_FLIGHT_DIR: the board lies in a file there (flight_file.hpp); empty: in nameless memory.
  std::string flight_dir{};
  Log log = Log();
};

class Board {
 public:
  // Of a rank of another host the board knows what ask() brought last.
  // Collective over the ranks of this host (lowest rank creates, the others ask it). A folder that
  // takes no file is logged, and the board is nameless then.
  [[nodiscard]] static Result<std::unique_ptr<Board>> open(ControlPlane& control, Deadline deadline,
                                                           const BoardOptions& options = {});
  virtual ~Board() = default;

  // Owner's writes, user thread, a few stores.
  virtual void set_state(RankState state) = 0;
  virtual void enter(const OperationSignature& signature) = 0;  // keeps the last few
  virtual void leave(std::uint64_t operation) = 0;
  virtual void waiting_for(Rank peer, const WaitPlace& place) = 0;  // kNoRank: for nobody
  void waiting_for(Rank peer) { waiting_for(peer, {}); }
  virtual void gather(Gathering gathering) = 0;  // kNone: it is over
  virtual void note_cpu() = 0;                   // where this thread runs now; enter() notes it too
  // Operations on a device end after their calls: all up to `left` have, and the next one waits for
  // `peer` (kNoRank: nobody is known to be late) since then. Beside the user thread; what that has
  // left meanwhile stays left.
  virtual void note_device(std::uint64_t left, Rank peer, std::int64_t since_ns) = 0;
  // Anyone's reads; any thread.
  [[nodiscard]] virtual RankState state(Rank rank) const = 0;
  // Where the rank ran when it last noted it; -1: not known.
  [[nodiscard]] virtual int cpu_of(Rank rank) const = 0;
  // Rank's signature for operation number `operation`, if it has entered it and still remembers.
  [[nodiscard]] virtual std::optional<OperationSignature> signature(
      Rank rank, std::uint64_t operation) const = 0;
  [[nodiscard]] virtual std::uint64_t last_entered(Rank rank) const = 0;
  [[nodiscard]] virtual std::uint64_t last_left(Rank rank) const = 0;
  // The first operation that the rank has entered and not left, if any; where the board has
  // forgotten that, the last.
  [[nodiscard]] virtual std::optional<OperationSignature> current(Rank rank) const = 0;
  [[nodiscard]] virtual Rank waits_for(Rank rank) const = 0;
  // Where `rank` tells other processes of its buffers; null: not on this host. Written by its
  // owner.
  [[nodiscard]] virtual CallRecord* call_record(Rank rank) = 0;
  // Tells `rank` of another host this rank's row and asks for its, with the signature of
  // `operation`; each takes over the other's poison. Nothing to do for ranks of this host. User
  // thread; blocks until `deadline` at most. Errors: those of ControlChannel::call.
  [[nodiscard]] virtual Status ask(Rank rank, std::uint64_t operation, Deadline deadline) = 0;
  // One relaxed load: is there poison? Polled by every wait.
  [[nodiscard]] virtual bool poisoned() const = 0;
  // First writer wins; returns false if another was there first. Any thread.
  virtual bool poison(const Poison& poison) = 0;
  [[nodiscard]] virtual std::optional<Poison> read_poison() const = 0;
};

}  // namespace tutti
