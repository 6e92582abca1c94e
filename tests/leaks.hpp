// SPDX-License-Identifier: Apache-2.0
// The leak sanitizer, asked by a forked child before it ends: it looks for leaks at exit(), and a
// child ends by _exit(), for what runs at exit is its parent's. The presets set
// intercept_tls_get_addr=0: GCC 12's sanitizer takes what lies before a thread-local block that
// starts 16 bytes into a page for a header of glibc 2.19 (DTLS_on_tls_get_addr), scans the memory
// that this names, and crashes ("Tracer caught signal 11"). glibc allocates such blocks itself, so
// they are found without it.
#pragma once

#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace tutti {

// Does this process hold memory that nothing points to? The report goes to standard error. Always
// false without the address sanitizer.
inline bool leaks_memory() {
#if defined(__SANITIZE_ADDRESS__)
  rlimit descriptors{};  // a test may have taken them away; the sanitizer reads /proc
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = descriptors.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  return __lsan_do_recoverable_leak_check() != 0;
#else
  return false;
#endif
}

}  // namespace tutti
