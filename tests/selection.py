#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which tests of a build folder match a name, or are affected by a change. `./dev test` calls this.

  selection.py BUILD --match REGEX      CTest names; if none matches, GoogleTest cases `Suite.Name`
  selection.py BUILD --changed [BASE]   tests whose sources, headers, programs or scripts differ from
                                        the commit BASE (default: where this branch left origin/main,
                                        or HEAD), uncommitted changes included. The build is up to date.

Prints `TEST<tab>TARGETS<tab>FILTER`: what to run with CTest, which programs it needs, and, for a
single GoogleTest case, GTEST_FILTER. Exits with 1 when nothing is selected.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
from typing import Iterable, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
_CASE = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)")


class Test(NamedTuple):
    name: str
    targets: list[str]  # programs it runs, as paths below the build folder
    scripts: list[str]  # files of the repository that it reads
    folder: str  # that it runs in, relative to the repository


def output_of(*command: object) -> str:
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, cwd=ROOT).stdout


def below(path: str, folder: pathlib.Path) -> str:
    """`path` relative to `folder`; empty when it is elsewhere."""
    try:
        return str(pathlib.Path(path).relative_to(folder))
    except ValueError:
        return ""


def tests_of(build: pathlib.Path) -> list[Test]:
    listing = json.loads(output_of("ctest", "--test-dir", build, "--show-only=json-v1"))
    found = []
    for test in listing["tests"]:
        properties = {p["name"]: p["value"] for p in test["properties"]}
        values = [v.partition("=")[2] for v in properties.get("ENVIRONMENT", [])]
        words = [*test.get("command", []), *values]
        targets = [t for w in words if (t := below(w, build)) and (build / t).suffix == ""]
        scripts = [s for w in words if not below(w, build) and (s := below(w, ROOT))]
        folder = below(properties.get("WORKING_DIRECTORY", ""), ROOT)
        scripts += [f"{folder}/{w.partition('.')[0]}.py" for w in words if (ROOT / folder / f"{w.partition('.')[0]}.py").is_file()]
        found.append(Test(test["name"], targets, scripts, "" if folder.startswith("build") else folder))
    return found


def matching_cases(build: pathlib.Path, pattern: re.Pattern) -> dict[str, list[str]]:
    """Program -> `Suite.Name` of the GoogleTest cases that match."""
    found: dict[str, list[str]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        program = re.search(r"CMakeFiles/(\w+)\.dir/\S*_test\.cc\.o\b", entry["command"])
        if program is None or not below(entry["file"], ROOT / "tests"):
            continue
        cases = [f"{s}.{n}" for s, n in _CASE.findall(pathlib.Path(entry["file"]).read_text())]
        found.setdefault(program[1], []).extend(c for c in cases if pattern.search(c))
    return {program: cases for program, cases in found.items() if cases}


def match(build: pathlib.Path, expression: str) -> Iterable[tuple[Test, str]]:
    pattern = re.compile(expression)
    tests = tests_of(build)
    by_name = [(test, "") for test in tests if pattern.search(test.name)]
    cases = {} if by_name else matching_cases(build, pattern)
    # A parameterized case has its instance before and its parameter behind its name.
    return by_name or [(test, ":".join(f"{c}:*/{c}/*" for c in cases[test.name])) for test in tests if test.name in cases]


def changed_files(base: str) -> set[str]:
    if not base:
        known = subprocess.run(["git", "merge-base", "HEAD", "origin/main"], capture_output=True, text=True, cwd=ROOT)
        base = known.stdout.strip() or "HEAD"
    names = output_of("git", "diff", "--name-only", base).splitlines()
    return {*names, *output_of("git", "ls-files", "--others", "--exclude-standard").splitlines()}


def headers_of_objects(build: pathlib.Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in output_of("ninja", "-C", build, "-t", "deps").splitlines():
        if line.startswith("    "):
            headers.add(below(line.strip(), ROOT))
        elif line:
            headers = found.setdefault(line.partition(": #deps")[0], set())
    return found


def changed(build: pathlib.Path, base: str) -> Iterable[tuple[Test, str]]:
    files, headers = changed_files(base), headers_of_objects(build)
    if any(name.endswith(("CMakeLists.txt", "CMakePresets.json")) for name in files):
        return [(test, "") for test in tests_of(build)]
    is_affected: dict[str, bool] = {}

    def program_is_affected(target: str) -> bool:
        inputs = output_of("ninja", "-C", build, "-t", "inputs", target).splitlines()
        return any(below(i, ROOT) in files or headers.get(i, set()) & files for i in inputs)

    for target in {t for test in tests_of(build) for t in test.targets}:
        is_affected[target] = program_is_affected(target)
    folders = {str(pathlib.PurePosixPath(f).parent) for f in files if f.endswith(".py") and not f.endswith("_test.py")}
    return [(test, "") for test in tests_of(build)
            if any(is_affected[t] for t in test.targets) or files & set(test.scripts) or test.folder in folders]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="configured build folder, with Ninja")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--match", metavar="REGEX")
    what.add_argument("--changed", metavar="BASE", nargs="?", const="")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    selected = list(match(build, arguments.match) if arguments.match else changed(build, arguments.changed))
    for test, cases in selected:
        print(test.name, " ".join(test.targets), cases, sep="\t")
    return 0 if selected else 1


if __name__ == "__main__":
    sys.exit(main())
