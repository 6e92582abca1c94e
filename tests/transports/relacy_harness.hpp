// SPDX-License-Identifier: Apache-2.0
// relacy, as the tests of this folder use it: many interleavings of two threads under the C++
// memory model, stale reads included.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <streambuf>
#include <string>

#include "transports/connection_ops.hpp"
#include "transports/packets.hpp"

// Last: it takes over common words as macros, which are given back below.
#include <relacy/relacy.hpp>
#undef assert
#undef calloc
#undef delete
#undef errno
#undef free
#undef malloc
#undef memory_order_acq_rel
#undef memory_order_acquire
#undef memory_order_consume
#undef memory_order_relaxed
#undef memory_order_release
#undef memory_order_seq_cst
#undef new
#undef realloc

namespace tutti::interleaving {

[[nodiscard]] inline rl::memory_order translate(std::memory_order order) {
  switch (order) {
    case std::memory_order_relaxed:
      return rl::mo_relaxed;
    case std::memory_order_acquire:
      return rl::mo_acquire;
    case std::memory_order_release:
      return rl::mo_release;
    default:
      return rl::mo_seq_cst;
  }
}

// A plain word: two unordered accesses are a data race.
class PlainWord {
 public:
  PlainWord& operator=(std::uint64_t value) {
    word_(RL_INFO) = value;
    return *this;
  }
  operator std::uint64_t() const { return word_(RL_INFO); }

 private:
  mutable rl::var<std::uint64_t> word_;
};

// relacy replaces operator new while it runs, so what it prints goes into a buffer that never
// grows; the rest of a long report is dropped.
class FixedBuffer : public std::streambuf {
 public:
  FixedBuffer() { setp(text_.data(), text_.data() + text_.size()); }
  [[nodiscard]] std::string text() const { return {pbase(), pptr()}; }

 private:
  std::array<char, 1 << 16> text_;
};

struct Outcome {
  bool passed = false;
  std::uint64_t interleavings = 0;
  std::string report;
};

template <class Suite>
Outcome simulate(rl::scheduler_type_e search, std::uint64_t interleavings) {
  FixedBuffer report_text, progress_text;
  std::ostream report(&report_text), progress(&progress_text);
  rl::test_params params;
  params.search_type = search;
  params.iteration_count = interleavings;
  params.context_bound = 2;
  params.execution_depth_limit = 4000;
  params.output_stream = &report;
  params.progress_stream = &progress;
  params.progress_output_period = 3600;
  Outcome outcome;
  outcome.passed = rl::simulate<Suite>(params);
  outcome.interleavings = params.stop_iteration;
  outcome.report = rl::test_result_str(params.test_result);
  outcome.report.append("\n").append(report_text.text());
  return outcome;
}

}  // namespace tutti::interleaving
