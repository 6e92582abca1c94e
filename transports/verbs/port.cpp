// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/port.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace tutti::verbs {
namespace {

struct Candidate {
  VerbsPort about;
  Gid gid{};
  ibv_port_attr attributes{};
};

std::string gid_type_text(std::string_view device, std::uint32_t port, std::uint32_t index) {
  std::ifstream file(
      fmt::format("/sys/class/infiniband/{}/ports/{}/gid_attrs/types/{}", device, port, index));
  std::string line;
  std::getline(file, line);
  return line;
}

// Those of the port that hold an address.
std::vector<GidEntry> gid_table(const Ibverbs& calls, ibv_context* context, std::string_view device,
                                std::uint32_t port, int length) {
  std::vector<GidEntry> entries;
  for (int index = 0; index < length; ++index) {
    ibv_gid raw{};
    if (calls.query_gid(context, static_cast<std::uint8_t>(port), index, &raw) != 0) continue;
    GidEntry entry{.index = static_cast<std::uint32_t>(index)};
    std::memcpy(entry.gid.data(), raw.raw, entry.gid.size());
    if (entry.gid == Gid{}) continue;
    entry.type = gid_type_of(gid_type_text(device, port, entry.index));
    entries.push_back(entry);
  }
  return entries;
}

// The GID that it uses: the one that is forced, else the first of InfiniBand, else by worth.
void pick_gid(const Ibverbs& calls, ibv_context* context, std::uint32_t forced, Candidate& it) {
  const std::vector<GidEntry> table =
      gid_table(calls, context, it.about.device, it.about.port, it.attributes.gid_tbl_len);
  std::optional<GidEntry> chosen;
  if (forced == kChosenGid && it.about.ethernet) {
    chosen = choose_gid(table);
  } else {
    const std::uint32_t wanted = forced == kChosenGid ? 0 : forced;
    const auto found = std::ranges::find(table, wanted, &GidEntry::index);
    if (found != table.end()) chosen = *found;
  }
  if (!chosen) return;
  it.gid = chosen->gid;
  it.about.gid = text_of(chosen->gid);
  it.about.gid_index = static_cast<std::int32_t>(chosen->index);
  it.about.gid_type = gid_type_text(it.about.device, it.about.port, chosen->index);
}

std::vector<Candidate> ports_of(const Ibverbs& calls, ibv_context* context, std::string_view device,
                                const HcaFilter& filter, std::uint32_t gid_index) {
  std::vector<Candidate> found;
  ibv_device_attr limits{};
  if (calls.query_device(context, &limits) != 0) return found;
  for (std::uint32_t port = 1; port <= limits.phys_port_cnt; ++port) {
    if (!filter.admits(device, port)) continue;
    Candidate it{.about = {.device = std::string(device), .port = port}};
    if (calls.query_port(context, static_cast<std::uint8_t>(port), &it.attributes) != 0) continue;
    it.about.active = it.attributes.state == IBV_PORT_ACTIVE;
    it.about.ethernet = it.attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    it.about.lid = it.attributes.lid;
    pick_gid(calls, context, gid_index, it);
    found.push_back(std::move(it));
  }
  return found;
}

// Calls `look(device's name, context)` for each device that opens, until it returns true.
template <typename Look>
Status for_each_device(const Ibverbs& calls, Look&& look) {
  int length = 0;
  errno = 0;
  ibv_device** const list = calls.get_device_list(&length);
  // Without the kernel's part of it there is nothing to list.
  if (list == nullptr && errno != ENOSYS && errno != 0)
    return errno_error("verbs: the RDMA devices cannot be listed", errno);
  bool enough = false;
  for (int i = 0; list != nullptr && i < length && !enough; ++i) {
    Handle<ibv_context> context(calls.open_device(list[i]), calls.close_device);
    if (context) enough = look(calls.get_device_name(list[i]), std::move(context));
  }
  if (list != nullptr) calls.free_device_list(list);
  return {};
}

}  // namespace

Result<std::unique_ptr<Port>> Port::open(const VerbsOptions& options) {
  const Result<Ibverbs>& calls = ibverbs();
  if (!calls) return tl::unexpected(calls.error());
  TUTTI_TRY_ASSIGN(const HcaFilter filter, parse_hca_filter(options.hca));
  std::unique_ptr<Port> port;
  std::vector<std::string> seen;
  TUTTI_TRY(for_each_device(*calls, [&](const char* device, Handle<ibv_context> context) {
    const auto ports = ports_of(*calls, context.get(), device, filter, options.gid_index);
    if (ports.empty()) seen.push_back(fmt::format("{} is not selected by TUTTI_IB_HCA", device));
    for (const Candidate& it : ports) {
      if (!it.about.usable()) {
        seen.push_back(tutti::text_of(it.about));
        continue;
      }
      port.reset(new Port(*calls, std::move(context)));
      port->about_ = it.about;
      port->gid_ = it.gid;
      port->attributes_ = it.attributes;
      return true;
    }
    return false;
  }));
  if (!port)
    return make_error(
        Code::kSystemError,
        fmt::format("verbs: there is no active RDMA port{}; found: {}; see `ibv_devinfo`, or set "
                    "TUTTI_TRANSPORT=tcp",
                    options.hca.empty() ? "" : " among TUTTI_IB_HCA=" + options.hca,
                    seen.empty() ? "no device" : fmt::format("{}", fmt::join(seen, "; "))));
  if (calls->query_device(port->context(), &port->limits_) != 0)
    return errno_error("verbs: ibv_query_device", errno);
  port->domain_.reset(calls->alloc_pd(port->context()));
  if (!port->domain_) return errno_error("verbs: ibv_alloc_pd", errno);
  port->channel_.reset(calls->create_comp_channel(port->context()));
  if (!port->channel_) return errno_error("verbs: ibv_create_comp_channel", errno);
  for (const int fd : {port->context()->cmd_fd, port->context()->async_fd, port->channel()->fd})
    port->descriptors_.emplace_back(fd);
  for (const int fd : {port->context()->async_fd, port->channel()->fd}) {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
      return errno_error("verbs: fcntl", errno);
  }
  return port;
}

Card Port::card() const {
  Card card;
  card.lid = attributes_.lid;
  card.mtu = static_cast<std::uint8_t>(attributes_.active_mtu);
  card.link_layer = about_.ethernet ? LinkLayer::kEthernet : LinkLayer::kInfiniBand;
  card.grh_required = (attributes_.flags & IBV_QPF_GRH_REQUIRED) != 0 ? 1 : 0;
  card.gid = gid_;
  return card;
}

Result<Memory> Port::register_memory(std::span<std::byte> bytes, int access) const {
  Memory memory(calls_->reg_mr(domain_.get(), bytes.data(), bytes.size(), access),
                calls_->dereg_mr);
  if (memory) return memory;
  const int error_number = errno;
  if (error_number == EFAULT)
    return make_error(Code::kSystemError, fmt::format("verbs: {} bytes at {} are not all mapped",
                                                      bytes.size(), fmt::ptr(bytes.data())));
  return errno_error(fmt::format("verbs: {} refuses to register {} bytes; raise the limit of "
                                 "locked memory ('ulimit -l unlimited')",
                                 about_.device, bytes.size()),
                     error_number);
}

// Those of another library that has opened the same device are hidden with them: a child could use
// them as little.
void Port::hide_from_children() const {
  struct stat device {};
  if (::fstat(context()->cmd_fd, &device) != 0) return;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    unsigned long inode = 0;
    unsigned major = 0, minor = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %*x %x:%x %lu", &begin, &end, &major, &minor,
                    &inode) == 5 &&
        inode == device.st_ino && ::makedev(major, minor) == device.st_dev)
      static_cast<void>(::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTFORK));
  }
}

Port::Events Port::events() {
  Events told;
  for (ibv_async_event event; calls_->get_async_event(context_.get(), &event) == 0;
       calls_->ack_async_event(&event)) {
    switch (event.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
        told.failed_queue_pairs.push_back(event.element.qp->qp_num);
        break;
      case IBV_EVENT_DEVICE_FATAL:
      case IBV_EVENT_CQ_ERR:
        told.device_failure = calls_->event_type_str(event.event_type);
        break;
      case IBV_EVENT_PORT_ERR:
      case IBV_EVENT_PORT_ACTIVE: {
        if (event.element.port_num != static_cast<int>(about_.port)) break;
        const bool down = event.event_type == IBV_EVENT_PORT_ERR;
        told.changed = told.changed || down != down_;
        down_ = down;
        break;
      }
      default:
        break;
    }
  }
  return told;
}

void Port::sleep(std::int64_t ns) const {
  pollfd ends[] = {{.fd = channel()->fd, .events = POLLIN, .revents = 0},
                   {.fd = context()->async_fd, .events = POLLIN, .revents = 0}};
  const timespec most{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  static_cast<void>(::ppoll(ends, std::size(ends), &most, nullptr));
  // A queue is not destroyed before all that was told of it has been acknowledged.
  ibv_cq* queue = nullptr;
  void* unused = nullptr;
  while (calls_->get_cq_event(channel(), &queue, &unused) == 0) calls_->ack_cq_events(queue, 1);
}

}  // namespace tutti::verbs

namespace tutti {

std::string text_of(const VerbsPort& port) {
  const std::string name = fmt::format("{}:{}", port.device, port.port);
  if (!port.active) return name + " is down";
  if (!port.ethernet) return fmt::format("{}, InfiniBand, LID {}", name, port.lid);
  if (port.gid_index < 0) return name + ", Ethernet, has no such GID";
  return fmt::format("{}, Ethernet, {}, GID {} ({})", name,
                     port.gid_type.empty() ? "RoCE" : port.gid_type, port.gid_index, port.gid);
}

Result<std::vector<VerbsPort>> verbs_ports(const VerbsOptions& options) {
  const Result<verbs::Ibverbs>& calls = verbs::ibverbs();
  if (!calls) return tl::unexpected(calls.error());
  TUTTI_TRY_ASSIGN(const verbs::HcaFilter filter, verbs::parse_hca_filter(options.hca));
  std::vector<VerbsPort> ports;
  TUTTI_TRY(
      verbs::for_each_device(*calls, [&](const char* device, verbs::Handle<ibv_context> context) {
        for (verbs::Candidate& it :
             verbs::ports_of(*calls, context.get(), device, filter, options.gid_index))
          ports.push_back(std::move(it.about));
        return false;
      }));
  return ports;
}

}  // namespace tutti
