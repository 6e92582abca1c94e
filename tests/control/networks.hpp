// SPDX-License-Identifier: Apache-2.0
// Hosts for tests: network namespaces of this process, joined by veth pairs to a bridge in one of
// their own; nftables between them. They need root and iproute2 (and nft), touch nothing outside,
// and are gone with the last process and descriptor that holds them.
//
//   Networks networks(3);
//   if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
//   networks.enter(1);   // this thread now has eth0 with ip(1) and ip6(1), and the loopback
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "control/interfaces.hpp"

namespace tutti::testing {

class Networks {
 public:
  explicit Networks(int hosts) {
    if (::geteuid() != 0) {
      why_not_ = "only root may make network namespaces: run as root";
      return;
    }
    if (std::system("ip -V >/dev/null 2>&1") != 0) {
      why_not_ = "no 'ip' here: install iproute2";
      return;
    }
    home_ = own_namespace();
    switch_ = make_namespace();
    for (int host = 0; host < hosts; ++host) hosts_.push_back(make_namespace());
    if (!home_ || !switch_ || !why_not_.empty()) return;
    run_at_switch("ip link add br0 type bridge && ip link set br0 up");
    for (int host = 0; host < hosts; ++host) connect(host);
    for (int host = 0; host < hosts; ++host) wait_for_carrier(host);
  }
  Networks(const Networks&) = delete;
  Networks& operator=(const Networks&) = delete;

  // Empty: they are there.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  [[nodiscard]] static std::string ip(int host) { return "10.77.0." + std::to_string(host + 1); }
  [[nodiscard]] static std::string ip6(int host) { return "fd77::" + std::to_string(host + 1); }
  // The calling thread lives there from now on. False: the kernel refused.
  bool enter(int host) const {
    return ::setns(hosts_.at(static_cast<std::size_t>(host)).get(), CLONE_NEWNET) == 0;
  }
  // Runs a shell's line there. False: it failed.
  [[nodiscard]] bool run_at(int host, const std::string& line) const {
    if (!enter(host)) return false;
    const int status = std::system(line.c_str());
    if (!leave()) std::abort();  // the tests after this one would run somewhere else
    return status == 0;
  }
  bool leave() const { return ::setns(home_.get(), CLONE_NEWNET) == 0; }
  // Empty: `filter` works here. Else why not.
  [[nodiscard]] std::string why_no_filter() {
    if (!why_not_.empty()) return why_not_;
    if (std::system("nft -v >/dev/null 2>&1") != 0) return "no 'nft' here: install nftables";
    return filter(0, "accept") && unfilter(0)
               ? ""
               : "the kernel refuses nftables: it needs CONFIG_NF_TABLES_INET";
  }
  // What happens to packets that reach the host: a rule of nft(8), "ip saddr 10.77.0.1 drop". The
  // calling thread must be at none of the hosts.
  bool filter(int host, const std::string& rule) {
    run_in(hosts_.at(static_cast<std::size_t>(host)),
           "nft 'add table inet faults; add chain inet faults in { type filter hook input priority "
           "0; }; add rule inet faults in " +
               rule + "'");
    return why_not_.empty();
  }
  // All of that host's rules end.
  bool unfilter(int host) {
    run_in(hosts_.at(static_cast<std::size_t>(host)), "nft delete table inet faults");
    return why_not_.empty();
  }
  // Cuts the host's cable, at the bridge.
  void cut(int host) { run_at_switch("ip link set port" + std::to_string(host) + " down"); }

 private:
  static UniqueFd own_namespace() {
    return UniqueFd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  }
  UniqueFd make_namespace() {
    if (::unshare(CLONE_NEWNET) != 0) {
      why_not_ = "the kernel refuses network namespaces: a container needs CAP_SYS_ADMIN";
      return UniqueFd();
    }
    UniqueFd made = own_namespace();
    if (!leave() || !made) why_not_ = "cannot hold a network namespace";
    return made;
  }
  // Runs a shell's line in a namespace.
  void run_in(const UniqueFd& where, const std::string& line) {
    if (!why_not_.empty()) return;
    if (::setns(where.get(), CLONE_NEWNET) != 0) why_not_ = "cannot enter a network namespace";
    const int status = std::system(line.c_str());
    if (!leave()) std::abort();  // the tests after this one would run somewhere else
    if (status != 0 && why_not_.empty()) why_not_ = "this failed here: " + line;
  }
  void run_at_switch(const std::string& line) { run_in(switch_, line); }
  void connect(int host) {
    const std::string port = "port" + std::to_string(host);
    const UniqueFd& there = hosts_[static_cast<std::size_t>(host)];
    run_at_switch("ip link add " + port + " type veth peer name eth0 netns /proc/" +
                  std::to_string(::getpid()) + "/fd/" + std::to_string(there.get()) +
                  " && ip link set " + port + " master br0 && ip link set " + port + " up");
    run_in(there, "ip link set lo up && ip addr add " + ip(host) + "/24 dev eth0 && ip addr add " +
                      ip6(host) + "/64 dev eth0 nodad && ip link set eth0 up");
  }

  // The kernel tells of a carrier a while after it is there.
  void wait_for_carrier(int host) {
    if (!why_not_.empty()) return;
    if (!enter(host)) why_not_ = "cannot enter a network namespace";
    const auto ready = [] {
      const auto all = control::list_interfaces();
      return all && std::ranges::any_of(
                        *all, [](const auto& found) { return found.name == "eth0" && found.up; });
    };
    const Deadline deadline = Deadline::in_ms(20'000);
    while (!ready() && !deadline.passed()) ::sched_yield();
    if (!ready()) why_not_ = "a veth pair has no carrier here";
    if (!leave()) std::abort();
  }

  std::string why_not_;
  UniqueFd home_;
  UniqueFd switch_;
  std::vector<UniqueFd> hosts_;
};

}  // namespace tutti::testing
