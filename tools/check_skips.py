#!/usr/bin/env python3
"""Which tests that may not skip did not run: `check_skips.py BUILD REPORT`.

BUILD: where ctest ran; REPORT: the JUnit file that it wrote there. One line for each reason, that
says how many tests did not run, one of them, and why. Status 1: there is such a line.
"""
import json
import re
import subprocess
import sys
import xml.etree.ElementTree

LABELS = ("network", "tcp", "verbs")  # without these there is no wire that is tested


def labels_by_test(build):
    """Of every test that ctest knows: those of LABELS, which may also be parts of one label."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True,
                           capture_output=True, text=True).stdout
    labels = {}
    for test in json.loads(shown)["tests"]:
        words = {word for entry in test.get("properties", []) if entry["name"] == "LABELS"
                 for label in entry["value"] for word in label.split("-")}
        labels[test["name"]] = [label for label in LABELS if label in words]
    return labels


def reason(test):
    """What the test says: GoogleTest's message under "Skipped", else its last line."""
    lines = [line.strip() for line in (test.findtext("system-out") or "").splitlines()]
    for line, following in zip(lines, lines[1:]):
        if re.search(r":\d+: Skipped$", line):
            return following or "it gives no reason"
    return next((line for line in reversed(lines) if line), "it gives no reason")


def check(build, report):
    labels = labels_by_test(build)
    skipped = {}  # names, by reason
    for test in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        if test.get("status") not in ("run", "fail") and labels.get(test.get("name")):
            skipped.setdefault(reason(test), []).append(test.get("name"))
    lines = []
    for why, names in sorted(skipped.items()):
        of = [label for label in LABELS if any(label in labels[name] for name in names)]
        lines.append(f"{len(names)} of label {', '.join(of)} may not skip ({names[0]}"
                     f"{', ...' if len(names) > 1 else ''}): {why}")
    for label in LABELS:
        if not any(label in found for found in labels.values()):
            lines.append(f"no test has the label {label}: its tests were not built, see the notes "
                         "of cmake")
    return lines


if __name__ == "__main__":
    found = check(*sys.argv[1:3])
    print("\n".join(found))
    sys.exit(1 if found else 0)
