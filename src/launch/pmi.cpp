// SPDX-License-Identifier: Apache-2.0
// The PMI-1 wire protocol: lines of "key=value" over a socket that the launcher's agent on this
// host holds the other end of. Hydra speaks it, and so does Slurm's pmi2 plugin.
#include <dlfcn.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>

#include "base/text.hpp"
#include "launch/key_value.hpp"

namespace tutti::launch {
namespace {

// PMI-1's own bound is 1024; the margin is for agents that pad.
constexpr std::size_t kMaxLineBytes = 4096;

using Fields = std::map<std::string, std::string, std::less<>>;

Fields parse_line(std::string_view line) {
  Fields fields;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    const std::size_t equal = word.find('=');
    if (equal != std::string_view::npos)
      fields.emplace(word.substr(0, equal), word.substr(equal + 1));
  }
  return fields;
}

std::string field(const Fields& fields, std::string_view name) {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string() : found->second;
}

class Agent {
 public:
  Agent(const Place& place, Deadline deadline) : place_(place), deadline_(deadline) {}

  // Sends a request whose first word names it and returns the answer, which must be `answer`.
  [[nodiscard]] Result<Fields> ask(const std::string& request, std::string_view answer) {
    step_ = request.substr(0, request.find(' '));
    TUTTI_TRY(send(request + "\n"));
    TUTTI_TRY_ASSIGN(const std::string line, receive());
    Fields fields = parse_line(line);
    if (field(fields, "cmd") != answer)
      return fault(Code::kSystemError, fmt::format("got an answer other than {}", answer));
    const std::string rc = field(fields, "rc");
    if (!rc.empty() && rc != "0")
      return fault(Code::kSystemError, fmt::format("was refused (rc={})", printable(rc, 16)));
    return fields;
  }

 private:
  tl::unexpected<Error> fault(Code code, std::string_view what) const {
    return make_error(code, fmt::format("PMI of {}, rank {} of {}: {} {}", place_.launcher,
                                        place_.rank, place_.ranks, step_, what));
  }
  tl::unexpected<Error> hung_up() const {
    return fault(Code::kSystemError,
                 "found the connection closed: the launcher has ended, or this process has used "
                 "PMI before (MPI does; then send the id by MPI_Bcast)");
  }

  Status wait(short events) {
    pollfd poll{place_.pmi_fd, events, 0};
    for (;;) {
      const int ready = ::poll(&poll, 1, deadline_.left_poll_ms());
      if (ready > 0) return {};
      if (ready < 0 && errno != EINTR) return errno_error("poll of the PMI socket", errno);
      if (deadline_.passed())
        return fault(Code::kTimeout,
                     "got no answer in time: a rank has not reached this call, or the launcher "
                     "hangs (TUTTI_INIT_TIMEOUT_S)");
    }
  }

  Status send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent =
          ::send(place_.pmi_fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) {
        text.remove_prefix(static_cast<std::size_t>(sent));
      } else if (errno == EAGAIN) {
        TUTTI_TRY(wait(POLLOUT));
      } else if (errno != EINTR) {
        return hung_up();
      }
    }
    return {};
  }

  // The agent speaks only when asked, so what follows a line is none of ours and there is none.
  Result<std::string> receive() {
    std::string line;
    char buffer[1024];
    for (;;) {
      const ssize_t count = ::recv(place_.pmi_fd, buffer, sizeof(buffer), MSG_DONTWAIT);
      if (count == 0) return hung_up();
      if (count < 0 && errno == EAGAIN) {
        TUTTI_TRY(wait(POLLIN));
      } else if (count < 0 && errno != EINTR) {
        return hung_up();
      } else if (count > 0) {
        line.append(buffer, static_cast<std::size_t>(count));
        const std::size_t end = line.find('\n');
        if (end != std::string::npos) return line.substr(0, end);
        if (line.size() > kMaxLineBytes)
          return fault(Code::kSystemError, "got an answer that does not end");
      }
    }
  }

  const Place& place_;
  Deadline deadline_;
  std::string step_;
};

// Returns whether MPI owns the descriptor: MPI would read the answers to this process's requests,
// and this process those to MPI's.
bool mpi_is_running() {
  using Initialized = int (*)(int*);
  void* const symbol = ::dlsym(RTLD_DEFAULT, "MPI_Initialized");
  if (symbol == nullptr) return false;
  int flag = 0;
  return reinterpret_cast<Initialized>(symbol)(&flag) == 0 && flag != 0;
}

}  // namespace

Result<std::string> exchange_by_pmi(const StoreCall& call) {
  if (call.place.pmi_fd < 0)
    return make_error(
        Code::kInvalidUsage,
        fmt::format("PMI of {}: PMI_FD is not an open socket, because a process between the "
                    "launcher and this one has closed it; start the program directly, or set "
                    "TUTTI_ROOT and TUTTI_SECRET_FILE, or TUTTI_LAUNCHER=none to run alone",
                    call.place.launcher));
  if (mpi_is_running())
    return make_error(Code::kInvalidUsage,
                      fmt::format("MPI runs in this process and uses the PMI of {} itself: make "
                                  "the id with tuttiGetUniqueId on rank 0 and send it by MPI_Bcast",
                                  call.place.launcher));
  Agent agent(call.place, call.deadline);
  TUTTI_TRY(agent.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"));
  TUTTI_TRY_ASSIGN(const Fields maxima, agent.ask("cmd=get_maxes", "maxes"));
  TUTTI_TRY_ASSIGN(const Fields space, agent.ask("cmd=get_my_kvsname", "my_kvsname"));
  const std::string name = field(space, "kvsname");
  if (call.place.rank == 0) {
    const std::size_t most = std::strtoul(field(maxima, "vallen_max").c_str(), nullptr, 10);
    if (most <= call.value.size())
      return make_error(Code::kNotSupported,
                        fmt::format("PMI of {} allows values of {} bytes, but {} are needed; set "
                                    "TUTTI_ROOT and TUTTI_SECRET_FILE instead",
                                    call.place.launcher, most, call.value.size()));
    TUTTI_TRY(
        agent.ask(fmt::format("cmd=put kvsname={} key={} value={}", name, kValueKey, call.value),
                  "put_result"));
  }
  TUTTI_TRY(agent.ask("cmd=barrier_in", "barrier_out"));
  TUTTI_TRY_ASSIGN(
      const Fields got,
      agent.ask(fmt::format("cmd=get kvsname={} key={}", name, kValueKey), "get_result"));
  // The descriptor stays open: its number must not come to mean another file to whoever reads
  // PMI_FD later.
  TUTTI_TRY(agent.ask("cmd=finalize", "finalize_ack"));
  return field(got, "value");
}

}  // namespace tutti::launch
