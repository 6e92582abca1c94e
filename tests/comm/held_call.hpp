// SPDX-License-Identifier: Apache-2.0
// A fault at a counted point of a call: every call of the library asks the system for something,
// the time, to yield, to sleep, to write, to close or to unmap. A test chooses the n-th time of the
// thread that made the call, and the fault hits there whatever the machine does. A program that is
// to count links held_call.cpp, whose functions are found before libc's, by the library too.
#pragma once

#include <functional>

namespace tutti::test {

// From now on the n-th time, from 1, that this thread asks the system for one of these, `meet` runs
// before it does. Once.
void hold_at_call(unsigned n, std::function<void()> meet);
// Never again.
void release_calls();

}  // namespace tutti::test
