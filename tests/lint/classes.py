# SPDX-License-Identifier: Apache-2.0
"""The classes of C++ text: how many methods each declares, and how many lines of code it has, in its
definition and in those of its members, wherever they are. Comments and blank lines do not count.

Text is split at its braces and semicolons, not parsed: a class is what follows `class NAME` or
`struct NAME`, a method is a declaration in it with a parameter list, `NAME::Method(...) {` is a
member's definition.
"""
import re
from typing import Iterator, NamedTuple, Optional

import tree as lint

_ACCESS = re.compile(r"^\s*(public|private|protected)\s*:")
_NOISE = re.compile(r"\[\[.*?\]\]|\b(?:ABSL|PUSHPULL)_[A-Z_]+(?:\s*\([^()]*\))?")
_PREPROCESSOR = re.compile(r"^[ \t]*#(?:.*\\\n)*.*$", re.MULTILINE)
_CLASS = re.compile(r"^(?:template\s*<.*>\s*)?(?:typedef\s+)?(class|struct)\s+([A-Za-z_][\w:]*)\b(?!.*\()", re.DOTALL)
_NAMESPACE = re.compile(r"^(?:inline\s+)?(?:namespace\b|extern\s*\")")
_NOT_A_METHOD = re.compile(r"^(?:using|typedef|friend|static_assert|enum|class|struct|union|return|if|for|while|switch)\b")
_METHOD = re.compile(r"(?:^|[\s*&~])(~?[A-Za-z_]\w*|operator\s*(?:\(\)|\[\]|[^\s\w(]+|\w+))\s*\(")
_MARK = re.compile(r"[;{}()]")
_BRACE = re.compile(r"[{}]")
_MEMBER = re.compile(r"((?:[A-Za-z_]\w*::)+)(?:~?[A-Za-z_]\w*|operator\s*(?:\(\)|[^\s(]+))\s*\(")


class Statement(NamedTuple):
    head: str  # up to the semicolon or the brace
    line: int
    body: Optional[str]  # between the braces; None: it ends with a semicolon
    body_line: int
    end_line: int


class Class:
    def __init__(self, file: str, line: int):
        self.file, self.line = file, line
        self.methods = self.public_methods = self.lines = 0


def without_brackets(text: str) -> str:
    """`std::function<void(int)> f` without what is between < and >."""
    text = re.sub(r"operator\s*(?:<=>|<<|>>|<=|>=|<|>|->)", "operator@", text)
    text = text.replace("->", "  ")
    while True:
        shorter = re.sub(r"<[^<>;{}]*>", "", text)
        if shorter == text:
            return text
        text = shorter


def is_value(head: str) -> bool:
    """Whether the brace after `head` initializes something: the declaration goes on after it."""
    head = without_brackets(_NOISE.sub("", head)).strip()
    head = re.sub(r"^(?:(?:public|private|protected)\s*:\s*)+", "", head)
    if _CLASS.search(head) or _NAMESPACE.search(head) or re.match(r"(?:enum|union)\b", head):
        return False
    opened = head.count("(") - head.count(")")
    if opened > 0 or re.search(r"=\s*$|\breturn\s*$", head):
        return True
    before, constructor, initializers = head.partition(") :")
    if constructor and re.search(r"[\w]\s*$", initializers):
        return True  # a_{1} of a constructor
    return "(" not in head


def statements(text: str, first_line: int) -> Iterator[Statement]:
    start, position, brackets = 0, 0, 0

    def line_of(place: int) -> int:
        return first_line + text.count("\n", 0, place)

    def statement(end: int, body: Optional[str]) -> Statement:
        head = text[start:position]
        first = start + len(head) - len(head.lstrip())
        return Statement(head, line_of(first), body, line_of(position), line_of(end))

    while (mark := _MARK.search(text, position)) is not None:
        position = mark.start()
        end = matching(text, position) if mark[0] == "{" else position
        brackets += {"(": 1, ")": -1}.get(mark[0], 0)
        is_body = mark[0] == "{" and brackets == 0 and not is_value(text[start:position])
        if is_body or (mark[0] == ";" and brackets == 0):
            yield statement(end, text[position + 1 : end] if is_body else None)
            start = end + 1
        position = end + 1


def matching(text: str, start: int) -> int:
    """Position of the brace that closes the one at `start`, or the end."""
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return len(text)


def code_lines(lines: list[str], first: int, last: int) -> int:
    return sum(bool(line.strip()) for line in lines[first - 1 : last])


class Classes:
    """By folder and name, `Outer::Inner` where they are nested."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], Class] = {}
        self._members: list[tuple[str, str, int]] = []  # folder or file, qualified name, lines

    def add_file(self, name: str, code: str) -> None:
        code = _PREPROCESSOR.sub(lambda match: lint.blank(match[0]), code)
        self._lines = code.split("\n")
        self._file = name
        self._scope(code, 1, "")

    def finish(self) -> dict[tuple[str, str], Class]:
        for file, owner, lines in self._members:
            folder = file.rpartition("/")[0]
            for key in ((file, owner), (folder, owner)):
                if key in self.found:
                    self.found[key].lines += lines
        return self.found

    def _key(self, name: str) -> tuple[str, str]:
        return (self._file if self._file.endswith(".cc") else self._file.rpartition("/")[0], name)

    def _scope(self, text: str, line: int, outer: str) -> None:
        for statement in statements(text, line):
            head = _NOISE.sub("", statement.head).strip()
            if statement.body is None:
                continue
            if _NAMESPACE.search(head):
                self._scope(statement.body, statement.body_line, outer)
            elif (found := _CLASS.search(head)) is not None:
                self._class(statement, outer + found[2], found[1] == "struct")
            elif (member := _MEMBER.search(without_brackets(head))) is not None:
                lines = code_lines(self._lines, statement.line, statement.end_line)
                self._members.append((self._file, member[1].removesuffix("::"), lines))

    def _class(self, statement: Statement, name: str, is_public: bool) -> None:
        found = Class(self._file, statement.line)
        found.lines = code_lines(self._lines, statement.line, statement.end_line)
        self.found[self._key(name)] = found
        for inner in statements(statement.body or "", statement.body_line):
            head = _NOISE.sub("", inner.head).strip()
            while (access := _ACCESS.match(head)) is not None:
                is_public = access[1] == "public"
                head = head[access.end():].strip()
            nested = _CLASS.search(head)
            if nested is not None and inner.body is not None:
                self._class(inner, f"{name}::{nested[2]}", nested[1] == "struct")
            elif is_method(head):
                found.methods += 1
                found.public_methods += is_public


def is_method(head: str) -> bool:
    head = re.sub(r"^template\s*<[^<>]*(?:<[^<>]*>[^<>]*)*>", "", head).strip()
    if _NOT_A_METHOD.match(head) or re.search(r"=\s*(?:delete|default)\s*$", head):
        return False
    head = without_brackets(head)
    call = _METHOD.search(head)
    return call is not None and "=" not in head[: call.start(1)] and not re.search(r"[\w_]_\s*$", head[: call.start()])
