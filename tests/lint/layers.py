#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which folder may include which, and in which files a third-party header may appear.

Dependencies point down: a row of LAYERS may name rows above it only. All modules share one include
root, so the compiler alone would not notice.
"""
import fnmatch
import re

import tree as lint

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">\n]+)[">]', re.MULTILINE)

_PURE = ["base", "tensor", "shard", "consistency", "optim"]
# The installed headers stand alone. Their value types (ids, deadlines, tensor specs) are the bottom layer,
# which every folder may use; the API itself is for those who link the worker library.
_VALUES = "include/pushpull"
_API = "include/pushpull/job.h"
_ROLE = [*_PURE, "store", "checkpoint", "metrics", "tls", "transport", "replication", "exchange", "membership"]

# folder of runtime/ -> what it may include, itself aside. From the bottom up.
LAYERS = {
    _VALUES: [],
    _API: [_VALUES],
    "base": [],
    "job": ["base"],
    # Topologies are read as manifests are.
    "plan": ["base", "job"],
    "tensor": ["base"],
    "metrics": ["base"],
    "shard": ["base"],
    # The mode, as the manifest names it.
    "consistency": ["base", "job"],
    "optim": ["base", "tensor"],
    # The computations of tensor and optim on GPUs.
    "device": ["base", "tensor", "optim"],
    "store": ["base", "tensor", "shard", "optim"],
    # Of consistency the position in the data set, which is the value of a chunk.
    "checkpoint": [*_PURE, "store"],
    "tls": ["base", "metrics"],
    "transport": ["base", "tensor", "tls"],
    "replication": ["base", "shard", "consistency", "transport"],
    "exchange": ["base", "tensor", "consistency", "transport", "replication"],
    # Of transport sockets and shared memory, not its frames. Of device for nccl/ only.
    "collective": ["base", "tensor", "device", "tls", "transport"],
    # Its messages carry views, tensors, the manifest's policies, the phases of a step and what was
    # written of a checkpoint.
    "membership": [*_PURE, "job", "store", "checkpoint", "metrics", "tls", "transport"],
    # The file that `pushpull trace` writes.
    "trace": ["base", "membership"],
    # What people see of a job: of its status, and over the HTTP exposer.
    "status": ["base", "job", "consistency", "metrics", "membership"],
    "server": _ROLE,
    # What a worker of mode AllReduce has in the place of servers.
    # Of transport its shared memory.
    "ring": [*_PURE, "store", "checkpoint", "tls", "transport", "collective", "membership"],
    "worker": [*_ROLE, "collective", "ring", _API],
    # Of job which worker's end is the success of the job, as its launcher and the operator decide it.
    "coordinator": [*_ROLE, "job"],
    "train": ["base", "job", "tensor", "optim", "worker", _API],
    # `pushpull run` asks the coordinator for progress over its client.
    "local": ["base", "job", "plan", "tls", "membership", "status"],
    # Benchmarks start jobs as `pushpull run` does, and have workers of their own in them.
    "bench": ["base", "tensor", "shard", "metrics", "tls", "transport", "collective", "worker", "local", _API],
}
LAYERS["cmd"] = list(LAYERS)
# Programs like any user's: the public API and nothing else.
LAYERS["python"] = [_VALUES, _API]
LAYERS["examples"] = [_VALUES, _API]

# What the operator may use of runtime/, and what some of its folders may besides
# (docs/decisions/0024-operator-and-runtime.md).
OPERATOR_USES = ["base", "job", "tls"]
OPERATOR_FOLDER_USES = {
    "metrics": ["metrics"],
    # The client of a coordinator.
    "controller": ["membership"],
    # /metrics, /livez and /readyz.
    "cmd": ["metrics"],
}

# The same for folders of operator/, among themselves.
OPERATOR_LAYERS = {
    "kube": [],
    "api": ["kube"],
    # Of api what time it is.
    "certificates": ["api"],
    "queue": [],
    "cache": ["kube"],
    "lease": ["kube", "api"],
    # Of kube what an object is, not the client.
    "plan": ["kube", "api"],
    "children": ["kube", "api", "certificates"],
    "metrics": [],
    "controller": ["kube", "api", "certificates", "queue", "cache", "lease", "plan", "children", "metrics"],
}
OPERATOR_LAYERS["cmd"] = list(OPERATOR_LAYERS)

# The files that speak gRPC and protobuf; *_proto.{h,cc} turns messages into plain structs.
_RPC = ["*_service.cc", "*_client.cc", "runtime/tls/grpc_credentials.cc", "runtime/transport/grpc/*_wire.cc",
        "runtime/transport/grpc/reactor_wire.h", "tests/*"]
_MESSAGES = [*_RPC, "*_proto.h", "*_proto.cc", "runtime/checkpoint/*"]

# Header -> where it may be included. A * also spans folders.
FENCES = [
    (r"grpcpp/|grpc/|.*\.grpc\.pb\.h$", _RPC),
    (r"google/protobuf/|.*\.pb\.h$|(runtime|operator)/.*_proto\.h$", _MESSAGES),
    (r"httplib\.h$", ["runtime/metrics/*.cc", "tests/fakes/*"]),
    (r"curl/", ["operator/kube/http_exchange.cc", "tests/unit/operator/kube/http_exchange_test.cc"]),
    (r"nlohmann/|yaml-cpp/",
     ["runtime/job/*", "operator/api/*", "operator/children/*", "operator/kube/*",
      # Those that print: the status page, the report, endpoints.json, what a role says when it is ready.
      "runtime/status/status_json.h", "runtime/status/*.cc",
      "runtime/bench/*report.cc", "runtime/local/report.cc", "runtime/local/workdir.cc", "runtime/local/member_table.cc",
      "runtime/trace/chrome_trace.cc", "runtime/plan/plan_json.cc",
      "runtime/cmd/*.cc", "tests/*"]),
    (r"prometheus/", ["*/metrics/*", "*_metrics.h", "*_metrics.cc"]),
    (r"torch/|ATen/|c10/", ["runtime/train/*", "tests/unit/runtime/train/*", "tests/python/fake_accelerator.cc"]),
    (r"openssl/", ["runtime/tls/*", "operator/kube/credentials.cc", "operator/certificates/certificate_maker.cc",
                   "tests/*"]),
    (r"CLI/", ["runtime/cmd/*", "runtime/train/main.cc", "operator/cmd/*"]),
    (r"gtest/|gmock/|benchmark/", ["tests/*"]),
    (r"spdlog/", ["runtime/base/log.cc"]),
    (r"nanobind/", ["runtime/python/*"]),
    (r"(cuda|nccl)\w*\.h$", ["*/cuda/*"]),
]

# Fences that let a header into this many files of each folder only.
ONE_FILE_A_FOLDER = [r"httplib\.h$"]


def layer_of(path: str) -> str:
    """The row of LAYERS that a path under runtime/ belongs to, its first folder when there is none."""
    inside = path.removeprefix("runtime/")
    if inside.startswith(_VALUES + "/"):
        return _API if inside == _API else _VALUES
    return inside.split("/")[0]


def check_table() -> list[str]:
    findings = []
    for table in (LAYERS, OPERATOR_LAYERS):
        above: set[str] = set()
        for layer, uses in table.items():
            findings += [f"tests/lint/layers.py: {layer} uses {u}, which is not above it"
                         for u in uses if u not in above]
            above.add(layer)
    return findings


def check_row(table: dict[str, list[str]], own: str, used: str) -> str:
    if own not in table:
        return f"{own}/ has no row in tests/lint/layers.py"
    if used != own and used not in table[own]:
        return f"{own} may not use {used} (it may use: {', '.join(table[own]) or 'nothing'})"
    return ""


def check_layer(name: str, header: str) -> str:
    """What is wrong with `name` including `header`; empty: nothing."""
    if not header.startswith(("runtime/", "operator/", "tests/", "pushpull/")):
        return ""
    top = name.split("/")[0]
    if top == "tests":
        return ""
    if header.startswith("tests/"):
        return "product code does not use tests/"
    if header.startswith("pushpull/v"):  # generated; its fence is below
        return ""
    if header.startswith("pushpull/"):
        header = "runtime/include/" + header
    if layer_of(header) == _VALUES:
        return ""
    if top == "operator":
        if header.startswith("operator/"):
            return check_row(OPERATOR_LAYERS, name.split("/")[1], header.split("/")[1])
        folder = name.split("/")[1]
        allowed = [*OPERATOR_USES, *OPERATOR_FOLDER_USES.get(folder, [])]
        return "" if layer_of(header) in allowed else f"operator/{folder} may use only {allowed} of runtime/"
    if header.startswith("operator/"):
        return "runtime/ does not use operator/"
    return check_row(LAYERS, layer_of(name), layer_of(header))


def check_fence(name: str, header: str) -> str:
    for pattern, places in FENCES:
        if re.match(pattern, header) and not any(fnmatch.fnmatch(name, p) for p in places):
            return f"allowed only in {', '.join(places)}"
    return ""


def check(tree: lint.Tree) -> list[str]:
    findings = check_table()
    users: dict[tuple[str, str], list[str]] = {}
    for name in tree.cpp("runtime/", "operator/", "tests/"):
        if name.startswith("tests/lint/"):
            continue
        for line, match in lint.matches(_INCLUDE, tree.text(name)):
            header = match.group(1)
            for problem in filter(None, [check_layer(name, header), check_fence(name, header)]):
                findings.append(f"{name}:{line}: includes {header}: {problem}")
            for pattern in ONE_FILE_A_FOLDER:
                if re.match(pattern, header):
                    users.setdefault((pattern, name.rpartition("/")[0]), []).append(name)
    for (pattern, folder), names in users.items():
        findings += [f"{n}:1: {folder} includes {pattern} in {names[0]} already" for n in names[1:]]
    return findings


if __name__ == "__main__":
    lint.main(check, __doc__)
