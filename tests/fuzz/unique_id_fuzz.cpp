// SPDX-License-Identifier: Apache-2.0
// Any 128 bytes as a unique id. Its checksum is made right, or nothing would get behind it.
#include <sodium.h>

#include <algorithm>

#include "base/tcp_address.hpp"
#include "control/unique_id.hpp"
#include "tests/fuzz/target.hpp"

namespace tutti::fuzz {
namespace {

constexpr std::size_t kSumBytes = crypto_shorthash_BYTES;

void repair(UniqueId& id) {
  constexpr unsigned char kNoKey[crypto_shorthash_KEYBYTES] = {};
  const std::size_t text_bytes = id.bytes.size() - kSumBytes;
  ::crypto_shorthash(reinterpret_cast<unsigned char*>(id.bytes.data() + text_bytes),
                     reinterpret_cast<const unsigned char*>(id.bytes.data()), text_bytes, kNoKey);
}

}  // namespace

void run_one(std::span<const std::byte> input) {
  UniqueId id;
  std::copy_n(input.begin(), std::min(input.size(), id.bytes.size()), id.bytes.begin());
  static_cast<void>(control::decode_id(id));
  repair(id);
  const auto content = control::decode_id(id);
  if (!content) return;
  require(!content->local.empty() || !content->tcp.empty(), "an id has a way");
  require(content->local.size() <= 5 + 255, "a name has a bound");
  require(content->tcp.empty() || split_tcp(content->tcp), "an address is one");
  const auto again = control::encode_id(*content);
  if (!again) return;  // a name longer than ours
  const auto twice = control::decode_id(*again);
  require(twice && twice->local == content->local && twice->tcp == content->tcp &&
              twice->key.secret == content->key.secret,
          "what was decoded survives encoding");
}

std::vector<Bytes> seeds() {
  control::SessionKey key;
  key.session.fill(std::byte{1});
  key.secret.fill(std::byte{2});
  std::vector<Bytes> all;
  for (const control::IdContent& content : std::vector<control::IdContent>{
           {.key = key, .local = "unix:@tutti-abcdefghijklmnopqrstuv", .locality = 7},
           {.key = key, .local = "unix:@tutti-x", .locality = 7, .tcp = "tcp:10.0.0.1:4000"},
           {.key = key, .local = "unix:/run/user/0/tutti-x/s", .tcp = "tcp:[fd00::1]:4000"},
           {.key = key, .tcp = "tcp:node7.cluster:29500"}}) {
    const auto id = control::encode_id(content);
    require(id.has_value(), "a seed is an id");
    all.emplace_back(id->bytes.begin(), id->bytes.end());
  }
  return all;
}

}  // namespace tutti::fuzz
