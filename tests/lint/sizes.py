#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Limits on the size of classes, functions and scripts: 25 public methods and 400 lines of code a
class of runtime/ and operator/, wherever its members are defined; 70 lines, six parameters and four
levels of nesting a function; 1,000 lines a test, 800 a script.

C++ is scanned by its braces, not parsed: a body is what follows a parameter list, a level is a block
of if, else, for, while, do, switch or try; a lambda is a function of its own. Python is parsed,
and keyword-only parameters are not counted.
"""
import ast
import re
from typing import Iterator, NamedTuple, Optional

import classes
import tree as lint

PUBLIC_METHODS, CLASS_LINES = 25, 400
FILE_LINES, TEST_LINES = 800, 1000
FUNCTION_LINES, PARAMETERS, NESTING = 70, 6, 4

_CONTROL = re.compile(r"\b(?:if|else|for|while|do|switch|try|catch)\b")
_SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b[^()=]*$")
_LAMBDA = re.compile(r"\[[^\[\]]*\]\s*(?P<parameters>\(.*\))?\s*(?:mutable|noexcept|->[\w:<>&*\s]+|\s)*$",
                     re.DOTALL)
_FUNCTION = re.compile(r"(?P<name>[~\w:]+|operator\s*\S+)\s*\(", re.DOTALL)


class Function(NamedTuple):
    name: str
    line: int
    lines: int
    parameters: int
    nesting: int


class Block:
    def __init__(self, kind: str, name: str = "", line: int = 0, parameters: int = 0):
        self.kind, self.name, self.line, self.parameters = kind, name, line, parameters
        self.depth = self.deepest = 0
        self.head = ""
        self.has_statements = False

    def is_value(self) -> bool:
        """Braces of an initializer, as the a_{1} of a constructor: what they belong to goes on."""
        follows_name = re.search(r"[\w>,(=]\s*$", self.head) is not None
        return self.kind == "other" and follows_name and not self.has_statements


def closing(text: str, start: int) -> int:
    """Position of the bracket that closes the one at `start`, or the end."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text)


def count_parameters(text: str) -> int:
    """Of `int a, std::map<K, V> b`: commas outside of brackets, plus one."""
    text = re.sub(r"->|<=|>=|<<|>>=", "  ", text)
    depth, commas = 0, 0
    for character in text:
        depth += (character in "([{<") - (character in ")]}>")
        commas += character == "," and depth == 0
    return commas + 1 if text.strip() not in ("", "void") else 0


def classify(head: str, line: int) -> Block:
    """What the brace after `head` opens; `head` is the text since the last ; { or }."""
    head = re.sub(r"^[ \t]*#.*$", "", head, flags=re.MULTILINE)
    head = re.sub(r"\b(?:public|private|protected)\s*:", "", head).strip()
    as_lambda = _LAMBDA.search(head)
    if as_lambda is not None and not re.search(r"[\w\])]\s*$", head[: as_lambda.start()]):
        return Block("function", "lambda", line, count_parameters((as_lambda["parameters"] or "()")[1:-1]))
    if _CONTROL.match(head):
        return Block("control")
    if _SCOPE.search(re.sub(r"\[\[.*?\]\]|\b[A-Z_]+\([^()]*\)|template\s*<.*?>", "", head)):
        return Block("scope")
    call = _FUNCTION.search(head)
    if call is None or re.search(r"(?:=|\breturn|,)\s*[\w:<>, ]*$", head) or "=" in head[: call.start()]:
        return Block("other")
    start = call.end() - 1
    end = closing(head, start)
    if end == len(head):  # the brace is inside of the brackets
        return Block("other")
    return Block("function", call["name"], line, count_parameters(head[start + 1 : end]))


class Scanner:
    """Walks over C++ text brace by brace; `head` is the text since the last ; { or }."""

    def __init__(self) -> None:
        self.stack: list[Block] = []
        self.head, self.head_line, self.line = "", 1, 1

    def function(self) -> Optional[Block]:
        """The innermost function around here."""
        return next((b for b in reversed(self.stack) if b.kind == "function"), None)

    def open(self) -> None:
        block = classify(self.head, self.head_line)
        block.head = self.head
        owner = self.function()
        if block.kind == "control" and owner is not None:
            owner.depth += 1
            owner.deepest = max(owner.deepest, owner.depth)
        self.stack.append(block)
        self.head = ""

    def close(self) -> Optional[Function]:
        block = self.stack.pop()
        owner = self.function()
        if block.kind == "control" and owner is not None:
            owner.depth -= 1
        self.head = block.head + "()" if block.is_value() else ""
        if block.kind != "function":
            return None
        lines = self.line - block.line + 1
        return Function(block.name, block.line, lines, block.parameters, block.deepest)

    def step(self, character: str) -> Optional[Function]:
        function = None
        if character == "{":
            self.open()
        elif character == "}" and self.stack:
            function = self.close()
        elif character == ";" and self.head.count("(") <= self.head.count(")"):
            self.head = ""
            if self.stack:
                self.stack[-1].has_statements = True
        else:
            self.head += character
        if not self.head.strip():
            self.head_line = self.line + (character == "\n")
        self.line += character == "\n"
        return function


def functions_of(code: str) -> Iterator[Function]:
    scanner = Scanner()
    yield from filter(None, map(scanner.step, code))


def python_nesting(node: ast.AST) -> int:
    levels = (ast.If, ast.For, ast.While, ast.With, ast.Try)
    inner = (ast.FunctionDef, ast.ClassDef, ast.Lambda)
    children = [c for c in ast.iter_child_nodes(node) if not isinstance(c, inner)]
    return isinstance(node, levels) + max(map(python_nesting, children), default=0)


def python_functions_of(text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # Those that a call must name cannot be mixed up.
            arguments = [*node.args.posonlyargs, *node.args.args]
            parameters = len([a for a in arguments if a.arg not in ("self", "cls")])
            nesting = max(map(python_nesting, node.body))
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(node.name, node.lineno, lines, parameters, nesting)


def check_classes(tree: lint.Tree) -> list[str]:
    found = classes.Classes()
    for name in tree.cpp("runtime/", "operator/"):
        found.add_file(name, tree.code(name))
    findings = []
    for (_, name), size in found.finish().items():
        limits = [(size.public_methods, PUBLIC_METHODS, "public methods"), (size.lines, CLASS_LINES, "lines of code")]
        findings += [f"{size.file}:{size.line}: {name} has {value} {what}, more than {limit}: split it by what it owns"
                     for value, limit, what in limits if value > limit]
    return findings


def check(tree: lint.Tree) -> list[str]:
    findings = check_classes(tree)
    for name in tree.files:
        if not name.endswith((*lint.CPP, ".py", ".proto", ".sh")):
            continue
        lines = tree.text(name).count("\n")
        limit = TEST_LINES if name.startswith("tests/") else FILE_LINES
        is_class_file = name.endswith(lint.CPP) and not name.startswith("tests/")
        if lines > limit and not is_class_file:
            findings.append(f"{name}:1: {lines} lines, more than {limit}: split it")
        functions = (functions_of(tree.code(name)) if name.endswith(lint.CPP)
                     else python_functions_of(tree.text(name)) if name.endswith(".py") else [])
        for f in functions:
            if name == "tests/lint/tidy_known_bad.cc":
                continue
            limits = [(f.lines, FUNCTION_LINES, "lines"), (f.parameters, PARAMETERS, "parameters"),
                      (f.nesting, NESTING, "levels of nesting")]
            findings += [f"{name}:{f.line}: {f.name} has {value} {what}, more than {limit}"
                         for value, limit, what in limits if value > limit]
    return findings


if __name__ == "__main__":
    lint.main(check, __doc__)
