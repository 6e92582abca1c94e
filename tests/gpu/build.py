# SPDX-License-Identifier: Apache-2.0
"""Where the suite's programs come from: a build on this machine, or a folder that was filled on
another one. Either way a file programs.json says where they lie (tests/gpu/CMakeLists.txt)."""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_MIB = 52  # 64 with the tree and what else is carried
# Dependencies that any machine has; the rest of what a program is linked with goes along.
SYSTEM = re.compile(r"^(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+)\.so)")
# Of tools/packages.txt, what a machine with a toolkit has, or needs for other tests only.
THERE = {"g++", "cmake", "ninja-build", "ccache", "python3", "iproute2"}
# Dependencies that come with any compiler, or that nothing here is built with.
NOT_NEEDED = {"libc6", "libc6-dev", "libgcc-s1", "libstdc++6", "zlib1g", "perl", "automake",
              "autotools-dev", "debianutils", "m4", "googletest", "libltdl-dev"}
SANITIZER_THREADS = 256  # of a block; compute-sanitizer takes registers for itself


class Failure(Exception):
    """One line that says what, where and what to do."""


def architectures_here():
    """Machine code for the GPUs that are here, "90-real"; "" where none answers."""
    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
                              capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
    found = {line.strip().replace(".", "") for line in text.splitlines()}
    return ";".join(sorted(f"{each}-real" for each in found if re.fullmatch(r"\d{2,3}", each)))


def package_environment(packages):
    """By which a build and its programs find the packages of --pack."""
    if not packages:
        return {}
    lib = packages / "usr/lib/x86_64-linux-gnu"
    paths = [str(lib), os.environ.get("LD_LIBRARY_PATH", "")]
    return {"PKG_CONFIG_SYSROOT_DIR": str(packages),
            "PKG_CONFIG_LIBDIR": f"{lib}/pkgconfig:{packages}/usr/share/pkgconfig",
            "LD_LIBRARY_PATH": ":".join(filter(None, paths)),
            "PATH": f"{os.environ['PATH']}:{packages}/usr/bin"}


def library_environment(prebuilt):
    """By which programs find what --prebuild copied with them; the driver, by what is there."""
    if not prebuilt or not (prebuilt / "lib").is_dir():
        return {}
    paths = [str(prebuilt / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}


def build(suite, options, folder, flags=()):
    """Configures and builds the target gpu_tests in `folder`. Returns whether that went well."""
    command = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DTUTTI_CUDA=ON", *flags]
    architectures = options.architectures or architectures_here()
    if architectures:
        command.append(f"-DTUTTI_CUDA_ARCHITECTURES={architectures}")
    if options.packages:
        command += [f"-DCMAKE_PREFIX_PATH={options.packages}/usr",
                    "-DCMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu"]
    name = folder.name
    for part, limit, words in ((f"configure {name}", 60, command),
                               (f"build {name}", suite.seconds_left(),
                                ["cmake", "--build", folder, "--target", "gpu_tests"])):
        done = suite.command(part, limit, words)
        steps = len(re.findall(r"^\[\d", done.text, re.M))
        suite.row(part, done.result, done.seconds, f"{steps} steps" if steps else "")
        if not done.ran:
            return False
    return True


def build_for_sanitizers(suite, options):
    folder = options.build.with_name(options.build.name + "-sanitize")
    flags = [f"-DTUTTI_DEVICE_THREADS={SANITIZER_THREADS}"]
    return folder if build(suite, options, folder, flags) else None


def programs_in(folder):
    """The programs of a build or of --prebuild. Paths in the file are relative to it."""
    file = folder / "programs.json"
    if not file.exists():
        file = folder / "tests/gpu/programs.json"
    try:
        named = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failure(f"{folder} has no programs.json that can be read ({error}); give the folder "
                      "that --prebuild filled, or a build folder") from error

    def located(path):
        return str((file.parent / path).resolve())

    for name, value in named.items():
        if isinstance(value, list):
            named[name] = [located(path) for path in value]
        elif isinstance(value, str):
            named[name] = located(value)
    return named


def copy_program(path, folder, libraries):
    """Copies a program and what it is linked with. Returns its path in the folder."""
    target = folder / "bin" / Path(path).name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    for name, source in re.findall(r"^\s*(\S+) => (/\S+)", listed, re.M):
        if SYSTEM.match(name) or (libraries / name).exists():
            continue
        libraries.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, libraries / name, follow_symlinks=True)
    return f"bin/{target.name}"


def collect(build_folder, folder):
    """Copies the programs of a build, with a programs.json of their own. Returns MiB."""
    named = programs_in(build_folder)
    libraries = folder / "lib"
    moved = {}
    for name, value in named.items():
        if isinstance(value, list):
            moved[name] = [copy_program(path, folder, libraries) for path in value]
        elif isinstance(value, str):
            moved[name] = copy_program(value, folder, libraries)
        else:
            moved[name] = value
    (folder / "programs.json").write_text(json.dumps(moved, indent=1) + "\n", encoding="utf-8")
    return mib_of(folder)


def mib_of(folder):
    return sum(f.lstat().st_size for f in folder.rglob("*") if f.is_file()) / 2**20


def checked_size(folder, what):
    mib = mib_of(folder)
    if mib > MOST_MIB:
        shutil.rmtree(folder)
        raise Failure(f"{what}: {mib:.0f} MiB, at most {MOST_MIB} can be carried")
    return mib


# ---- Packages

def wanted_packages():
    for line in (ROOT / "tools/packages.txt").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if len(words) > 1 and words[0][0] != "#" and words[1] == "build" and words[0] not in THERE:
            yield words[0]


def dependencies_of(package):
    no = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces",
                                      "enhances")]
    text = subprocess.run(["apt-cache", "depends", *no, package], capture_output=True, text=True,
                          check=False).stdout
    return re.findall(r"^ *\|?(?:Pre)?Depends: ([^<\n]*)$", text, re.M)


def all_packages():
    """The wanted packages and whatever they depend on."""
    seen, queue = set(), list(wanted_packages())
    while queue:
        name = queue.pop()
        if name in seen or name in NOT_NEEDED:
            continue
        seen.add(name)
        queue += dependencies_of(name)
    return sorted(seen)


def pack(folder):
    """Downloads and unpacks the packages that a build needs. Returns MiB."""
    for program in ("apt-get", "dpkg-deb"):
        if not shutil.which(program):
            raise Failure(f"--pack needs a Debian system: there is no {program}")
    if folder.exists() and not (folder / "usr/include").is_dir():
        raise Failure(f"--pack: {folder} exists and is not a pack; name another folder")
    archives = folder.with_name(folder.name + ".archives")
    shutil.rmtree(archives, ignore_errors=True)
    archives.mkdir(parents=True)
    try:
        got = subprocess.run(["apt-get", "-q", "download", "-o", "APT::Sandbox::User=root",
                              *all_packages()], cwd=archives, capture_output=True, text=True,
                             check=False)
        if got.returncode != 0:
            raise Failure("--pack: apt-get could not download the packages; try apt-get update: "
                          + (got.stderr.strip().splitlines() or ["no reason given"])[-1])
        shutil.rmtree(folder, ignore_errors=True)
        for archive in archives.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
    finally:
        shutil.rmtree(archives, ignore_errors=True)
    for name in ("etc", "var", "bin", "sbin", "usr/sbin", "usr/games", "usr/src",
                 *(f"usr/share/{part}" for part in ("doc", "doc-base", "man", "info", "lintian",
                                                    "locale", "bug", "gdb"))):
        shutil.rmtree(folder / name, ignore_errors=True)
    return checked_size(folder, "--pack: unpacked")
