#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every program answers --help, --version and a flag that it does not know in the same manner.

    command_line_test.py VERSION PROGRAM...
"""
import os
import re
import subprocess
import sys


def answer(program, flag):
    return subprocess.run([program, flag], capture_output=True, text=True, timeout=60, check=False,
                          stdin=subprocess.DEVNULL)


def findings(program, version):
    """What is wrong with one program, a line each."""
    name = os.path.basename(program)
    found = answer(program, "--help")
    if found.returncode != 0 or found.stderr or "--version" not in found.stdout:
        yield f"--help: status 0, no errors, and --version among the flags; is {found}"
    found = answer(program, "--version")
    if found.returncode != 0 or found.stderr or found.stdout != f"{name} (Tutti) {version}\n":
        yield f"--version: '{name} (Tutti) {version}' and status 0; is {found}"
    found = answer(program, "--bogus")
    lines = found.stderr.splitlines()
    if found.returncode != 2 or found.stdout or len(lines) != 1:
        yield f"--bogus: status 2 and one line on stderr; is {found}"
    elif not lines[0].startswith(f"{name}: ") or not lines[0].endswith(f"(see {name} --help)") or \
            not re.search("--bogus|is required", lines[0]):  # what is missing may come first
        yield f"--bogus: a line with the program's name and the flag; is {lines[0]}"


def main():
    version, *programs = sys.argv[1:]
    wrong = [f"{program}: {finding}" for program in programs
             for finding in findings(program, version)]
    print("\n".join(wrong))
    print(f"{len(programs)} programs, {len(wrong)} findings.")
    return 1 if wrong or not programs else 0


if __name__ == "__main__":
    sys.exit(main())
