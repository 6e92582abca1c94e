// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.hpp"

#include <fmt/core.h>
#include <sodium.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "base/text.hpp"
#include "control/handshake.hpp"
#include "control/interfaces.hpp"
#include "launch/address.hpp"
#include "launch/key_value.hpp"

namespace tutti::launch {
namespace {

static_assert(kMostRanks == control::kMaxRanks);

constexpr char kIdMark = 'i', kErrorMark = 'e';

std::string to_hex(std::span<const std::byte> bytes) {
  std::string hex(2 * bytes.size() + 1, '\0');
  ::sodium_bin2hex(hex.data(), hex.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                   bytes.size());
  hex.pop_back();
  return hex;
}

std::optional<std::vector<std::byte>> from_hex(std::string_view hex) {
  std::vector<std::byte> bytes(hex.size() / 2);
  if (bytes.empty()) return std::nullopt;
  std::size_t count = 0;
  const int status = ::sodium_hex2bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(),
                                      hex.data(), hex.size(), nullptr, &count, nullptr);
  if (status != 0 || 2 * count != hex.size()) return std::nullopt;
  return bytes;
}

// If all ranks are on this host, no other host needs the root, so it listens on the loopback
// interface. If there is no loopback, or the user has named an interface, it listens as in any
// other job.
RootOptions root_options(const Place& place, const Config& config, const Log& log) {
  RootOptions options{.log = log};
  if (!config.interfaces.empty() || place.local_ranks != place.ranks) return options;
  options.interfaces = control::loopback_choice();
  return options;
}

Result<UniqueId> by_store(const Place& place, const Config& config, Deadline deadline,
                          const Log& log) {
  StoreCall call{place, {}, deadline};
  Result<UniqueId> mine;
  if (place.rank == 0) {
    mine = create_unique_id(root_options(place, config, log));
    call.value = encode_value(mine);
  }
  Result<std::string> value =
      place.store == Store::kPmi ? exchange_by_pmi(call) : exchange_by_pmix(call);
  ::sodium_memzero(call.value.data(), call.value.size());
  if (place.rank == 0 && !mine) return mine;  // the cause itself; the others were told
  if (!value) return tl::unexpected(std::move(value).error());
  Result<UniqueId> id = decode_value(*value);
  ::sodium_memzero(value->data(), value->size());
  return id;
}

}  // namespace

std::string encode_value(const Result<UniqueId>& id) {
  if (id) return kIdMark + to_hex(id->bytes);
  constexpr std::size_t kMostText = (kMaxValueBytes - 1) / 2;
  const std::string& text = id.error().message;
  return kErrorMark +
         to_hex(std::as_bytes(std::span(text).first(std::min(text.size(), kMostText))));
}

Result<UniqueId> decode_value(const std::string& value) {
  const auto bytes = value.empty() ? std::nullopt : from_hex(std::string_view(value).substr(1));
  if (bytes && value[0] == kErrorMark)
    return make_error(
        Code::kRemoteError,
        fmt::format("rank 0 could not make the unique id: {}",
                    printable({reinterpret_cast<const char*>(bytes->data()), bytes->size()},
                              kMaxValueBytes)),
        Rank{0});
  if (!bytes || value[0] != kIdMark || bytes->size() != kUniqueIdBytes)
    return make_error(Code::kSystemError,
                      "the launcher's key-value store returned a value that is not a unique id; "
                      "use the same version of Tutti in all processes");
  UniqueId id;
  std::ranges::copy(*bytes, id.bytes.begin());
  return id;
}

Result<Place> place_of_process(const Config& config, Deadline deadline) {
  static std::mutex mutex;
  static const Place* known = nullptr;  // guarded by mutex; never destroyed
  const std::lock_guard lock(mutex);
  if (known != nullptr) return *known;
  TUTTI_TRY_ASSIGN(Place place, find_place(config, process_surroundings()));
  if (place.ranks == kUnknown) TUTTI_TRY(complete_by_pmix(place, deadline));
  settle(place);
  known = new Place(place);
  return place;
}

Result<UniqueId> meet(const Place& place, const Config& config, Deadline deadline, const Log& log) {
  switch (place.store) {
    case Store::kNone:
      return create_unique_id(root_options(place, config, log));
    case Store::kPmi:
    case Store::kPmix:
      return by_store(place, config, deadline, log);
    case Store::kAddress:
      return meet_at_address(place, config, log);
  }
  return make_error(
      Code::kInternalError,
      "the launcher has an unknown kind of store; this is a bug in Tutti, please report it");
}

}  // namespace tutti::launch
