# SPDX-License-Identifier: Apache-2.0
"""Manifests that are valid, or wrong in exactly one place: what `pushpull validate` and a real API server
must agree on. Single fields, their types, ranges and defaults, are compared in the unit tests of
runtime/job; here are the rules and how an error names its place.
"""
import copy
from typing import Any, NamedTuple, Optional

JSON = dict[str, Any]


class Row(NamedTuple):
    name: str
    field: Optional[str]  # the one that an error names; None: valid
    spec: JSON
    metadata: JSON = {}
    root: JSON = {}  # beside metadata and spec
    cluster_field: Optional[str] = None  # the one that only the API server's error names; None: as `field`

    def manifest(self, index: int) -> JSON:
        """A manifest of its own name, so that all can be applied together."""
        return {"apiVersion": "pushpull.dev/v1alpha1", "kind": "TrainingJob",
                "metadata": {"name": f"row-{index}", **copy.deepcopy(self.metadata)},
                "spec": copy.deepcopy(self.spec), **copy.deepcopy(self.root)}


def _rule(**fields: Any) -> JSON:
    return {"restart": {"rules": [{"action": "Ignore", "reason": "Error"}, {"action": "FailJob", **fields}]}}


_RING = {"sync": {"mode": "AllReduce"}, "servers": {"replicas": 0}}
_SERVERS = "spec.servers"
_RULE = "spec.restart.rules[1]"
_RUNTIME = {"runtimeRef": {"name": "gpu"}}
_KIND = {"kind": "TrainingRuntime"}
_LABEL_63 = "a" * 63

ROWS = [
    Row("nothing", None, {}),
    # Servers and workers
    Row("replicas at both ends", None, {"servers": {"replicas": 4, "minReplicas": 4, "maxReplicas": 4}}),
    Row("replicas below the minimum", f"{_SERVERS}.replicas", {"servers": {"replicas": 1, "minReplicas": 2}}),
    Row("replicas above the maximum", f"{_SERVERS}.replicas", {"servers": {"replicas": 5, "maxReplicas": 4}}),
    Row("minimum above the default", f"{_SERVERS}.replicas", {"servers": {"minReplicas": 2}}),
    Row("minimum above the maximum", f"{_SERVERS}.minReplicas",
        {"servers": {"replicas": 6, "minReplicas": 8, "maxReplicas": 4}}),
    Row("too many servers", f"{_SERVERS}.replicas", {"servers": {"replicas": 1025}}),
    Row("servers of another type", f"{_SERVERS}.replicas", {"servers": {"replicas": "2"}}),
    Row("half a server", f"{_SERVERS}.replicas", {"servers": {"replicas": 1.5}}),
    Row("no servers", f"{_SERVERS}.replicas", {"servers": {"replicas": 0}}),
    Row("replication", None, {"servers": {"replicas": 3, "replication": 2}}),
    Row("replication on too few servers", f"{_SERVERS}.replication", {"servers": {"replicas": 2, "replication": 2}}),
    Row("replication on the default", f"{_SERVERS}.replication", {"servers": {"replication": 1}}),
    Row("too much replication", f"{_SERVERS}.replication", {"servers": {"replicas": 8, "replication": 3}}),
    Row("workers below the minimum", "spec.workers.replicas", {"workers": {"minReplicas": 2}}),
    Row("workers above the maximum", "spec.workers.replicas", {"workers": {"replicas": 3, "maxReplicas": 2}}),
    Row("minimum of workers above the maximum", "spec.workers.minReplicas",
        {"workers": {"replicas": 3, "minReplicas": 4, "maxReplicas": 2}}),
    Row("no workers", "spec.workers.replicas", {"workers": {"replicas": 0}}),
    Row("negative batch", "spec.workers.globalBatch", {"workers": {"globalBatch": -1}}),
    Row("anything in resources and templates", None,
        {"servers": {"resources": {"limits": {"cpu": 2, "memory": "8Gi"}}, "template": {"spec": {"x": [1]}}},
         "workers": {"resources": {}, "template": {"metadata": {"labels": {"a": "b"}}}}}),
    Row("a coordinator as any role", None,
        {"coordinator": {"resources": {"requests": {"cpu": "250m"}}, "template": {"spec": {"x": [1]}, "metadata": {"labels": {"a": "b"}}}}}),
    Row("defaults of all pods", None,
        {"podDefaults": {"imagePullSecrets": [{"name": "r"}], "serviceAccountName": "a", "tolerations": [{"key": "k", "operator": "Exists"}],
                         "nodeSelector": {"pool": "t"}, "labels": {"team": "a"}, "annotations": {"a": "b"}}}),
    Row("a pull secret without a name", "spec.podDefaults.imagePullSecrets[0].name", {"podDefaults": {"imagePullSecrets": [{}]}}),
    Row("a toleration that is a word", "spec.podDefaults.tolerations[1]", {"podDefaults": {"tolerations": [{}, "gpu"]}}),
    Row("a selector that is a number", "spec.podDefaults.nodeSelector.disk", {"podDefaults": {"nodeSelector": {"disk": 1}}}),
    Row("an unknown default", "spec.podDefaults.affinity", {"podDefaults": {"affinity": {}}}),
    Row("the operator's label for all pods", "spec.podDefaults.labels", {"podDefaults": {"labels": {"pushpull.dev/job": "other"}}}),
    Row("the operator's label on servers", f"{_SERVERS}.template.metadata.labels",
        {"servers": {"template": {"metadata": {"labels": {"a": "b", "pushpull.dev/index": "7"}}}}}),
    Row("the operator's label on workers", "spec.workers.template.metadata.labels",
        {"workers": {"template": {"metadata": {"labels": {"app.kubernetes.io/component": "server"}}}}}),
    Row("the operator's label on the coordinator", "spec.coordinator.template.metadata.labels",
        {"coordinator": {"template": {"metadata": {"labels": {"pushpull.dev/term": "7"}}}}}),
    Row("resources that are no object", "spec.workers.resources", {"workers": {"resources": "2Gi"}}),
    Row("a template that is a list", f"{_SERVERS}.template", {"servers": {"template": []}}),
    # How steps wait
    Row("bounded", None, {"sync": {"mode": "Bounded", "staleness": 3}}),
    Row("staleness of sync", "spec.sync.staleness", {"sync": {"staleness": 3}}),
    Row("staleness of async", "spec.sync.staleness", {"sync": {"mode": "Async", "staleness": 1}}),
    Row("backup workers", None, {"workers": {"replicas": 3}, "sync": {"backupWorkers": 2}}),
    Row("as many backup workers as workers", "spec.sync.backupWorkers",
        {"workers": {"replicas": 2}, "sync": {"backupWorkers": 2}}),
    Row("backup workers of async", "spec.sync.backupWorkers",
        {"workers": {"replicas": 4}, "sync": {"mode": "Async", "backupWorkers": 1}}),
    Row("gated", None, {"sync": {"gated": True}}),
    Row("gated async", "spec.sync.gated", {"sync": {"mode": "Async", "gated": True}}),
    Row("gated with backup workers", "spec.sync.gated",
        {"workers": {"replicas": 3}, "sync": {"backupWorkers": 1, "gated": True}}),
    Row("sums of hosts", None, {"sync": {"localReduce": "Host"}}),
    Row("sums of racks", None, {"workers": {"topologyKey": "rack"}, "sync": {"localReduce": "Rack"}}),
    Row("no sums of groups", None, {"workers": {"replicas": 3}, "sync": {"localReduce": "None", "backupWorkers": 1}}),
    Row("sums of unknown racks", "spec.sync.localReduce", {"sync": {"localReduce": "Rack"}}),
    Row("sums of racks without a label", "spec.sync.localReduce", {"workers": {"topologyKey": ""}, "sync": {"localReduce": "Rack"}}),
    Row("sums of hosts async", "spec.sync.localReduce", {"sync": {"mode": "Async", "localReduce": "Host"}}),
    Row("sums of hosts bounded", "spec.sync.localReduce", {"sync": {"mode": "Bounded", "localReduce": "Host"}}),
    Row("sums of hosts with backup workers", "spec.sync.localReduce",
        {"workers": {"replicas": 3}, "sync": {"backupWorkers": 1, "localReduce": "Host"}}),
    Row("sums of hosts in gated steps", "spec.sync.localReduce", {"sync": {"gated": True, "localReduce": "Host"}}),
    Row("sums of pods", "spec.sync.localReduce", {"sync": {"localReduce": "Pod"}}),
    Row("all-reduce", None, _RING),
    Row("all-reduce with a server", "spec.servers.replicas", {**_RING, "servers": {"replicas": 1}}),
    Row("all-reduce with the default of servers", "spec.servers.replicas", {**_RING, "servers": {}}),
    Row("all-reduce with replication", "spec.servers.replication", {**_RING, "servers": {"replicas": 0, "replication": 1}}),
    Row("all-reduce with checkpoints", "spec.checkpoint", {**_RING, "checkpoint": {"claim": "c"}}),
    Row("all-reduce with a cooldown", "spec.scaling", {**_RING, "scaling": {"cooldownSeconds": 5}}),
    Row("all-reduce with another stall", "spec.sync.stallSeconds", {**_RING, "sync": {"mode": "AllReduce", "stallSeconds": 20}}),
    Row("all-reduce with skipped gradients", "spec.sync.nonFinite", {**_RING, "sync": {"mode": "AllReduce", "nonFinite": "Skip"}}),
    Row("all-reduce with too many workers", "spec.workers.replicas", {**_RING, "workers": {"replicas": 65}}),
    Row("all-reduce with servers beside workers", "spec.workers.colocatedServer", {**_RING, "workers": {"colocatedServer": True}}),
    Row("all-reduce with a limit of servers", "spec.restart.roleLimits.servers", {**_RING, "restart": {"roleLimits": {"servers": 1}}}),
    Row("all-reduce with fewer servers at least", "spec.servers.minReplicas",
        {**_RING, "servers": {"replicas": 0, "minReplicas": 2}}),
    Row("all-reduce without a budget", "spec.scheduling.pdb", {**_RING, "scheduling": {"pdb": False}}),
    Row("deterministic all-reduce", None, {**_RING, "sync": {"mode": "AllReduce", "deterministic": True}}),
    Row("all-reduce with sums of hosts", "spec.sync.localReduce", {**_RING, "sync": {"mode": "AllReduce", "localReduce": "Host"}}),
    Row("gated all-reduce", "spec.sync.gated", {**_RING, "sync": {"mode": "AllReduce", "gated": True}}),
    Row("deterministic async", "spec.sync.deterministic", {"sync": {"mode": "Async", "deterministic": True}}),
    Row("noise scale", None, {"sync": {"noiseScale": True}}),
    Row("noise scale async", "spec.sync.noiseScale", {"sync": {"mode": "Async", "noiseScale": True}}),
    Row("deterministic bounded", "spec.sync.deterministic", {"sync": {"mode": "Bounded", "deterministic": True}}),
    Row("an unknown mode", "spec.sync.mode", {"sync": {"mode": "SSP"}}),
    Row("a mode in lower case", "spec.sync.mode", {"sync": {"mode": "sync"}}),
    Row("a truth in quotes", "spec.sync.deterministic", {"sync": {"deterministic": "true"}}),
    # The program
    Row("words that are empty", None, {"command": ["sh", "-c", ""], "args": [""]}),
    Row("an empty command", None, {"command": []}),
    Row("a program without a name", "spec.command", {"command": ["", "train.py"]}),
    Row("a command in one word", "spec.command", {"command": "python3 train.py"}),
    Row("a number among the words", "spec.args[1]", {"args": ["--epochs", 3]}),
    Row("too many words", "spec.args", {"args": ["x"] * 1001}),
    Row("environment", None, {"env": [{"name": "A", "value": ""}, {"name": "B"},
                                      {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                                      {"name": "D", "value": "", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}]}),
    Row("environment without a name", "spec.env[1].name", {"env": [{"name": "A"}, {"value": "1"}]}),
    Row("environment with an empty name", "spec.env[0].name", {"env": [{"name": ""}]}),
    Row("an equals sign in a name", "spec.env[0].name", {"env": [{"name": "A=B"}]}),
    Row("a variable that says who the worker is", "spec.env[1].name", {"env": [{"name": "A"}, {"name": "PUSHPULL_INDEX", "value": "7"}]}),
    Row("a variable that nobody knows", "spec.env[0].name", {"env": [{"name": "PUSHPULL_CHANEL", "value": "tcp"}]}),
    Row("variables that tune", None,
        {"env": [{"name": "PUSHPULL_CHANNEL", "value": "tcp"}, {"name": "PUSHPULL_LOG_LEVEL", "value": "debug"}, {"name": "PUSHPULLED"}]}),
    Row("a coordinator by a template", "spec.workers.template.spec.containers[1].env[0].name",
        {"workers": {"template": {"spec": {"containers": [{"name": "logs", "env": [{"name": "A"}]},
                                                          {"name": "worker", "env": [{"name": "PUSHPULL_COORDINATOR"}]}]}}}}),
    Row("a job's name by the servers' template", f"{_SERVERS}.template.spec.containers[0].env[1].name",
        {"servers": {"template": {"spec": {"containers": [{"env": [{"name": "A"}, {"name": "PUSHPULL_JOB"}]}]}}}}),
    Row("a restart policy of pods", "spec.coordinator.template.spec.restartPolicy",
        {"coordinator": {"template": {"spec": {"restartPolicy": "Always"}}}}),
    Row("the restart policy that pods have", None, {"workers": {"template": {"spec": {"restartPolicy": "Never"}}}}),
    Row("a sidecar", None,
        {"workers": {"template": {"spec": {"containers": [{"name": "logs", "image": "i", "env": [{"name": "A", "value": "1"}], "x": 1}]}}}}),
    Row("two values", "spec.env[1]", {"env": [{"name": "A"}, {"name": "B", "value": "x", "valueFrom": {"fieldRef": {}}}]}),
    Row("a number as value", "spec.env[0].value", {"env": [{"name": "A", "value": 1}]}),
    # Checkpoints
    Row("a claim", None, {"checkpoint": {"claim": "checkpoints", "path": "/a", "restoreFrom": "step-1"}}),
    Row("a claim of several labels", None, {"checkpoint": {"claim": f"{_LABEL_63}.b-2.c", "uri": ""}}),
    Row("a folder by URI", None, {"checkpoint": {"uri": "file:///a b"}}, cluster_field="spec.checkpoint.uri"),
    Row("a bucket by URI", "spec.checkpoint.uri", {"checkpoint": {"uri": "s3://bucket/a"}}),
    Row("no place", "spec.checkpoint", {"checkpoint": {}}),
    Row("no place but empty ones", "spec.checkpoint", {"checkpoint": {"claim": "", "uri": ""}}),
    Row("two places", "spec.checkpoint", {"checkpoint": {"claim": "a", "uri": "file:///a"}}),
    Row("a claim that is no name", "spec.checkpoint.claim", {"checkpoint": {"claim": "My Disk"}}),
    Row("a claim with a long label", "spec.checkpoint.claim", {"checkpoint": {"claim": f"a{_LABEL_63}"}}),
    Row("a claim with an empty label", "spec.checkpoint.claim", {"checkpoint": {"claim": "a..b"}}),
    Row("a claim that is too long", "spec.checkpoint.claim", {"checkpoint": {"claim": ".".join([_LABEL_63] * 4)}}),
    Row("a claim with a line's end", "spec.checkpoint.claim", {"checkpoint": {"claim": "a\n"}}),
    Row("a path as URI", "spec.checkpoint.uri", {"checkpoint": {"uri": "/var/checkpoints"}}),
    Row("a URI without a place", "spec.checkpoint.uri", {"checkpoint": {"uri": "file://"}}),
    Row("a relative path", "spec.checkpoint.path", {"checkpoint": {"claim": "a", "path": "resnet"}}),
    Row("a path that leads up", "spec.checkpoint.path", {"checkpoint": {"claim": "a", "path": "/a/../../b"}}),
    Row("a path that ends a folder up", "spec.checkpoint.path", {"checkpoint": {"claim": "a", "path": "/.."}}),
    Row("a path with dots", None, {"checkpoint": {"claim": "a", "path": "/..a/b../.../."}}),
    Row("an empty path", "spec.checkpoint.path", {"checkpoint": {"claim": "a", "path": ""}}),
    Row("restored from nothing", "spec.checkpoint.restoreFrom", {"checkpoint": {"claim": "a", "restoreFrom": ""}}),
    Row("saved all the time", "spec.checkpoint.everySeconds", {"checkpoint": {"claim": "a", "everySeconds": 0}}),
    Row("a duration with a unit", "spec.checkpoint.everySeconds", {"checkpoint": {"claim": "a", "everySeconds": "10m"}}),
    # Restarts
    Row("delays that are equal", None, {"restart": {"initialDelaySeconds": 300}}),
    Row("a first delay above the longest", "spec.restart.initialDelaySeconds", {"restart": {"initialDelaySeconds": 301}}),
    Row("a longest delay below the first", "spec.restart.initialDelaySeconds", {"restart": {"maxDelaySeconds": 9}}),
    Row("a rule by exit codes", None, {"restart": {"rules": [{"action": "FailJob", "exitCodes": {"in": [1, 255]}}]}}),
    Row("a rule by other exit codes", None,
        {"restart": {"rules": [{"action": "FailJob", "role": "Worker", "exitCodes": {"in": [], "notIn": [7]}}]}}),
    Row("a rule without an action", _RULE.replace("[1]", "[0]") + ".action", {"restart": {"rules": [{"reason": "Error"}]}}),
    Row("a rule that matches twice", _RULE, _rule(reason="Error", exitCodes={"in": [1]})),
    Row("a rule that matches nothing", _RULE, _rule()),
    Row("a rule for no code", f"{_RULE}.exitCodes", _rule(exitCodes={})),
    Row("a rule for empty codes", f"{_RULE}.exitCodes", _rule(exitCodes={"in": [], "notIn": []})),
    Row("a rule with both kinds of codes", f"{_RULE}.exitCodes", _rule(exitCodes={"in": [1], "notIn": [2]})),
    Row("exit code 0", f"{_RULE}.exitCodes.in[1]", _rule(exitCodes={"in": [1, 0]})),
    Row("exit code 256", f"{_RULE}.exitCodes.notIn[0]", _rule(exitCodes={"notIn": [256]})),
    Row("an unknown reason", f"{_RULE}.reason", _rule(reason="Oops")),
    Row("an unknown role", f"{_RULE}.role", _rule(reason="Error", role="worker")),
    Row("16 rules", None, {"restart": {"rules": [{"action": "Ignore", "reason": "Error"}] * 16}}),
    Row("limits of roles", None, {"restart": {"roleLimits": {"servers": 20, "coordinator": 0}}}),
    Row("a limit of roles below zero", "spec.restart.roleLimits.workers", {"restart": {"roleLimits": {"workers": -1}}}),
    Row("a limit of an unknown role", "spec.restart.roleLimits.worker", {"restart": {"roleLimits": {"worker": 1}}}),
    Row("worker 0 is enough", None, {"restart": {"successPolicy": "Worker0"}}),
    Row("an unknown success policy", "spec.restart.successPolicy", {"restart": {"successPolicy": "Worker1"}}),
    Row("17 rules", "spec.restart.rules", {"restart": {"rules": [{"action": "Ignore", "reason": "Error"}] * 17}}),
    # Security, scheduling, the rest
    Row("own certificates", None, {"security": {"secretName": "my-certificates"}}),
    Row("own certificates without TLS", "spec.security.secretName", {"security": {"tls": "Off", "secretName": "mine"}}),
    Row("no certificates without TLS", None, {"security": {"tls": "Off", "secretName": ""}}),
    Row("certificates of no name", "spec.security.secretName", {"security": {"secretName": "My_Secret"}}),
    Row("YAML's off", "spec.security.networkPolicy", {"security": {"networkPolicy": False}}),
    Row("a gang scheduler", "spec.scheduling.gang", {"scheduling": {"gang": "Volcano"}}),
    Row("a queue", "spec.scheduling.queue", {"scheduling": {"queue": "research"}}),
    Row("suspended", None, {"suspend": True, "managedBy": "example.com/queue"}),
    Row("a deadline of nothing", "spec.activeDeadlineSeconds", {"activeDeadlineSeconds": 0}),
    Row("gone at once", None, {"ttlAfterFinishedSeconds": 0}),
    # Unknown fields
    Row("a misspelt field", f"{_SERVERS}.replica", {"servers": {"replica": 3}}),
    Row("a field of another version", "spec.parameterServers", {"parameterServers": 2}),
    Row("an unknown field in a list", "spec.env[0].vlaue", {"env": [{"name": "A", "vlaue": "1"}]}),
    Row("an unknown field beside spec", "Spec", {}, root={"Spec": {}}),
    Row("a spec that is a list", "spec", {}, root={"spec": []}),
    # Names
    Row("a name of 48", None, {}, {"name": "a" * 48}),
    Row("a name of 49", "metadata.name", {}, {"name": "a" * 49}),
    Row("a name that begins with a digit", "metadata.name", {}, {"name": "7-days"}),
    Row("a name with a dot", "metadata.name", {}, {"name": "a.b"}),
    Row("a name that ends with a dash", "metadata.name", {}, {"name": "a-"}),
    Row("a name of a checkpoint", "metadata.name", {}, {"name": "step-000000000042"}),
    Row("a name of a checkpoint of many steps", "metadata.name", {}, {"name": "step-0000000000425"}),
    Row("names that are nearly of a checkpoint", None, {}, {"name": "step-00000000004"}),
    Row("labels", None, {}, {"labels": {"example.com/a_b": "", "c": "D.1"}, "annotations": {"Example.com/Why": "because"}}),
    Row("a label's key with a blank", "metadata.labels", {}, {"labels": {"a b": "c"}}),
    Row("a label's value with a mark", "metadata.labels", {}, {"labels": {"tier": "gold!"}}),
    Row("a label's value that is too long", "metadata.labels", {}, {"labels": {"tier": f"a{_LABEL_63}"}}),
    Row("an annotation's key without a name", "metadata.annotations", {}, {"annotations": {"/why": "because"}}),
    # Beside a runtime, which may complete what is not set, and does not mend what is
    Row("a runtime", None, {"runtimeRef": {"name": "gpu.pool-1"}}),
    Row("a runtime without a name", "spec.runtimeRef.name", {"runtimeRef": {}}),
    Row("a runtime of an empty name", "spec.runtimeRef.name", {"runtimeRef": {"name": ""}}),
    Row("a runtime of a name that none has", "spec.runtimeRef.name", {"runtimeRef": {"name": "GPU"}}),
    Row("what a runtime completes", None,
        {**_RUNTIME, "servers": {"minReplicas": 2, "replication": 1}, "workers": {"minReplicas": 2}, "checkpoint": {"everySeconds": 60},
         "sync": {"staleness": 3, "localReduce": "Rack"}, "restart": {"initialDelaySeconds": 500}}),
    Row("too few servers beside a runtime", f"{_SERVERS}.replicas", {**_RUNTIME, "servers": {"replicas": 1, "minReplicas": 2}}),
    Row("too many servers beside a runtime", f"{_SERVERS}.replicas", {**_RUNTIME, "servers": {"replicas": 5, "maxReplicas": 4}}),
    Row("copies on too few servers beside a runtime", f"{_SERVERS}.replication",
        {**_RUNTIME, "servers": {"replicas": 2, "replication": 2}}),
    Row("staleness in another mode beside a runtime", "spec.sync.staleness", {**_RUNTIME, "sync": {"mode": "Sync", "staleness": 3}}),
    Row("backup of every worker beside a runtime", "spec.sync.backupWorkers",
        {**_RUNTIME, "workers": {"replicas": 2}, "sync": {"backupWorkers": 2}}),
    Row("sums of racks without a label beside a runtime", "spec.sync.localReduce",
        {**_RUNTIME, "workers": {"topologyKey": ""}, "sync": {"localReduce": "Rack"}}),
    Row("two checkpoints beside a runtime", "spec.checkpoint", {**_RUNTIME, "checkpoint": {"claim": "c", "uri": "file:///c"}}),
    # Runtimes
    Row("part of a job", None, {"sync": {"staleness": 3, "localReduce": "Rack"}, "servers": {"replication": 1}, "checkpoint": {"keep": 2}}, root=_KIND),
    Row("a part that is wrong whatever the rest", "spec.workers.replicas", {"workers": {"replicas": 3, "maxReplicas": 2}}, root=_KIND),
    Row("a part of another type", f"{_SERVERS}.replicas", {"servers": {"replicas": "2"}}, root=_KIND),
    Row("a runtime of a runtime", "spec.runtimeRef", {**_RUNTIME}, root=_KIND),
    Row("a suspended runtime", "spec.suspend", {"suspend": True}, root=_KIND),
    Row("a runtime with a manager", "spec.managedBy", {"managedBy": "a/b"}, root=_KIND),
]


def same_place(stated: str, field: str) -> bool:
    """Whether an error at `field` is at the stated place; of a map of words the API server names the map."""
    is_map = stated.endswith((".labels", "metadata.annotations"))
    return field == stated or (is_map and field.startswith((stated + ".", stated + "[")))
