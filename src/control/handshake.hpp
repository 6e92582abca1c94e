// SPDX-License-Identifier: Apache-2.0
// The mutual proof that opens every connection, as two state machines without a socket.
//
//   initiator -> acceptor   Hello      {version, session, rank, peer, ranks, nonce, MAC of a hello}
//   acceptor  -> initiator  Challenge  {nonce, MAC as acceptor}
//   initiator -> acceptor   Proof      {MAC as initiator}
//
// A MAC is HMAC-SHA-256 under the session's secret over {role, version, session, rank, peer, ranks,
// both nonces}; the acceptor's nonce is zeros in a hello's. The hello's MAC keeps out strangers who
// know everything but the secret: no state is kept for them and no challenge is made. An attacker
// that recorded a handshake can send it again and is challenged, but cannot answer: both nonces of
// the proof are fresh. The roles differ, so nothing can be reflected; the ranks are inside, so
// nothing can be passed off as another rank's. MACs are compared in constant time. Instead of a
// Challenge the acceptor may send a Refusal, which tells an honest initiator why.
//
// Proves who is there at connect time. The packets that follow are as safe as the kernel's Unix
// sockets, and sealed over TCP under two keys, one for each direction, which both ends derive from
// the secret and everything a MAC covers: nobody without the secret knows them, and no two
// connections share them. Pure; any thread; each object one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "control/channel.hpp"
#include "control/unique_id.hpp"

namespace tutti::control {

inline constexpr Rank kRootRank = -1;  // the root's place in a handshake
inline constexpr std::int32_t kMaxRanks = 1 << 16;
inline constexpr std::size_t kNonceBytes = 32;
using Nonce = std::array<std::byte, kNonceBytes>;

[[nodiscard]] Nonce make_nonce();

// Holds the initiator's claim: who it is, and with whom it believes to speak.
struct Claim {
  Rank rank = kNoRank;
  Rank peer = kNoRank;  // kRootRank: the root
  std::int32_t ranks = 0;
  bool operator==(const Claim&) const = default;
};

struct StreamKeys {
  StreamKey from_initiator{};
  StreamKey from_acceptor{};
};

class Initiator {
 public:
  Initiator(const SessionKey& key, const Claim& claim, const Nonce& nonce)
      : key_(key), claim_(claim), nonce_(nonce) {}
  [[nodiscard]] std::vector<std::byte> hello() const;
  // The Proof to send, after which the connection is open. Errors: kRemoteError (the acceptor does
  // not hold the secret, or talks rubbish), kInvalidUsage (it refused, with its reason).
  [[nodiscard]] Result<std::vector<std::byte>> prove(std::span<const std::byte> challenge) const;
  // Call it with a challenge that prove() has accepted.
  [[nodiscard]] StreamKeys stream_keys(std::span<const std::byte> challenge) const;

 private:
  SessionKey key_;
  Claim claim_;
  Nonce nonce_;
};

class Acceptor {
 public:
  // The key of a session that is served here; nullopt: none is of that name.
  using FindKey = std::function<std::optional<SessionKey>(const SessionId& session)>;
  [[nodiscard]] static FindKey only(const SessionKey& key);

  // `ranks` 0: any (a root does not know how many its job has).
  Acceptor(FindKey find_key, Rank self, std::int32_t ranks, const Nonce& nonce)
      : find_key_(std::move(find_key)), self_(self), ranks_(ranks), nonce_(nonce) {}
  Acceptor(const SessionKey& key, Rank self, std::int32_t ranks, const Nonce& nonce)
      : Acceptor(only(key), self, ranks, nonce) {}

  struct Answer {
    std::vector<std::byte> packet;  // empty: send nothing
    bool proceed = false;           // false: hang up after sending
  };
  [[nodiscard]] Answer challenge(std::span<const std::byte> hello);
  // True: the initiator is who claim() says.
  [[nodiscard]] bool accepts(std::span<const std::byte> proof) const;
  [[nodiscard]] const Claim& claim() const { return claim_; }
  [[nodiscard]] const SessionId& session() const { return key_.session; }
  // Returns the nonce of a handshake that was challenged, which reveals one that is sent again.
  [[nodiscard]] const Nonce& initiator_nonce() const { return initiator_nonce_; }
  // Once the initiator is accepted.
  [[nodiscard]] StreamKeys stream_keys() const;
  // The protocol version of a hello that was refused for it; 0: it was not.
  [[nodiscard]] std::uint16_t other_version() const { return other_version_; }

 private:
  FindKey find_key_;
  SessionKey key_;  // the session's, once a hello has named it
  Rank self_;
  std::int32_t ranks_;
  Nonce nonce_;
  Claim claim_;
  Nonce initiator_nonce_{};
  std::uint16_t other_version_ = 0;
};

}  // namespace tutti::control
