#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each kernel takes, as ptxas said when it was compiled: registers, stack, spills, shared.

`resources.py FOLDER...` reads every *.resources below (cmake/keep_resources.sh), prints a line for
each kernel with its registers per architecture, and fails where one spills or has a stack frame:
then an array of accumulators is not in registers. A function that a kernel calls may not spill
either. --most N: also above N registers; --most NAME=N: for kernels of this name. --stack N: so
many bytes of stack are right.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
FUNCTION = re.compile(r"Function properties for (\S+)")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def read(paths):
    """[(mangled kernel, architecture, registers, stack, spill, shared)], and of the functions that
    spill [(mangled function, architecture, spill)]"""
    kernels, spilling = [], []
    for path in paths:
        entry, architecture, function, frame = None, None, None, None
        for line in path.read_text(encoding="utf-8").splitlines():
            if match := ENTRY.search(line):
                entry, architecture = match.groups()
            elif match := FUNCTION.search(line):
                function = match.group(1)
            elif match := FRAME.search(line):
                stack, stores, loads = (int(number) for number in match.groups())
                if function == entry:
                    frame = stack, stores + loads
                elif stores + loads:
                    spilling.append((function, architecture, stores + loads))
            elif (match := USED.search(line)) and entry:
                shared = SHARED.search(line)
                kernels.append((entry, architecture, int(match.group(1)), *frame,
                                int(shared.group(1)) if shared else 0))
    return kernels, spilling


def most_of(limits, name):
    """Registers that a kernel may have, by its name without arguments."""
    own = re.split(r"[<(]", name)[0]
    return limits.get(own, limits.get("", 255))


def limit(text):
    name, _, number = text.rpartition("=")
    return name, int(number)


def short_names(mangled):
    text = "\n".join(mangled)
    try:
        text = subprocess.run(["c++filt"], input=text, capture_output=True, text=True,
                              check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pass  # mangled names say enough
    text = re.sub(r"tutti::device::|\(anonymous namespace\)::|void |\(.*\)", "", text)
    return dict(zip(mangled, text.splitlines()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--most", type=limit, action="append", default=[])
    parser.add_argument("--stack", type=int, default=0)
    options = parser.parse_args()
    limits = dict(options.most)
    kernels, spilling = read(sorted(path for folder in options.folders
                                    for path in folder.rglob("*.resources")))
    names = short_names(sorted({kernel[0] for kernel in kernels}))
    architectures = sorted({kernel[1] for kernel in kernels}, key=lambda name: (len(name), name))
    print(f"{'kernel':58s} registers: {' '.join(architectures)}")
    for mangled, name in sorted(names.items(), key=lambda item: item[1]):
        registers = {kernel[1]: kernel[2] for kernel in kernels if kernel[0] == mangled}
        shared = max(kernel[5] for kernel in kernels if kernel[0] == mangled)
        row = " ".join(f"{registers.get(a, 0):5d}" for a in architectures)
        print(f"{name:68s} {row}" + (f"  {shared} bytes shared" if shared else ""))
    wrong = [kernel for kernel in kernels
             if kernel[2] > most_of(limits, names[kernel[0]]) or kernel[3] > options.stack
             or kernel[4]]
    for mangled, architecture, registers, stack, spill, _ in wrong:
        print(f"{names[mangled]} for {architecture}: {registers} registers "
              f"(at most {most_of(limits, names[mangled])}), {stack} bytes of stack, "
              f"{spill} bytes of spills")
    functions = short_names(sorted({function[0] for function in spilling}))
    for mangled, architecture, spill in spilling:
        print(f"{functions[mangled]} for {architecture}: {spill} bytes of spills")
    print(f"{len(names)} kernels, {len(kernels)} with their architectures, {len(wrong)} at fault, "
          f"{len(functions)} functions that spill")
    return 1 if wrong or spilling or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
