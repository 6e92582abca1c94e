// SPDX-License-Identifier: Apache-2.0
// The board: one small shared record for every rank of a host, in one memfd made by the host's
// lowest rank. Says what each rank is doing, since when, and whom it waits for, readable also after
// its SIGKILL, and by other programs (board_view.hpp); carries the poison that ends everyone's
// calls. Written by its owner only, except the poison, which the first writer wins. Readers
// validate: nothing here is trusted as an index or a bound.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/call_record.hpp"
#include "base/collective.hpp"
#include "base/signature.hpp"
#include "control/control_plane.hpp"

namespace tutti {

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
  // After a death: the operation that the dead rank was in, and where that is nothing, what it had
  // left last.
  OperationSignature mine{}, theirs{};
};

// How many of a rank's last operations the board keeps. A rank may be kMaxSlots messages ahead of
// another, and the calls of both must be there to be compared.
inline constexpr std::size_t kRememberedOperations = 80;

// Says where in a plan a rank waits, and since when (now_ns()).
struct WaitPlace {
  std::uint32_t lane = 0, step = 0, slice = 0;
  std::int64_t since_ns = 0;
};

// Where a rank's kernel was when it gave up, and what it looked at (device/task.hpp).
struct KernelFault {
  Rank peer = kNoRank;  // of the message or credit, if that is known
  std::uint32_t block = 0;
  WaitPlace place{};
  bool receives = false;  // it looked for a message, not for a credit
  std::uint64_t expected = 0, seen = 0;
};

struct BoardOptions {
  // TUTTI_FLIGHT_DIR: the board lies in a file there (flight_file.hpp); empty: in nameless memory.
  std::string flight_dir{};
  Log log = Log();
};

namespace control {

class BoardMemory;
struct RankBlock;

// What a rank tells those of other hosts about itself (far_rows.hpp).
struct RankRow {
  RankState state = RankState::kAbsent;
  std::uint64_t entered = 0, left = 0;
  Rank waits_for = kNoRank;
  std::optional<OperationSignature> asked;  // of the operation that was asked for, if remembered
  std::optional<OperationSignature> last;   // of the last one entered
  std::optional<Poison> poison;
  bool revoked = false;  // beside the poison
};

}  // namespace control

class Board {
 public:
  // About a rank of another host the board knows what ask() brought last. Collective over the ranks
  // of this host (lowest rank creates, the others ask it). A folder that takes no file is logged,
  // and the board is nameless then.
  [[nodiscard]] static Result<std::unique_ptr<Board>> open(ControlPlane& control, Deadline deadline,
                                                           const BoardOptions& options = {});
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Owner's writes, user thread, a few stores.
  void set_state(RankState state);
  // What of a signature does not change from call to call.
  struct Record {
    std::uint64_t kinds = 0, count = 0, plan = 0;
  };
  [[nodiscard]] static Record record_of(const OperationSignature& signature);
  void enter(const OperationSignature& signature) {  // keeps the last few
    enter(signature.operation, record_of(signature));
  }
  void enter(std::uint64_t operation, const Record& record);
  void leave(std::uint64_t operation);
  void waiting_for(Rank peer, const WaitPlace& place);  // kNoRank: for nobody
  void waiting_for(Rank peer) { waiting_for(peer, {}); }
  void gather(Gathering gathering);        // kNone: it is over
  [[nodiscard]] bool is_leaving() const {  // this rank
    // Relaxed: this rank's own word.
    return own_state_->load(std::memory_order_relaxed) ==
           static_cast<std::uint32_t>(RankState::kLeaving);
  }
  void note_cpu();  // where this thread runs now; enter() notes it too
  // Operations on a device end after their calls: all up to `left` have, and the next one waits for
  // `peer` (kNoRank: nobody is known to be late) since then. Beside the user thread; what that has
  // left meanwhile stays left.
  void note_device(std::uint64_t left, Rank peer, std::int64_t since_ns);
  // For people (board_view.hpp). The first one stays.
  void note_fault(const KernelFault& fault);
  // Anyone's reads; any thread.
  [[nodiscard]] RankState state(Rank rank) const;
  // Returns the processor on which the rank ran when it last noted it; -1: not known.
  [[nodiscard]] int cpu_of(Rank rank) const;
  // Rank's signature for operation number `operation`, if it has entered it and still remembers.
  [[nodiscard]] std::optional<OperationSignature> signature(Rank rank,
                                                            std::uint64_t operation) const;
  [[nodiscard]] std::uint64_t last_entered(Rank rank) const;
  [[nodiscard]] std::uint64_t last_left(Rank rank) const;
  // The first operation that the rank has entered and not left, if any; where the board has
  // forgotten that, the last.
  [[nodiscard]] std::optional<OperationSignature> current(Rank rank) const;
  [[nodiscard]] Rank waits_for(Rank rank) const;
  // Where `rank` tells other processes of its buffers; null: not on this host. Written by its
  // owner.
  [[nodiscard]] CallRecord* call_record(Rank rank);
  // Tells `rank` of another host this rank's row and asks for its, with the signature of
  // `operation`; each takes over the other's poison. Nothing to do for ranks of this host. User
  // thread; blocks until `deadline` at most. Errors: those of ControlChannel::call.
  [[nodiscard]] Status ask(Rank rank, std::uint64_t operation, Deadline deadline);
  // One relaxed load: is there poison? Polled by every wait.
  [[nodiscard]] bool poisoned() const { return poison_word_->load(std::memory_order_relaxed) != 0; }
  // First writer wins; returns false if another was there first. Any thread.
  bool poison(const Poison& poison);
  [[nodiscard]] std::optional<Poison> read_poison() const;
  // Ends every operation of this host's ranks, also of those that a death leaves able to complete,
  // and tells other hosts when they ask. Comes beside a poison, which says why. Any thread.
  void revoke();
  [[nodiscard]] bool revoked() const;

 private:
  static constexpr std::int32_t kNotHere = -1;
  // The board as the service thread may see it; gone with the board.
  struct Asked {
    std::mutex mutex;
    Board* board = nullptr;  // guarded by mutex
  };

  Board(std::shared_ptr<control::BoardMemory> memory, ControlPlane& control,
        const std::vector<Rank>& local);
  // So that other programs can tell who this is and whether it still lives.
  void introduce();
  // A rank that asks tells its own row. Service thread.
  [[nodiscard]] Result<HandlerReply> answer(const Request& request);
  // False: the bytes are not a row. Any thread.
  [[nodiscard]] bool learn(Rank rank, std::span<const std::byte> bytes);
  [[nodiscard]] control::RankRow far(Rank rank) const;
  [[nodiscard]] std::optional<OperationSignature> far_signature(Rank rank,
                                                                std::uint64_t operation) const;
  // In order, and nothing is worth a look afterwards. The last one out sees it.
  [[nodiscard]] bool everybody_left() const;
  // Null: of another host.
  [[nodiscard]] control::RankBlock* block_of(Rank rank) const;
  // Where the signatures of a poison by `reporter` stand on this host.
  [[nodiscard]] const control::RankBlock* detail_of(Rank reporter) const;

  const std::shared_ptr<control::BoardMemory> memory_;
  ControlPlane& control_;
  const Rank rank_;
  const Rank ranks_;
  std::vector<std::int32_t> index_;  // global rank to block; fixed
  control::RankBlock* mine_ = nullptr;
  // What each call looks at, in the board's memory.
  const std::atomic<std::uint64_t>* poison_word_ = nullptr;
  const std::atomic<std::uint32_t>* own_state_ = nullptr;
  bool waited_ = false;  // slowly, in this operation; user thread
  mutable std::mutex far_mutex_;
  std::map<Rank, control::RankRow> far_;  // guarded by far_mutex_
  const std::shared_ptr<Asked> asked_ = std::make_shared<Asked>();
  std::mutex poison_mutex_;  // among the threads of this rank: its detail is written once
};

}  // namespace tutti
