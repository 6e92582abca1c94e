#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A header of a room that a room may not include does not compile there.

For each room that LAYERS of check_style.py names, the compiler is asked, with the options of one
of the room's own sources, which of the project's headers it finds. It must find the room's own and
none that LAYERS forbids. `check_rooms.py --root DIR --build DIR`; ends with 77 where the build
folder has no compile_commands.json.
"""
import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import check_style

DROPPED = {"-c", "-o", "-MD", "-MF", "-MT", "-include"}
WITH_VALUE = {"-o", "-MF", "-MT", "-include"}


def is_program(layer):
    """Programs link what they like of what LAYERS grants; a prefix is no folder."""
    return layer.endswith("_") or layer.split("/")[0] in ("perf", "tools", "include")


def headers(root):
    """What stands in an #include, and the file that it means."""
    found = {}
    for path in check_style.project_files(root):
        top = path.parts[0]
        if path.suffix not in (".hpp", ".h", ".cuh") or top not in (
                "src", "algorithms", "transports", "include"):
            continue
        name = path if top in ("algorithms", "transports") else path.relative_to(top)
        found[name.as_posix()] = path
    return found


def options(command):
    """The compiler and its options, without the source, the output and what is precompiled."""
    words, kept = shlex.split(command["command"]), []
    skip = False
    for word in words:
        if skip or word in DROPPED:
            skip = word in WITH_VALUE and not skip
            continue
        if Path(command["directory"], word) != Path(command["file"]):
            kept.append(word)
    return kept[1:] if Path(kept[0]).name == "ccache" else kept


def object_of(command):
    words = shlex.split(command["command"])
    return words[words.index("-o") + 1]


def roots_of(command):
    """The include paths of a command: what tells the targets of one room apart."""
    return tuple(sorted({word for word in options(command) if word.startswith("-I")}))


def commands_of_rooms(root, commands):
    """By room: one command for each set of include paths that its sources have."""
    rooms = {}
    for command in commands:
        file = Path(command["file"])
        if file.suffix != ".cpp" or not file.is_relative_to(root):
            continue
        layer = check_style.layer_of(file.relative_to(root))
        # A test may compile a source of a room for itself, with roots of its own.
        if layer is not None and not is_program(layer) and object_of(command).startswith(layer):
            rooms.setdefault(layer, {}).setdefault(roots_of(command), command)
    return rooms


def visible(command, names):
    """Those of `names` that an #include finds."""
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as source:
        for name in names:
            source.write(f'#if __has_include("{name}")\nfound {name}\n#endif\n')
        source.flush()
        text = subprocess.run([*options(command), "-E", "-P", source.name], check=True,
                              cwd=command["directory"], capture_output=True, text=True).stdout
    return [line.split()[1] for line in text.splitlines() if line.startswith("found ")]


def is_below(path, layers):
    return any(path == layer or path.startswith(layer + "/") for layer in layers)


def check(root, commands):
    names = headers(root)
    findings = []
    rooms = commands_of_rooms(root, commands)
    for layer in check_style.LAYERS:
        folder = root / layer
        if layer not in rooms and not is_program(layer) and list(folder.glob("*.cpp")):
            findings.append(f"{layer}: compile_commands.json has no source of it")
    for layer in sorted(rooms):
        found = set()
        for command in rooms[layer].values():
            found |= {names[name].as_posix() for name in visible(command, names)}
        if not any(is_below(path, [layer]) for path in found):
            findings.append(f"{layer}: its own headers are not found")
        findings += [f"{layer}: {path} can be included, which LAYERS forbids"
                     for path in sorted(found)
                     if not is_below(path, [layer, *check_style.LAYERS[layer]])]
    print(f"{len(rooms)} rooms, {sum(map(len, rooms.values()))} kinds of targets, "
          f"{len(names)} headers")
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    arguments = parser.parse_args()
    database = arguments.build / "compile_commands.json"
    if not database.is_file():
        print(f"skipped: {database} does not exist")
        return check_style.SKIP
    findings = check(arguments.root.resolve(), json.loads(database.read_text(encoding="utf-8")))
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
