#include "runtime/control/board.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "base/clock.hpp"
#include "base/process_fd.hpp"
#include "base/shared_file.hpp"
#include "runtime/control/board_memory.hpp"
#include "runtime/control/board_words.hpp"
#include "runtime/control/codec.hpp"
#include "runtime/control/far_rows.hpp"
#include "runtime/control/flight_file.hpp"
#include "runtime/control/process_stat.hpp"

namespace tutti {
namespace control {
namespace {

class SharedBoard;

// The board as the service thread may see it; gone with the board.
struct Asked {
  std::mutex mutex;
  SharedBoard* board = nullptr;  // guarded by mutex
};

class SharedBoard final : public Board {
 public:
  SharedBoard(std::shared_ptr<BoardMemory> memory, ControlPlane& control,
              const std::vector<Rank>& local)
      : memory_(std::move(memory)),
        control_(control),
        rank_(control.rank()),
        ranks_(static_cast<Rank>(control.peers().size())) {
    const Rank rank = rank_, ranks = ranks_;
    index_.assign(static_cast<std::size_t>(ranks), kNotHere);
    for (std::size_t i = 0; i < local.size(); ++i) {
      index_[static_cast<std::size_t>(local[i])] = static_cast<std::int32_t>(i);
    }
    mine_ = &memory_->block(static_cast<std::size_t>(index_[static_cast<std::size_t>(rank)]));
    introduce();
    if (local.size() == static_cast<std::size_t>(ranks)) return;
    asked_->board = this;
    control.serve(RequestKind::kRow, [asked = asked_](const Request& request) {
      const std::lock_guard lock(asked->mutex);
      return asked->board == nullptr
                 ? make_error(Code::kInvalidUsage, "this rank has destroyed its communicator")
                 : asked->board->answer(request);
    });
  }

  ~SharedBoard() override {
    {
      const std::lock_guard lock(asked_->mutex);
      asked_->board = nullptr;
    }
    if (memory_->fd() >= 0 && everybody_left()) remove_flight_file(memory_->fd());
  }

  void set_state(RankState state) override {
    // Pairs with the acquire in state(): what a rank did before it left is seen by who sees it
    // left.
    mine_->line.state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
  }

  // A seqlock without fences (ThreadSanitizer knows none): every store is a release, so a reader
  // that sees a new field also sees the version that was written before it.
  void enter(const OperationSignature& signature) override {
    note_cpu();
    waited_ = false;
    SignatureRecord& record = mine_->ring[signature.operation % kRememberedOperations];
    record.version.store(2 * signature.operation, std::memory_order_relaxed);
    record.kinds.store(pack_kinds(signature), std::memory_order_release);
    record.count.store(signature.count, std::memory_order_release);
    record.plan.store(signature.plan, std::memory_order_release);
    record.entered_ns.store(coarse_now_ns(), std::memory_order_release);
    record.version.store(2 * signature.operation + 1, std::memory_order_release);
    // Pairs with last_entered(): who sees the number sees the record.
    mine_->line.entered.store(signature.operation, std::memory_order_release);
  }

  // Only an operation that was slow has time for the clock; the others leave when they enter.
  void leave(std::uint64_t operation) override {
    if (waited_) {
      mine_->line.waits_for_plus_one.store(0, std::memory_order_relaxed);
      mine_->line.left_ns.store(coarse_now_ns(), std::memory_order_relaxed);
    }
    mine_->line.left.store(operation, std::memory_order_release);
  }

  void note_device(std::uint64_t left, Rank peer, std::int64_t since_ns) override {
    std::uint64_t known = mine_->line.left.load(std::memory_order_relaxed);
    while (known < left)
      if (mine_->line.left.compare_exchange_weak(known, left, std::memory_order_release,
                                                 std::memory_order_relaxed))
        mine_->line.left_ns.store(coarse_now_ns(), std::memory_order_relaxed);
    // Hints, like waiting_for().
    mine_->line.wait_place.store(0, std::memory_order_relaxed);
    mine_->line.wait_since_ns.store(since_ns, std::memory_order_relaxed);
    mine_->line.waits_for_plus_one.store(peer + 1, std::memory_order_relaxed);
  }

  // Hints, like waiting_for(); the time first, so that it is there where the gathering is seen.
  void gather(Gathering gathering) override {
    mine_->line.wait_since_ns.store(now_ns(), std::memory_order_relaxed);
    mine_->line.gathering.store(static_cast<std::uint32_t>(gathering), std::memory_order_release);
  }

  void note_cpu() override {
    const int cpu = ::sched_getcpu();  // a load, with restartable sequences
    if (mine_->line.cpu_plus_one.load(std::memory_order_relaxed) != cpu + 1)
      mine_->line.cpu_plus_one.store(cpu + 1, std::memory_order_relaxed);
  }

  using Board::waiting_for;
  void waiting_for(Rank peer, const WaitPlace& place) override {
    waited_ = true;
    // Hints for those who look for the culprit; they order nothing.
    mine_->line.wait_place.store(pack_place(place), std::memory_order_relaxed);
    mine_->line.wait_since_ns.store(place.since_ns, std::memory_order_relaxed);
    mine_->line.waits_for_plus_one.store(peer + 1, std::memory_order_relaxed);
  }

  // Orders nothing, and a wrong number only makes a wait yield early.
  [[nodiscard]] int cpu_of(Rank rank) const override {
    const RankBlock* block = block_of(rank);
    return block == nullptr ? -1 : block->line.cpu_plus_one.load(std::memory_order_relaxed) - 1;
  }

  [[nodiscard]] RankState state(Rank rank) const override {
    const RankBlock* block = block_of(rank);
    if (block == nullptr) return far(rank).state;
    const std::uint32_t state = block->line.state.load(std::memory_order_acquire);
    return state <= static_cast<std::uint32_t>(RankState::kFailed) ? static_cast<RankState>(state)
                                                                   : RankState::kAbsent;
  }

  [[nodiscard]] std::optional<OperationSignature> signature(
      Rank rank, std::uint64_t operation) const override {
    const RankBlock* block = block_of(rank);
    if (block == nullptr) return far_signature(rank, operation);
    const SignatureRecord& record = block->ring[operation % kRememberedOperations];
    const std::uint64_t whole = 2 * operation + 1;
    // Acquires pair with the releases in enter(); the last load cannot move before them.
    if (record.version.load(std::memory_order_acquire) != whole) return std::nullopt;
    OperationSignature result;
    result.operation = operation;
    const std::uint64_t kinds = record.kinds.load(std::memory_order_acquire);
    result.count = record.count.load(std::memory_order_acquire);
    result.plan = record.plan.load(std::memory_order_acquire);
    if (record.version.load(std::memory_order_relaxed) != whole) return std::nullopt;
    if (!unpack_kinds(kinds, ranks_, result)) return std::nullopt;
    return result;
  }

  [[nodiscard]] std::optional<OperationSignature> current(Rank rank) const override {
    const std::uint64_t entered = last_entered(rank);
    const std::uint64_t left = last_left(rank);
    if (entered <= left) return std::nullopt;
    const auto first = signature(rank, left + 1);
    return first ? first : signature(rank, entered);
  }

  [[nodiscard]] std::uint64_t last_entered(Rank rank) const override {
    const RankBlock* block = block_of(rank);
    return block == nullptr ? far(rank).entered
                            : block->line.entered.load(std::memory_order_acquire);
  }

  [[nodiscard]] std::uint64_t last_left(Rank rank) const override {
    const RankBlock* block = block_of(rank);
    return block == nullptr ? far(rank).left : block->line.left.load(std::memory_order_acquire);
  }

  [[nodiscard]] Rank waits_for(Rank rank) const override {
    const RankBlock* block = block_of(rank);
    if (block == nullptr) return far(rank).waits_for;
    const std::int32_t plus_one = block->line.waits_for_plus_one.load(std::memory_order_relaxed);
    return plus_one >= 1 && plus_one <= ranks_ ? plus_one - 1 : kNoRank;
  }

  [[nodiscard]] CallRecord* call_record(Rank rank) override {
    RankBlock* const block = block_of(rank);
    return block == nullptr ? nullptr : &block->call;
  }

  [[nodiscard]] Status ask(Rank rank, std::uint64_t operation, Deadline deadline) override {
    if (block_of(rank) != nullptr || rank < 0 || rank >= ranks_) return {};
    Writer question;
    question.number(operation).raw(encode_row(row_of(*this, rank_, operation)));
    TUTTI_TRY_ASSIGN(const Reply reply,
                     control_.call(rank, RequestKind::kRow, question.bytes(), deadline));
    if (learn(rank, reply.payload)) return {};
    return make_error(Code::kRemoteError, fmt::format("rank {} told nonsense of itself", rank),
                      rank);
  }

  [[nodiscard]] bool poisoned() const override {
    return memory_->poison().word.load(std::memory_order_relaxed) != 0;
  }

  bool poison(const Poison& poison) override;
  [[nodiscard]] std::optional<Poison> read_poison() const override;

 private:
  static constexpr std::int32_t kNotHere = -1;

  // So that other programs can tell who this is and whether it still lives.
  void introduce() {
    RankIdentity& identity = mine_->identity;
    identity.rank.store(rank_, std::memory_order_relaxed);
    identity.start_ticks.store(process_start_ticks(::getpid()), std::memory_order_relaxed);
    identity.pid_namespace.store(pid_namespace(), std::memory_order_relaxed);
    identity.uid.store(::geteuid(), std::memory_order_relaxed);
    // Release: who sees the pid sees the rest.
    identity.pid.store(::getpid(), std::memory_order_release);
  }

  // Who asks tells its own row. Service thread.
  Result<HandlerReply> answer(const Request& request) {
    Reader reader(request.payload);
    const auto operation = reader.number<std::uint64_t>();
    if (!reader.ok() || block_of(request.from) != nullptr || !learn(request.from, reader.rest()))
      return make_error(Code::kInvalidUsage, "that is no question for a rank's row");
    return HandlerReply{.payload = encode_row(row_of(*this, rank_, operation))};
  }

  // False: that is no row. Any thread.
  bool learn(Rank rank, std::span<const std::byte> bytes) {
    std::optional<RankRow> row = decode_row(bytes, ranks_);
    if (!row) return false;
    if (row->poison) poison(*row->poison);
    const std::lock_guard lock(far_mutex_);
    far_[rank] = *std::move(row);
    return true;
  }

  [[nodiscard]] RankRow far(Rank rank) const {
    const std::lock_guard lock(far_mutex_);
    const auto found = far_.find(rank);
    return found == far_.end() ? RankRow{} : found->second;
  }
  [[nodiscard]] std::optional<OperationSignature> far_signature(Rank rank,
                                                                std::uint64_t operation) const {
    const RankRow row = far(rank);
    for (const auto& signature : {row.asked, row.last})
      if (signature && signature->operation == operation) return signature;
    return std::nullopt;
  }

  // In order, and nothing is worth a look afterwards. The last one out sees it.
  [[nodiscard]] bool everybody_left() const {
    if (poisoned()) return false;
    for (Rank rank = 0; rank < ranks_; ++rank)
      if (block_of(rank) != nullptr && state(rank) != RankState::kLeft) return false;
    return true;
  }

  [[nodiscard]] RankBlock* block_of(Rank rank) const {
    if (rank < 0 || rank >= ranks_) return nullptr;
    const std::int32_t index = index_[static_cast<std::size_t>(rank)];
    return index == kNotHere ? nullptr : &memory_->block(static_cast<std::size_t>(index));
  }

  // Where the signatures of a poison by `reporter` stand on this host.
  [[nodiscard]] const RankBlock* detail_of(Rank reporter) const {
    if (const RankBlock* const block = block_of(reporter)) return block;
    for (Rank rank = 0; rank < ranks_ && reporter >= 0; ++rank) {
      const RankBlock* const block = block_of(rank);
      if (block != nullptr &&
          block->detail.reporter_plus_one.load(std::memory_order_relaxed) == reporter + 1)
        return block;
    }
    return nullptr;
  }

  const std::shared_ptr<BoardMemory> memory_;
  ControlPlane& control_;
  const Rank rank_;
  const Rank ranks_;
  std::vector<std::int32_t> index_;  // global rank to block; fixed
  RankBlock* mine_ = nullptr;
  bool waited_ = false;  // slowly, in this operation; user thread
  mutable std::mutex far_mutex_;
  std::map<Rank, RankRow> far_;  // guarded by far_mutex_
  const std::shared_ptr<Asked> asked_ = std::make_shared<Asked>();
  std::mutex poison_mutex_;  // among the threads of this rank: its detail is written once
};

bool SharedBoard::poison(const Poison& poison) {
  const std::lock_guard lock(poison_mutex_);
  std::atomic<std::uint64_t>& word = memory_->poison().word;
  if (word.load(std::memory_order_relaxed) != 0) return false;
  Poison complete = poison;
  const bool taken_over =
      poison.reporter >= 0 && poison.reporter < ranks_ && block_of(poison.reporter) == nullptr;
  if (!taken_over) complete.reporter = rank_;
  mine_->detail.reporter_plus_one.store(taken_over ? poison.reporter + 1 : 0,
                                        std::memory_order_relaxed);
  if (complete.culprit < 0 || complete.culprit >= ranks_) complete.culprit = kNoRank;
  auto& words = mine_->detail.words;
  std::size_t next = 0;
  for (const OperationSignature* signature : {&poison.mine, &poison.theirs}) {
    words[next++].store(pack_kinds(*signature), std::memory_order_relaxed);
    words[next++].store(signature->operation, std::memory_order_relaxed);
    words[next++].store(signature->count, std::memory_order_relaxed);
    words[next++].store(signature->plan, std::memory_order_relaxed);
  }
  std::uint64_t none = 0;
  // Release: pairs with the acquire in read_poison(); who sees the word sees the reporter's detail.
  return word.compare_exchange_strong(none, pack_poison(complete), std::memory_order_release,
                                      std::memory_order_relaxed);
}

std::optional<Poison> SharedBoard::read_poison() const {
  const std::uint64_t word = memory_->poison().word.load(std::memory_order_acquire);
  if (word == 0) return std::nullopt;
  Poison poison = unpack_poison(word, ranks_);
  const RankBlock* block = detail_of(poison.reporter);
  if (block == nullptr) return poison;
  std::size_t next = 0;
  for (OperationSignature* signature : {&poison.mine, &poison.theirs}) {
    OperationSignature read;
    const std::uint64_t kinds = block->detail.words[next++].load(std::memory_order_relaxed);
    read.operation = block->detail.words[next++].load(std::memory_order_relaxed);
    read.count = block->detail.words[next++].load(std::memory_order_relaxed);
    read.plan = block->detail.words[next++].load(std::memory_order_relaxed);
    if (unpack_kinds(kinds, ranks_, read)) *signature = read;
  }
  return poison;
}

// Ranks that are threads of one process share one mapping, so that they see the same addresses (and
// ThreadSanitizer their races). Guarded by process_registry_mutex(); never destroyed.
using MappingKey = std::pair<std::array<std::byte, kSessionIdBytes>, std::uint64_t>;
std::map<MappingKey, std::weak_ptr<BoardMemory>>& mappings() {
  static auto* const instance = new std::map<MappingKey, std::weak_ptr<BoardMemory>>;
  return *instance;
}

Result<std::shared_ptr<BoardMemory>> map_once(const MappingKey& key, int fd, std::size_t ranks) {
  const std::lock_guard lock(process_registry_mutex());
  std::erase_if(mappings(), [](const auto& entry) { return entry.second.expired(); });
  const auto known = mappings().find(key);
  if (known != mappings().end()) {
    if (std::shared_ptr<BoardMemory> memory = known->second.lock()) return memory;
  }
  Result<std::shared_ptr<BoardMemory>> memory = BoardMemory::map(fd, ranks);
  if (memory) mappings()[key] = *memory;
  return memory;
}

// A new segment with its header.
Result<UniqueFd> make_segment(const BoardName& name, std::size_t blocks,
                              const BoardOptions& options) {
  const std::size_t bytes = board_bytes(blocks);
  UniqueFd segment;
  if (!options.flight_dir.empty()) {
    Result<UniqueFd> file = make_flight_file(options.flight_dir, name, bytes);
    if (file)
      segment = *std::move(file);
    else
      TUTTI_LOG(options.log, LogLevel::kError,
                "{}; what this communicator does will not outlive its last rank, see "
                "TUTTI_FLIGHT_DIR",
                file.error().message);
  }
  if (!segment) {
    TUTTI_TRY_ASSIGN(segment, make_shared_file("board", bytes));
  }
  const BoardHeader header = make_board_header(name, blocks);
  if (::pwrite(segment.get(), &header, sizeof header, 0) != sizeof header)
    return errno_error("cannot write the board's header", errno);
  return segment;
}

// The first rank of the host makes the segment and lends it to who asks.
Result<UniqueFd> make_and_serve(ControlPlane& control, std::size_t blocks,
                                const BoardOptions& options) {
  const std::vector<PeerInfo> peers = control.peers();
  const PeerInfo& self = peers[static_cast<std::size_t>(control.rank())];
  const BoardName name{.session = control.session(),
                       .host = self.host,
                       .first = self.rank,
                       .ranks = static_cast<std::int32_t>(peers.size())};
  TUTTI_TRY_ASSIGN(UniqueFd segment, make_segment(name, blocks, options));
  auto lent = std::make_shared<UniqueFd>(::fcntl(segment.get(), F_DUPFD_CLOEXEC, 0));
  if (!*lent) return errno_error("cannot duplicate the board's descriptor", errno);
  control.serve(RequestKind::kBoard,
                [lent, host = self.host_id, peers](const Request& request) -> Result<HandlerReply> {
                  if (peers[static_cast<std::size_t>(request.from)].host_id != host) {
                    return make_error(Code::kInvalidUsage, "the board is for ranks of its host");
                  }
                  return HandlerReply{.payload = {}, .lent_fd = lent->get()};
                });
  return segment;
}

Result<UniqueFd> fetch(ControlPlane& control, Rank first, Deadline deadline) {
  TUTTI_TRY_ASSIGN(Reply reply, control.call(first, RequestKind::kBoard, {}, deadline));
  if (!reply.fd) {
    return make_error(Code::kRemoteError, fmt::format("rank {} sent no board", first), first);
  }
  return std::move(reply.fd);
}

}  // namespace
}  // namespace control

Result<std::unique_ptr<Board>> Board::open(ControlPlane& control, Deadline deadline,
                                           const BoardOptions& options) {
  const std::vector<PeerInfo>& peers = control.peers();
  const Rank rank = control.rank();
  const std::uint64_t host = peers[static_cast<std::size_t>(rank)].host_id;
  std::vector<Rank> local;
  for (const PeerInfo& peer : peers) {
    if (peer.host_id == host) local.push_back(peer.rank);
  }
  const auto shared = [&]() -> Result<std::shared_ptr<control::BoardMemory>> {
    TUTTI_TRY_ASSIGN(const UniqueFd segment,
                     local.front() == rank ? control::make_and_serve(control, local.size(), options)
                                           : control::fetch(control, local.front(), deadline));
    return control::map_once({control.session(), host}, segment.get(), local.size());
  };
  Result<std::shared_ptr<control::BoardMemory>> memory = shared();
  // A rank that is alone needs no segment but to be watched.
  if (!memory && local.size() == 1) memory = control::BoardMemory::alone();
  if (!memory) return tl::unexpected(std::move(memory).error());
  return std::make_unique<control::SharedBoard>(*std::move(memory), control, local);
}

}  // namespace tutti
