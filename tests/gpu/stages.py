# SPDX-License-Identifier: Apache-2.0
"""The stages: what runs, and which figures are read off it. Each is a function of a Run and adds
rows to its suite; what a program found wrong is told apart from what it found slow."""
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import build
from suite import MISSED, Suite

FORMATS = ["one_shot@ll8", "one_shot@ll16", "one_shot@ll128", "one_shot@cells", "two_shot@slots",
           "ring@slots", "two_shot:access=remote", "two_shot:access=store"]
SMALL = ["auto", "one_shot@slots", "two_shot@slots", "two_shot:access=remote",
         "two_shot:access=store", "ring@slots"]
FLAGGED = ["one_shot@ll8", "one_shot@ll16", "one_shot@ll128", "two_shot@ll16", "two_shot@ll128",
           "butterfly@ll128"]
LARGE = ["auto", "two_shot@slots", "two_shot:access=remote", "two_shot:access=store",
         "ring@slots"]
MEAN_REGRET, WORST_REGRET = 0.1, 0.3  # of auto, at most


@dataclass
class Scale:
    """How much is run: a GPU's share, or what threads that emulate one get through."""
    ranks: tuple = (2, 4, 8)
    small: tuple = ("8", "1M", "2")          # sizes: from, to, factor
    flagged: tuple = ("8", "64K", "2")       # beyond, these take milliseconds
    chain: int = 100                         # operations of a graph
    launches: int = 20
    large: tuple = ("16M", "256M", "4")
    iterations: int = 20
    ctas: tuple = (4, 8, 16)
    litmus_s: int = 2


EMULATED = Scale(ranks=(2, 3), small=("8", "8K", "32"), flagged=("8", "8K", "32"), chain=2,
                 launches=2, large=("64K", "256K", "4"), iterations=2, ctas=(1, 2), litmus_s=1)


@dataclass
class Run:
    suite: Suite
    programs: dict
    scale: Scale
    out: Path
    options: object
    profile: Path = None            # of `words`
    copy_gb_per_s: float = 0        # of bench_device_kernels, read and written

    @property
    def emulated(self):
        return bool(self.programs.get("emulated"))


def all_reduce(run, part, limit_s, flags, program=None, extra=None, checker=()):
    """Runs all_reduce_perf, under a checker if there is one. Returns how it ended and the rows of
    its JSON file."""
    file = run.out / f"{run.suite.stage}-{len(run.suite.rows)}.json"
    file.unlink(missing_ok=True)
    settings = {"TUTTI_PROFILE": run.profile or "off", **(extra or {})}
    wait_s = str(5 * run.suite.patience)
    done = run.suite.command(part, limit_s, [*checker, program or run.programs["all_reduce_perf"],
                                             "--memory", "device", "-T", wait_s, "-J", file,
                                             *flags],
                             {name: str(value) for name, value in settings.items()})
    rows = []
    if file.exists():
        try:
            rows = json.loads(file.read_text(encoding="utf-8"))["results"]
        except (ValueError, KeyError):
            pass  # it ended in the middle of the file
        file.unlink()
    wrong = sum(int(row[half]["nwrong"] or 0) for row in rows for half in HALVES)
    if wrong:
        done.result = "wrong"
    return done, rows


HALVES = ("out_of_place", "in_place")


def time_us(row):
    """The better half: by the GPU's clock if there is one, without the first launch."""
    def of(half):
        return half.get("graph", {}).get("later_launches_us", half["time"])
    return min(of(row[half]) for half in HALVES)


def complaint(text):
    """The line in which a program says what went wrong."""
    found = re.findall(r"^(?:# error: |# wrong: |[a-z]\w+: )(.*)", text, re.M)
    return found[-1] if found else ""


def size_text(size):
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def skipped_names(text):
    return len(re.findall(r"^# skipped ", text, re.M))


# ---- smoke

def smoke(run):
    """Every format and protocol once. If a process fails, each name runs in one of its own."""
    def flags(ranks, names):
        return ["-t", str(ranks), "-b", "8", "-e", "64K", "-f", "8192", "-n", "1", "-w", "0",
                "--algo", ",".join(names)]

    for ranks in sorted({run.scale.ranks[0], run.scale.ranks[-1]}):
        names = ["auto", *FORMATS]
        part = f"{ranks} ranks, every format"
        done, rows = all_reduce(run, part, 40, flags(ranks, names))
        run.suite.row(part, done.result, done.seconds,
                      f"{len({row.get('algorithm') for row in rows})} of {len(names)} names; "
                      f"{complaint(done.text)}".rstrip("; "))
        if done.ran or done.result == "no time":
            continue
        for name in names:
            done, _ = all_reduce(run, f"{ranks} ranks, {name}", 15, flags(ranks, [name]))
            run.suite.row(f"{ranks} ranks, {name}", done.result, done.seconds,
                          complaint(done.text))


# ---- litmus and words

def own_program(run, name, flags, limit_s):
    """Runs a program that has a JSON file of its own. Returns how it ended and the file."""
    if name not in run.programs:
        run.suite.skip(name, "not among the programs")
        return None, {}
    file = run.out / f"{name}.json"
    file.unlink(missing_ok=True)
    done = run.suite.command(name, limit_s, [run.programs[name], "--json", file, *flags])
    if done.ran and not file.exists():  # it says that it finds no GPU, where smoke has found one
        done.result = "failed"
    found = {}
    if file.exists():
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            pass
    return done, found


def litmus(run):
    done, found = own_program(run, "device_litmus", ["--seconds", str(run.scale.litmus_s)], 60)
    if done is None:
        return
    run.suite.row("device_litmus", done.result, done.seconds, complaint(done.text))
    (run.out / "device_litmus.json").unlink(missing_ok=True)  # its parts are rows
    for part in found.get("parts", []):
        bad = any(fault.startswith(part["name"] + ":") for fault in found["faults"])
        text = f"{part['wrong']} wrong of {part['reads']}"
        if part["first_torn"]:
            text += f", {part['first_torn']} torn at the first load"
        run.suite.row(part["name"], "wrong" if bad else "passed", 0, text, part,
                      predicted="0" if part["judged"] else "not judged")


def misses(figure):
    """Whether a word is worse than predicted by more than half again: a time, or a rate."""
    ratio = figure["ratio"]
    return ratio > MISSED if figure["unit"] == "ns" else ratio < 1 / MISSED


def words(run):
    profile = run.out / "profile.json"
    profile.unlink(missing_ok=True)
    done, found = own_program(run, "bench_device_words", ["--profile", str(profile)], 90)
    if done is not None:
        run.suite.row("bench_device_words", done.result, done.seconds, complaint(done.text))
        for figure in found.get("figures", []):
            unit = figure["unit"]
            slow = not run.emulated and misses(figure)
            run.suite.row(figure["name"], "slow" if slow else "passed", 0,
                          f"{figure['value']:.4g} {unit}, spread {figure['spread']:.0%}", figure,
                          predicted=f"{figure['predicted']:.4g} {unit}")
    (run.out / "bench_device_words.json").unlink(missing_ok=True)
    if done is not None and done.ran and profile.exists():
        run.profile = profile
    if run.emulated:
        return
    done, rows = own_program(run, "bench_device_kernels", [], 60)
    if done is None or not rows:
        return
    (run.out / "bench_device_kernels.json").unlink(missing_ok=True)
    run.copy_gb_per_s = rows[0]["bytes_per_s"] / 1e9
    run.suite.row("bench_device_kernels", done.result, done.seconds,
                  f"copy {run.copy_gb_per_s:.0f} GB/s",
                  {"gb_per_s": run.copy_gb_per_s, "rows": rows}, "copy")
    for kind in sorted({kind_of(row) for row in rows[1:]}):
        shares = [100 * row["share_of_copy"] for row in rows[1:] if kind_of(row) == kind]
        run.suite.row(f"kernels, {kind}", "passed", 0, f"at least {min(shares):.1f} % of the copy",
                      {"share": min(shares)}, f"kernels {kind}")


def kind_of(row):
    """Of a kernel of bench_device_kernels: what its speed depends on."""
    if row["misaligned_bytes"]:
        return "misaligned"
    return row["type"] if row["type"].startswith("f8") else "aligned"


# ---- latency and bandwidth

def judge_choice(run, times, part):
    """The regret of auto: its time over the best one's, minus one, of each size."""
    others = {size for name, size in times if name != "auto"}  # that ran: none where they failed
    sizes = sorted({size for name, size in times if name == "auto"} & others)
    regrets = {size: times["auto", size] / min(time for (_, of), time in times.items()
                                               if of == size) - 1 for size in sizes}
    if not regrets:
        return
    worst = max(regrets, key=regrets.get)
    mean = sum(regrets.values()) / len(regrets)
    slow = not run.emulated and (mean > MEAN_REGRET or regrets[worst] > WORST_REGRET)
    run.suite.row(part, "slow" if slow else "passed", 0,
                  f"mean {mean:.1%}, worst {regrets[worst]:.1%} at {size_text(worst)}",
                  {"regret": {str(k): v for k, v in regrets.items()}},
                  predicted=f"{MEAN_REGRET:.0%} mean, {WORST_REGRET:.0%} worst")


def named_times(rows):
    return {(row.get("algorithm", "auto"), row["size"]): time_us(row) for row in rows}


def latency(run):
    scale = run.scale
    graph = ["-n", str(scale.chain), "-G", str(scale.launches)]
    for ranks in reversed(scale.ranks):
        times = {}
        for kind, names, (low, high, factor) in (("one launch an operation", SMALL, scale.small),
                                                 ("by flags", FLAGGED, scale.flagged)):
            part = f"{ranks} ranks, {kind}"
            done, rows = all_reduce(run, part, 60, [
                "-g", str(ranks), "-b", low, "-e", high, "-f", factor, *graph, "-c", "0", "--algo",
                ",".join(names)])
            run.suite.row(part, done.result, done.seconds, complaint(done.text) or
                          f"{len(rows)} rows, {skipped_names(done.text)} names skipped",
                          {"rows": compact(rows)})
            times |= named_times(rows)
        for size in sorted({size for _, size in times}):
            of = {name: time for (name, other), time in times.items() if other == size}
            best = min(of, key=of.get)
            auto = f"auto {of['auto']:.2f} us, " if "auto" in of else ""
            run.suite.row(f"{ranks} ranks, {size_text(size)}", "passed", 0,
                          f"{auto}best {best} {of[best]:.2f} us", {"us": of.get("auto"), "all": of}
                          if "auto" in of else {}, f"latency ranks={ranks} bytes={size}")
        judge_choice(run, times, f"{ranks} ranks, regret of auto")
        for name, flags in (("own graphs", ["-t", str(ranks), *graph]),
                            ("eager", ["-t", str(ranks), "-n", str(scale.chain)])):
            part = f"{ranks} ranks, {name}"
            done, rows = all_reduce(run, part, 30, [*flags, "-b", "8", "-e", "8K", "-f", "1024"])
            run.suite.row(part, done.result, done.seconds, complaint(done.text) or
                          f"{len(rows)} rows")
            for row in rows:
                run.suite.row(f"{part}, {size_text(row['size'])}", "passed", 0,
                              f"{time_us(row):.2f} us", {"us": time_us(row)},
                              f"{name} ranks={ranks} bytes={row['size']}")


def compact(rows):
    """Of each row what the figures are computed from."""
    return [{"algorithm": row.get("algorithm", "auto"), "bytes": row["size"], "us": time_us(row),
             "plan": row["out_of_place"]["plan"]} for row in rows]


def floor_share(run, ranks, row):
    """Each rank has to read its input and write its output once, at the copy's speed."""
    if run.copy_gb_per_s <= 0:
        return None
    floor_us = 2 * ranks * row["size"] / run.copy_gb_per_s / 1e3
    return 100 * floor_us / time_us(row)


def bandwidth(run):
    scale = run.scale
    low, high, factor = scale.large
    for ranks in reversed(scale.ranks):
        times = {}
        for ctas in scale.ctas:
            part = f"{ranks} ranks, {ctas} blocks each"
            done, rows = all_reduce(run, part, 60, [
                "-t", str(ranks), "-b", low, "-e", high, "-f", factor, "-n",
                str(scale.iterations), "-c", "0", "--ctas", str(ctas), "--algo", ",".join(LARGE)])
            run.suite.row(part, done.result, done.seconds, complaint(done.text) or
                          f"{len(rows)} rows", {"rows": compact(rows)})
            for row in rows:
                key = row.get("algorithm", "auto"), row["size"]
                if key not in times or time_us(row) < time_us(times[key]):
                    times[key] = row
        for (name, size), row in sorted(times.items(), key=lambda item: item[0][1]):
            share = floor_share(run, ranks, row)
            text = f"{time_us(row):.1f} us, {row['out_of_place']['bus_bw']:.1f} GB/s busbw"
            if share is not None:
                text += f", {share:.0f} % of the floor"
            run.suite.row(f"{ranks} ranks, {size_text(size)}, {name}", "passed", 0, text,
                          {"share": share} if share is not None else {},
                          f"bandwidth ranks={ranks} " +
                          (f"bytes={size} " if size < 64 << 20 else "") + f"name={name}")
        judge_choice(run, {key: time_us(row) for key, row in times.items()},
                     f"{ranks} ranks, regret of auto")
        part = f"{ranks} ranks, checked"
        done, _ = all_reduce(run, part, 60, ["-t", str(ranks), "-b", low, "-e", low, "-n", "2",
                                             "--algo", ",".join(LARGE)])
        run.suite.row(part, done.result, done.seconds, complaint(done.text))


# ---- tests, hazards, sanitizers

def google_test(run, part, limit_s, program, flags=(), extra=None):
    report = run.out / "gtest.json"
    report.unlink(missing_ok=True)
    done = run.suite.command(part, limit_s, [program, f"--gtest_output=json:{report}", *flags],
                             extra)
    figures = complaint(done.text)
    if report.exists():
        cases = [case for suite in json.loads(report.read_text(encoding="utf-8"))["testsuites"]
                 for case in suite["testsuite"]]
        failed = [case["classname"] + "." + case["name"] for case in cases if "failures" in case]
        skipped = sum(case.get("result") == "SKIPPED" for case in cases)
        figures = f"{len(cases) - len(failed) - skipped} passed, {skipped} skipped"
        if failed:
            figures += f", {len(failed)} failed: {', '.join(failed)}"
            done.result = "wrong"
        report.unlink()
    elif done.result == "hung":
        begun = re.findall(r"^\[ RUN      \] (\S+)", done.text, re.M)
        figures = f"in {begun[-1]}" if begun else ""
    run.suite.row(part, done.result, done.seconds, figures)


def tests(run):
    for program in run.programs.get("tests", []):
        name = Path(program).name
        if name != "device_hazards_test":
            google_test(run, name, 120, program,
                        extra={"ALL_REDUCE_PERF": run.programs["all_reduce_perf"]})
    if run.emulated:
        run.suite.skip("tests", "ctest runs those that need no GPU")


SETTINGS = ({}, {"CUDA_LAUNCH_BLOCKING": "1"}, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
            {"CUDA_MODULE_LOADING": "EAGER"}, {"CUDA_MODULE_LOADING": "LAZY"})


def hazards(run):
    """Each setting of the driver must end with the right sums or an error, not hang."""
    program = next((path for path in run.programs.get("tests", [])
                    if Path(path).name == "device_hazards_test"), None)
    for setting in SETTINGS:
        name = " ".join(f"{key}={value}" for key, value in setting.items()) or "as it is"
        if program is not None:
            google_test(run, f"hazards, {name}", 60, program, extra=setting)
        part = f"4 ranks, {name}"
        done, _ = all_reduce(run, part, 30, ["-t", "4", "-b", "8", "-e", "64K", "-f", "64", "-n",
                                             "5", "--algo", "auto,ring@slots"], extra=setting)
        run.suite.row(part, done.result, done.seconds, complaint(done.text))
    # Graphs of their own in one hardware queue would wait for each other, so they are refused.
    part = "4 graphs, one hardware queue"
    done, _ = all_reduce(run, part, 30, ["-t", "4", "-b", "8", "-e", "8", "-n", "1", "-G", "2"],
                         extra={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
    refused = (done.result == "failed" and "(invalid usage)" in done.text
               and not run.emulated)  # which has queues enough
    run.suite.row(part, "passed" if refused else done.result, done.seconds, complaint(done.text))


def sanitize(run):
    """Few cases: a sanitizer slows a GPU down a hundredfold."""
    checker = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin")
    if run.emulated or checker is None:
        run.suite.skip("sanitizers", "a GPU is emulated" if run.emulated else
                       "no compute-sanitizer on PATH or in the toolkit")
        return
    folder = sanitizer_folder(run)
    if folder is not None:
        check_with(run, checker, build.programs_in(folder)["all_reduce_perf"],
                   {"TUTTI_OP_TIMEOUT_S": "50", **build.library_environment(folder)})


def check_with(run, checker, program, settings):
    for tool in ("memcheck", "initcheck", "synccheck", "racecheck"):
        done, _ = all_reduce(
            run, tool, 60, ["-T", "50", "-t", "2", "-b", "8", "-e", "64K", "-f", "32", "-n", "1",
                            "-w", "0", "--algo", "auto,one_shot@ll128,one_shot@ll16,ring@slots,"
                            "two_shot:access=remote,two_shot:access=store"],
            program=program, extra=settings,
            checker=[checker, "--tool", tool, "--error-exitcode", "9"])
        found = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", done.text)
        faults = [text for text in found if not re.match(r"0 (errors|hazards)", text)]
        run.suite.row(tool, "wrong" if faults else done.result, done.seconds,
                      (faults or found or [complaint(done.text)])[-1])


def sanitizer_folder(run):
    """Where the build with fewer threads a block is; None if there is none."""
    if run.options.prebuilt:
        folder = run.options.prebuilt / "sanitize"
        if folder.exists():
            return folder
        run.suite.skip("sanitizers", "the prebuilt folder has no programs for them")
        return None
    return build.build_for_sanitizers(run.suite, run.options)


# In this order; with the seconds that each may take.
STAGES = {"smoke": (smoke, 100), "litmus": (litmus, 60), "words": (words, 120),
          "latency": (latency, 200), "bandwidth": (bandwidth, 240), "tests": (tests, 240),
          "hazards": (hazards, 240), "sanitize": (sanitize, 240)}
