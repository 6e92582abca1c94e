#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""zero_gpt on two hosts (network namespaces), two ranks on each, over TCP between them: the bits
are those of one process, for every stage, hybrid sharding and parameter servers.

    hosts_test.py --train build/bin/zero_gpt --perf SOURCE/perf

Exit status: 0 passed, 1 failed, 77 there are no namespaces to be had (the reason is printed).
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIP = 77
HOSTS, RANKS, SECONDS = 2, 4, 40


def fingerprint(output):
    found = re.findall(r"# fingerprint of parameters and moments: (\w+)", output)
    if len(found) != 1:
        sys.exit(f"FAILED: one fingerprint, are {found} in\n{output}")
    return found[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", required=True)
    parser.add_argument("--perf", required=True)
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("skipped: network namespaces need root and ip (Debian: iproute2)")
        sys.exit(SKIP)
    sys.path.insert(0, options.perf)
    from hosts import Hosts, outputs_of_tutti  # pylint: disable=import-outside-toplevel
    command = [options.train, "--model", "nano", "--steps", "2", "--batch", "1", "--eval-windows",
               "2", "--threads", "1"]
    alone = fingerprint(subprocess.run([*command, "--stage", "ddp"], check=True, text=True,
                                       capture_output=True).stdout)
    # Ranks 0 and 1 are on the first host.
    runs = [["--stage", stage] for stage in ("ddp", "zero1", "zero2", "zero3")]
    runs += [["--stage", "zero3", "--shard-ranks", "2"],
             ["--stage", "ps", "--servers", "2"],
             ["--stage", "ps", "--servers", "4", "--colocated"]]
    with Hosts(HOSTS) as hosts, tempfile.TemporaryDirectory() as folder:
        for flags in runs:
            outputs = outputs_of_tutti(hosts, RANKS, [*command, *flags], pathlib.Path(folder),
                                       SECONDS)
            bits = fingerprint("".join(outputs))
            print(*flags, bits, flush=True)
            if bits != alone:
                sys.exit(f"FAILED: {' '.join(flags)} ends with {bits}, one process with {alone}")


if __name__ == "__main__":
    main()
