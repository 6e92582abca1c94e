#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md follows the sources: the text of every heading is still one that the
library can say, every source file that makes errors has a heading of its own, unless its texts are
about arguments or bugs, and whatever ends the calls of every rank has one.
`check_troubleshooting.py --root DIR`."""

import argparse
import re
import sys
from pathlib import Path

PAGE = "docs/troubleshooting.md"
SOURCES = ["src", "transports", "algorithms"]
PROGRAMS = ["tools", "perf"]  # the text of an entry may quote their output too
MAKES_ERRORS = ["src/api", "src/base", "src/board", "src/comm", "src/control", "src/device",
                "src/exec", "src/launch", "src/plan", "src/topology", "transports"]
# What an entry would only repeat: arguments of the call, packets that no peer sends, bugs.
EXPLAINED_BY_TEXT = {
    "src/base/result.cpp", "src/api/api.cpp", "src/api/config.cpp",
    "src/api/explain.cpp", "src/api/launch.cpp",
    "src/api/memory.cpp", "src/board/board.cpp",
    "src/board/board_open.cpp", "src/comm/issue.cpp", "src/comm/run_operations.cpp",
    "src/control/join.cpp",
}
# What ends every rank's calls: each of its texts has an entry, not just one.
EVERY_TEXT = "src/board/faults.cpp"
STRING = r'"((?:[^"\\]|\\.)*)"'


def without_comments(text):
    return re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*',
                  lambda match: match.group(1) or "", text)


def literals(text):
    """The strings of a source, adjacent ones joined, with ... for what is filled in."""
    text = without_comments(text)
    text = re.sub(r"^\s*#\s*include.*$", "", text, flags=re.MULTILINE)
    found = []
    for group in re.finditer(rf"(?:{STRING}\s*)+", text):
        joined = "".join(re.findall(STRING, group.group(0)))
        found.append(re.sub(r"\{[^{}]*\}", "...", joined.replace('\\"', '"')))
    return found


def headings(page):
    """The texts of the entries: the code span of each heading of the third level."""
    texts, findings = [], []
    for number, line in enumerate(page.splitlines(), start=1):
        if not line.startswith("### "):
            continue
        match = re.fullmatch(r"### `([^`]+)`", line)
        if match:
            texts.append(match.group(1))
        else:
            findings.append(f"{PAGE}:{number}: an entry's heading is the error's text in backticks")
    return texts, findings


def quotations(page):
    """The texts that entries quote: code spans below the headings with a ... in them."""
    body = "\n".join(line for line in page.splitlines()
                     if not line.startswith(("### ", "    ")))
    spans = (re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", body))
    return [span for span in spans if "..." in span and re.search(r"[a-z]", span)]


def fits(heading, literal):
    """Is the heading a part of the literal? Its ... may be more of it than the literal's."""
    # What a ... of the literal fills in may bring words of its own ("during ...; seen by ...").
    pattern = ".*".join(re.escape(part) for part in heading.split("..."))
    return re.search(pattern, literal) is not None


def check(root):
    page = (root / PAGE).read_text(encoding="utf-8")
    texts, findings = headings(page)
    strings = {}
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.?pp")):
            relative = path.relative_to(root).as_posix()
            strings[relative] = literals(path.read_text(encoding="utf-8"))
    said = [literal for found in strings.values() for literal in found]
    for text in texts:
        if not any(fits(text, literal) for literal in said):
            findings.append(f"{PAGE}: no source says '{text}' any more")
    for folder in PROGRAMS:
        for path in sorted((root / folder).rglob("*.?pp")):
            said += literals(path.read_text(encoding="utf-8"))
    for text in quotations(page):
        if not any(fits(text, literal) for literal in said):
            findings.append(f"{PAGE}: no source says '{text}', which an entry quotes")
    for name in sorted({text for text in texts if texts.count(text) > 1}):
        findings.append(f"{PAGE}: '{name}' appears twice")
    for relative, found in strings.items():
        if relative in EXPLAINED_BY_TEXT or not relative.endswith(".cpp"):
            continue
        if not any(relative.startswith(folder + "/") for folder in MAKES_ERRORS):
            continue
        source = without_comments((root / relative).read_text(encoding="utf-8"))
        if not re.search(r"\b(make_error|errno_error)\(", source):
            continue
        if not any(fits(text, literal) for text in texts for literal in found):
            findings.append(f"{relative}: makes errors, and none of them is in {PAGE}; add an "
                            "entry for the ones that users can meet")
    for literal in strings.get(EVERY_TEXT, []):
        is_error = literal.startswith("... ") or " do not match" in literal
        if is_error and not any(fits(text, literal) for text in texts):
            findings.append(f"{EVERY_TEXT}: '{literal}' has no entry in {PAGE}")
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True, type=Path)
    findings = check(parser.parse_args().root.resolve())
    print("\n".join(findings))
    print(f"troubleshooting: {len(findings)} findings.")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
