// SPDX-License-Identifier: Apache-2.0
// What a machine can refuse a program, brought about in this process: memory, memfd_create.
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <utility>

namespace tutti::test {

// All the memory that this process can have, but for crumbs: as of a program that has used it up.
class Exhausted {
 public:
  Exhausted() {
    EXPECT_EQ(::getrlimit(RLIMIT_DATA, &before_), 0);
    rlimit none = before_;
    none.rlim_cur = 4096;  // 0 would be no limit to the kernel
    EXPECT_EQ(::setrlimit(RLIMIT_DATA, &none), 0);
    for (std::size_t bytes = kLargest; bytes >= kSmallest; bytes /= 2)
      while (auto* const piece = static_cast<Piece*>(std::malloc(bytes))) {
        piece->next = std::exchange(pieces_, piece);
      }
  }
  Exhausted(const Exhausted&) = delete;
  Exhausted& operator=(const Exhausted&) = delete;
  ~Exhausted() {
    EXPECT_EQ(::setrlimit(RLIMIT_DATA, &before_), 0);
    while (pieces_ != nullptr) std::free(std::exchange(pieces_, pieces_->next));
  }

 private:
  struct Piece {
    Piece* next;
  };
  static constexpr std::size_t kLargest = 1 << 20, kSmallest = 1 << 10;
  rlimit before_{};
  Piece* pieces_ = nullptr;
};

// Refuses memfd_create in this process and its children, as some containers do.
inline bool refuse_memfd() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(code), .filter = code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace tutti::test
