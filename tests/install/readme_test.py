#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of README.md runs as it is printed there, in a folder where `build` is the build
tree and HOME is new. Only what would take minutes is made smaller, by flags appended to the
command: the last of two equal flags counts.

    readme_test.py --source DIR --build DIR --work DIR CASE

CASE is a key of CASES below, or `complete`: each command of README.md belongs to a case. Exit
status: 0 passed, 1 failed, 77 something that the commands need is not installed (printed).
"""
import argparse
import os
import re
import shutil
import socket
import subprocess
import sys

SKIP = 77
SECONDS = 110  # for one case; a hang is a failure
QUICK = "-b 8 -e 64K -n 2 -w 1"

# The commands of README.md in the order of the page: case, pattern of the whole line, flags to
# append. `.ci/run` runs the quickstart, which builds in build/ and would disturb this build tree.
COMMANDS = [
    ("ci", r"tools/quickstart", ""),
    ("ci", r"tools/quickstart test", ""),
    ("programs", r"build/bin/all_reduce_perf --procs 4 .*--explain", "-n 2"),
    ("configure", r"cmake --preset release -DTUTTI_BUILD_TESTS=OFF -DTUTTI_CUDA=OFF", "-B fresh"),
    ("configure", r"cmake --build build", "--target tutti_base"),
    ("install", r'cmake --install build --prefix "\$HOME/tutti"', ""),
    ("install", r"export PKG_CONFIG_PATH=.*", ""),
    ("install", r"c\+\+ -std=c\+\+20 example\.cpp .*", ""),
    ("mpirun", r"mpirun -np 2 build/bin/all_reduce_perf", QUICK),
    ("secret", r"\(umask 077; .* job\.secret\)", ""),
    ("secret", r"export TUTTI_SECRET_FILE=.*", ""),
    ("torchrun", r"torchrun .*build/bin/all_reduce_perf", QUICK),
    ("by_hand", r"TUTTI_ROOT=.* TUTTI_RANK=0 build/bin/all_reduce_perf", QUICK),
    ("by_hand", r"TUTTI_ROOT=.* TUTTI_RANK=1 build/bin/all_reduce_perf", QUICK),
    ("programs", r"build/bin/all_reduce_perf -t 8 [^G]*", QUICK),
    ("gpu", r"build/bin/all_reduce_perf -t 8 .*-G 10", QUICK),
    ("programs", r"build/bin/tutti-tune --dry-run", "--seconds 0.2"),
    ("programs", r"build/bin/tutti-validate --procs 4", "-e 1K -n 4 --seconds 0.05"),
    ("programs", r"build/bin/tutti-validate --procs 4 --collectives all --learn",
     "-b 64 -e 64 -n 4 --seconds 0.02"),
    ("programs", r"build/bin/regret --procs 2,4 --svg map\.svg", "-e 1K -n 4 --seconds 0.05"),
    ("programs", r"build/bin/tutti-plan show tree --ranks 5", ""),
    ("programs", r"build/bin/tutti-plan draw tree --ranks 5 > tree\.svg", ""),
    ("programs", r"build/bin/tutti-plan verify --all --ranks 8", ""),
    ("programs", r"build/bin/zero_gpt --procs 2 --model nano --steps 40", "--steps 2"),
    ("programs", r"build/bin/tutti-info", ""),
]


def fail(message):
    sys.exit(f"FAILED: {message}")


def commands_of(page):
    """The lines of indented blocks and of ```sh blocks, and programs named with their path in the
    text, without comments."""
    lines, fence = [], None
    for line in page.splitlines():
        if line.startswith("```"):
            fence = None if fence is not None else line[3:]
        elif fence == "sh" or (fence is None and line.startswith("    ")):
            lines.append(re.sub(r"\s+#.*", "", line).strip())
        elif fence is None:
            lines += re.findall(r"`(build/bin/[^`]+|tools/[a-z]+)`", line)
    return [line for number, line in enumerate(lines) if line and line not in lines[:number]]


def belongs(line):
    return [entry for entry in COMMANDS if re.fullmatch(entry[1], line)]


class Readme:
    def __init__(self, options):
        self.options = options
        with open(os.path.join(options.source, "README.md"), encoding="utf-8") as file:
            self.page = file.read()
        self.lines = commands_of(self.page)
        self.work = os.path.join(options.work, options.case)
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work)
        os.symlink(options.build, os.path.join(self.work, "build"))
        self.env = {name: value for name, value in os.environ.items()
                    if not re.match(r"(TUTTI|XDG|PMI|PMIX|SLURM|OMPI|LD|PKG_CONFIG)_", name)}
        self.env.update(HOME=self.work, TUTTI_IFNAME="lo", OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                        OMPI_MCA_rmaps_base_oversubscribe="1")

    def commands(self, *cases):
        """The page's commands of these cases, each with its flags."""
        return [f"{line} {entry[2]}".strip() for line in self.lines for entry in belongs(line)
                if entry[0] in cases]

    def start(self, script, cwd=None):
        print("+", script, flush=True)
        return subprocess.Popen(["bash", "-e", "-u", "-c", script], cwd=cwd or self.work,
                                env=self.env, stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def end(self, process):
        output, _ = process.communicate(timeout=SECONDS)
        print(output, flush=True)
        if process.returncode != 0:
            fail(f"exit status {process.returncode}")
        return output

    def run(self, script, cwd=None):
        return self.end(self.start(script, cwd))

    def need(self, program, package):
        if shutil.which(program) is None:
            print(f"{program} is not installed ({package})")
            sys.exit(SKIP)

    # ---- cases ----

    def test_complete(self):
        """A command that is new on the page needs an entry; an entry without command is old."""
        for line in self.lines:
            if len(belongs(line)) != 1:
                fail(f"README.md: '{line}' fits {len(belongs(line))} entries of COMMANDS, not one")
        for _, pattern, _ in COMMANDS:
            if not any(re.fullmatch(pattern, line) for line in self.lines):
                fail(f"README.md has no command that fits '{pattern}'")

    def test_ci(self):
        """Whoever runs the whole of CI runs the quickstart and its tests."""
        with open(os.path.join(self.options.source, ".ci/run"), encoding="utf-8") as file:
            script = file.read()
        if not re.search(r"tools/quickstart test\b", script):
            fail(".ci/run does not run tools/quickstart test")
        help_text = self.run("tools/quickstart --help", self.options.source)
        for command in self.commands("ci"):
            if command not in help_text:
                fail(f"tools/quickstart --help does not name '{command}'")

    def test_programs(self):
        for command in self.commands("programs"):
            self.run(command)
        for name in ("map.svg", "tree.svg"):
            if not os.path.isfile(os.path.join(self.work, name)):
                fail(f"nobody wrote {name}")

    def test_configure(self):
        """The preset configures a new tree, and what it names is built there."""
        preset, build = self.commands("configure")
        fresh = os.path.join(self.work, "fresh")
        self.run(preset.replace("-B fresh", f"-B '{fresh}'"), self.options.source)
        self.run(build.replace("--build build", f"--build '{fresh}'"))

    def test_install(self):
        """The README's program, compiled and started by the README's lines."""
        threads, launched = re.findall(r"```cpp\n(.*?)```", self.page, flags=re.DOTALL)
        path = os.path.join(self.work, "example.cpp")
        with open(path, "w", encoding="utf-8") as file:
            file.write(threads)
        output = self.run("\n".join(self.commands("install")))
        ranks = re.findall(r"^rank \d: 1\.5$", output, flags=re.MULTILINE)
        if len(set(ranks)) != 4:
            fail(f"one line from each of 4 ranks, found {ranks}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(launched)
        output = self.run("\n".join(self.commands("install")[1:]))
        if "rank 0 of 1: 1\n" not in output:
            fail("without a launcher, rank 0 is alone")

    def test_examples(self):
        """The lines of examples/README.md, in a copy of that folder."""
        self.need("mpirun", "Debian: openmpi-bin or mpich")
        folder = os.path.join(self.work, "examples")
        shutil.copytree(os.path.join(self.options.source, "examples"), folder)
        self.run("\n".join(self.commands("install")[:1]))
        with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
            lines = commands_of(file.read())
        export = self.commands("install")[1]
        output = self.run("\n".join([export, *lines]), folder)
        if output.count(": sum 6") != 4 or output.count(": sum 28") != 8:
            fail("four ranks of sum 6, then eight of sum 28")

    def expect_one_table(self, output, ranks):
        if output.count("Using devices") != 1 or f"{ranks} ranks on host memory" not in output:
            fail(f"one table for {ranks} ranks")

    def test_mpirun(self):
        self.need("mpirun", "Debian: openmpi-bin or mpich")
        self.expect_one_table(self.run(self.commands("mpirun")[0]), 2)

    def test_torchrun(self):
        self.need("torchrun", "PyTorch")
        # That of Debian 12 starts nothing without these flags.
        flags = f"--redirects 1 --tee 1 --log_dir '{self.work}/logs'"
        lines = [re.sub("^torchrun", f"torchrun {flags}", line)
                 for line in self.commands("secret", "torchrun")]
        self.expect_one_table(self.run("\n".join(lines)), 4)

    def test_by_hand(self):
        """Two shells with one secret. The port of the page may be taken here."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        make, export = self.commands("secret")
        self.run(make)
        ranks = [self.start(f"{export}\n" + line.replace(":7000", f":{port}"))
                 for line in self.commands("by_hand")]
        self.expect_one_table("".join(self.end(rank) for rank in ranks), 2)

    def test_gpu(self):
        """By CUDA graphs where there is a GPU; elsewhere -G is named as without effect."""
        output = self.run(self.commands("gpu")[0])
        if "on host memory" in output and "-G has no effect" not in output:
            fail("a note that -G has no effect on host memory")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option in ("source", "build", "work"):
        parser.add_argument(f"--{option}", required=True)
    cases = sorted(name[5:] for name in dir(Readme) if name.startswith("test_"))
    parser.add_argument("case", choices=cases)
    options = parser.parse_args()
    getattr(Readme(options), "test_" + options.case)()
    print("holds")


if __name__ == "__main__":
    main()
