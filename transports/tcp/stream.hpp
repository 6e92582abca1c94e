// SPDX-License-Identifier: Apache-2.0
// One TCP connection: frames out of and into memory that others own.
//
// Payload goes from the mirror's slot or the user's memory to the kernel, and from the kernel to
// the inbox's slot or to memory that the receiver has offered, without a copy between; what is
// small travels through a buffer, many frames in one system call. Never blocks. A connection that
// fails is down for good and says why; what it still held is lost. One thread at a time.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/process_fd.hpp"
#include "transports/tcp/frame.hpp"

namespace tutti::tcp {

// What a stream brings. The frames have not been checked; false or null: they are no honest peer's.
class Sink {
 public:
  virtual ~Sink() = default;
  // The bytes that stand before the first frame, all of them. Empty, or why the stream ends.
  [[nodiscard]] virtual std::string opening(std::span<const std::byte> bytes) = 0;
  // Takes the slot header of a kSlot frame and says where the bytes behind it go; landed() follows
  // once they are all there. nullopt, only if `may_wait`: the frame is to be shown again after the
  // call has had a turn.
  [[nodiscard]] virtual std::optional<std::byte*> landing(const Frame& frame,
                                                          const std::byte* slot_header,
                                                          bool may_wait) = 0;
  [[nodiscard]] virtual bool landed(const Frame& frame) = 0;
  // Takes a frame of another kind, with the bytes that follow.
  [[nodiscard]] virtual bool take(const Frame& frame, const std::byte* bytes) = 0;
};

class Stream {
 public:
  // `opening_bytes`: how many stand before the other end's first frame; at most kMostOpeningBytes.
  static constexpr std::size_t kMostOpeningBytes = 64;
  Stream(ProcessFd socket, std::size_t opening_bytes)
      : socket_(std::move(socket)), opening_bytes_(opening_bytes) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  // Once, before the first frame.
  void open_with(std::span<const std::byte> bytes) { opening_.assign(bytes.begin(), bytes.end()); }
  // The frame's bytes are those of `head`, then those of `lent`; they stay as they are until the
  // frame has left: pending() and left() say so.
  void queue(const Frame& frame, std::span<std::byte> head = {}, const std::byte* lent = nullptr);
  // Messages of connection `index` that have left, by the frames' numbers.
  [[nodiscard]] std::uint64_t left(std::size_t index) const { return left_[index]; }
  // Copies what was lent and has not left to where it follows its head.
  void take_back();
  // Hands to the kernel what it takes.
  void flush();
  // Forgets what is queued, and what will be: the peer takes nothing more.
  void stop_sending();
  // Is what is queued from now on lost?
  [[nodiscard]] bool sends_no_more() const { return sending_over_; }
  [[nodiscard]] bool pending() const { return !opening_.empty() || head_ < queue_.size(); }
  // Bytes that were queued and the peer's kernel has not acknowledged; 0 of one that is down.
  [[nodiscard]] std::uint64_t unacknowledged_bytes() const;
  // What has come, up to a bound. True: something has come.
  bool receive(Sink& sink);
  // Does a frame that has come wait for a turn of the call? Then receive() goes on with it, whether
  // or not the socket has more.
  [[nodiscard]] bool waits() const { return waits_ && !down(); }
  // The kSlot frame of which more bytes are to come; null: there is none.
  [[nodiscard]] const Frame* landing() const {
    return landing_left_bytes_ > 0 ? &landing_frame_ : nullptr;
  }
  // Moves the bytes of that frame that have come, but for the slot header, to `begin`; the rest
  // follows them.
  void land_at(std::byte* begin);

  [[nodiscard]] bool down() const { return !cause_.empty(); }
  [[nodiscard]] const std::string& cause() const { return cause_; }
  // Has the other end said that it leaves? Then the end of the connection is none of its failures.
  [[nodiscard]] bool said_bye() const { return said_bye_; }
  // Was it the network's silence that ended it, rather than the other end?
  [[nodiscard]] bool silenced() const { return silenced_; }
  void fail(std::string cause);
  // Fails where the other end's host has not answered for too long. The kernel, which looks for
  // silence only where nothing waits for an acknowledgement, would take a quarter of an hour.
  void give_up_if_silent();

 private:
  struct Entry {
    Frame frame;
    std::span<std::byte> head;
    const std::byte* lent;  // null: all bytes are in the head
  };
  static constexpr std::size_t kBufferBytes = 16 * 1024;
  static_assert(kBufferBytes >= sizeof(Frame) + kMostCellBytes);

  void add_pieces(Entry& entry, std::size_t skip);
  void sent(std::size_t bytes);
  // Bytes read: 0 where none came.
  [[nodiscard]] std::size_t read();
  void parse(Sink& sink);
  [[nodiscard]] bool parse_one(Sink& sink, std::size_t& at);
  [[nodiscard]] bool parse_slot(Sink& sink, const Frame& frame, std::size_t& at);
  void fail_dishonest();
  void fail_by(int error_number);

  ProcessFd socket_;
  std::string cause_;  // empty: up
  bool silenced_ = false;
  bool said_bye_ = false;
  bool sending_over_ = false;  // the peer takes nothing more; what it has sent is read all the same
  bool reset_ = false;         // the kernel has said so to who sent
  std::vector<std::byte> opening_;
  std::vector<Entry> queue_;  // from head_ on; what lies before has left
  std::size_t head_ = 0, head_sent_bytes_ = 0;
  std::vector<iovec> pieces_;
  std::array<std::uint64_t, kMaxConnectionsPerPair> left_{};

  std::size_t opening_bytes_;  // yet to come
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t have_bytes_ = 0;
  Frame landing_frame_;  // of which landing_left_bytes_ go to landing_
  std::byte* landing_ = nullptr;
  std::size_t landing_left_bytes_ = 0;
  bool waits_ = false;
};

}  // namespace tutti::tcp
