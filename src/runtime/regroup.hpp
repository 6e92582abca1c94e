// Split and shrink: how ranks of one communicator agree on new ones made of its members.
//
// Both end in the control plane of the new job, for Communicator::create: its members know each
// other from the old one, so no root is started and nobody introduces himself. Split is one
// exchange among all ranks. Shrink must work where some are dead and exchanges are broken, so it
// asks one rank: the lowest that is neither excluded nor dead collects who comes, decides, and
// answers; if it dies the next one takes over. One user thread at a time; the service thread
// answers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/control/control_plane.hpp"

namespace tutti {

namespace control {
class Reader;
}

inline constexpr std::int32_t kNoColor = -1;

// Who is to be in a new job, in the order of its ranks.
struct Members {
  control::SessionKey key;
  std::vector<ChildMember> list;
};

// Collective. Ranks of one color, ordered by (key, rank); null for kNoColor. Errors: of
// ControlPlane::allgather; kSystemError where this rank cannot listen, and then kRemoteError on the
// others of its color.
[[nodiscard]] Result<std::unique_ptr<ControlPlane>> split(ControlPlane& control, std::int32_t color,
                                                          std::int32_t key, Deadline deadline);

class Shrink {
 public:
  // Begins to answer; `control` outlives the object.
  explicit Shrink(ControlPlane& control);

  struct Request {
    std::vector<Rank> excluded;  // sorted; not this rank
    std::function<bool(Rank)> is_dead;
    std::function<bool()> cancelled;
    Deadline deadline{};
  };
  // Collective over the ranks that are neither excluded nor dead; their order stays. Errors, on all
  // of them: kTimeout naming one that lives and did not come, kInvalidUsage where the lists differ,
  // kRemoteError where one of them failed.
  [[nodiscard]] Result<std::unique_ptr<ControlPlane>> run(const Request& request);

 private:
  class Decision;  // of the rank that decides; shared with the service thread

  [[nodiscard]] std::vector<Rank> candidates(const Request& request) const;
  // `own`: where this rank's part of the new job listens; null: it could not be made.
  [[nodiscard]] Result<Members> agree(const Request& request, const ServiceAddress* own);
  [[nodiscard]] Result<Members> decide(const Request& request, const ServiceAddress* own);
  [[nodiscard]] Result<Members> ask_all(Rank leader, const Request& request,
                                        const ServiceAddress* own, bool& again);
  [[nodiscard]] Status ask_page(Rank leader, const Request& request, const ServiceAddress* own,
                                Members& members, std::size_t& ranks, bool& again);
  [[nodiscard]] std::optional<Error> probe(Rank missing, const Request& request,
                                           const ServiceAddress& own);
  [[nodiscard]] Result<Reply> ask(Rank rank, const Request& request, const ServiceAddress* own,
                                  std::size_t first, Deadline deadline);
  [[nodiscard]] Error read_failure(control::Reader& reader, Rank teller) const;

  ControlPlane& control_;
  std::shared_ptr<Decision> decision_;
  std::uint64_t attempt_ = 0;
};

}  // namespace tutti
