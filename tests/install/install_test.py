#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The installed tree serves programs that know nothing of the source tree.

`tree` installs into a prefix and then renames the prefix, so that the other tests (each a ctest
test that needs `tree`) also prove that nothing in it holds an absolute path. Works in --work, which
it owns, and prints every command it runs.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

LIBRARY = "libtutti.so"
PROGRAMS = ["all_reduce_perf", "tutti-plan", "tutti-info", "tutti-sim", "tutti-tune",
            "tutti-validate", "zero_memory", "regret"]
SCRIPTS = ["tutti_perf"]


def run(*command, env=None, cwd=None):
    """The command's standard output; ends the test when the command fails or takes too long."""
    print("+", *command, flush=True)
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=100,
                          check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def expect(condition, message):
    if not condition:
        sys.exit(f"expected: {message}")


class Installed:
    def __init__(self, options):
        self.options = options
        self.prefix = os.path.join(options.work, "moved")
        self.libdir = os.path.join(self.prefix, options.libdir)
        self.library = os.path.join(self.libdir, LIBRARY)
        # Neither the build tree nor the installed tree may be found by the dynamic linker's help.
        self.clean_env = {name: value for name, value in os.environ.items()
                          if name not in ("LD_LIBRARY_PATH", "LD_PRELOAD", "CMAKE_PREFIX_PATH",
                                          "PKG_CONFIG_PATH")}

    def test_tree(self):
        shutil.rmtree(self.options.work, ignore_errors=True)
        first = os.path.join(self.options.work, "first")
        run(self.options.cmake, "--install", self.options.build, "--prefix", first)
        os.rename(first, self.prefix)
        for name in ("include/tutti/tutti.h", "include/tutti/explain.h", "include/tutti/stream.h",
                     "include/tutti/user_op.h", "include/tutti/tutti.hpp",
                     "include/tutti/zero.hpp", "include/tutti/parameter_server.hpp",
                     *[f"bin/{program}" for program in PROGRAMS + SCRIPTS]):
            expect(os.path.isfile(os.path.join(self.prefix, name)), f"{name} is installed")
        expect(os.path.isfile(self.library), f"{LIBRARY} is installed")

    def test_no_source_path(self):
        """No text file of the installed tree names the source or the build tree."""
        for folder, _, names in os.walk(self.prefix):
            for name in names:
                path = os.path.join(folder, name)
                if not name.endswith((".cmake", ".pc", ".h", ".hpp")):
                    continue
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                for tree in (self.options.source, self.options.build):
                    expect(tree not in text, f"{path} does not name {tree}")

    def test_soname(self):
        dynamic = run("readelf", "-d", self.library)
        soname = re.search(r"Library soname: \[(.*)\]", dynamic)
        expect(soname and soname.group(1) == f"{LIBRARY}.{self.options.soversion}",
               f"the soname ends in .{self.options.soversion}:\n{dynamic}")
        expect("RPATH" not in dynamic and "RUNPATH" not in dynamic, f"no run path:\n{dynamic}")
        expect(os.path.islink(self.library), f"{LIBRARY} links to the versioned file")

    def test_exports(self):
        """What the library exports is what its C headers declare, no more and no less."""
        listed = run("nm", "-D", "--defined-only", self.library).splitlines()
        exported = {line.split()[-1].split("@")[0] for line in listed if line}
        declared = set()
        for path in glob.glob(os.path.join(self.prefix, "include/tutti/*.h")):
            with open(path, encoding="utf-8") as file:
                header = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
            declared |= set(re.findall(r"TUTTI_API\s[^;(]*?\b(tutti\w+)\s*\(", header))
        expect(len(declared) > 10, f"the header's functions are found: {sorted(declared)}")
        expect(not exported - declared, f"nothing else: {sorted(exported - declared)}")
        expect(not declared - exported, f"all of them: {sorted(declared - exported)}")

    def test_version(self):
        """The header, the build and what the library says of itself agree."""
        with open(os.path.join(self.prefix, "include/tutti/tutti.h"), encoding="utf-8") as file:
            parts = dict(re.findall(r"#define TUTTI_(MAJOR|MINOR|PATCH) (\d+)", file.read()))
        header = f"{parts.get('MAJOR')}.{parts.get('MINOR')}.{parts.get('PATCH')}"
        expect(header == self.options.version, f"{self.options.version}, the header says {header}")

    def run_example(self, program, env):
        lines = run(program, env=env).splitlines()
        expected = [f"rank {rank}: sum 6" for rank in range(4)]
        expect(lines == expected, f"{expected}, is {lines}")

    def build_project(self, source, build, *settings):
        run(self.options.cmake, "-S", source, "-B", build, "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={self.prefix}", *settings, env=self.clean_env)
        run(self.options.cmake, "--build", build, env=self.clean_env)

    def test_find_package(self):
        consumer = os.path.join(self.options.here, "consumer")
        settings = [f"-DCMAKE_C_COMPILER={self.options.cc}",
                    f"-DEXAMPLES={self.options.source}/examples"]
        both = os.path.join(self.options.work, "find_package")
        self.build_project(consumer, both, f"-DCMAKE_CXX_COMPILER={self.options.cxx}", *settings)
        for name in ("hello_c", "hello_cpp"):
            self.run_example(os.path.join(both, name), self.clean_env)
        run(os.path.join(both, "hello_17"), env=self.clean_env)
        run(os.path.join(both, "train"), env=self.clean_env)
        c_alone = os.path.join(self.options.work, "find_package_c")
        self.build_project(consumer, c_alone, "-DCONSUMER_LANGUAGES=C", *settings)
        self.run_example(os.path.join(c_alone, "hello_c"), self.clean_env)

    def test_pkg_config(self):
        build = os.path.join(self.options.work, "pkg_config")
        os.makedirs(build, exist_ok=True)
        env = {**self.clean_env, "PKG_CONFIG_PATH": os.path.join(self.libdir, "pkgconfig")}
        version = run("pkg-config", "--modversion", "tutti", env=env).strip()
        expect(version == self.options.version, f"version {self.options.version}, is {version}")
        flags = run("pkg-config", "--cflags", "--libs", "tutti", env=env).split()
        strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wsign-conversion"]
        for compiler, standard, suffix in ((self.options.cc, "-std=c11", "c"),
                                           (self.options.cxx, "-std=c++20", "cpp")):
            program = os.path.join(build, f"hello_{suffix}")
            source = os.path.join(self.options.source, "examples", f"hello_all_reduce.{suffix}")
            run(compiler, standard, *strict, source, "-o", program, *flags, env=env)
            self.run_example(program, {**self.clean_env, "LD_LIBRARY_PATH": self.libdir})
        flags = run("pkg-config", "--cflags", "--libs", "tutti-zero", env=env).split()
        program = os.path.join(build, "train_zero3")
        run(self.options.cxx, "-std=c++20", *strict,
            os.path.join(self.options.source, "examples/train_zero3.cpp"), "-o", program, *flags,
            env=env)
        lines = run(program, env={**self.clean_env, "LD_LIBRARY_PATH": self.libdir}).splitlines()
        expect(sorted(lines) == ["rank 0: 63.000", "rank 1: 63.000"], f"63 on both: {lines}")

    def readme_block(self, language):
        with open(os.path.join(self.options.source, "README.md"), encoding="utf-8") as file:
            blocks = re.findall(rf"```{language}\n(.*?)```", file.read(), flags=re.DOTALL)
        expect(blocks, f"a {language} block in the README")
        return blocks[0]

    def test_readme(self):
        """The README's program builds and does what it says."""
        build = os.path.join(self.options.work, "readme")
        os.makedirs(build, exist_ok=True)
        source = os.path.join(build, "example.cpp")
        with open(source, "w", encoding="utf-8") as file:
            file.write(self.readme_block("cpp"))
        env = {**self.clean_env, "PKG_CONFIG_PATH": os.path.join(self.libdir, "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "tutti", env=env).split()
        program = os.path.join(build, "example")
        run(self.options.cxx, "-std=c++20", "-Wall", source, "-o", program, *flags)
        self.run_readme(program, {**env, "LD_LIBRARY_PATH": self.libdir})

    def run_readme(self, program, env):
        lines = sorted(run(program, env=env).splitlines())
        expected = [f"rank {rank}: 1.5" for rank in range(4)]
        expect(lines == expected, f"{expected}, is {lines}")

    def test_readme_cmake(self):
        """So does its CMakeLists.txt, which names no language standard."""
        source = os.path.join(self.options.work, "readme_cmake")
        os.makedirs(source, exist_ok=True)
        heading = "cmake_minimum_required(VERSION 3.16)\nproject(example LANGUAGES CXX)\n"
        for name, text in (("example.cpp", self.readme_block("cpp")),
                           ("CMakeLists.txt", heading + self.readme_block("cmake"))):
            with open(os.path.join(source, name), "w", encoding="utf-8") as file:
                file.write(text)
        build = os.path.join(source, "build")
        self.build_project(source, build, f"-DCMAKE_CXX_COMPILER={self.options.cxx}")
        self.run_readme(os.path.join(build, "example"), self.clean_env)

    def test_old_standard(self):
        """tutti.hpp says that it needs C++20, in one error."""
        source = os.path.join(self.options.work, "old_standard.cpp")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <tutti/tutti.hpp>\n")
        done = subprocess.run([self.options.cxx, "-std=c++17", "-fsyntax-only", source, "-I",
                               os.path.join(self.prefix, "include")], capture_output=True,
                              text=True, timeout=100, check=False)
        expect(done.returncode != 0 and "tutti.hpp needs C++20" in done.stderr
               and done.stderr.count("error:") == 1,
               f"one error, which names C++20:\n{done.stderr}")

    def test_programs(self):
        """The installed programs find the installed library, from any folder."""
        for name in PROGRAMS:
            program = os.path.join(self.prefix, "bin", name)
            needed = run("ldd", program, env=self.clean_env, cwd="/")
            expect("not found" not in needed, f"{name} finds its libraries:\n{needed}")
            if LIBRARY in needed:
                expect(self.prefix in needed, f"{name} finds the installed library:\n{needed}")
            run(program, "--help", env=self.clean_env, cwd="/")
        for name in SCRIPTS:
            run(os.path.join(self.prefix, "bin", name), "--version", env=self.clean_env, cwd="/")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tests = {name[5:]: name for name in dir(Installed) if name.startswith("test_")}
    for option in ("source", "build", "work", "cmake", "cc", "cxx", "libdir", "version",
                   "soversion"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("test", choices=sorted(tests))
    options = parser.parse_args()
    options.here = os.path.dirname(os.path.abspath(__file__))
    getattr(Installed(options), tests[options.test])()
    print("holds")


if __name__ == "__main__":
    main()
