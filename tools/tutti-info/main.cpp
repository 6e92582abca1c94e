// tutti-info: what was built in, what this machine offers, the algorithms, and the one table of
// configuration variables. Exit status: 0, 1 if a variable has a value that the library refuses or
// the output cannot be written, 2 for bad usage.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/output.hpp"
#include "facts.hpp"

extern char** environ;

namespace {

bool written() {
  const tutti::Status status = tutti::finish_output();
  if (!status)
    static_cast<void>(std::fputs(("tutti-info: " + status.error().message + "\n").c_str(), stderr));
  return status.has_value();
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kBadUsage = 2;
  CLI::App app("Shows this build, this machine, the algorithms and the configuration.",
               "tutti-info");
  bool json = false;
  app.add_flag("--json", json, "as JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return kBadUsage;
    return written() ? 0 : 1;
  }
  const tutti::info::Facts facts = tutti::info::gather(environ);
  const std::string text = json ? tutti::info::to_json(facts) : tutti::info::to_text(facts);
  static_cast<void>(std::fputs(text.c_str(), stdout));
  return facts.config_ok && written() ? 0 : 1;
}
