// SPDX-License-Identifier: Apache-2.0
// A stop token that stops when the first of two does. Whoever makes it keeps it while the token is
// used; the sources may be told by any thread.
#pragma once

#include <stop_token>
#include <utility>

namespace tutti {

class EitherStops {
 public:
  EitherStops(std::stop_token first, std::stop_token second)
      : first_(std::move(first), Pass{source_}), second_(std::move(second), Pass{source_}) {}
  EitherStops(const EitherStops&) = delete;
  EitherStops& operator=(const EitherStops&) = delete;
  [[nodiscard]] std::stop_token token() const { return source_.get_token(); }

 private:
  struct Pass {
    std::stop_source to;
    void operator()() { to.request_stop(); }
  };
  std::stop_source source_;
  std::stop_callback<Pass> first_, second_;
};

}  // namespace tutti
