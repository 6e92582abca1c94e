// SPDX-License-Identifier: Apache-2.0
// A job made of members of another: no root, because its members know each other already.

#include <fmt/core.h>

#include "control/plane.hpp"
#include "control/solo_plane.hpp"

namespace tutti::control {
namespace {

// The parent outlives it.
class Child final : public ChildJob {
 public:
  Child(const PlaneOptions& options, const std::vector<Member>& parents,
        std::unique_ptr<Service> service)
      : options_(options),
        parents_(parents),
        address_{service->address(), service->tcp_address()},
        service_(std::move(service)) {}

  [[nodiscard]] const ServiceAddress& address() const override { return address_; }

  [[nodiscard]] Result<std::unique_ptr<ControlPlane>> enter(
      const SessionKey& key, std::span<const ChildMember> members) override {
    std::vector<Member> list;
    Rank self = kNoRank;
    for (const ChildMember& member : members) {
      if (member.parent < 0 || static_cast<std::size_t>(member.parent) >= parents_.size())
        return make_error(Code::kRemoteError,
                          fmt::format("the list of members names rank {}, but there are {} ranks; "
                                      "start all ranks with the same version of Tutti",
                                      member.parent, parents_.size()));
      const auto rank = static_cast<Rank>(list.size());
      if (member.parent == options_.rank) self = rank;
      list.push_back(parents_[static_cast<std::size_t>(member.parent)]);
      list.back().info.rank = rank;
      list.back().address = member.address.local;
      list.back().tcp = member.address.tcp;
    }
    if (self == kNoRank)
      return make_error(Code::kRemoteError,
                        fmt::format("the list of members does not contain rank {}; start all ranks "
                                    "with the same version of Tutti",
                                    options_.rank));
    if (list.size() == 1) return make_solo_plane(key.session, list.front().info);
    PlaneOptions own = options_;
    own.key = key;
    own.rank = self;
    own.ranks = static_cast<std::int32_t>(list.size());
    TUTTI_TRY_ASSIGN(std::unique_ptr<Plane> plane, Plane::start(own, std::move(service_)));
    plane->adopt(std::move(list));
    return plane;
  }

 private:
  const PlaneOptions& options_;  // the parent's
  const std::vector<Member>& parents_;
  const ServiceAddress address_;
  std::unique_ptr<Service> service_;
};

}  // namespace

Result<std::unique_ptr<ChildJob>> Plane::prepare_child() {
  TUTTI_TRY_ASSIGN(std::unique_ptr<Service> service, start_service(options_));
  return std::make_unique<Child>(options_, members_, std::move(service));
}

}  // namespace tutti::control
