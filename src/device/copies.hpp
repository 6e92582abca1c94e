// SPDX-License-Identifier: Apache-2.0
// Sends and receives between ranks of one process, as copies that CUDA enqueues on a stream.
//
// Each end posts its part and marks its stream there. The k-th send of a rank to another meets that
// one's k-th receive. The end that comes second enqueues the copy at once, on its own stream,
// behind the mark of the first; the first one's stream goes on behind the copy. So a thread waits
// for posts alone, and uses no streams but those of its own ranks. Nothing is staged. Any thread.
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
  Rank peer = 0;
  bool sends = false;
  OperationSignature signature;  // of the call; both ends have equal counts, types and plans
  std::byte* buffer = nullptr;   // a send's is only read
  int device = 0;                // the rank's
  Stream stream = nullptr;       // of that device
  std::uint64_t capture = 0;     // that the stream is in (Platform::capture_of)
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
    bool second = false;  // of both ends: the copy is on its stream
  };
  // Makes an end known to its peer, or enqueues the copy if that has come; adds it to `posted`.
  // Waits for nobody. Errors: those of Platform; where the peer has come kInvalidUsage if the calls
  // differ, and kNotSupported if both ends are not in one capture or in none. The peer gets the
  // same error.
  [[nodiscard]] Status post(const CopyEnd& end, std::vector<Posted>& posted);

  // Called ten times a second while an end waits for its peer: an error ends the wait.
  using Look = std::function<Status(const CopyEnd& end, std::int64_t waited_ns)>;
  // Returns when the streams of these ends, which this thread posted, go on behind the copies.
  // Errors: those of `look`, the peer's, kRemoteError after abort(). Give all of them up then.
  [[nodiscard]] Status await(std::span<const Posted> posted, const Look& look);
  // Ends that come to nothing more: their peers get the error, if they come at all. Streams go on
  // behind copies that were enqueued all the same, since the buffers are the program's again.
  void give_up(std::span<const Posted> posted, const Error& error);
  // The other end's call, if it has come and differs.
  [[nodiscard]] std::optional<OperationSignature> differs(const Posted& posted);
  // Ends every wait.
  void abort();

 private:
  using Lock = std::unique_lock<std::mutex>;
  [[nodiscard]] Status await_one(const Posted& posted, const Look& look);
  [[nodiscard]] Status copy(Meeting& meeting, bool sends);
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
