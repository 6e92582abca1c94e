// SPDX-License-Identifier: Apache-2.0
// Any bytes as what a launcher's agent answers over PMI: the whole exchange, on a socket of which
// the other end has said all of it beforehand. The first byte says which rank asks.
//
// The socket keeps the borders of packets, so that the exchange reads one line at a time as it does
// where the agent waits for questions.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/fd.hpp"
#include "launch/key_value.hpp"
#include "tests/fuzz/target.hpp"

namespace tutti::fuzz {
namespace {

constexpr std::size_t kPacketBytes = 1000;  // less than the exchange reads at once
constexpr std::size_t kMostAnswers = 64;
const std::string kSecret = "isecretsecretsecret";

struct Ends {
  UniqueFd mine, agent;
};

Ends connect_ends() {
  std::array<int, 2> ends{-1, -1};
  require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0,
          "a socket pair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void answer(int agent, std::string_view text) {
  for (std::size_t i = 0; i < kMostAnswers && !text.empty(); ++i) {
    const std::size_t line = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::size_t bytes = std::min(line, kPacketBytes);
    require(::send(agent, text.data(), bytes, MSG_NOSIGNAL | MSG_DONTWAIT) ==
                static_cast<ssize_t>(bytes),
            "the answers fit into a socket");
    text.remove_prefix(bytes);
  }
  ::shutdown(agent, SHUT_WR);
}

std::string asked(int agent) {
  std::string text;
  std::array<char, 8192> buffer{};
  for (;;) {
    const ssize_t got = ::recv(agent, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got <= 0) return text;
    const std::string_view request(buffer.data(), static_cast<std::size_t>(got));
    require(request.starts_with("cmd=") && request.find('\n') == request.size() - 1,
            "each request is one line");
    text += request;
  }
}

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

}  // namespace

void run_one(std::span<const std::byte> input) {
  if (input.empty()) return;
  launch::Place place;
  place.launcher = "hydra";
  place.rank = static_cast<std::int32_t>(input[0]) & 1;
  place.ranks = 2;
  Ends ends = connect_ends();
  place.pmi_fd = ends.mine.get();
  const std::string answers(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  if (answers.find(kSecret) != std::string::npos) return;  // what comes back proves nothing then
  answer(ends.agent.get(), answers);
  const auto value = launch::exchange_by_pmi(
      {place, place.rank == 0 ? kSecret : std::string(), Deadline::in_ms(60'000)});
  const std::string requests = asked(ends.agent.get());
  require(count_of(requests, "\n") <= 7, "an exchange has seven steps");
  require(count_of(requests, kSecret) <= (place.rank == 0 ? 1u : 0u), "the value is put once");
  if (value) return;
  const std::string& text = value.error().message;
  require(std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c != 0x7f; }),
          "an error is one line and nothing for the terminal to obey");
  require(text.find(kSecret) == std::string::npos, "and holds no value");
}

std::vector<Bytes> seeds() {
  const std::string opening =
      "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
      "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"
      "cmd=my_kvsname kvsname=kvs_4711_0\n";
  const std::string closing =
      "cmd=barrier_out\n"
      "cmd=get_result rc=0 msg=success value=i00ff\n"
      "cmd=finalize_ack\n";
  return {marked(0, opening + "cmd=put_result rc=0 msg=success\n" + closing),
          marked(1, opening + closing),
          marked(0, opening + "cmd=put_result rc=-1 msg=duplicate_key\n"),
          marked(1, "cmd=response_to_init pmi_version=2 rc=-1\n")};
}

}  // namespace tutti::fuzz
