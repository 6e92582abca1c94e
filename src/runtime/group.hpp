// Group calls: what a thread issues between GroupStart and GroupEnd is carried out together at the
// outermost GroupEnd. Thread-local; knows only communicators and calls.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "runtime/communicator.hpp"

namespace tutti {

class Group {
 public:
  // The calling thread's group.
  [[nodiscard]] static Group& current();

  [[nodiscard]] bool active() const { return depth_ > 0; }
  void start() { ++depth_; }
  void add(Communicator& communicator, const AllReduceCall& call) {
    calls_.emplace_back(&communicator, call);
  }
  // A blocking initialization; those of one group run at the same time, a thread each. `discard`
  // undoes what was prepared for one that fails or never runs.
  void add_init(std::function<Status()> run, std::function<void()> discard) {
    inits_.push_back({std::move(run), std::move(discard)});
  }
  // Remembers an error of a call in the group: the outermost end returns it and runs nothing.
  void fail(const Error& error) {
    if (!error_) error_ = error;
  }
  // Ends the innermost group; the outermost one runs everything. Errors: kInvalidUsage without a
  // start, the first error of any call otherwise.
  [[nodiscard]] Status end();
  // Ends the innermost group and runs nothing; the outermost one forgets its calls.
  [[nodiscard]] Status drop();

 private:
  struct Init {
    std::function<Status()> run;
    std::function<void()> discard;
  };
  [[nodiscard]] Status leave();
  void forget();
  [[nodiscard]] Status run_inits();

  int depth_ = 0;
  std::vector<std::pair<Communicator*, AllReduceCall>> calls_;
  std::vector<Init> inits_;
  std::optional<Error> error_;
};

}  // namespace tutti
