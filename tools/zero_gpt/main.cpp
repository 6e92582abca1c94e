// SPDX-License-Identifier: Apache-2.0
// zero_gpt: trains a small GPT-2 on Tutti's sharded optimizer. The main program reads the arguments
// and the text, starts the processes, and lets each be a rank.
#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/launch.hpp"
#include "tutti/tutti.hpp"
#include "tutti/zero.hpp"
#include "zero_gpt/corpus.hpp"
#include "zero_gpt/options.hpp"
#include "zero_gpt/products.hpp"
#include "zero_gpt/text.hpp"
#include "zero_gpt/train.hpp"

namespace tutti::gpt {
namespace {

constexpr int kBadUsage = 2;

// Throws std::invalid_argument.
TextSource read_text(const std::string& path) {
  if (path.empty()) {
    Corpus corpus = generate_corpus();
    return {"generated corpus", corpus.entropy_per_byte, std::move(corpus.text)};
  }
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path))
    throw std::invalid_argument(fmt::format("--text: {} is no regular file", path));
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  std::string bytes;
  bool read = file != nullptr;
  std::array<char, 1 << 16> some;
  for (std::size_t count = 1; read && count > 0; read = std::ferror(file) == 0) {
    count = std::fread(some.data(), 1, some.size(), file);
    bytes.append(some.data(), count);
  }
  const int error = errno;
  if (file != nullptr) static_cast<void>(std::fclose(file));
  if (!read)
    throw std::invalid_argument(
        fmt::format("--text: {} cannot be read: {}", path, std::strerror(error)));
  return {path, 0, std::move(bytes)};
}

void check_writable(const char* flag, const std::string& path) {
  if (path.empty()) return;
  std::FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr)
    throw std::invalid_argument(
        fmt::format("{}: {} cannot be written: {}", flag, path, std::strerror(errno)));
  static_cast<void>(std::fclose(file));
}

void check_folder(const char* flag, const std::string& path, bool loads) {
  try {
    if (!loads)
      zero::check_checkpoint_path(path);
    else if (!zero::is_checkpoint(path))
      throw std::runtime_error(path + " is no checkpoint");
  } catch (const std::exception& error) {
    throw std::invalid_argument(fmt::format("{}: {}", flag, error.what()));
  }
}

// One process of the job.
int run_rank(perf::Job& job, const Options& options, const TextSource& source, const Text& text) {
  try {
    const tuttiUniqueId id = job.share(
        [&] { return options.launched ? Launcher::unique_id().value : UniqueId::create().value; });
    Communicator comm(UniqueId{id}, job.processes(), job.process());
    std::string missed;
    try {
      missed = train(comm, options, source, text);
      comm.finalize();
      // A full disk shows only now.
      if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
        throw std::runtime_error("standard output cannot be written");
    } catch (const std::exception& error) {
      // Before others can meet what comes of it.
      static_cast<void>(job.claim_failure(fmt::format("rank {}: {}", job.process(), error.what())));
      comm.abort();
      throw;
    }
    if (missed.empty()) return EXIT_SUCCESS;
    static_cast<void>(job.claim_failure(missed));
    fmt::print(stderr, "zero_gpt: {}\n", missed);
    return EXIT_FAILURE;
  } catch (const std::exception& error) {
    const std::string what = fmt::format("rank {}: {}", job.process(), error.what());
    if (job.claim_failure(what) || job.first_failure() == what)
      fmt::print(stderr, "zero_gpt: {}\n", what);
    return EXIT_FAILURE;
  }
}

bool forks(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with("--procs")) return true;
  return false;
}

int run(int argc, char** argv) {
  tutti::Launcher launcher;
  if (tuttiGetLauncher(&launcher.value) != tuttiSuccess) {
    if (!forks(argc, argv)) {
      fmt::print(stderr, "zero_gpt: {}\n", tuttiGetLastError(nullptr));
      return kBadUsage;
    }
    launcher.value.nRanks = 1;
  }
  const bool speaks = launcher.rank() == 0;
  const ParsedOptions parsed = parse_options(argc, argv, launcher.nranks(), speaks);
  if (!parsed.options) return parsed.status;
  const Options& options = *parsed.options;
  std::optional<Text> text;
  TextSource source;
  try {
    if (const std::string why = engine_refuses(options); !why.empty())
      throw std::invalid_argument(why);
    if (options.matmul == Matmul::kBlas && !find_blas(1))
      throw std::invalid_argument(
          "--matmul blas: no BLAS was found when this was built; install libopenblas-dev and "
          "configure again, or leave it out");
    source = read_text(options.text_path);
    text.emplace(source.bytes, options.size);
    if (speaks) {
      check_writable("--csv", options.csv_path);
      check_writable("--svg", options.svg_path);
      if (!options.save_path.empty()) check_folder("--save", options.save_path, false);
      if (!options.load_path.empty()) check_folder("--load", options.load_path, true);
    }
  } catch (const std::invalid_argument& error) {
    if (speaks) fmt::print(stderr, "zero_gpt: {}\n", error.what());
    return kBadUsage;
  }
  perf::LaunchOptions launching;
  launching.program = "zero_gpt";
  launching.processes = options.processes;
  if (options.launched) launching.launched_process = launcher.rank();
  return perf::launch(launching,
                      [&](perf::Job& job) { return run_rank(job, options, source, *text); });
}

}  // namespace
}  // namespace tutti::gpt

int main(int argc, char** argv) { return tutti::gpt::run(argc, argv); }
