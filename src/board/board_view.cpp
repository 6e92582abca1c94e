// SPDX-License-Identifier: Apache-2.0
#include "board/board_view.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>

#include "board/board_memory.hpp"
#include "board/board_words.hpp"
#include "board/flight_file.hpp"

namespace tutti::control {
namespace {

// More ranks than there will be; keeps a file that lies from asking for all memory.
constexpr std::uint32_t kMostBlocks = 16'384;
constexpr std::uint32_t kMostRanks = 1u << 20;

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

Result<BoardHeader> check_header(std::span<const std::byte> bytes) {
  constexpr const char* kNone = "this is not a status page of Tutti";
  if (bytes.size() < board_bytes(0)) return make_error(Code::kInvalidArgument, kNone);
  const auto header = load<BoardHeader>(bytes, 0);
  if (header.magic != kBoardMagic) return make_error(Code::kInvalidArgument, kNone);
  if (header.layout != kBoardLayout)
    return make_error(Code::kNotSupported,
                      fmt::format("the status page has layout {}, but this tool reads layout {}; "
                                  "use the tool that came with the library",
                                  header.layout, kBoardLayout));
  if (header.blocks == 0 || header.blocks > kMostBlocks || header.ranks < header.blocks ||
      header.ranks > kMostRanks || header.remembered != kRememberedOperations)
    return make_error(
        Code::kRemoteError,
        fmt::format("the status page is damaged: it claims {} of {} ranks and {} operations each",
                    header.blocks, header.ranks, header.remembered));
  if (bytes.size() != board_bytes(header.blocks))
    return make_error(
        Code::kRemoteError,
        fmt::format("the status page is damaged: it has {} bytes, but {} ranks take {}",
                    bytes.size(), header.blocks, board_bytes(header.blocks)));
  return header;
}

// For terminals: what a hostile name may not do there.
std::string printable(const std::array<char, kBoardHostBytes>& text) {
  std::string clean(text.data(), ::strnlen(text.data(), text.size()));
  std::ranges::replace_if(
      clean, [](char c) { return c < 0x21 || c > 0x7e; }, '?');
  return clean;
}

class Decoder {
 public:
  Decoder(const BoardCopies& copies, const BoardHeader& header)
      : copies_(copies), ranks_(static_cast<Rank>(header.ranks)) {}

  [[nodiscard]] std::optional<Poison> poison(const std::vector<std::size_t>& block_of) const;
  [[nodiscard]] RankView rank(std::size_t block) const;

 private:
  [[nodiscard]] static std::size_t start_of(std::size_t block) {
    return board_bytes(0) + block * sizeof(RankBlock);
  }
  template <typename T>
  [[nodiscard]] T at(std::size_t block, std::size_t offset) const {
    return load<T>(copies_.middle, start_of(block) + offset);
  }
  [[nodiscard]] std::optional<OperationView> record(std::size_t block, std::uint64_t number) const;
  void read_identity(std::size_t block, RankView& view) const;
  void read_line(std::size_t block, RankView& view) const;

  const BoardCopies& copies_;
  const Rank ranks_;
};

std::optional<Poison> Decoder::poison(const std::vector<std::size_t>& block_of) const {
  const auto word = load<std::uint64_t>(copies_.middle, sizeof(BoardHeader));
  if (word == 0) return std::nullopt;
  Poison poison = unpack_poison(word, ranks_);
  if (poison.reporter == kNoRank) return poison;
  const std::size_t block = block_of[static_cast<std::size_t>(poison.reporter)];
  if (block == SIZE_MAX) return poison;
  std::size_t offset = offsetof(RankBlock, detail);
  const auto next = [&] {
    const auto word_of_detail = at<std::uint64_t>(block, offset);
    offset += sizeof(std::uint64_t);
    return word_of_detail;
  };
  for (OperationSignature* signature : {&poison.mine, &poison.theirs}) {
    OperationSignature read;
    const std::uint64_t kinds = next();
    read.operation = next();
    read.count = next();
    read.plan = next();
    if (unpack_kinds(kinds, ranks_, read)) *signature = read;
  }
  return poison;
}

void Decoder::read_identity(std::size_t block, RankView& view) const {
  constexpr std::size_t kIdentity = offsetof(RankBlock, identity);
  view.pid = at<std::int32_t>(block, kIdentity + offsetof(RankIdentity, pid));
  const auto rank = at<std::int32_t>(block, kIdentity + offsetof(RankIdentity, rank));
  view.start_ticks = at<std::uint64_t>(block, kIdentity + offsetof(RankIdentity, start_ticks));
  view.pid_namespace = at<std::uint64_t>(block, kIdentity + offsetof(RankIdentity, pid_namespace));
  view.uid = at<std::uint32_t>(block, kIdentity + offsetof(RankIdentity, uid));
  if (rank < 0 || rank >= ranks_)
    view.nonsense.push_back(fmt::format("calls itself rank {} of {}", rank, ranks_));
  else
    view.rank = rank;
  const auto fault_word = [&](std::size_t i) {
    return at<std::uint64_t>(block,
                             kIdentity + offsetof(RankIdentity, fault) + i * sizeof(std::uint64_t));
  };
  view.fault = unpack_fault(fault_word(0), ranks_);
  if (view.fault) {
    view.fault->expected = fault_word(1);
    view.fault->seen = fault_word(2);
    view.fault->place = unpack_place(fault_word(3), 0);
  }
  if (view.pid < 0) view.nonsense.push_back(fmt::format("has pid {}", view.pid));
}

void Decoder::read_line(std::size_t block, RankView& view) const {
  constexpr std::size_t kLine = offsetof(RankBlock, line);
  const auto state = at<std::uint32_t>(block, kLine + offsetof(RankLine, state));
  if (state > static_cast<std::uint32_t>(RankState::kFailed))
    view.nonsense.push_back(fmt::format("is in state {}", state));
  else
    view.state = static_cast<RankState>(state);
  view.entered = at<std::uint64_t>(block, kLine + offsetof(RankLine, entered));
  view.left = at<std::uint64_t>(block, kLine + offsetof(RankLine, left));
  if (view.left > view.entered) {
    // If the rank is working, the two may have been read at different moments; a sound record
    // differs by no more.
    const bool working =
        !std::ranges::equal(copies_.first.subspan(start_of(block), sizeof(RankLine)),
                            copies_.last.subspan(start_of(block), sizeof(RankLine)));
    if (!working)
      view.nonsense.push_back(fmt::format("has entered #{} and left #{}", view.entered, view.left));
    view.left = view.entered;
  }
  view.left_ns = at<std::int64_t>(block, kLine + offsetof(RankLine, left_ns));
  const auto since_ns = at<std::int64_t>(block, kLine + offsetof(RankLine, wait_since_ns));
  const auto gathering = at<std::uint32_t>(block, kLine + offsetof(RankLine, gathering));
  if (gathering > static_cast<std::uint32_t>(kLastGathering))
    view.nonsense.push_back(fmt::format("is in gathering {}", gathering));
  else
    view.gathering = static_cast<Gathering>(gathering);
  if (view.gathering != Gathering::kNone) view.gathering_since_ns = since_ns;
  const auto peer = at<std::int32_t>(block, kLine + offsetof(RankLine, waits_for_plus_one));
  if (peer == 0) return;
  if (peer < 0 || peer > ranks_) {
    view.nonsense.push_back(fmt::format("waits for rank {} of {}", std::int64_t{peer} - 1, ranks_));
    return;
  }
  if (!view.inside()) return;
  view.wait = {
      peer - 1,
      unpack_place(at<std::uint64_t>(block, kLine + offsetof(RankLine, wait_place)), since_ns)};
}

std::optional<OperationView> Decoder::record(std::size_t block, std::uint64_t number) const {
  const std::size_t offset =
      offsetof(RankBlock, ring) + (number % kRememberedOperations) * sizeof(SignatureRecord);
  const std::size_t version = start_of(block) + offset + offsetof(SignatureRecord, version);
  const std::uint64_t whole = 2 * number + 1;
  if (load<std::uint64_t>(copies_.first, version) != whole ||
      load<std::uint64_t>(copies_.last, version) != whole)
    return std::nullopt;
  OperationView view;
  view.signature.operation = number;
  view.signature.count = at<std::uint64_t>(block, offset + offsetof(SignatureRecord, count));
  view.signature.plan = at<std::uint64_t>(block, offset + offsetof(SignatureRecord, plan));
  view.entered_ns = at<std::int64_t>(block, offset + offsetof(SignatureRecord, entered_ns));
  const auto kinds = at<std::uint64_t>(block, offset + offsetof(SignatureRecord, kinds));
  if (!unpack_kinds(kinds, ranks_, view.signature)) return std::nullopt;
  return view;
}

RankView Decoder::rank(std::size_t block) const {
  RankView view;
  read_identity(block, view);
  read_line(block, view);
  const std::uint64_t remembered = std::min<std::uint64_t>(view.entered, kRememberedOperations);
  for (std::uint64_t back = remembered; back > 0; --back)
    if (auto operation = record(block, view.entered - back + 1))
      view.history.push_back(*std::move(operation));
  const OperationView* const last = view.operation(view.left);
  // An operation that was not slow has no time of its own.
  if (last != nullptr && view.left_ns < last->entered_ns) view.left_ns = last->entered_ns;
  if (last == nullptr) view.left_ns = 0;
  return view;
}

Result<std::vector<std::byte>> copy_of(int fd, std::size_t bytes, std::string_view name) {
  std::vector<std::byte> copy(bytes);
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t got = ::pread(fd, copy.data() + have, bytes - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(fmt::format("cannot read {}", name), errno);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  if (have == bytes) return copy;
  return make_error(Code::kRemoteError, fmt::format("{} shrank while it was read", name));
}

}  // namespace

const OperationView* RankView::operation(std::uint64_t number) const {
  const auto found = std::ranges::find(
      history, number, [](const OperationView& view) { return view.signature.operation; });
  return found == history.end() ? nullptr : &*found;
}

const RankView* BoardView::find(Rank rank) const {
  const auto found = std::ranges::lower_bound(here, rank, {}, &RankView::rank);
  return found == here.end() || found->rank != rank ? nullptr : &*found;
}

Result<BoardView> decode_board(const BoardCopies& copies) {
  TUTTI_TRY_ASSIGN(const BoardHeader header, check_header(copies.middle));
  if (copies.first.size() != copies.middle.size() || copies.last.size() != copies.middle.size())
    return make_error(Code::kInternalError, "the copies of the status page differ in size");
  BoardView view{.session = session_text(header.session),
                 .host = printable(header.host),
                 .ranks = static_cast<std::int32_t>(header.ranks),
                 .boot = header.boot,
                 .made_monotonic_ns = header.made_monotonic_ns,
                 .made_realtime_ns = header.made_realtime_ns,
                 .poison = std::nullopt,
                 .here = {}};
  const Decoder decoder(copies, header);
  std::vector<std::size_t> block_of(header.ranks, SIZE_MAX);
  for (std::size_t block = 0; block < header.blocks; ++block) {
    RankView rank = decoder.rank(block);
    if (rank.pid == 0) continue;  // has not come yet
    if (rank.rank != kNoRank) {
      std::size_t& known = block_of[static_cast<std::size_t>(rank.rank)];
      if (known != SIZE_MAX) {
        rank.nonsense.push_back(fmt::format("calls itself rank {}, as another does", rank.rank));
        rank.rank = kNoRank;
      } else {
        known = block;
      }
    }
    view.here.push_back(std::move(rank));
  }
  view.poison = decoder.poison(block_of);
  std::ranges::stable_sort(view.here, {}, &RankView::rank);
  return view;
}

Result<BoardView> read_board(int fd, std::string_view name) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error(fmt::format("cannot examine {}", name), errno);
  const auto named = [name](Error error) {
    error.message = fmt::format("{}: {}", name, error.message);
    return error;
  };
  if (!S_ISREG(info.st_mode) || info.st_size < 0 ||
      static_cast<std::size_t>(info.st_size) > board_bytes(kMostBlocks))
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: this is not a status page of Tutti", name));
  const auto bytes = static_cast<std::size_t>(info.st_size);
  TUTTI_TRY_ASSIGN(const std::vector<std::byte> first, copy_of(fd, bytes, name));
  // Before two more copies of something large that is none.
  TUTTI_TRY(check_header(first).map([](const BoardHeader&) {}).map_error(named));
  TUTTI_TRY_ASSIGN(const std::vector<std::byte> middle, copy_of(fd, bytes, name));
  TUTTI_TRY_ASSIGN(const std::vector<std::byte> last, copy_of(fd, bytes, name));
  return decode_board({first, middle, last}).map_error(named);
}

}  // namespace tutti::control
