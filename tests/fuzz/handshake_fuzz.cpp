// SPDX-License-Identifier: Apache-2.0
// Any bytes as each packet of a handshake. The first byte says which; keys and nonces are fixed, so
// that exactly one answer is right, and no other may be taken.
#include <algorithm>

#include "control/handshake.hpp"
#include "tests/fuzz/target.hpp"

namespace tutti::fuzz {
namespace {

using control::Acceptor;
using control::Initiator;

constexpr control::Claim kClaim{.rank = 1, .peer = 0, .ranks = 4};

control::SessionKey key() {
  control::SessionKey made;
  made.session.fill(std::byte{1});
  made.secret.fill(std::byte{2});
  return made;
}

control::Nonce nonce(int value) {
  control::Nonce made{};
  made.fill(static_cast<std::byte>(value));
  return made;
}

Initiator honest_initiator() { return Initiator(key(), kClaim, nonce(3)); }
Acceptor fresh_acceptor() { return Acceptor(key(), kClaim.peer, kClaim.ranks, nonce(4)); }

Bytes honest_challenge() { return fresh_acceptor().challenge(honest_initiator().hello()).packet; }
Bytes honest_proof() { return honest_initiator().prove(honest_challenge()).value(); }

}  // namespace

void run_one(std::span<const std::byte> input) {
  if (input.empty()) return;
  const std::span<const std::byte> packet = input.subspan(1);
  switch (static_cast<unsigned>(input[0]) % 3) {
    case 0: {
      Acceptor acceptor = fresh_acceptor();
      const Acceptor::Answer answer = acceptor.challenge(packet);
      require(answer.packet.size() <= control::kMaxHandshakeBytes, "an answer is short");
      if (!answer.proceed) break;
      const control::Claim& claim = acceptor.claim();
      require(claim.peer == kClaim.peer && claim.ranks == kClaim.ranks, "the claim fits the job");
      require(claim.rank >= 0 && claim.rank < claim.ranks, "the rank is one of the job");
      break;
    }
    case 1: {
      const bool accepted = honest_initiator().prove(packet).has_value();
      require(!accepted || std::ranges::equal(packet, honest_challenge()), "only one challenge");
      break;
    }
    default: {
      Acceptor acceptor = fresh_acceptor();
      require(acceptor.challenge(honest_initiator().hello()).proceed, "an honest hello is taken");
      const bool accepted = acceptor.accepts(packet);
      require(!accepted || std::ranges::equal(packet, honest_proof()), "only one proof");
    }
  }
}

std::vector<Bytes> seeds() {
  Bytes old = honest_initiator().hello();
  old.at(4) = std::byte{1};
  const Bytes refusal = fresh_acceptor().challenge(old).packet;
  return {marked(0, honest_initiator().hello()), marked(0, old), marked(1, honest_challenge()),
          marked(1, refusal), marked(2, honest_proof())};
}

}  // namespace tutti::fuzz
