// SPDX-License-Identifier: Apache-2.0
#include "board/board.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/current_cpu.hpp"
#include "base/wire.hpp"
#include "board/board_memory.hpp"
#include "board/board_words.hpp"
#include "board/far_rows.hpp"
#include "board/flight_file.hpp"
#include "control/process_stat.hpp"

namespace tutti {

using namespace control;

std::string_view name_of(Gathering gathering) {
  constexpr std::array<std::string_view, 4> kNames{"nothing", "split", "shrink",
                                                   "the registration of a window"};
  return kNames[static_cast<std::size_t>(gathering)];
}

Board::Board(std::shared_ptr<BoardMemory> memory, ControlPlane& control,
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
  poison_word_ = &memory_->poison().word;
  own_state_ = &mine_->line.state;
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

Board::~Board() {
  {
    const std::lock_guard lock(asked_->mutex);
    asked_->board = nullptr;
  }
  if (memory_->fd() >= 0 && everybody_left()) remove_flight_file(memory_->fd());
}

void Board::set_state(RankState state) {
  // Pairs with the acquire in state(): what a rank did before it left is seen by who sees it
  // left.
  mine_->line.state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

// A seqlock without fences (ThreadSanitizer knows none): every store is a release, so a reader
// that sees a new field also sees the version that was written before it.
Board::Record Board::record_of(const OperationSignature& signature) {
  return {pack_kinds(signature), signature.count, signature.plan};
}

void Board::enter(std::uint64_t operation, const Record& what) {
  const std::int64_t entered_ns = coarse_now_ns();
  note_cpu();
  waited_ = false;
  SignatureRecord& record = mine_->ring[operation % kRememberedOperations];
  record.version.store(2 * operation, std::memory_order_relaxed);
  record.kinds.store(what.kinds, std::memory_order_release);
  record.count.store(what.count, std::memory_order_release);
  record.plan.store(what.plan, std::memory_order_release);
  record.entered_ns.store(entered_ns, std::memory_order_release);
  record.version.store(2 * operation + 1, std::memory_order_release);
  // Pairs with last_entered(): who sees the number sees the record.
  mine_->line.entered.store(operation, std::memory_order_release);
}

// Only an operation that was slow has time for the clock; the others leave when they enter.
void Board::leave(std::uint64_t operation) {
  if (waited_) {
    mine_->line.waits_for_plus_one.store(0, std::memory_order_relaxed);
    mine_->line.left_ns.store(coarse_now_ns(), std::memory_order_relaxed);
  }
  mine_->line.left.store(operation, std::memory_order_release);
}

void Board::note_device(std::uint64_t left, Rank peer, std::int64_t since_ns) {
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

void Board::note_fault(const KernelFault& fault) {
  control::RankIdentity& to = mine_->identity;
  if (to.fault[0].load(std::memory_order_relaxed) != 0) return;
  to.fault[1].store(fault.expected, std::memory_order_relaxed);
  to.fault[2].store(fault.seen, std::memory_order_relaxed);
  to.fault[3].store(control::pack_place(fault.place), std::memory_order_relaxed);
  to.fault[0].store(control::pack_fault(fault), std::memory_order_release);
}

// Hints, like waiting_for(); the time first, so that it is there where the gathering is seen.
void Board::gather(Gathering gathering) {
  mine_->line.wait_since_ns.store(now_ns(), std::memory_order_relaxed);
  mine_->line.gathering.store(static_cast<std::uint32_t>(gathering), std::memory_order_release);
}

void Board::note_cpu() {
  const int cpu = current_cpu();
  if (mine_->line.cpu_plus_one.load(std::memory_order_relaxed) != cpu + 1)
    mine_->line.cpu_plus_one.store(cpu + 1, std::memory_order_relaxed);
}

void Board::waiting_for(Rank peer, const WaitPlace& place) {
  waited_ = true;
  // Hints for those who look for the culprit; they order nothing.
  mine_->line.wait_place.store(pack_place(place), std::memory_order_relaxed);
  mine_->line.wait_since_ns.store(place.since_ns, std::memory_order_relaxed);
  mine_->line.waits_for_plus_one.store(peer + 1, std::memory_order_relaxed);
}

// Orders nothing, and a wrong number only makes a wait yield early.
int Board::cpu_of(Rank rank) const {
  const RankBlock* block = block_of(rank);
  return block == nullptr ? -1 : block->line.cpu_plus_one.load(std::memory_order_relaxed) - 1;
}

RankState Board::state(Rank rank) const {
  const RankBlock* block = block_of(rank);
  if (block == nullptr) return far(rank).state;
  const std::uint32_t state = block->line.state.load(std::memory_order_acquire);
  return state <= static_cast<std::uint32_t>(RankState::kFailed) ? static_cast<RankState>(state)
                                                                 : RankState::kAbsent;
}

std::optional<OperationSignature> Board::signature(Rank rank, std::uint64_t operation) const {
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

std::optional<OperationSignature> Board::current(Rank rank) const {
  const std::uint64_t entered = last_entered(rank);
  const std::uint64_t left = last_left(rank);
  if (entered <= left) return std::nullopt;
  const auto first = signature(rank, left + 1);
  return first ? first : signature(rank, entered);
}

std::uint64_t Board::last_entered(Rank rank) const {
  const RankBlock* block = block_of(rank);
  return block == nullptr ? far(rank).entered : block->line.entered.load(std::memory_order_acquire);
}

std::uint64_t Board::last_left(Rank rank) const {
  const RankBlock* block = block_of(rank);
  return block == nullptr ? far(rank).left : block->line.left.load(std::memory_order_acquire);
}

Rank Board::waits_for(Rank rank) const {
  const RankBlock* block = block_of(rank);
  if (block == nullptr) return far(rank).waits_for;
  const std::int32_t plus_one = block->line.waits_for_plus_one.load(std::memory_order_relaxed);
  return plus_one >= 1 && plus_one <= ranks_ ? plus_one - 1 : kNoRank;
}

CallRecord* Board::call_record(Rank rank) {
  RankBlock* const block = block_of(rank);
  return block == nullptr ? nullptr : &block->call;
}

Status Board::ask(Rank rank, std::uint64_t operation, Deadline deadline) {
  if (block_of(rank) != nullptr || rank < 0 || rank >= ranks_) return {};
  Writer question;
  question.number(operation).raw(encode_row(row_of(*this, rank_, operation)));
  TUTTI_TRY_ASSIGN(const Reply reply,
                   control_.call(rank, RequestKind::kRow, question.bytes(), deadline));
  if (learn(rank, reply.payload)) return {};
  return make_error(
      Code::kRemoteError,
      fmt::format(
          "rank {} sent a malformed status record; start all ranks with the same version of Tutti",
          rank),
      rank);
}

// Release: pairs with the acquire in revoked(); who sees it sees the poison that came first.
void Board::revoke() { memory_->poison().revoked.store(1, std::memory_order_release); }
bool Board::revoked() const {
  return memory_->poison().revoked.load(std::memory_order_acquire) != 0;
}

// So that other programs can tell who this is and whether it still lives.
void Board::introduce() {
  RankIdentity& identity = mine_->identity;
  identity.rank.store(rank_, std::memory_order_relaxed);
  identity.start_ticks.store(process_start_ticks(::getpid()), std::memory_order_relaxed);
  identity.pid_namespace.store(pid_namespace(), std::memory_order_relaxed);
  identity.uid.store(::geteuid(), std::memory_order_relaxed);
  // Release: who sees the pid sees the rest.
  identity.pid.store(::getpid(), std::memory_order_release);
}

// The rank that asks sends its own row along. Service thread.
Result<HandlerReply> Board::answer(const Request& request) {
  Reader reader(request.payload);
  const auto operation = reader.number<std::uint64_t>();
  if (!reader.ok() || block_of(request.from) != nullptr || !learn(request.from, reader.rest()))
    return make_error(Code::kInvalidUsage, "the request for a rank's status record is malformed");
  return HandlerReply{.payload = encode_row(row_of(*this, rank_, operation))};
}

// False: that is no row. Any thread.
bool Board::learn(Rank rank, std::span<const std::byte> bytes) {
  std::optional<RankRow> row = decode_row(bytes, ranks_);
  if (!row) return false;
  if (row->poison) poison(*row->poison);
  if (row->poison && row->revoked) revoke();
  const std::lock_guard lock(far_mutex_);
  far_[rank] = *std::move(row);
  return true;
}

RankRow Board::far(Rank rank) const {
  const std::lock_guard lock(far_mutex_);
  const auto found = far_.find(rank);
  return found == far_.end() ? RankRow{} : found->second;
}
std::optional<OperationSignature> Board::far_signature(Rank rank, std::uint64_t operation) const {
  const RankRow row = far(rank);
  for (const auto& signature : {row.asked, row.last})
    if (signature && signature->operation == operation) return signature;
  return std::nullopt;
}

// In order, and nothing is worth a look afterwards. The last one out sees it.
bool Board::everybody_left() const {
  if (poisoned()) return false;
  for (Rank rank = 0; rank < ranks_; ++rank)
    if (block_of(rank) != nullptr && state(rank) != RankState::kLeft) return false;
  return true;
}

RankBlock* Board::block_of(Rank rank) const {
  if (rank < 0 || rank >= ranks_) return nullptr;
  const std::int32_t index = index_[static_cast<std::size_t>(rank)];
  return index == kNotHere ? nullptr : &memory_->block(static_cast<std::size_t>(index));
}

// Where the signatures of a poison by `reporter` stand on this host.
const RankBlock* Board::detail_of(Rank reporter) const {
  if (const RankBlock* const block = block_of(reporter)) return block;
  for (Rank rank = 0; rank < ranks_ && reporter >= 0; ++rank) {
    const RankBlock* const block = block_of(rank);
    if (block != nullptr &&
        block->detail.reporter_plus_one.load(std::memory_order_relaxed) == reporter + 1)
      return block;
  }
  return nullptr;
}

bool Board::poison(const Poison& poison) {
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

std::optional<Poison> Board::read_poison() const {
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

}  // namespace tutti
