# SPDX-License-Identifier: Apache-2.0
"""What every lint here needs: the files of a working tree, C++ text without comments, and a main().

A lint is a function check(tree) that returns findings, each one line `path:line: what, and what to
do`.
"""
import argparse
import pathlib
import re
import subprocess
import sys
from typing import Callable, Optional

CPP = (".h", ".cc", ".cu")

# Comments, strings, character literals (not the ' of 1'000).
_CPP_TOKEN = re.compile(
    r"//[^\n]*"
    r"|/\*.*?\*/"
    r'|R"(?P<mark>[^(\s"]*)\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)

# How a comment begins, by the endings of files.
_MARKS = {"//": CPP + (".proto",), "#": (".py", ".sh", ".yaml", ".yml", ".txt", ".cmake")}


def blank(text: str) -> str:
    """The same number of lines and columns, nothing in them."""
    return re.sub(r"[^\n]", " ", text)


class Tree:
    """The files of a git working tree that git does not ignore, committed or not."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        listing = self.git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = sorted(set(filter(None, listing.split("\0"))))
        self.files = [n for n in names if (root / n).is_file() and not (root / n).is_symlink()]

    def git(self, *arguments: str) -> str:
        # A clone owned by somebody else (CI as root) is fine: nothing of it is executed here.
        command = ["git", "-c", "safe.directory=*", "-C", str(self.root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def cpp(self, *folders: str) -> list[str]:
        """C++ files under `folders`, everywhere without any."""
        return [n for n in self.files if n.endswith(CPP) and (not folders or n.startswith(folders))]

    def text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    def code(self, name: str) -> str:
        """C++ with comments and the insides of literals blanked; lines and columns stay."""

        def replace(match: re.Match) -> str:
            token = match.group(0)
            if token.startswith("/"):
                return blank(token)
            return '"' + blank(token[1:-1]) + '"'

        return _CPP_TOKEN.sub(replace, self.text(name))


def comments(tree: Tree, name: str) -> list[tuple[int, str]]:
    """(line number, text) of each comment line, and of each line of a Python docstring."""
    lines = tree.text(name).splitlines()
    mark = next((mark for mark, endings in _MARKS.items() if name.endswith(endings)), None)
    if mark is None:
        mark = "#" if lines and lines[0].startswith("#!") else None
    if mark is None:
        return []
    found = [(number, line.partition(mark)[2]) for number, line in enumerate(lines, 1)
             if re.search(rf"(?:^|\s){mark}", line)]
    if name.endswith(".py"):
        for match in re.finditer(r'"""(.*?)"""', tree.text(name), re.DOTALL):
            first = tree.text(name).count("\n", 0, match.start()) + 1
            found += list(enumerate(match[1].splitlines(), first))
    return found


def matches(pattern: re.Pattern, text: str):
    """(line number, match) of every match."""
    for match in pattern.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match


def main(check: Callable[[Tree], list[str]], doc: Optional[str]) -> None:
    """Runs one lint on the tree at --root; exit 1 and one line a finding when there are any."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--root", type=pathlib.Path, default=default, help="working tree to check")
    findings = check(Tree(parser.parse_args().root.resolve()))
    for finding in findings:
        print(finding)
    sys.exit(1 if findings else 0)


def main_with_fix(check: Callable[[Tree], list[str]], doc: Optional[str], fix: Callable[[Tree], tuple[str, str]]) -> None:
    """As main; with --fix the path that `fix` returns is written with its text."""
    if sys.argv[1:] != ["--fix"]:
        main(check, doc)
    here = Tree(pathlib.Path(__file__).resolve().parents[2])
    path, text = fix(here)
    (here.root / path).write_text(text, encoding="utf-8")
