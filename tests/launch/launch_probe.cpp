// SPDX-License-Identifier: Apache-2.0
// What a launcher starts in the tests: finds its place, meets the others, sums the ranks, and says
// so in one line. Exit status: 0, or 1 with the library's message on stderr.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

// libpmix leaks a few bytes of its own at every start; read by the address sanitizer alone.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libpmix.so";
}

int main() try {
  const tutti::Launcher launcher = tutti::Launcher::find();
  tutti::Communicator comm = tutti::Communicator::from_launcher();
  std::vector<double> values(3, launcher.rank());
  comm.all_reduce(values, tuttiSum);
  const std::string line = std::string("launcher ") + launcher.value.name + " store " +
                           launcher.value.store + " rank " + std::to_string(launcher.rank()) +
                           " of " + std::to_string(launcher.nranks()) + " local " +
                           std::to_string(launcher.value.localRank) + " of " +
                           std::to_string(launcher.value.localRanks) + " sum " +
                           std::to_string(static_cast<int>(values[2])) + "\n";
  comm.finalize();
  // One write, so that lines of ranks never mix.
  return ::write(STDOUT_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size()) ? 0
                                                                                               : 1;
} catch (const tutti::Exception& error) {
  static_cast<void>(std::fprintf(stderr, "probe: %s\n", error.what()));
  return 1;
}
