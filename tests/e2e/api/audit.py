# SPDX-License-Identifier: Apache-2.0
"""What the operator has asked of the API server, as the audit log has it."""
import json
import os
import pathlib
from typing import Any, NamedTuple


class Request(NamedTuple):
    verb: str
    resource: str  # "trainingjobs/status"
    name: str
    code: int
    path: str
    namespace: str
    user: str


def _request(entry: dict[str, Any]) -> Request:
    target = entry["objectRef"]
    resource = "/".join(target[key] for key in ("resource", "subresource") if key in target)
    return Request(entry["verb"], resource, target.get("name", ""), entry["responseStatus"]["code"], entry["requestURI"],
                   target.get("namespace", ""), entry["user"]["username"])


def requests() -> list[Request]:
    """In the order of their ends; a watch is there twice."""
    log = pathlib.Path(os.environ["API_STATE"]) / "audit.log"
    with open(log, encoding="utf-8") as lines:
        entries = [json.loads(line) for line in lines if '"userAgent":"pushpull-operator"' in line]
    return [_request(entry) for entry in entries]
