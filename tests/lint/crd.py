# SPDX-License-Identifier: Apache-2.0
"""The fields of the CRD, read from its text: it is written in one style, and lints use the standard library alone."""
import re
from typing import NamedTuple

PATH = "charts/pushpull/files/crd/trainingjobs.yaml"
_KEY = re.compile(r"^( +)(\w+):(.*)$")
_TEXT = r'("(?:[^"\\]|\\.)*"|[^,}]*)'
# The schema itself has none: docs/decisions/0069-runtimes.md.
_DEFAULT = re.compile(r" Defaults to (\S+)\.(?= Kubernetes only\.$|$)")


class Field(NamedTuple):
    path: str  # spec.restart.rules[].action
    is_leaf: bool
    facts: dict[str, str]  # type, default, minimum, maximum, enum, description, which names the default no more


def _facts(text: str) -> dict[str, str]:
    """Of a flow mapping; the description is its last key."""
    text, _, description = text.partition("description: ")
    facts = {key: value.strip('"') for key in ("type", "minimum", "maximum")
             for value in re.findall(rf"\b{key}: {_TEXT}", re.sub(r"items: \{.*?\}", "", text))[:1]}
    if (names := re.search(r"enum: \[(.*?)\]", text)) is not None:
        facts["enum"] = names[1].replace('"', "")
    description = description.removesuffix("}").strip('"')
    if (default := _DEFAULT.search(description)) is not None:
        facts["default"] = default[1]
    return {**facts, "description": _DEFAULT.sub("", description)}


def fields(text: str) -> list[Field]:
    """Every property of spec and status, in the order of the file."""
    found: list[Field] = []
    stack: list[tuple[int, bool, str]] = []  # indent, whether inside `properties`, path
    for line in text.partition("openAPIV3Schema:")[2].splitlines():
        match = _KEY.match(line)
        if match is None:
            continue
        indent, key, rest = len(match[1]), match[2], match[3].strip()
        while stack and stack[-1][0] >= indent:
            stack.pop()
        _, is_properties, path = stack[-1] if stack else (0, False, "")
        if is_properties:
            path = f"{path}.{key}".lstrip(".")
            stack.append((indent, False, path))
            found.append(Field(path, True, _facts(rest)))
        elif key in ("properties", "items") and not rest:
            stack.append((indent, key == "properties", path + ("[]" if key == "items" else "")))
        elif key in ("type", "description") and found and found[-1].path == path:
            found[-1].facts[key] = rest.strip('"')
    inner = {field.path.rpartition(".")[0].removesuffix("[]") for field in found}
    return [field._replace(is_leaf=field.path not in inner)
            for field in found if field.path.startswith(("spec", "status"))]
