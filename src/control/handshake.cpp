// SPDX-License-Identifier: Apache-2.0
#include "control/handshake.hpp"

#include <fmt/core.h>
#include <sodium.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/wire.hpp"

namespace tutti::control {
namespace {

constexpr std::uint32_t kMagic = 0x48545554;  // "TUTH"
enum class Step : std::uint16_t { kHello = 1, kChallenge = 2, kProof = 3, kRefusal = 4 };
enum class Refusal : std::uint16_t { kVersion = 1, kSession, kRanks, kPeer, kSecret };

using Mac = std::array<std::byte, crypto_auth_hmacsha256_BYTES>;

// Names the purpose of a MAC or a key, so that no two of them can be mistaken for each other.
constexpr std::string_view kHelloLabel = "tutti hello";
constexpr std::string_view kInitiatorLabel = "tutti initiator";
constexpr std::string_view kAcceptorLabel = "tutti acceptor";
constexpr std::string_view kFromInitiatorLabel = "tutti key from initiator";
constexpr std::string_view kFromAcceptorLabel = "tutti key from acceptor";

struct Transcript {
  const SessionKey& key;
  const Claim& claim;
  const Nonce& initiator;
  const Nonce& acceptor;
};
constexpr Nonce kNoNonce{};  // the acceptor's, before it has spoken

Mac authenticate(std::string_view label, const Transcript& of) {
  Writer text;
  text.text(label, 32);
  text.number(kProtocolVersion).raw(of.key.session);
  text.number(of.claim.rank).number(of.claim.peer).number(of.claim.ranks);
  text.raw(of.initiator).raw(of.acceptor);
  static_assert(kSecretBytes == crypto_auth_hmacsha256_KEYBYTES);
  Mac mac{};
  ::crypto_auth_hmacsha256(reinterpret_cast<unsigned char*>(mac.data()),
                           reinterpret_cast<const unsigned char*>(text.bytes().data()),
                           text.bytes().size(),
                           reinterpret_cast<const unsigned char*>(of.key.secret.data()));
  return mac;
}

StreamKeys derive_keys(const Transcript& of) {
  static_assert(sizeof(Mac) == sizeof(StreamKey));
  return {.from_initiator = authenticate(kFromInitiatorLabel, of),
          .from_acceptor = authenticate(kFromAcceptorLabel, of)};
}

bool equal_macs(const Mac& a, const Mac& b) {
  return ::sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Writer start(Step step) {
  Writer writer;
  writer.number(kMagic).number(kProtocolVersion).number(static_cast<std::uint16_t>(step));
  return writer;
}

// Consumes the header; true if it is `step` in our version.
bool starts_with(Reader& reader, Step step) {
  const auto magic = reader.number<std::uint32_t>();
  const auto version = reader.number<std::uint16_t>();
  const auto found = reader.number<std::uint16_t>();
  return reader.ok() && magic == kMagic && version == kProtocolVersion &&
         found == static_cast<std::uint16_t>(step);
}

Acceptor::Answer refuse(Refusal reason) {
  Writer writer = start(Step::kRefusal);
  writer.number(static_cast<std::uint16_t>(reason));
  return {.packet = writer.take(), .proceed = false};
}

std::string describe_refusal(std::uint16_t version, std::uint16_t reason) {
  switch (static_cast<Refusal>(reason)) {
    case Refusal::kVersion:
      return fmt::format(
          "it speaks protocol version {}, this library {}: use the same library in all processes",
          version, kProtocolVersion);
    case Refusal::kSession:
      return "it serves another job, or that one has met or ended: pass the same id, or the same "
             "address and job, to all ranks";
    case Refusal::kRanks:
      return "its job has another number of ranks, or no such rank: pass the same number of ranks "
             "everywhere";
    case Refusal::kPeer:
      return "another rank answered at this address";
    case Refusal::kSecret:
      return "this rank holds another secret: pass the same id, or the same secret, to all ranks";
  }
  return "it gave a reason that this version does not know; start all ranks with the same version "
         "of Tutti";
}

// A refusal is understood in every version: it may be about the version.
std::optional<std::string> read_refusal(std::span<const std::byte> packet) {
  Reader reader(packet);
  const auto magic = reader.number<std::uint32_t>();
  const auto version = reader.number<std::uint16_t>();
  const auto step = reader.number<std::uint16_t>();
  const auto reason = reader.number<std::uint16_t>();
  const bool legal = reader.ok() && magic == kMagic;
  if (!legal || step != static_cast<std::uint16_t>(Step::kRefusal)) return std::nullopt;
  return describe_refusal(version, reason);
}

}  // namespace

Nonce make_nonce() {
  Nonce nonce{};
  ::randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

std::vector<std::byte> Initiator::hello() const {
  Writer writer = start(Step::kHello);
  writer.raw(key_.session).number(claim_.rank).number(claim_.peer).number(claim_.ranks).raw(nonce_);
  writer.raw(authenticate(kHelloLabel, {key_, claim_, nonce_, kNoNonce}));
  return writer.take();
}

Result<std::vector<std::byte>> Initiator::prove(std::span<const std::byte> challenge) const {
  if (const std::optional<std::string> refusal = read_refusal(challenge)) {
    return make_error(Code::kInvalidUsage, fmt::format("the connection of rank {} was refused: {}",
                                                       claim_.rank, *refusal));
  }
  Reader reader(challenge);
  const bool legal = starts_with(reader, Step::kChallenge);
  const Nonce acceptor_nonce = reader.block<kNonceBytes>();
  const Mac mac = reader.block<sizeof(Mac)>();
  if (!legal || !reader.finished()) {
    return make_error(Code::kRemoteError, "malformed answer to a handshake");
  }
  if (!equal_macs(mac, authenticate(kAcceptorLabel, {key_, claim_, nonce_, acceptor_nonce}))) {
    return make_error(Code::kRemoteError, "the other end does not hold this job's secret");
  }
  Writer writer = start(Step::kProof);
  writer.raw(authenticate(kInitiatorLabel, {key_, claim_, nonce_, acceptor_nonce}));
  return writer.take();
}

StreamKeys Initiator::stream_keys(std::span<const std::byte> challenge) const {
  Reader reader(challenge);
  static_cast<void>(starts_with(reader, Step::kChallenge));
  const Nonce acceptor_nonce = reader.block<kNonceBytes>();
  return derive_keys({key_, claim_, nonce_, acceptor_nonce});
}

Acceptor::FindKey Acceptor::only(const SessionKey& key) {
  return [key](const SessionId& session) {
    return session == key.session ? std::optional(key) : std::nullopt;
  };
}

Acceptor::Answer Acceptor::challenge(std::span<const std::byte> hello) {
  Reader reader(hello);
  if (reader.number<std::uint32_t>() != kMagic) return {};
  const auto version = reader.number<std::uint16_t>();
  const auto step = reader.number<std::uint16_t>();
  if (!reader.ok() || step != static_cast<std::uint16_t>(Step::kHello)) return {};
  if (version != kProtocolVersion) {
    other_version_ = version;
    return refuse(Refusal::kVersion);
  }
  const SessionId session = reader.block<kSessionIdBytes>();
  claim_.rank = reader.number<Rank>();
  claim_.peer = reader.number<Rank>();
  claim_.ranks = reader.number<std::int32_t>();
  initiator_nonce_ = reader.block<kNonceBytes>();
  const Mac mac = reader.block<sizeof(Mac)>();
  if (!reader.finished()) return {};
  const std::optional<SessionKey> key = find_key_(session);
  if (!key) return refuse(Refusal::kSession);
  key_ = *key;
  if (!equal_macs(mac, authenticate(kHelloLabel, {key_, claim_, initiator_nonce_, kNoNonce}))) {
    return refuse(Refusal::kSecret);
  }
  if (claim_.peer != self_) return refuse(Refusal::kPeer);
  const bool legal_ranks =
      claim_.ranks >= 1 && claim_.ranks <= kMaxRanks && (ranks_ == 0 || claim_.ranks == ranks_);
  if (!legal_ranks || claim_.rank < 0 || claim_.rank >= claim_.ranks) {
    return refuse(Refusal::kRanks);
  }
  Writer writer = start(Step::kChallenge);
  writer.raw(nonce_).raw(authenticate(kAcceptorLabel, {key_, claim_, initiator_nonce_, nonce_}));
  static_assert(8 + kNonceBytes + sizeof(Mac) <= kMaxHandshakeBytes);
  return {.packet = writer.take(), .proceed = true};
}

bool Acceptor::accepts(std::span<const std::byte> proof) const {
  Reader reader(proof);
  const bool legal = starts_with(reader, Step::kProof);
  const Mac mac = reader.block<sizeof(Mac)>();
  return legal && reader.finished() &&
         equal_macs(mac, authenticate(kInitiatorLabel, {key_, claim_, initiator_nonce_, nonce_}));
}

StreamKeys Acceptor::stream_keys() const {
  return derive_keys({key_, claim_, initiator_nonce_, nonce_});
}

}  // namespace tutti::control
