// SPDX-License-Identifier: Apache-2.0
// Joins of up to 4,096 ranks without a process or a socket: the real introduction, rounds, packets
// and mailboxes, carried in memory; messages, rounds and bytes counted.
#include "control/exchange.hpp"

#include <array>
#include <bit>
#include <set>

#include "control/mailbox.hpp"
#include "job.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;

using Bytes = std::vector<std::byte>;

struct Counts {
  std::uint64_t root_in = 0;   // packets to the root
  std::uint64_t root_out = 0;  // and from it
  std::uint64_t rounds = 0;
  std::uint64_t messages = 0;  // of ranks to ranks
  std::uint64_t pairs = 0;     // that have sent to each other
  std::uint64_t packets = 0;
  std::uint64_t most_sent_bytes = 0;  // by a rank, payload
};

class SimulatedJob {
 public:
  // `hosts`: rank r lives on host r / (ranks / hosts), as launchers place ranks.
  SimulatedJob(std::int32_t ranks, std::int32_t hosts) : ranks_(ranks) {
    for (Rank rank = 0; rank < ranks; ++rank) {
      Member member;
      member.info = {.rank = rank, .pid = 1 + rank, .host = "node"};
      member.address = "unix:@" + std::to_string(rank);
      member.tcp = "tcp:10.0.0.1:" + std::to_string(1 + rank % 65535);
      member.locality = static_cast<std::uint64_t>(rank / std::max(ranks / hosts, 1));
      members_.push_back(std::move(member));
      mailboxes_.push_back(std::make_unique<Mailbox>());
    }
    contacts_.resize(static_cast<std::size_t>(ranks));
  }

  // Check-ins go in, introductions come out.
  void meet() {
    std::vector<Member> known(members_.size());
    for (const Member& member : members_) {
      const Bytes packet = encode_check_in({.member = member, .left_ns = 1});
      Reader reader(packet);
      ASSERT_EQ(read_header(reader).type, FrameType::kCheckIn);
      const auto arrival = decode_check_in(reader, member.info.rank);
      ASSERT_TRUE(arrival);
      known[index(member.info.rank)] = arrival->member;
      ++counts_.root_in;
    }
    for (Rank rank = 0; rank < ranks_; ++rank) {
      const Bytes packet =
          encode_met(find_contacts(Circle::of_all(rank, ranks_), [&](Rank member) -> const Member& {
            return known[index(member)];
          }));
      ASSERT_LE(packet.size(), kMaxPacketBytes);
      Reader reader(packet);
      ASSERT_EQ(read_header(reader).type, FrameType::kMet);
      const auto contacts = decode_met(reader, ranks_);
      ASSERT_TRUE(contacts);
      contacts_[index(rank)] = *contacts;
      ++counts_.root_out;
    }
  }

  // All ranks round by round; each has `blob_bytes` of its own.
  void exchange(std::size_t blob_bytes) {
    std::vector<Exchange> parts;
    parts.reserve(members_.size());
    for (Rank rank = 0; rank < ranks_; ++rank) {
      number_ = mailboxes_[index(rank)]->enter();
      parts.emplace_back(rank, ranks_, blob_of(rank, blob_bytes));
    }
    std::vector<std::uint64_t> sent_bytes(members_.size());
    while (!parts.front().complete()) {
      ++counts_.rounds;
      for (Rank rank = 0; rank < ranks_; ++rank) {
        sent_bytes[index(rank)] += post(rank, parts[index(rank)].round());
      }
      for (Rank rank = 0; rank < ranks_; ++rank) {
        Exchange& part = parts[index(rank)];
        const Exchange::Round round = part.round();
        if (round.from == kNoRank) {
          part.absorb({});
          continue;
        }
        const auto got = mailboxes_[index(rank)]->take(round.from, round.number,
                                                       round.expected_bytes, Deadline{});
        ASSERT_TRUE(got) << got.error().message;
        part.absorb(*got);
      }
    }
    counts_.most_sent_bytes = *std::ranges::max_element(sent_bytes);
    counts_.pairs = pairs_.size();
    Bytes expected;
    for (Rank rank = 0; rank < ranks_; ++rank) {
      const Bytes blob = blob_of(rank, blob_bytes);
      expected.insert(expected.end(), blob.begin(), blob.end());
    }
    for (Rank rank = 0; rank < ranks_; ++rank) {
      ASSERT_TRUE(parts[index(rank)].complete());
      ASSERT_EQ(parts[index(rank)].in_rank_order(), expected) << "rank " << rank;
    }
    counts_.root_in += members_.size();  // Done
  }

  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  static Bytes blob_of(Rank rank, std::size_t bytes) {
    Bytes blob(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
      blob[i] = static_cast<std::byte>((rank >> (8 * (i % 4))) & 0xff);
    }
    return blob;
  }

  // To a rank that the root has introduced, and to its mailbox in packets. Returns the bytes.
  std::uint64_t post(Rank rank, const Exchange::Round& round) {
    if (round.to == kNoRank) return 0;
    pairs_.emplace(std::min(rank, round.to), std::max(rank, round.to));
    const Contacts& contacts = contacts_[index(rank)];
    const auto contact = std::ranges::find(contacts, round.to, &Contacts::value_type::first);
    EXPECT_NE(contact, contacts.end()) << "rank " << rank << " does not know " << round.to;
    const Member& to = members_[index(round.to)];
    const bool near = to.locality == members_[index(rank)].locality;
    if (contact != contacts.end()) {
      EXPECT_EQ(contact->second, near ? to.address : to.tcp);
    }
    ++counts_.messages;
    std::size_t offset = 0;
    do {
      const std::size_t piece_bytes = std::min(round.message.size() - offset, kMaxPieceBytes);
      const Bytes packet =
          encode_piece({.type = FrameType::kPost, .round = round.number, .number = number_},
                       {.offset = offset,
                        .total_bytes = round.message.size(),
                        .bytes = round.message.subspan(offset, piece_bytes)});
      Reader reader(packet);
      const FrameHeader header = read_header(reader);
      const auto piece = decode_piece(reader);
      EXPECT_TRUE(piece &&
                  mailboxes_[index(round.to)]->deposit(rank, header.number, header.round, *piece));
      ++counts_.packets;
      offset += piece_bytes;
    } while (offset < round.message.size());
    return round.message.size();
  }

  const std::int32_t ranks_;
  std::vector<Member> members_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  std::vector<Contacts> contacts_;
  std::set<std::pair<Rank, Rank>> pairs_;
  std::uint64_t number_ = 0;
  Counts counts_;
};

class SimulatedJoin : public ::testing::TestWithParam<int> {};

TEST_P(SimulatedJoin, TakesTwoMessagesOfEachRankInLogarithmicallyManyRounds) {
  const auto ranks = static_cast<std::uint64_t>(GetParam());
  const auto levels = static_cast<std::uint64_t>(std::bit_width(ranks - 1));
  SimulatedJob job(GetParam(), std::min(GetParam(), 64));
  ASSERT_NO_FATAL_FAILURE(job.meet());
  // Four bytes a rank and not a whole record of kMemberBytes, which would be 5 GB for 4,096.
  constexpr std::size_t kBlobBytes = 4;
  ASSERT_NO_FATAL_FAILURE(job.exchange(kBlobBytes));
  const Counts& counts = job.counts();
  EXPECT_EQ(counts.rounds, 2 * levels);
  EXPECT_EQ(counts.messages, 2 * (ranks - 1));
  EXPECT_EQ(counts.pairs, ranks - 1);
  EXPECT_EQ(counts.root_in, 2 * ranks);
  EXPECT_EQ(counts.root_out, ranks);
  EXPECT_EQ(counts.most_sent_bytes, levels * ranks * kBlobBytes);  // by the tree's root
  std::printf(
      "%d ranks: %llu rounds, %llu messages of ranks in %llu packets, %llu to and %llu from "
      "the root; at most %llu bytes of records sent by a rank\n",
      GetParam(), static_cast<unsigned long long>(counts.rounds),
      static_cast<unsigned long long>(counts.messages),
      static_cast<unsigned long long>(counts.packets),
      static_cast<unsigned long long>(counts.root_in),
      static_cast<unsigned long long>(counts.root_out),
      static_cast<unsigned long long>(levels * ranks * kMemberBytes));
}

INSTANTIATE_TEST_SUITE_P(Ranks, SimulatedJoin, ::testing::Values(2, 3, 33, 1000, 4095, 4096));

// Along with an exchange of every rank's byte; each rank is sent it once.
TEST(Exchange, BringsWhatRankZeroAnnouncesToAll) {
  constexpr std::size_t kAnnounced = 5;
  constexpr std::array kWords{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
  for (std::int32_t ranks = 1; ranks <= 70; ++ranks) {
    std::vector<std::array<std::byte, kAnnounced>> announced(static_cast<std::size_t>(ranks));
    announced[0] = kWords;
    std::vector<Exchange> parts;
    for (Rank rank = 0; rank < ranks; ++rank) {
      const std::byte mine{static_cast<unsigned char>(rank)};
      parts.emplace_back(rank, ranks, std::span(&mine, 1),
                         announced[static_cast<std::size_t>(rank)]);
    }
    std::size_t down_bytes = 0;
    while (!parts[0].complete()) {
      std::vector<Bytes> sent(parts.size());
      std::vector<Rank> to(parts.size(), kNoRank);
      for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        const Exchange::Round round = parts[rank].round();
        to[rank] = round.to;
        if (round.to != kNoRank) sent[rank].assign(round.message.begin(), round.message.end());
        if (round.to > static_cast<Rank>(rank)) down_bytes += round.message.size();
      }
      for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        const Exchange::Round round = parts[rank].round();
        Bytes got;
        if (round.from != kNoRank) {
          got = sent[static_cast<std::size_t>(round.from)];
          ASSERT_EQ(to[static_cast<std::size_t>(round.from)], static_cast<Rank>(rank));
        }
        ASSERT_EQ(round.expected_bytes, got.size());
        parts[rank].absorb(got);
      }
    }
    const auto others = static_cast<std::size_t>(ranks) - 1;
    EXPECT_EQ(down_bytes, others * (parts.size() + kAnnounced));
    const Bytes first = parts[0].in_rank_order();
    EXPECT_EQ(first.size(), parts.size());
    EXPECT_EQ(announced[0], kWords);
    for (std::size_t rank = 1; rank < parts.size(); ++rank) {
      EXPECT_EQ(announced[rank], kWords) << rank << " of " << ranks;
      EXPECT_EQ(parts[rank].in_rank_order(), first);
    }
  }
}

TEST(Exchange, RecordsOfTheLargestJobFitIntoOne) {
  EXPECT_LE(std::size_t{kMaxRanks} * kMemberBytes, kMaxExchangeBytes);
  EXPECT_LE(exchange_targets(Circle::of_all(0, kMaxRanks)).size() * (4 + 2 + kMaxAddressBytes) +
                kFrameHeaderBytes,
            kMaxPacketBytes);
}

// Real records, so that their pieces travel, too.
TEST(Exchange, OfWholeRecordsTakesTheSameRounds) {
  SimulatedJob job(600, 8);
  ASSERT_NO_FATAL_FAILURE(job.meet());
  ASSERT_NO_FATAL_FAILURE(job.exchange(kMemberBytes));
  EXPECT_EQ(job.counts().rounds, 20u);
  EXPECT_EQ(job.counts().messages, 1198u);
  EXPECT_GT(job.counts().packets, job.counts().messages);
  EXPECT_EQ(job.counts().most_sent_bytes, 10 * 600 * kMemberBytes);
}

}  // namespace
}  // namespace tutti::control
