// SPDX-License-Identifier: Apache-2.0
// Replaces the C library's pthread_create in tests that are marked ONE_THREAD: the thread sanitizer
// does not run them, so they may start no thread.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the library's are reserved
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t*,
                                                                     const pthread_attr_t*,
                                                                     void* (*)(void*), void*) {
  std::fputs("a test marked ONE_THREAD starts a thread: remove the mark in its CMakeLists.txt\n",
             stderr);
  std::abort();
}

namespace {

// Shared libraries, which start the threads, call it only if it is exported.
const bool checked = [] {
  if (::dlsym(RTLD_DEFAULT, "pthread_create") == reinterpret_cast<void*>(&pthread_create))
    return true;
  std::fputs("one_thread.cpp: pthread_create is not replaced in this program\n", stderr);
  std::abort();
}();

}  // namespace
