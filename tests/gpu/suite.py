# SPDX-License-Identifier: Apache-2.0
"""Runs parts one after another, each within a limit of its own and all within one budget, and
keeps what came of each: a row of the table, and the same as JSON.

Results of a part:
  passed    ran, and nothing in it is worse than predicted
  slow      ran and is right; a figure misses its prediction by more than half again
  wrong     ran and gave wrong values
  failed    ended with an error
  hung      did not end within its limit
  no time   the budget was spent before
  skipped   cannot run here; the row says why
"""
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field

BAD = ("wrong", "failed", "hung")
TAIL_LINES = 25
MISSED = 1.5  # times the prediction
# What may be predicted of a row's values: its unit, and whether more is better.
FIGURES = {"us": ("us", False), "share": ("%", True), "gb_per_s": ("GB/s", True)}


@dataclass
class Row:
    stage: str
    part: str
    result: str
    seconds: float = 0
    figures: str = ""
    predicted: str = ""
    values: dict = field(default_factory=dict)


@dataclass
class Outcome:
    """Of a command: what it printed, and how it ended."""
    result: str
    text: str = ""
    seconds: float = 0

    @property
    def ran(self):
        return self.result == "passed"


def ended_text(process):
    """What a killed process had printed. One that is stuck in the driver does not end."""
    try:
        return process.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired as stuck:
        return (stuck.output or b"").decode(errors="replace")


class Suite:
    def __init__(self, out, minutes, environment, predictions, facts):
        self.out = out
        self.facts = facts
        self.patience = 1  # times a limit; more where threads emulate a GPU on a busy machine
        self.deadline = time.monotonic() + minutes * 60
        self.environment = environment
        self.predictions = predictions  # by key; None: nothing is judged
        self.rows = []
        self.stage_deadline = self.deadline
        self.stage = ""

    def begin(self, stage, limit_s):
        self.stage = stage
        self.stage_deadline = min(self.deadline, time.monotonic() + limit_s * self.patience)

    def seconds_left(self):
        return self.stage_deadline - time.monotonic()

    def command(self, part, limit_s, command, extra=None):
        """Runs a command with its output in the log."""
        left = self.seconds_left()
        if left < 2:
            return Outcome("no time")
        limit_s = min(limit_s * self.patience, left)
        extra = extra or {}
        print(f"== {self.stage}: {part} (at most {limit_s:.0f} s)", flush=True)
        start = time.monotonic()
        # A group of its own: what a command starts ends with it.
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", start_new_session=True,
                                   env={**os.environ, **self.environment, **extra})
        try:
            text, _ = process.communicate(timeout=limit_s)
            result = "passed" if process.returncode == 0 else "failed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text = ended_text(process)
            result = "hung"
        seconds = time.monotonic() - start
        with open(self.out / "suite.log", "a", encoding="utf-8") as log:
            words = [f"{name}={value}" for name, value in extra.items()] + list(map(str, command))
            log.write(f"# {self.stage}\n$ {' '.join(words)}\n{text}"
                      f"# {result} after {seconds:.1f} s\n")
        if result != "passed":
            print("\n".join(text.splitlines()[-TAIL_LINES:]), flush=True)
        return Outcome(result, text, seconds)

    def row(self, part, result, seconds=0, figures="", values=None, key=None, predicted=""):
        """Adds a row. `key` names a prediction, which is about one of FIGURES; `predicted` is what
        another program says of its own."""
        values = dict(values or {})
        prediction = {}
        if key is not None and self.predictions is not None:
            prediction = self.predictions.get(key, {})
            predicted = f"nothing: predictions.json has no '{key}'"
        for name, (unit, more_is_better) in FIGURES.items():
            if name not in prediction:
                continue
            want = prediction[name]
            predicted = f"{want} {unit}"
            values["predicted"] = want
            if result == "passed" and name in values:
                got = values[name]
                missed = got < want / MISSED if more_is_better else got > want * MISSED
                result = "slow" if missed else result
        self.rows.append(Row(self.stage, part, result, round(seconds, 1), figures, predicted,
                             values))
        self.save()

    def skip(self, part, why):
        self.row(part, "skipped", 0, why)

    def status(self):
        """0: all passed or skipped; 1: something is bad; 3: nothing is, but slow or not run."""
        results = {row.result for row in self.rows}
        if results & set(BAD):
            return 1
        return 3 if results & {"slow", "no time"} else 0

    def save(self):
        """After each row: whoever is ended leaves what it has found."""
        results = {"facts": self.facts, "rows": [row.__dict__ for row in self.rows]}
        (self.out / "results.json").write_text(json.dumps(results, indent=1) + "\n",
                                               encoding="utf-8")
        (self.out / "table.txt").write_text(self.table(), encoding="utf-8")

    def table(self):
        lines = [f"{name}: {value}" for name, value in self.facts.items()]
        lines.append(f"{'stage':<10} {'part':<44} {'result':<8} {'s':>6}  figures")
        for row in self.rows:
            text = row.figures + (f"; predicted {row.predicted}" if row.predicted else "")
            lines.append(f"{row.stage:<10} {row.part:<44} {row.result:<8} {row.seconds:>6.1f}  "
                         f"{text}".rstrip())
        return "\n".join(lines) + "\n"
