#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of a small call beyond its wait, with valgrind's callgrind: an
all-reduce, a group of a send and a receive, or an all-to-all with counts (--call).

Two ranks are threads of bench_call; the message of one is there when the other calls, and what the
call then executes, from the API and back, is counted. The figure does not depend on how busy the
machine is. With --check the status is 1 where it exceeds the budget.

    perf/count_instructions.py --build build --bytes 8
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# What a call of 8 bytes may take, in a Release build. Lower it whenever the call gets cheaper.
BUDGET_BYTES, BUDGETS = 8, {"all_reduce": 630, "alltoallv": 1800, "sendrecv": 1160}
CALLS, TIMEOUT_S = 200, 300


def count(build, bytes_=BUDGET_BYTES, calls=CALLS, call="all_reduce"):
    """(instructions of a call, "") or (None, why there is no figure). RuntimeError: it failed."""
    valgrind, program = shutil.which("valgrind"), pathlib.Path(build) / "bin" / "bench_call"
    if not valgrind:
        return None, "valgrind is not installed"
    if not program.exists():
        return None, f"{program} was not built"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [valgrind, "--tool=callgrind", "--fair-sched=yes", "--toggle-collect=measured_call*",
             f"--callgrind-out-file={folder}/out", program, "--call", call, "--calls",
             str(calls), "--bytes", str(bytes_)],
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not collected or int(collected[1]) == 0:
        raise RuntimeError(f"callgrind of {program}: status {done.returncode}\n{done.stderr}")
    return int(collected[1]) / calls, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(HERE.parent / "build"), help="build folder")
    parser.add_argument("--call", choices=BUDGETS, default="all_reduce")
    parser.add_argument("--bytes", type=int, default=BUDGET_BYTES, help="a multiple of 4")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--check", action="store_true", help="fail above the call's budget")
    parser.add_argument("--budget", type=int, help="another number for --check")
    args = parser.parse_args()
    try:
        instructions, absence = count(args.build, args.bytes, args.calls, args.call)
    except (RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(f"count_instructions: {error}")
    if absence:
        print(f"{absence}: no count of instructions")
        return
    print(f"{args.call} of {args.bytes} bytes among 2 ranks: {instructions:.0f} instructions a "
          f"call beyond the wait, mean of {args.calls}")
    budget = BUDGETS[args.call] if args.budget is None else args.budget
    if args.check and instructions > budget:
        sys.exit(f"count_instructions: more than the budget of {budget}")


if __name__ == "__main__":
    main()
