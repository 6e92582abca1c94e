// SPDX-License-Identifier: Apache-2.0
// Sends and receives between ranks of one process, as copies by the devices' copy engines.
//
// Each end posts its part: a send marks its stream, a receive names a place. The k-th send of a
// rank to another meets that one's k-th receive. Once both are there the receiver's stream waits
// for the sender's mark and copies, and the sender's stream goes on behind the copy. So nothing is
// staged, no kernel runs, and each thread touches the streams of its own ranks alone. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/signature.hpp"
#include "device/platform.hpp"

namespace tutti::device {

// One end of a copy.
struct CopyEnd {
  Rank rank = 0;
  OperationSignature signature;  // kSend or kRecv; its root is the other end
  std::byte* buffer = nullptr;   // a send's is only read
  int device = 0;                // the rank's
  Stream stream = nullptr;       // of that device
  std::uint64_t capture = 0;     // that the stream is in (Platform::capture_of)

  [[nodiscard]] bool sends() const { return signature.collective == Collective::kSend; }
  [[nodiscard]] Rank peer() const { return signature.root; }
};

class Copies {
 public:
  explicit Copies(Platform& platform) : platform_(platform) {}
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  ~Copies();

  struct Meeting;  // of a send and a receive
  struct Posted {
    CopyEnd end;
    std::shared_ptr<Meeting> meeting;
  };
  // Makes an end known to its peer. Never waits for it. Errors: those of Platform's events.
  [[nodiscard]] Result<Posted> post(const CopyEnd& end);

  // Called ten times a second while an end waits for its peer: an error ends the wait.
  using Look = std::function<Status(const CopyEnd& end, std::int64_t waited_ns)>;
  // Return when the receives, or the sends, among ends that this thread posted are on its
  // streams. receive() waits for posts alone, send() for the receivers' receive(): so threads that
  // post everything, then receive on all their communicators, then send on all, never wait for each
  // other in a circle. Errors: those of `look`; kInvalidUsage where both ends differ and
  // kNotSupported where they are in different captures, at both ends; kRemoteError after abort().
  // After an error all these ends have failed, and say so to their peers.
  [[nodiscard]] Status receive(std::span<const Posted> posted, const Look& look);
  [[nodiscard]] Status send(std::span<const Posted> posted, const Look& look);
  // The other end's call, if it has come and differs.
  [[nodiscard]] std::optional<OperationSignature> differs(const Posted& posted);
  // Ends that come to nothing: their peers get the error.
  void give_up(std::span<const Posted> posted, const Error& error);
  // Ends every wait.
  void abort();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Finish = Status (Copies::*)(const Posted&, const Look&);
  [[nodiscard]] Status finish_all(std::span<const Posted> posted, bool sends, Finish finish,
                                  const Look& look);
  [[nodiscard]] Status receive_one(const Posted& posted, const Look& look);
  [[nodiscard]] Status send_one(const Posted& posted, const Look& look);
  // With the lock, except while it looks.
  [[nodiscard]] Status await(const Posted& posted, const std::function<bool()>& there,
                             const Look& look, Lock& lock);
  [[nodiscard]] Status copy(Meeting& meeting);
  [[nodiscard]] Result<Event> take_event(int device);
  void put_back(int device, Event event);

  Platform& platform_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;  // guarded by mutex_
  // By sender and receiver, in order, those to which one end has come. Guarded by mutex_.
  std::map<std::pair<Rank, Rank>, std::deque<std::shared_ptr<Meeting>>> waiting_;
  std::vector<Event> events_;               // all; guarded by mutex_
  std::map<int, std::vector<Event>> free_;  // of these, by device; guarded by mutex_
};

}  // namespace tutti::device
