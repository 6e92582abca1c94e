#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tutti_perf with sizes that take no time, and looks at its two files and its messages.

    tutti_perf_test.py PROGRAM BUILD PEERS
"""
import html.parser
import json
import pathlib
import subprocess
import sys
import tempfile

COLLECTIVES = ["all_gather", "all_reduce", "alltoall", "alltoallv", "broadcast", "gather",
               "hypercube", "reduce", "reduce_scatter", "scatter", "sendrecv"]
VOID = {"meta"}


class Page(html.parser.HTMLParser):
    """Its sections, and whether every element that opens is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.sections, self.drawings, self.names, self.wrong = [], [], [], [], []
        self.feed(text)
        self.wrong += self.open

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        names = dict(attrs)
        self.names += [names["id"]] if "id" in names else []
        if tag == "section":
            self.sections.append(names["id"])
        if tag == "svg":
            self.drawings.append(self.sections[-1])
        self.wrong += [value for name, value in attrs
                       if name in ("src", "href") and not value.startswith("#")]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def expect(condition, message):
    if not condition:
        sys.exit(f"expected: {message}")


def run(program, *flags):
    return subprocess.run([sys.executable, "-B", program, *map(str, flags)], capture_output=True,
                          text=True, check=False, timeout=100, stdin=subprocess.DEVNULL)


def check_mistakes(program, build):
    for flags in (["--bogus"], ["--collectives", "nonsense"], ["--rounds", "0"], ["--factor", "1"],
                  ["--peers", "nonsense"], ["--build", "/nowhere"]):
        found = run(program, "--build", build, *flags)
        lines = found.stderr.splitlines()
        expect(found.returncode == 2 and len(lines) == 1 and lines[0].startswith("tutti_perf: "),
               f"status 2 and one line for {flags}; is {found}")


def check_files(output, peers):
    report = json.loads(output.with_suffix(".json").read_text())
    expect(sorted(r["collective"] for r in report["results"]) == COLLECTIVES,
           f"every collective in the JSON file; is {report}")
    for result in report["results"]:
        expect(set(result["peers"]) <= set(peers), f"no peer but {peers}; is {result}")
        expect(all(row["tutti"]["time_us"] >= 0 for row in result["sizes"]), f"times; is {result}")
    text = output.with_suffix(".html").read_text()
    page = Page(text)
    expect(not page.wrong, f"elements in order and no address outside; is {page.wrong}")
    expect("http" not in text, "no address in the page")
    expect(sorted(page.sections) == COLLECTIVES and page.drawings == page.sections,
           f"a section with a drawing for every collective; is {page.sections}, {page.drawings}")
    expect(len(set(page.names)) == len(page.names), "names that occur once")


def main():
    program, build, peers = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
    check_mistakes(program, build)
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "report"
        found = run(program, "--build", build, "--peers", ",".join(peers), "--rounds", 1,
                    "--min-bytes", 64, "--max-bytes", 256, "--iters", 2, "--small-iters", 2,
                    "--warmup", 1, "--output", output)
        print(found.stdout, found.stderr)
        expect(found.returncode == 0, "status 0")
        expect("11 of 11" in found.stderr, "progress on stderr")
        if not output.with_suffix(".html").exists():
            expect("python3-matplotlib" in found.stderr, "a line that says what is missing")
            return
        check_files(output, peers)


if __name__ == "__main__":
    main()
