// SPDX-License-Identifier: Apache-2.0
// Values that travel through a store, and agents of PMI that do not behave. Well-behaved ones are
// the real launchers of launcher_test.py.
#include "launch/key_value.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/fd.hpp"
#include "control/interfaces.hpp"
#include "control/unique_id.hpp"
#include "launch/launch.hpp"

namespace tutti::launch {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST(Value, CarriesAnId) {
  UniqueId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<std::byte>(i * 7);
  const std::string value = encode_value(id);
  EXPECT_LE(value.size(), kMaxValueBytes);
  EXPECT_THAT(value, Each(testing::Truly([](char c) { return std::isalnum(c) != 0; })));
  const Result<UniqueId> back = decode_value(value);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->bytes, id.bytes);
}

TEST(Value, CarriesRankZerosError) {
  const Result<UniqueId> none = make_error(Code::kSystemError, "no descriptor is left");
  const Result<UniqueId> told = decode_value(encode_value(none));
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code, Code::kRemoteError);
  EXPECT_EQ(told.error().culprit, 0);
  EXPECT_EQ(told.error().message, "rank 0 could not make the unique id: no descriptor is left");
  const Result<UniqueId> talkative = make_error(Code::kSystemError, std::string(5000, 'x'));
  EXPECT_LE(encode_value(talkative).size(), kMaxValueBytes);
  EXPECT_THAT(decode_value(encode_value(talkative)).error().message, HasSubstr("xxxx"));
}

TEST(Value, ThatIsNoneIsAnError) {
  const std::string good = encode_value(UniqueId{});
  for (const std::string& bad :
       {std::string(), std::string("i"), std::string("x00"), std::string("e0"), std::string("exy"),
        good + "00", good.substr(0, good.size() - 2), good.substr(0, good.size() - 1),
        " " + good}) {
    const Result<UniqueId> id = decode_value(bad);
    ASSERT_FALSE(id) << bad;
    EXPECT_EQ(id.error().code, Code::kSystemError) << bad;
  }
}

// In this process the configuration asks for an interface of the network, if there is one.
[[maybe_unused]] const int kInterface = ::setenv("TUTTI_IFNAME", "^no-such-name", 1);

TEST(Meet, ListensOnTheLoopbackWhereAllRanksAreOnThisHost) {
  const auto interfaces = *control::list_interfaces();
  const bool loopback =
      std::ranges::any_of(interfaces, [](const auto& each) { return each.loopback && each.up; });
  const bool network =
      std::ranges::any_of(interfaces, [](const auto& each) { return !each.loopback && each.up; });
  if (!loopback || !network) GTEST_SKIP() << "needs the loopback and another interface";
  const auto address = [](const Config& config, std::int32_t local_ranks) {
    Place place;
    place.local_ranks = local_ranks;
    const auto id = meet(place, config, Deadline::in_ms(60'000), Log());
    return id ? control::decode_id(*id).value().tcp : id.error().message;
  };
  EXPECT_THAT(address({}, 1), testing::AnyOf(HasSubstr("127.0.0.1"), HasSubstr("::1")));
  EXPECT_THAT(address({}, kUnknown), Not(HasSubstr("127.0.0.1")));
  Config named;
  named.interfaces = "^no-such-name";
  EXPECT_THAT(address(named, 1), Not(HasSubstr("127.0.0.1")));
}

// The far end of PMI_FD: sends its answers in order, one for each request, then hangs up or not.
class Agent {
 public:
  explicit Agent(std::vector<std::string> answers, bool hangs_up = true) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    mine_.reset(ends[0]);
    theirs_.reset(ends[1]);
    thread_ = std::thread([this, answers = std::move(answers), hangs_up] {
      for (const std::string& answer : answers) {
        if (!read_line()) return;
        static_cast<void>(::send(mine_.get(), answer.data(), answer.size(), MSG_NOSIGNAL));
      }
      if (hangs_up) ::shutdown(mine_.get(), SHUT_RDWR);
    });
  }
  ~Agent() {
    ::shutdown(theirs_.get(), SHUT_RDWR);
    thread_.join();
  }
  // What rank `rank` gets of it.
  Result<std::string> exchange(std::int32_t rank, std::int64_t within_ms = 60'000) {
    Place place;
    place.launcher = "hydra";
    place.store = Store::kPmi;
    place.rank = rank;
    place.ranks = 2;
    place.pmi_fd = theirs_.get();
    return exchange_by_pmi({place, "abc123", Deadline::in_ms(within_ms)});
  }

 private:
  bool read_line() {
    for (char c = 0; ::recv(mine_.get(), &c, 1, 0) == 1;)
      if (c == '\n') return true;
    return false;
  }
  UniqueFd mine_, theirs_;
  std::thread thread_;
};

const std::vector<std::string> kGood{"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
                                     "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
                                     "cmd=my_kvsname kvsname=kvs_0\n",
                                     "cmd=barrier_out\n",
                                     "cmd=get_result rc=0 msg=success value=abc123\n",
                                     "cmd=finalize_ack\n"};

std::vector<std::string> with_answer(std::size_t step, const std::string& answer) {
  std::vector<std::string> answers = kGood;
  answers.at(step) = answer;
  return answers;
}

TEST(Pmi, TheScriptThatTheOthersSpoilIsGood) {
  const Result<std::string> value = Agent(kGood).exchange(1);
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ(*value, "abc123");
}

TEST(Pmi, AnAgentThatEndsIsNamedAtEveryStep) {
  for (std::size_t steps = 0; steps < kGood.size(); ++steps) {
    const Result<std::string> value =
        Agent(std::vector(kGood.begin(), kGood.begin() + static_cast<std::ptrdiff_t>(steps)))
            .exchange(1);
    ASSERT_FALSE(value);
    EXPECT_EQ(value.error().code, Code::kSystemError);
    EXPECT_THAT(value.error().message, AllOf(HasSubstr("PMI of hydra, rank 1 of 2: cmd="),
                                             HasSubstr("connection closed")));
  }
}

TEST(Pmi, AnAgentThatSaysNothingMoreIsATimeout) {
  for (std::size_t steps = 0; steps < kGood.size(); ++steps) {
    const Result<std::string> value =
        Agent(std::vector(kGood.begin(), kGood.begin() + static_cast<std::ptrdiff_t>(steps)), false)
            .exchange(1, 20);
    ASSERT_FALSE(value);
    EXPECT_EQ(value.error().code, Code::kTimeout);
    EXPECT_THAT(value.error().message, HasSubstr("TUTTI_INIT_TIMEOUT_S"));
  }
}

TEST(Pmi, NonsenseIsAnError) {
  for (std::size_t step = 0; step < kGood.size(); ++step) {
    for (const std::string& answer :
         {std::string("\n"), std::string("hello\n"), std::string("cmd=abort\n"),
          std::string(9000, 'x'), std::string("cmd=") + std::string(3, '\0') + "\n"}) {
      const Result<std::string> value = Agent(with_answer(step, answer)).exchange(1);
      ASSERT_FALSE(value) << step;
      EXPECT_EQ(value.error().code, Code::kSystemError);
      EXPECT_THAT(value.error().message, Not(HasSubstr("\n")));
    }
  }
}

TEST(Pmi, ARefusalIsAnErrorAndTellsNoValue) {
  const Result<std::string> value =
      Agent(with_answer(4, "cmd=get_result rc=-1 msg=secret value=secret\n")).exchange(1);
  ASSERT_FALSE(value);
  EXPECT_THAT(value.error().message,
              AllOf(HasSubstr("cmd=get was refused (rc=-1)"), Not(HasSubstr("secret"))));
}

TEST(Pmi, AStoreOfShortValuesIsNotSupported) {
  const Result<std::string> value =
      Agent(with_answer(1, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=6\n")).exchange(0);
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code, Code::kNotSupported);
}

TEST(Pmi, AnAnswerInPiecesIsOneAnswer) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd agent(ends[0]), mine(ends[1]);
  std::thread thread([&] {
    std::string request;
    std::size_t lines = 0;
    for (char c = 0; lines < kGood.size() && ::recv(agent.get(), &c, 1, 0) == 1;) {
      if (c != '\n') continue;
      for (const char piece : kGood[lines++])
        static_cast<void>(::send(agent.get(), &piece, 1, MSG_NOSIGNAL));
    }
  });
  Place place;
  place.store = Store::kPmi;
  place.rank = 1;
  place.ranks = 2;
  place.pmi_fd = mine.get();
  const Result<std::string> value = exchange_by_pmi({place, "", Deadline::in_ms(60'000)});
  ::shutdown(agent.get(), SHUT_RDWR);
  thread.join();
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ(*value, "abc123");
}

}  // namespace
}  // namespace tutti::launch
