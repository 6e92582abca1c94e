// SPDX-License-Identifier: Apache-2.0
// What forked processes share without the library: a word, and where they wait for each other.
#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <new>

#include "base/clock.hpp"

namespace tutti::test {

// A word that all processes of a test share; made before the fork.
class SharedWord {
 public:
  SharedWord()
      : word_(new (::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0)) {}
  SharedWord(const SharedWord&) = delete;
  SharedWord& operator=(const SharedWord&) = delete;
  ~SharedWord() { ::munmap(word_, sizeof(std::atomic<int>)); }
  std::atomic<int>& operator*() const { return *word_; }

 private:
  std::atomic<int>* word_;
};

// Once for each: made before the fork.
class Meeting {
 public:
  // False if they have not all come in time.
  [[nodiscard]] bool wait_for(int processes) const {
    const Deadline deadline = Deadline::in_ms(60'000);
    ++*arrived_;
    while (*arrived_ < processes && !deadline.passed()) ::sched_yield();
    return *arrived_ >= processes;
  }

 private:
  SharedWord arrived_;
};

}  // namespace tutti::test
