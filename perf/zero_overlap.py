#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much communication the sharded optimizer hides: zero_gpt on two hosts with a throttled link.

Two network namespaces (as root), one rank with one thread in each, over TCP. For each rate of the
link it runs without overlap and with it, interleaved. Without overlap the stall counter is the
communication of a step, and the rest its computing; with overlap the step's share of their sum is
printed, in the same round, as the median with the least and greatest. Rate 0 is no throttle.

    perf/zero_overlap.py --build build --stage zero3 --rates 0,75

Choose the rates so that communication is within 10 % of computing at one of them. Where ranks have
no core to spare, TCP takes its time from computing: the more packets in a step's time, the more.
"""
import argparse
import os
import pathlib
import re
import statistics
import tempfile

from hosts import MTU_BYTES, Hosts, outputs_of_tutti

RANKS, SLOTS, TIMEOUT_S = 2, 8, 120
LINE = re.compile(r"^step .* (\d+) tokens/s .* stall ([\d.]+) ms/step", re.MULTILINE)


def measure(hosts, args, folder, flags):
    """Milliseconds of a step, of them stalled, and the fingerprint; the first steps left out."""
    outputs = outputs_of_tutti(hosts, RANKS, [
        args.build / "bin" / "zero_gpt", "--stage", args.stage, "--model", args.model, "--batch",
        args.batch, "--slots", SLOTS, "--steps", 2 * args.steps + 1, "--log-every", args.steps,
        "--eval-windows", 1, "--threads", 1, *flags], folder, TIMEOUT_S)
    tokens_per_step = int(re.search(r"context (\d+)", outputs[0])[1]) * args.batch * SLOTS
    rate, stall_ms = LINE.findall(outputs[0])[-1]
    fingerprint = re.search(r"# fingerprint.*: (\w+)", outputs[0])[1]
    return 1e3 * tokens_per_step / float(rate), float(stall_ms), fingerprint


def compare(args, mbits, folder):
    shares, rows, fingerprints = [], [], set()
    # Half a millisecond of the rate: a larger bucket fills while a rank computes, and what it then
    # lets through at once is not throttled.
    burst_bytes = max(4 * MTU_BYTES, mbits * 1_000_000 // 8 // 2000)
    with Hosts(RANKS, f"{mbits}mbit" if mbits else None, burst_bytes) as hosts:
        for _ in range(args.rounds):
            apart, communication, bits = measure(hosts, args, folder, ["--no-overlap"])
            fingerprints.add(bits)
            step, stall, bits = measure(hosts, args, folder, ["--prefetch", str(args.prefetch)])
            fingerprints.add(bits)
            rows.append((apart - communication, communication, step, stall))
            shares.append(step / apart)
    if len(fingerprints) != 1:
        raise RuntimeError(f"runs end with different bits: {fingerprints}")
    compute, communication, step, stall = map(statistics.median, zip(*rows))
    print(f"{args.stage:>6} {mbits or 'none':>8} {compute:>11.1f} {communication:>11.1f} "
          f"{communication / compute:>9.2f} {step:>8.1f} {stall:>9.1f} "
          f"{statistics.median(shares):>9.2f} [{min(shares):.2f}, {max(shares):.2f}]", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--stage", choices=["ddp", "zero1", "zero2", "zero3"], default="zero3")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3, help="measured in a run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--rates", default="0,75", help="of the link, Mbit/s; 0: no throttle")
    args = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("makes network namespaces, which only root may")
    print(f"# {args.model}, {args.batch} sequences a slot, prefetch {args.prefetch}; milliseconds "
          "of a step")
    print(" stage   Mbit/s     compute communicat. com./cpu.     step     stall     share")
    with tempfile.TemporaryDirectory() as folder:
        for mbits in map(int, args.rates.split(",")):
            compare(args, mbits, pathlib.Path(folder))


if __name__ == "__main__":
    main()
