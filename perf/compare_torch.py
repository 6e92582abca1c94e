#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""zero_gpt beside PyTorch's DDP and FSDP on gloo: the same model, text, batches and optimizer.

Both begin with the parameters that zero_gpt draws, read the same windows of the same text, and have
as many threads a rank. The table shows tokens a second, as medians over interleaved rounds with the
least and greatest, and the ratio zero_gpt / PyTorch of what shares as much: the stages ddp and ddp,
zero3 and fsdp (above 1: zero_gpt is faster). The first half of a run's steps is left out. Of the
same round's losses it prints the greatest difference, to show that the models are the same.

Needs a Python with PyTorch, named by --python; installs nothing.

    perf/compare_torch.py --build build --python venv/bin/python --procs 2 --model tiny
"""
import argparse
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RANK_PROGRAM = HERE / "compare_torch" / "train.py"
TEXTS = HERE.parent / "docs"
TIMEOUT_S = 600
STAGES = ("ddp", "zero1", "zero3")
PAIRS = {"ddp": "ddp", "fsdp": "zero3", "fsdp2": "zero3"}
FIRST_LOSSES = 5
RATE = re.compile(r"^step .* (\d+) tokens/s", re.MULTILINE)
SIZE = re.compile(r'Size\{"(\w+)", (\d+), (\d+), (\d+), (\d+), (\d+)\}')


def sizes():
    """{name: (vocabulary, context, channels, heads, layers)}"""
    source = (HERE.parent / "tools/zero_gpt/size.cpp").read_text(encoding="utf-8")
    return {name: tuple(map(int, numbers)) for name, *numbers in SIZE.findall(source)}


def torch_is_missing(python):
    """Why PyTorch cannot be used, in a line, or nothing."""
    try:
        done = subprocess.run([python, "-c", "import torch.distributed as d; "
                               "assert d.is_available() and d.is_gloo_available()"],
                              capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"it ends with status {done.returncode}"])[-1]


class Comparison:
    """The runs of one model, batch and number of ranks."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.program = pathlib.Path(args.build) / "bin" / "zero_gpt"
        self.threads = args.threads or max(1, os.cpu_count() // args.procs)
        self.text = args.text or folder / "text"
        if not args.text:
            self.text.write_bytes(b"".join(path.read_bytes()
                                           for path in sorted(TEXTS.glob("*.md"))))
        self.zero_gpt("ddp", ["--steps", "0", "--save", str(folder / "first")])
        self.meetings = 0

    def zero_gpt(self, stage, flags):
        command = [self.program, "--procs", self.args.procs, "--stage", stage, "--model",
                   self.args.model, "--batch", self.args.batch, "--threads", self.threads,
                   "--text", self.text, "--eval-windows", 1, *flags]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                              timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
        return done.stdout

    def run_stage(self, stage):
        """Tokens a second, and the loss of each step."""
        losses = self.folder / "losses.csv"
        output = self.zero_gpt(stage, ["--steps", 2 * self.args.steps + 1, "--log-every",
                                       self.args.steps, "--csv", losses])
        with losses.open(encoding="utf-8") as lines:
            return float(RATE.findall(output)[-1]), [float(row["loss"])
                                                     for row in csv.DictReader(lines)]

    def run_torch(self, kind):
        self.meetings += 1
        ranks = []
        for rank in range(self.args.procs):
            command = [self.args.python, "-B", RANK_PROGRAM, "--kind", kind, "--rank", rank,
                       "--ranks", self.args.procs, "--threads", self.threads, "--meeting",
                       self.folder / f"meeting{self.meetings}", "--checkpoint",
                       self.folder / "first", "--text", self.text, "--shape",
                       *sizes()[self.args.model], "--batch", self.args.batch, "--steps",
                       self.args.steps]
            ranks.append(subprocess.Popen(list(map(str, command)), text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        try:
            outputs = [process.communicate(timeout=TIMEOUT_S) for process in ranks]
        finally:
            for process in ranks:
                process.kill()
        if any(process.returncode != 0 for process in ranks):
            raise RuntimeError(f"PyTorch's {kind}:\n" + "".join(error for _, error in outputs))
        report = json.loads(outputs[0][0].splitlines()[-1])
        return report["tokens_per_second"], report["losses"], report["version"]


def measure(comparison, args):
    """({name: rates of the rounds}, {name: losses}, PyTorch's version)"""
    runs = {f"zero_gpt {stage}": lambda stage=stage: comparison.run_stage(stage)
            for stage in STAGES}
    runs |= {f"torch {kind}": lambda kind=kind: comparison.run_torch(kind) for kind in args.kinds}
    names, rates, losses, version = list(runs), {}, {}, ""
    for number in range(args.rounds):
        # Another goes first in each round.
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            rate, losses[name], *said = runs[name]()
            rates.setdefault(name, []).append(rate)
            version = said[0] if said else version
        print(f"# round {number + 1} of {args.rounds}", file=sys.stderr)
    return {name: rates[name] for name in names}, losses, version


def print_tables(args, comparison, rates, losses, version):
    print(f"# {args.model}, {args.procs} ranks of {comparison.threads} threads, 8 slots of "
          f"{args.batch} sequences, {args.steps} steps measured, {args.rounds} rounds; "
          f"PyTorch {version}")
    print(f"{'':<16}{'tokens/s':>10} [least, greatest]")
    for name, of_rounds in rates.items():
        print(f"{name:<16}{statistics.median(of_rounds):>10.0f} "
              f"[{min(of_rounds):.0f}, {max(of_rounds):.0f}]")
    for kind in args.kinds:
        stage = PAIRS[kind]
        ratios = [ours / theirs for ours, theirs in
                  zip(rates[f"zero_gpt {stage}"], rates[f"torch {kind}"], strict=True)]
        print(f"# {stage} / {kind}: {statistics.median(ratios):.2f} "
              f"[{min(ratios):.2f}, {max(ratios):.2f}]")
    ours = losses[f"zero_gpt {STAGES[0]}"]
    for kind in args.kinds:
        apart = [abs(a - b) for a, b in zip(ours, losses[f"torch {kind}"], strict=True)]
        print(f"# loss, zero_gpt and {kind}: {max(apart[:FIRST_LOSSES]):.1e} apart at most in "
              f"{FIRST_LOSSES} steps, {max(apart):.1e} in {len(apart)}, from {ours[0]:.4f} to "
              f"{ours[-1]:.4f}")


def parse_kinds(text):
    kinds = text.split(",")
    if unknown := sorted(set(kinds) - set(PAIRS)):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(PAIRS)}")
    return kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(HERE.parent / "build"), help="build folder")
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--procs", type=int, choices=(1, 2, 4, 8), default=2)
    parser.add_argument("--model", choices=sorted(sizes()), default="tiny")
    parser.add_argument("--batch", type=int, default=4, help="sequences in a slot")
    parser.add_argument("--threads", type=int, default=0, help="of a rank; 0: the cores divided")
    parser.add_argument("--steps", type=int, default=20, help="measured in a run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", type=parse_kinds, default=["ddp", "fsdp"],
                        help="of PyTorch: ddp, fsdp, fsdp2 (default: ddp,fsdp)")
    parser.add_argument("--text", type=pathlib.Path, help="file to train on (default: docs/*.md)")
    args = parser.parse_args()
    if why := torch_is_missing(args.python):
        parser.error(f"--python {args.python} has no PyTorch with gloo: {why}")
    if not (pathlib.Path(args.build) / "bin" / "zero_gpt").exists():
        parser.error(f"--build {args.build} has no bin/zero_gpt: build the target zero_gpt first")
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(args, pathlib.Path(folder))
        print_tables(args, comparison, *measure(comparison, args))


if __name__ == "__main__":
    main()
