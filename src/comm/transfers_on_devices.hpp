// SPDX-License-Identifier: Apache-2.0
// Sends and receives of device memory: those of a group, of all its communicators, are posted
// together, and then go on the streams as their counterparts come (device/copies.hpp).
//
// Like those of host memory they have no number, no plan and no row on the board. The thread that
// holds the communicators' calls.
#pragma once

#include <map>
#include <vector>

#include "comm/run_operations.hpp"
#include "comm/transfers.hpp"
#include "device/job.hpp"

namespace tutti {

class TransfersOnDevices {
 public:
  TransfersOnDevices() = default;
  TransfersOnDevices(const TransfersOnDevices&) = delete;
  TransfersOnDevices& operator=(const TransfersOnDevices&) = delete;
  ~TransfersOnDevices();

  // Before begin(), in the order of issue.
  void add(const HeldCall& held);
  // Posts all of them; waits for nobody. end() tells what went wrong.
  void begin();
  // Returns when all are on their streams. Errors: the first. Its communicator is poisoned, unless
  // the call was refused before anybody was told of it: kInvalidUsage after a finalize or for a
  // send to itself without a receive, kNotSupported for a peer in another process. The others' go
  // on.
  [[nodiscard]] Status end();

 private:
  struct Held {
    Communicator* communicator;
    Transfer transfer;
    void* stream;
  };
  // Those of this thread's ranks in one job.
  struct Share {
    std::map<Rank, Communicator*> ranks;
    std::vector<Held> transfers;
    std::vector<device::Copies::Posted> posted;
    Status status;
    std::optional<Poison> cause;  // of the status, if a look has found it
    bool warned = false;          // of a wait
    bool over = false;            // nothing of it waits, and its error is told
  };
  [[nodiscard]] static Status check(device::Job& job, const Share& share);
  [[nodiscard]] static Status post(device::Job& job, Share& share);
  [[nodiscard]] static Status look(Share& share, const device::CopyEnd& end,
                                   std::int64_t waited_ns);
  [[nodiscard]] static Status note(device::Job& job, Share& share);
  static void tell(device::Job& job, Share& share);

  std::map<device::Job*, Share> shares_;
};

}  // namespace tutti
