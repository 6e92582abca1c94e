#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests said, judged: `judge_tests.py [--brief] [--checks] BUILD:STATUS...`.

BUILD is where ctest ran and left quickstart-tests.xml (JUnit), STATUS the exit status of ctest.
Where a ctest test is a whole GoogleTest program, its own report in BUILD/tests/cases has the cases.
A case passes, fails or skips. Whatever did not run is a failure, unless the test itself said that
it skips; so is a status of ctest that no failed case explains. With --checks only what ALLOWED
names may skip. Prints each failure, each reason to skip and how many cases there are apart from the
build; --brief: one line for each build. The last line is "N passed, N failed"; exit status 1:
something failed.

`judge_tests.py --configured BUILD`: are the tests there that EXPECTED names? Needs no built test.
"""
import dataclasses
import json
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

REPORT = "quickstart-tests.xml"
# What may skip with --checks: the reason that the test gives, and why no machine of CI can help.
ALLOWED = (
    (r"\b(no|two) GPUs?\b|CUDA", "needs a GPU, or nvcc to compile for one"),
    (r"there is a (GPU|device)", "tests the answer where there is no GPU"),
    (r"this machine has no (avx|neon)", "needs a feature of the processor"),
    (r"a race by intention", "the thread sanitizer reports a race that the protocol expects"),
    (r"a sanitizer's own memory grows", "the process's size says nothing of the library's"),
    (r"the check of virtual tables needs a descriptor", "the sanitizer itself opens a file"),
    (r"torchrun is not installed", "PyTorch is too large to install for one test"),
    (r"^it is disabled$", "another test runs it, as a program of its own"),
)
# Tests that CMake leaves out, with a note, where something is not installed: how their names begin.
EXPECTED = ("style.format", "connection_interleaving_test", "packets_interleaving_test",
            "pmix_abi_test", "launcher.openmpi", "launcher.hydra", "launcher.slurm", "mpi_view",
            "fuzz_wire", "network_faults_test", "control_networks_test", "wire_test",
            "verbs_wire_test", "machine.itself", "machine.tcp", "machine.verbs")
SAID_SO = ("SKIP_RETURN_CODE", "SKIP_REGULAR_EXPRESSION")


@dataclasses.dataclass
class Case:
    name: str
    outcome: str  # "passed", "failed" or "skipped"
    said: str = ""  # the reason to skip, or the last lines of a failure


def last_lines(text):
    return "\n".join(f"   {line[:1000]}" for line in text.rstrip().splitlines()[-20:])


def reason(output):
    """What a test says when it skips: GoogleTest's message under "Skipped", else its last line."""
    lines = [line.strip() for line in output.splitlines()]
    for line, following in zip(lines, lines[1:]):
        if re.search(r":\d+: Skipped$", line):
            return following or "it gives no reason"
    return next((line for line in reversed(lines) if line), "it gives no reason")


def cases_inside(program, report):
    """The cases of a GoogleTest program's own report, without those of other shards."""
    program = re.sub(r"\.\d+_of_\d+$", "", program)
    cases = []
    for test in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        if test.get("status") != "run":
            continue
        name = f"{program}.{test.get('classname')}.{test.get('name')}"
        failures, skipped = test.findall("failure"), test.find("skipped")
        if failures:
            said = "\n".join(failure.get("message", "") for failure in failures)
            cases.append(Case(name, "failed", last_lines(said)))
        elif skipped is not None:
            said = (skipped.get("message") or skipped.text or "").strip().splitlines()
            said = [line for line in said if not re.search(r":\d+$", line)]
            cases.append(Case(name, "skipped", said[0].strip() if said else "it gives no reason"))
        else:
            cases.append(Case(name, "passed"))
    return cases


def cases_of(build, test):
    """The cases of one ctest test."""
    name, status = test.get("name"), test.get("status")
    output = test.findtext("system-out") or ""
    skipped = test.find("skipped")
    why = skipped.get("message", "") if skipped is not None else ""
    inside = build / "tests" / "cases" / f"{name}.xml"
    if status in ("run", "fail") and inside.exists():
        try:
            cases = cases_inside(name, inside)
        except xml.etree.ElementTree.ParseError:
            cases = []
        if status == "fail" and not any(case.outcome == "failed" for case in cases):
            cases.append(Case(name, "failed", last_lines(output)))  # it crashed, or leaked
        if cases:
            return cases
    if status == "run":
        return [Case(name, "passed")]
    if status == "disabled":
        return [Case(name, "skipped", "it is disabled")]
    if status == "notrun" and why.startswith(SAID_SO):
        return [Case(name, "skipped", reason(output))]
    return [Case(name, "failed", last_lines(output or why))]


def read_build(build, status):
    """All cases of one build."""
    try:
        tests = list(xml.etree.ElementTree.parse(build / REPORT).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        return [Case("ctest", "failed", f"   it left no report that can be read: {error}")]
    cases = [case for test in tests for case in cases_of(build, test)]
    if not cases:
        cases.append(Case("ctest", "failed", "   it ran no test"))
    if status != 0 and not any(case.outcome == "failed" for case in cases):
        cases.append(Case("ctest", "failed",
                          f"   it ended with status {status}, but no test of its report failed"))
    return cases


def refuse_skips(cases):
    """With --checks: each case that skips without leave fails."""
    for case in cases:
        if case.outcome == "skipped" and not any(re.search(allowed, case.said)
                                                 for allowed, _ in ALLOWED):
            case.outcome, case.said = "failed", f"   may not skip here: {case.said}"


def missing(build):
    """The tests that were left out of a build that was configured."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True,
                           capture_output=True, text=True).stdout
    names = [test["name"] for test in json.loads(shown)["tests"]]
    return [f"{build}: no test is named {expected}...: see the notes of cmake"
            for expected in EXPECTED if not any(name.startswith(expected) for name in names)]


def print_skips(cases):
    by_reason = {}
    for case in cases:
        if case.outcome == "skipped":
            by_reason.setdefault(case.said, []).append(case.name)
    if by_reason:
        print(f"\n{sum(map(len, by_reason.values()))} skipped:")
    for why, names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):6} {why} ({names[0]}{', ...' if len(names) > 1 else ''})")


def count(cases, outcome):
    return sum(case.outcome == outcome for case in cases)


def judge(arguments, brief=False, checks=False):
    """Prints what all builds say; the exit status."""
    everything = []
    for argument in arguments:
        folder, status = argument.rsplit(":", 1)
        cases = read_build(Path(folder), int(status))
        if checks:
            refuse_skips(cases)
        everything += cases
        if brief:
            print(f"{len(cases)} test cases, {count(cases, 'failed')} failed, "
                  f"{count(cases, 'skipped')} skipped")
            continue
        for case in cases:
            if case.outcome == "failed":
                print(f"\nfailed: {case.name} ({folder})\n{case.said}")
    failed = count(everything, "failed")
    if not brief:
        print_skips(everything)
        print(f"\n{len({case.name for case in everything})} distinct test cases")
        print(f"{count(everything, 'passed')} passed, {failed} failed")
    return 1 if failed else 0


def main(arguments):
    flags = {word for word in arguments if word.startswith("--")}
    builds = [word for word in arguments if word not in flags]
    if "--configured" in flags:
        lines = [line for build in builds for line in missing(build)]
        print("\n".join(lines), end="\n" if lines else "")
        return 1 if lines else 0
    return judge(builds, "--brief" in flags, "--checks" in flags)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
