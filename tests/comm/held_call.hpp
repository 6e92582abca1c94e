// SPDX-License-Identifier: Apache-2.0
// A fault at a counted point of a call: every call of the library asks the system for something,
// the time, to yield, to sleep, to write, to close or to unmap. A test chooses the n-th time of the
// thread that makes the call, or, for a call on a stream, of the thread that carries it out, and
// the fault hits there whatever the machine does. A program that is to count links held_call.cpp,
// whose functions are found before libc's, by the library too.
#pragma once

#include <functional>

namespace tutti::test {

// From now on the n-th time, from 1, that this thread asks the system for one of these, `meet` runs
// before it does. Once.
void hold_at_call(unsigned n, std::function<void()> meet);
// The same of the threads of this process that have this name, a literal, counted together.
void hold_at_call_of(const char* thread, unsigned n, std::function<void()> meet);
// Never again, in this thread and in those that were named.
void release_calls();

}  // namespace tutti::test
