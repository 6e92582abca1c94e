#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rules that a machine can check, one name each: `check_style.py --root DIR NAME`.

A check returns the list of its findings ("path:line: what"); none means that the rule holds. Exit
status 0: holds, 1: does not, 77: cannot be checked here (the reason is printed). Reads files only;
knows nothing of the build. check_style_test.py proves that each check finds what it is for.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CODE_SUFFIXES = {".cpp", ".hpp", ".c", ".h", ".cu", ".cuh", ".py", ".cmake", ".sh", ".pml"}
CODE_NAMES = {"CMakeLists.txt", "quickstart", "run", "rdma_machine", "init", "guest", "verbs_stack",
              "run_tests"}
CPP_SUFFIXES = {".cpp", ".hpp", ".c", ".h", ".cu", ".cuh"}
MAX_COLUMNS = 100
WARN_LINES = 600
MAX_LINES = 800
CLANG_FORMAT_MAJOR = 14  # another release lays some lines out differently
FORMAT_BATCH = 50  # files a process: starting it takes longer than most files
SKIP = 77

# The dependency rule: which rooms a folder's files may include, besides its own. A key is a folder,
# or, ending in "_", how a file's name begins. The longest matching key decides; tests and examples
# may include everything. The compiler holds the rooms of the library to it as well, since each has
# an include root of its own (tests/style/check_rooms.py).
PUBLIC = "include"
BELOW_MODEL = ["src/base", "src/schedule", "algorithms", "src/topology"]
# Of transports/ what stands above the transports: connections and their contract.
CONNECTION = [f"transports/{name}.hpp" for name in (
    "connection", "connection_ops", "control", "inbox", "packets", "spec_check", "transport")]
PLAN = [*BELOW_MODEL, "src/model", "src/plan", *CONNECTION]
EXEC = [*PLAN, "src/kernels", "src/exec"]
BOARD = ["src/base", *CONNECTION, "src/control", "src/board"]
COMM = [PUBLIC, *EXEC, "src/device", *BOARD, "src/stream", "transports", "src/comm"]
LAYERS = {
    "include": [],
    "src/base": [],
    "src/schedule": ["src/base"],
    "algorithms": ["src/schedule", "src/base"],
    "src/topology": ["src/base"],
    "src/kernels": ["src/base"],
    "transports": ["src/base"],
    "src/model": BELOW_MODEL,
    "src/lab": [*BELOW_MODEL, "src/model"],
    "src/plan": PLAN,
    "src/exec": EXEC,
    "src/device": EXEC,
    "src/control": ["src/base", *CONNECTION],
    "src/stream": ["src/base", *CONNECTION, "src/control"],
    "src/board": BOARD,
    "src/launch": ["src/base", *CONNECTION, "src/control"],
    "src/comm": COMM,
    "src/api": [*COMM, "src/launch"],
    "src/zero": [PUBLIC],
    "perf": [PUBLIC, *BELOW_MODEL, "src/model", "src/lab"],
    # All programs read their flags alike: perf/common/flags.hpp.
    "tools": [PUBLIC, *BELOW_MODEL, "src/model", "src/lab", "perf/common/flags.hpp"],
    # It reports which vector instructions the kernels chose, and reads the boards of running ranks.
    "tools/tutti-info": [*COMM, "perf/common/flags.hpp", "tools"],
    # They price plans and count cores as the library does when it chooses.
    "tools/tutti-tune": [PUBLIC, *PLAN, "src/lab", "perf", "tools"],
    "tools/tutti-validate": [PUBLIC, *PLAN, "src/lab", "perf", "tools"],
    # It starts its processes as the perf tools do.
    "tools/zero_gpt": [PUBLIC, "perf", "tools"],
    # Microbenchmarks may also include the part that they measure.
    "perf/bench_": [*COMM, "src/lab", "src/zero", "perf"],
    "perf/device_words": [*COMM, "perf"],
}
INCLUDE_ROOTS = ["src", "", "include"]  # as the compiler's -I, in order
README_ROOTS = ["src", "transports", "algorithms", "perf", "tools", "tests", "docs", "examples",
                "cmake"]


def project_files(root):
    """Every file of the project, relative, sorted; nothing generated, nothing hidden."""
    found = []
    for folder, folders, names in os.walk(root):
        at_top = Path(folder) == root
        folders[:] = sorted(
            name for name in folders
            if name != "__pycache__" and (not name.startswith(".") or (at_top and name == ".ci"))
            and not (at_top and name.startswith("build")))
        relative = Path(folder).relative_to(root)
        found += [relative / name for name in sorted(names) if not name.startswith(".")]
    return found


def code_files(root):
    return [path for path in project_files(root)
            if path.suffix in CODE_SUFFIXES or path.name in CODE_NAMES]


def numbered_lines(root, path):
    return enumerate((root / path).read_text(encoding="utf-8").splitlines(), start=1)


def layer_of(path):
    """The longest key of LAYERS that holds `path`, or None where everything may be included."""
    text = path.as_posix()
    holders = [layer for layer in LAYERS
               if text.startswith(layer if layer.endswith("_") else layer + "/")]
    return max(holders, key=len) if holders else None


def resolve_include(root, path, name):
    """The project file that `#include name` in `path` means, or None if it is not ours."""
    for base in [path.parent, *[Path(base) for base in INCLUDE_ROOTS]]:
        candidate = Path(os.path.normpath(base / name))
        if not candidate.as_posix().startswith("..") and (root / candidate).is_file():
            return candidate
    return None


def check_includes(root):
    """Each folder includes only what the dependency rule allows it."""
    pattern = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
    findings = []
    for path in project_files(root):
        layer = layer_of(path)
        if path.suffix not in CPP_SUFFIXES or layer is None:
            continue
        for number, line in numbered_lines(root, path):
            match = pattern.match(line)
            target = resolve_include(root, path, match.group(1)) if match else None
            if target is None:
                continue
            allowed = [layer, *LAYERS[layer]]
            if not any(target.as_posix() == prefix or target.as_posix().startswith(prefix + "/")
                       for prefix in allowed):
                findings.append(f"{path}:{number}: {layer} may not include {target}; "
                                f"it may include {', '.join(LAYERS[layer]) or 'nothing of ours'}")
    return findings


def check_readmes(root):
    """The top folders and their direct subfolders each have a README.md."""
    folders = set()
    for path in project_files(root):
        if path.parts[0] in README_ROOTS:
            folders |= {Path(*path.parts[:depth]) for depth in (1, 2) if len(path.parts) > depth}
    return [f"{folder}: has no README.md" for folder in sorted(folders)
            if not (root / folder / "README.md").is_file()]


def check_lines(root):
    """A file fits in a head."""
    findings = []
    for path in code_files(root):
        count = sum(1 for _ in numbered_lines(root, path))
        if count > MAX_LINES:
            findings.append(f"{path}: {count} lines, at most {MAX_LINES}")
        elif count > WARN_LINES:
            print(f"warning: {path}: {count} lines; would two ideas live better apart?")
    return findings


def check_columns(root):
    """At most 100 columns, no tabs, no blanks at a line's end, in code."""
    findings = []
    for path in code_files(root):
        for number, line in numbered_lines(root, path):
            if len(line) > MAX_COLUMNS:
                findings.append(f"{path}:{number}: {len(line)} columns, at most {MAX_COLUMNS}")
            if "\t" in line:
                findings.append(f"{path}:{number}: tab")
            if line != line.rstrip():
                findings.append(f"{path}:{number}: blank at the end of the line")
    return findings


def check_licence(root):
    """The licence stands at the top of each code file, as SPDX writes it."""
    tag = "SPDX-License-Identifier: Apache-2.0"
    findings = []
    for path in code_files(root):
        top = [line for number, line in numbered_lines(root, path) if number <= 2]
        if not any(line.lstrip("/#* ").startswith(tag) for line in top):
            findings.append(f"{path}:1: {tag} is missing")
    return findings


def check_unfinished(root):
    """No note to finish something later: finish it, or write it where the work is planned."""
    words = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]  # in halves: not found in here
    pattern = re.compile(r"\b(" + "|".join(words) + r")\b")
    return [f"{path}:{number}: {line.strip()}"
            for path in code_files(root) for number, line in numbered_lines(root, path)
            if pattern.search(line)]


def check_cmake(root):
    """Sources are listed, never globbed; settings belong to targets."""
    pattern = re.compile(r"^\s*(file\s*\(\s*GLOB\w*|include_directories|link_directories|"
                         r"link_libraries|add_definitions)\b", re.IGNORECASE)
    return [f"{path}:{number}: {line.strip()}"
            for path in code_files(root)
            if path.name == "CMakeLists.txt" or path.suffix == ".cmake"
            for number, line in numbered_lines(root, path) if pattern.match(line)]


def find_clang_format():
    """The clang-format of the right release, or the reason why there is none."""
    seen = []
    for name in (f"clang-format-{CLANG_FORMAT_MAJOR}", "clang-format"):
        program = shutil.which(name)
        if program is None:
            continue
        text = subprocess.run([program, "--version"], capture_output=True, text=True,
                              check=True).stdout
        match = re.search(r"version (\d+)", text)
        if match and int(match.group(1)) == CLANG_FORMAT_MAJOR:
            return program, None
        seen.append(text.strip())
    return None, f"needs clang-format {CLANG_FORMAT_MAJOR}, found: {', '.join(seen) or 'none'}"


def check_format(root):
    """The sources are as clang-format lays them out."""
    program, reason = find_clang_format()
    if program is None:
        print(f"skipped: {reason}")
        sys.exit(SKIP)
    files = [str(path) for path in project_files(root) if path.suffix in CPP_SUFFIXES]
    findings = {}  # of a file the first
    for start in range(0, len(files), FORMAT_BATCH):
        done = subprocess.run([program, "--style=file", "--dry-run", "--Werror",
                               *files[start:start + FORMAT_BATCH]],
                              cwd=root, capture_output=True, text=True, check=False)
        for line in done.stderr.splitlines():
            path, error, _ = line.partition(":")
            if error and path in files:
                findings.setdefault(path, f"{line}   (mend: clang-format -i {path})")
        if done.returncode != 0 and not findings:
            findings["clang-format"] = f"clang-format failed: {done.stderr.strip()}"
    findings = list(findings.values())
    return findings


CHECKS = {
    "includes": check_includes,
    "readmes": check_readmes,
    "lines": check_lines,
    "columns": check_columns,
    "licence": check_licence,
    "unfinished": check_unfinished,
    "cmake": check_cmake,
    "format": check_format,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("names", nargs="*", choices=[[], *CHECKS], help="default: all of them")
    options = parser.parse_args()
    root = options.root.resolve()
    if not (root / "CMakePresets.json").is_file():
        parser.error(f"{root} is not the project's root")
    wrong = 0
    for name in options.names or CHECKS:
        findings = CHECKS[name](root)
        for finding in findings:
            print(finding)
        print(f"{name}: {len(findings)} findings. {CHECKS[name].__doc__}")
        wrong += len(findings)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
