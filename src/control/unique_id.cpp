// SPDX-License-Identifier: Apache-2.0
#include "control/unique_id.hpp"

#include <fmt/core.h>
#include <sodium.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "base/tcp_address.hpp"
#include "base/text.hpp"
#include "base/wire.hpp"

namespace tutti {
namespace control {
namespace {

constexpr std::uint32_t kMagic = 0x49545554;  // "TUTI"
constexpr std::size_t kChecksumBytes = crypto_shorthash_BYTES;
constexpr std::size_t kHeaderBytes = 4 + 2 + 2;  // magic, version, flags
constexpr std::size_t kPlaceBytes = 64;          // see write_place
static_assert(kHeaderBytes + kPlaceBytes + kSessionIdBytes + kSecretBytes + kChecksumBytes ==
              kUniqueIdBytes);
static_assert(1 + 8 + kMaxIdLocalBytes + 1 + 16 + 2 == kPlaceBytes);
static_assert(1 + 1 + 2 + 1 + kMaxIdNameBytes == kPlaceBytes);

constexpr std::string_view kUnixScheme = "unix:";
enum class TcpWay : std::uint8_t { kNone = 0, kIpv4 = 4, kIpv6 = 6, kName = 110 };

// Against damage only; the secret guards against malice.
std::array<std::byte, kChecksumBytes> checksum(std::span<const std::byte> bytes) {
  constexpr std::array<unsigned char, crypto_shorthash_KEYBYTES> kNoKey{};
  std::array<std::byte, kChecksumBytes> sum{};
  ::crypto_shorthash(reinterpret_cast<unsigned char*>(sum.data()),
                     reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                     kNoKey.data());
  return sum;
}

void write_text(Writer& writer, std::string_view text) {
  writer.number(static_cast<std::uint8_t>(text.size())).raw(std::as_bytes(std::span(text)));
}

std::string read_text(Reader& reader) {
  const std::span<const std::byte> text = reader.raw(reader.number<std::uint8_t>());
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

// The Unix way: its length, then, unless that is 0, locality and name. The TCP way: its kind, then
// IP and port, or port and name. Zeros up to kPlaceBytes. False: it does not fit.
bool write_place(Writer& writer, const IdContent& content) {
  std::string_view local = content.local;
  if (!local.empty()) local.remove_prefix(kUnixScheme.size());
  writer.number(static_cast<std::uint8_t>(local.size()));
  if (!local.empty()) writer.number(content.locality).raw(std::as_bytes(std::span(local)));
  const std::optional<TcpAddress> ip = parse_tcp(content.tcp);
  const std::optional<HostPort> name = split_tcp(content.tcp);
  if (ip) {
    writer.number(static_cast<std::uint8_t>(ip->v6 ? TcpWay::kIpv6 : TcpWay::kIpv4));
    writer.raw(std::span(ip->ip).first(ip->v6 ? 16 : 4)).number(ip->port);
  } else if (name) {
    writer.number(static_cast<std::uint8_t>(TcpWay::kName)).number(name->port);
    write_text(writer, name->host);
  } else {
    writer.number(static_cast<std::uint8_t>(TcpWay::kNone));
  }
  return local.size() <= kMaxIdLocalBytes && writer.bytes().size() <= kPlaceBytes;
}

// False: no place that write_place would have written.
bool read_place(Reader reader, IdContent& content) {
  const auto local_bytes = reader.number<std::uint8_t>();
  if (local_bytes != 0) {
    content.locality = reader.number<std::uint64_t>();
    const std::span<const std::byte> local = reader.raw(local_bytes);
    content.local = kUnixScheme;
    content.local.append(reinterpret_cast<const char*>(local.data()), local.size());
  }
  const auto way = static_cast<TcpWay>(reader.number<std::uint8_t>());
  if (way == TcpWay::kName) {
    const auto port = reader.number<std::uint16_t>();
    const HostPort place{.host = read_text(reader), .port = port};
    if (parse_ip(place.host, port)) return false;  // those are written as numbers
    content.tcp = place.text();
  } else if (way == TcpWay::kIpv4 || way == TcpWay::kIpv6) {
    TcpAddress ip{.v6 = way == TcpWay::kIpv6};
    std::ranges::copy(reader.raw(ip.v6 ? 16 : 4), ip.ip.begin());
    ip.port = reader.number<std::uint16_t>();
    content.tcp = ip.text();
  } else if (way != TcpWay::kNone) {
    return false;
  }
  if (!content.tcp.empty() && !split_tcp(content.tcp)) return false;
  return reader.ok() && !(content.local.empty() && content.tcp.empty());
}

constexpr std::string_view kNoSecret = "public";  // for what everybody may know
// Names the purpose of a digest under an id's secret, so that it is none of a handshake.
constexpr std::string_view kSeveralLabel = "tutti job of several ids";

using Digest = std::array<std::byte, crypto_auth_hmacsha256_BYTES>;

Digest digest_of(std::span<const std::byte> secret, const Writer& text) {
  crypto_auth_hmacsha256_state state;
  ::crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(secret.data()),
                                secret.size());
  ::crypto_auth_hmacsha256_update(
      &state, reinterpret_cast<const unsigned char*>(text.bytes().data()), text.bytes().size());
  Digest digest{};
  ::crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

// The session is public and does not depend on the secret: ranks that hold different secrets are
// told so, instead of that they belong to different jobs.
SessionKey derive_key(const HostPort& place, std::span<const std::byte> secret,
                      std::string_view job) {
  const auto labelled = [&](std::string_view label) {
    Writer text;
    text.number(kProtocolVersion).number(static_cast<std::uint64_t>(job.size()));
    text.raw(std::as_bytes(std::span(job))).text(label, 64).text(place.text(), UINT16_MAX);
    return text;
  };
  SessionKey key;
  const Digest session =
      digest_of(std::as_bytes(std::span(kNoSecret)), labelled("tutti agreed session"));
  std::copy_n(session.begin(), key.session.size(), key.session.begin());
  key.secret = digest_of(secret, labelled("tutti agreed secret"));
  return key;
}

}  // namespace

Result<UniqueId> encode_id(const IdContent& content) {
  Writer place;
  if (!write_place(place, content)) {
    return make_error(Code::kInternalError,
                      fmt::format("the addresses '{}' and '{}' do not fit into a unique id",
                                  content.local, content.tcp));
  }
  Writer writer;
  writer.number(kMagic).number(kProtocolVersion).number(std::uint16_t{0});
  writer.raw(place.bytes()).raw(std::vector<std::byte>(kPlaceBytes - place.bytes().size()));
  writer.raw(content.key.session).raw(content.key.secret);
  writer.raw(checksum(writer.bytes()));
  UniqueId id;
  std::ranges::copy(writer.bytes(), id.bytes.begin());
  return id;
}

Result<IdContent> decode_id(const UniqueId& id) {
  Reader reader(id.bytes);
  const auto magic = reader.number<std::uint32_t>();
  const auto version = reader.number<std::uint16_t>();
  static_cast<void>(reader.number<std::uint16_t>());  // flags: none known
  const std::span<const std::byte> place = reader.raw(kPlaceBytes);
  IdContent content;
  content.key.session = reader.block<kSessionIdBytes>();
  content.key.secret = reader.block<kSecretBytes>();
  if (magic != kMagic) {
    return make_error(Code::kInvalidArgument, "these 128 bytes are not a unique id of Tutti");
  }
  if (version != kProtocolVersion) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("the unique id has protocol version {}, but this library speaks "
                                  "{}: use the same library in all processes",
                                  version, kProtocolVersion));
  }
  const std::span<const std::byte> all(id.bytes);
  const auto expected = checksum(all.first(kUniqueIdBytes - kChecksumBytes));
  if (!std::ranges::equal(expected, all.last(kChecksumBytes)) ||
      !read_place(Reader(place), content)) {
    return make_error(Code::kInvalidArgument,
                      "the unique id is damaged (wrong checksum); pass all 128 bytes unchanged");
  }
  return content;
}

Status check_ids(std::span<const UniqueId> ids, std::int32_t ranks) {
  if (ids.empty() || ids.size() > static_cast<std::size_t>(std::max(ranks, 0)))
    return make_error(
        Code::kInvalidArgument,
        fmt::format("the number of unique ids is {}, and that of ranks {}: pass one id "
                    "at least, and at most one for each rank",
                    ids.size(), ranks));
  std::map<std::array<std::byte, kUniqueIdBytes>, std::size_t> seen;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (const auto [first, is_new] = seen.emplace(ids[i].bytes, i); !is_new)
      return make_error(Code::kInvalidArgument,
                        fmt::format("unique ids {} and {} of {} are the same: make each one by a "
                                    "call of tuttiGetUniqueId of its own",
                                    first->second + 1, i + 1, ids.size()));
  return {};
}

Result<std::vector<IdContent>> decode_ids(std::span<const UniqueId> ids, std::int32_t ranks) {
  TUTTI_TRY(check_ids(ids, ranks));
  std::vector<IdContent> contents;
  for (const UniqueId& id : ids) {
    Result<IdContent> content = decode_id(id);
    if (!content && ids.size() > 1)
      content.error().message = fmt::format("unique id {} of {}: {}", contents.size() + 1,
                                            ids.size(), content.error().message);
    if (!content) return tl::unexpected(std::move(content).error());
    contents.push_back(*std::move(content));
  }
  return contents;
}

SessionKey job_key(std::span<const IdContent> ids) {
  if (ids.size() == 1) return ids.front().key;
  Writer sessions, secrets;
  for (Writer* const text : {&sessions, &secrets}) {
    text->text(kSeveralLabel, 64).number(kProtocolVersion);
    text->number(static_cast<std::uint64_t>(ids.size()));
    for (const IdContent& id : ids) text->raw(id.key.session);
  }
  for (const IdContent& id : ids) secrets.raw(id.key.secret);
  SessionKey key;
  const Digest session = digest_of(std::as_bytes(std::span(kNoSecret)), sessions);
  std::copy_n(session.begin(), key.session.size(), key.session.begin());
  key.secret = digest_of(ids.front().key.secret, secrets);
  return key;
}

}  // namespace control

Result<UniqueId> unique_id_at(std::string_view host, std::uint16_t port,
                              std::span<const std::byte> secret, std::string_view job) {
  using namespace control;
  if (secret.size() < kLeastSecretBytes) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("a secret of {} bytes can be guessed; use at least {} bytes",
                                  secret.size(), kLeastSecretBytes));
  }
  std::string name(host);
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : static_cast<char>(c);
  });
  const HostPort place{.host = name, .port = port};
  const bool fits = name.size() <= kMaxIdNameBytes || parse_ip(name, port);
  if (!fits || !split_tcp(place.text())) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("'{}' port {} is not an address for rank 0: give an IP address "
                                  "or a name of at most {} bytes, and a port of 1 to 65535",
                                  printable(host, 128), port, kMaxIdNameBytes));
  }
  return encode_id({.key = derive_key(place, secret, job), .tcp = place.text()});
}

}  // namespace tutti
