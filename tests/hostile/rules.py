# SPDX-License-Identifier: Apache-2.0
"""What an attack is, and what it is played against."""
import pathlib
import random
import ssl
from typing import Any, Callable, NamedTuple, Optional

# What the attacked process does.
CLOSED = "closed"      # the connection
REFUSED = "refused"    # the request, and the connection goes on
ANSWERED = "answered"  # as it would an honest peer
SILENT = "no answer"   # the request is dropped, and the connection goes on

ROLES = ("server", "coordinator", "metrics", "checkpoint", "operator")


class Target(NamedTuple):
    """The honest job as the attacker sees it."""
    job: str
    servers: list[str]             # data addresses
    server_pids: list[int]
    coordinator: str               # control address
    metrics: list[str]             # of every role
    is_member: bool                # knows the job's name; under TLS has a certificate of it
    tls: Optional[ssl.SSLContext]  # of the attacker; None: plain
    chunk_bytes: int
    folder: pathlib.Path           # of the attacker's own files


class Rule(NamedTuple):
    """`attack` returns what came back, one of `answers`. A stranger is only ever closed out of what needs a member."""
    role: str
    name: str
    where: str  # the page that has the rule
    attack: Callable[[Target, random.Random], str]
    answers: tuple[str, ...]
    needs_member: bool = False
    is_slow: bool = False  # not in every round


class Table:
    """Rules by the role that they are broken against."""

    def __init__(self, role: str, where: str) -> None:
        self.rules: list[Rule] = []
        self._role = role
        self._where = where

    def add(self, name: str, answers: Any, attack: Callable[[Target, random.Random], str],
            needs_member: bool = False, is_slow: bool = False) -> None:
        allowed = (answers,) if isinstance(answers, str) else tuple(answers)
        self.rules.append(Rule(self._role, name, self._where, attack, allowed, needs_member, is_slow))

    def rule(self, name: str, answers: Any, **more: bool) -> Callable:
        """The same as a decorator of the attack."""
        def added(attack: Callable[[Target, random.Random], str]) -> Callable:
            self.add(name, answers, attack, **more)
            return attack
        return added
