#include "runtime/control/unique_id.hpp"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <span>

#include "runtime/control/codec.hpp"
#include "runtime/control/socket.hpp"

namespace tutti::control {
namespace {

constexpr std::uint32_t kMagic = 0x49545554;  // "TUTI"
constexpr std::size_t kChecksumBytes = crypto_shorthash_BYTES;
constexpr std::size_t kHeaderBytes = 4 + 2 + 2;  // magic, version, flags
constexpr std::size_t kAddressFieldBytes = 64;   // one byte of length, then the text
static_assert(kHeaderBytes + kAddressFieldBytes + kSessionIdBytes + kSecretBytes + kChecksumBytes ==
              kUniqueIdBytes);
static_assert(kMaxIdAddressBytes == kAddressFieldBytes - 1);

// Against damage only; the secret guards against malice.
std::array<std::byte, kChecksumBytes> checksum(std::span<const std::byte> bytes) {
  constexpr std::array<unsigned char, crypto_shorthash_KEYBYTES> kNoKey{};
  std::array<std::byte, kChecksumBytes> sum{};
  ::crypto_shorthash(reinterpret_cast<unsigned char*>(sum.data()),
                     reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                     kNoKey.data());
  return sum;
}

}  // namespace

SessionKey make_session_key() {
  SessionKey key;
  ::randombytes_buf(key.session.data(), key.session.size());
  ::randombytes_buf(key.secret.data(), key.secret.size());
  return key;
}

Result<UniqueId> encode_id(const IdContent& content) {
  if (content.address.size() > kMaxIdAddressBytes) {
    return make_error(Code::kInternalError,
                      fmt::format("address '{}' does not fit into a unique id", content.address));
  }
  std::array<std::byte, kAddressFieldBytes> address{};
  address[0] = static_cast<std::byte>(content.address.size());
  std::ranges::copy(std::as_bytes(std::span(content.address)), address.begin() + 1);
  Writer writer;
  writer.number(kMagic).number(kProtocolVersion).number(std::uint16_t{0});
  writer.raw(address).raw(content.key.session).raw(content.key.secret);
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
  const std::span<const std::byte> address = reader.raw(kAddressFieldBytes);
  IdContent content;
  content.key.session = reader.block<kSessionIdBytes>();
  content.key.secret = reader.block<kSecretBytes>();
  if (magic != kMagic) {
    return make_error(Code::kInvalidArgument, "these 128 bytes are not a unique id of Tutti");
  }
  if (version != kProtocolVersion) {
    return make_error(
        Code::kInvalidArgument,
        fmt::format("unique id of protocol version {}, this library speaks {}: use the "
                    "same library in all processes",
                    version, kProtocolVersion));
  }
  const std::span<const std::byte> all(id.bytes);
  const auto expected = checksum(all.first(kUniqueIdBytes - kChecksumBytes));
  const auto address_bytes = static_cast<std::size_t>(address[0]);
  if (!std::ranges::equal(expected, all.last(kChecksumBytes)) ||
      address_bytes > kMaxIdAddressBytes) {
    return make_error(Code::kInvalidArgument,
                      "damaged unique id: its checksum is wrong; pass all 128 bytes unchanged");
  }
  const std::span<const std::byte> text = address.subspan(1, address_bytes);
  content.address.assign(reinterpret_cast<const char*>(text.data()), text.size());
  return content;
}

}  // namespace tutti::control
