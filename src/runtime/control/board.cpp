#include "runtime/control/board.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/control/board_memory.hpp"
#include "runtime/control/codec.hpp"
#include "runtime/control/control_fd.hpp"

namespace tutti {
namespace control {
namespace {

// A signature without its number in one word: collective, type, op (8 bits each), root (32 bits).
std::uint64_t pack_kinds(const OperationSignature& signature) {
  return static_cast<std::uint64_t>(signature.collective) |
         static_cast<std::uint64_t>(signature.type) << 8 |
         static_cast<std::uint64_t>(signature.op) << 16 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(signature.root)) << 32;
}

// False if any field is out of range.
bool unpack_kinds(std::uint64_t word, Rank ranks, OperationSignature& signature) {
  const auto collective = word & 0xff;
  const auto type = (word >> 8) & 0xff;
  const auto op = (word >> 16) & 0xff;
  const auto root = static_cast<Rank>(static_cast<std::uint32_t>(word >> 32));
  if (collective >= kCollectiveCount || type >= kDataTypeCount || op >= kReduceOpCount)
    return false;
  if (root < 0 || root >= ranks) return false;
  signature.collective = static_cast<Collective>(collective);
  signature.type = static_cast<DataType>(type);
  signature.op = static_cast<ReduceOp>(op);
  signature.root = root;
  return true;
}

// The poison in one word, so that a rank that dies while it poisons leaves all or nothing:
// kind (4 bits), code (4), culprit + 1 (24), reporter + 1 (24), and a set top bit.
std::uint64_t pack_poison(const Poison& poison) {
  return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(poison.kind) |
         static_cast<std::uint64_t>(poison.code) << 4 |
         static_cast<std::uint64_t>(poison.culprit + 1) << 8 |
         static_cast<std::uint64_t>(poison.reporter + 1) << 32;
}

Rank unpack_rank(std::uint64_t bits, Rank ranks) {
  const auto rank_plus_one = static_cast<Rank>(bits & 0xffffff);
  return rank_plus_one <= ranks ? rank_plus_one - 1 : kNoRank;
}

// Words that no honest rank writes still become a poison: the communicator is dead either way.
Poison unpack_poison(std::uint64_t word, Rank ranks) {
  Poison poison;
  const auto kind = word & 0xf;
  const auto code = (word >> 4) & 0xf;
  const bool known_kind = kind >= static_cast<std::uint64_t>(Poison::Kind::kDeath) &&
                          kind <= static_cast<std::uint64_t>(Poison::Kind::kNoWay);
  const bool known_code = code >= static_cast<std::uint64_t>(Code::kUnhandledCudaError) &&
                          code <= static_cast<std::uint64_t>(Code::kNotSupported);
  poison.kind = known_kind ? static_cast<Poison::Kind>(kind) : Poison::Kind::kFailure;
  poison.code = known_code ? static_cast<Code>(code) : Code::kRemoteError;
  poison.culprit = unpack_rank(word >> 8, ranks);
  poison.reporter = unpack_rank(word >> 32, ranks);
  return poison;
}

class SharedBoard final : public Board {
 public:
  SharedBoard(std::shared_ptr<BoardMemory> memory, Rank rank, Rank ranks, std::vector<Rank> local)
      : memory_(std::move(memory)), rank_(rank), ranks_(ranks) {
    index_.assign(static_cast<std::size_t>(ranks), kNotHere);
    for (std::size_t i = 0; i < local.size(); ++i) {
      index_[static_cast<std::size_t>(local[i])] = static_cast<std::int32_t>(i);
    }
    mine_ = &memory_->block(static_cast<std::size_t>(index_[static_cast<std::size_t>(rank)]));
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
    SignatureRecord& record = mine_->ring[signature.operation % kRememberedOperations];
    record.version.store(2 * signature.operation, std::memory_order_relaxed);
    record.kinds.store(pack_kinds(signature), std::memory_order_release);
    record.count.store(signature.count, std::memory_order_release);
    record.plan.store(signature.plan, std::memory_order_release);
    record.version.store(2 * signature.operation + 1, std::memory_order_release);
    // Pairs with last_entered(): who sees the number sees the record.
    mine_->line.entered.store(signature.operation, std::memory_order_release);
  }

  void leave(std::uint64_t operation) override {
    mine_->line.left.store(operation, std::memory_order_release);
  }

  void note_cpu() override {
    const int cpu = ::sched_getcpu();  // a load, with restartable sequences
    if (mine_->line.cpu_plus_one.load(std::memory_order_relaxed) != cpu + 1)
      mine_->line.cpu_plus_one.store(cpu + 1, std::memory_order_relaxed);
  }

  void waiting_for(Rank peer) override {
    // A hint for those who look for the culprit; orders nothing.
    mine_->line.waits_for_plus_one.store(peer + 1, std::memory_order_relaxed);
  }

  // Orders nothing, and a wrong number only makes a wait yield early.
  [[nodiscard]] int cpu_of(Rank rank) const override {
    const RankBlock* block = block_of(rank);
    return block == nullptr ? -1 : block->line.cpu_plus_one.load(std::memory_order_relaxed) - 1;
  }

  [[nodiscard]] RankState state(Rank rank) const override {
    const RankBlock* block = block_of(rank);
    if (block == nullptr) return RankState::kAbsent;
    const std::uint32_t state = block->line.state.load(std::memory_order_acquire);
    return state <= static_cast<std::uint32_t>(RankState::kFailed) ? static_cast<RankState>(state)
                                                                   : RankState::kAbsent;
  }

  [[nodiscard]] std::optional<OperationSignature> signature(
      Rank rank, std::uint64_t operation) const override {
    const RankBlock* block = block_of(rank);
    if (block == nullptr) return std::nullopt;
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

  [[nodiscard]] std::uint64_t last_entered(Rank rank) const override {
    const RankBlock* block = block_of(rank);
    return block == nullptr ? 0 : block->line.entered.load(std::memory_order_acquire);
  }

  [[nodiscard]] Rank waits_for(Rank rank) const override {
    const RankBlock* block = block_of(rank);
    if (block == nullptr) return kNoRank;
    const std::int32_t plus_one = block->line.waits_for_plus_one.load(std::memory_order_relaxed);
    return plus_one >= 1 && plus_one <= ranks_ ? plus_one - 1 : kNoRank;
  }

  [[nodiscard]] CallRecord* call_record(Rank rank) override {
    RankBlock* const block = block_of(rank);
    return block == nullptr ? nullptr : &block->call;
  }

  [[nodiscard]] bool poisoned() const override {
    return memory_->poison().word.load(std::memory_order_relaxed) != 0;
  }

  bool poison(const Poison& poison) override;
  [[nodiscard]] std::optional<Poison> read_poison() const override;

 private:
  static constexpr std::int32_t kNotHere = -1;

  [[nodiscard]] RankBlock* block_of(Rank rank) const {
    if (rank < 0 || rank >= ranks_) return nullptr;
    const std::int32_t index = index_[static_cast<std::size_t>(rank)];
    return index == kNotHere ? nullptr : &memory_->block(static_cast<std::size_t>(index));
  }

  const std::shared_ptr<BoardMemory> memory_;
  const Rank rank_;
  const Rank ranks_;
  std::vector<std::int32_t> index_;  // global rank to block; fixed
  RankBlock* mine_ = nullptr;
  std::mutex poison_mutex_;  // among the threads of this rank: its detail is written once
};

bool SharedBoard::poison(const Poison& poison) {
  const std::lock_guard lock(poison_mutex_);
  std::atomic<std::uint64_t>& word = memory_->poison().word;
  if (word.load(std::memory_order_relaxed) != 0) return false;
  Poison complete = poison;
  complete.reporter = rank_;
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
  const RankBlock* block = block_of(poison.reporter);
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

// The first rank of the host makes the segment and lends it to who asks.
Result<UniqueFd> make_and_serve(ControlPlane& control, std::size_t ranks) {
  TUTTI_TRY_ASSIGN(UniqueFd segment, make_segment(board_bytes(ranks)));
  auto lent = std::make_shared<UniqueFd>(::fcntl(segment.get(), F_DUPFD_CLOEXEC, 0));
  if (!*lent) return errno_error("cannot duplicate the board's descriptor", errno);
  const std::uint64_t host = control.peers()[static_cast<std::size_t>(control.rank())].host_id;
  const std::vector<PeerInfo> peers = control.peers();
  control.serve(RequestKind::kBoard,
                [lent, host, peers](const Request& request) -> Result<HandlerReply> {
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

Result<std::unique_ptr<Board>> Board::open(ControlPlane& control, Deadline deadline) {
  const std::vector<PeerInfo>& peers = control.peers();
  const Rank rank = control.rank();
  const std::uint64_t host = peers[static_cast<std::size_t>(rank)].host_id;
  std::vector<Rank> local;
  for (const PeerInfo& peer : peers) {
    if (peer.host_id == host) local.push_back(peer.rank);
  }
  std::shared_ptr<control::BoardMemory> memory;
  if (local.size() == 1) {
    memory = control::BoardMemory::alone();
  } else {
    TUTTI_TRY_ASSIGN(const UniqueFd segment,
                     local.front() == rank ? control::make_and_serve(control, local.size())
                                           : control::fetch(control, local.front(), deadline));
    TUTTI_TRY_ASSIGN(memory,
                     control::map_once({control.session(), host}, segment.get(), local.size()));
  }
  return std::make_unique<control::SharedBoard>(std::move(memory), rank,
                                                static_cast<Rank>(peers.size()), std::move(local));
}

}  // namespace tutti
