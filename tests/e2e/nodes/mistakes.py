# SPDX-License-Identifier: Apache-2.0
"""What somebody writes who is new to TrainingJobs: each is BASE with one place changed, and wrong. `words` are of the answer."""
from typing import NamedTuple

BASE = """\
apiVersion: pushpull.dev/v1alpha1
kind: TrainingJob
metadata:
  name: first
spec:
  image: localhost/probe:1
  command: [probe_worker, --steps, "50000"]
  servers:
    replicas: 2
  workers:
    replicas: 2
"""


class Mistake(NamedTuple):
    old: str  # of BASE
    new: str
    words: tuple[str, ...]

    def manifest(self) -> str:
        assert BASE.count(self.old) == 1, self.old
        return BASE.replace(self.old, self.new)


def _spec(new: str, *words: str) -> Mistake:
    """A field more of the spec."""
    return Mistake("spec:\n", f"spec:\n  {new}\n", words)


def _servers(new: str, *words: str) -> Mistake:
    return Mistake("servers:\n    replicas: 2\n", f"servers: {new}\n", words)


def _workers(new: str, *words: str) -> Mistake:
    return Mistake("workers:\n    replicas: 2\n", f"workers: {new}\n", words)


def _command(new: str, *words: str) -> Mistake:
    return Mistake('command: [probe_worker, --steps, "50000"]', new, words)


def _image(new: str, *words: str) -> Mistake:
    return Mistake("  image: localhost/probe:1\n", new, words)


MISTAKES = [
    # Which object it is
    Mistake("pushpull.dev/v1alpha1", "pushpull.dev/v1", ("no matches for kind",)),
    Mistake("kind: TrainingJob", "kind: Trainingjob", ("no matches for kind",)),
    Mistake("name: first", "name: My_First_Job", ("metadata.name",)),
    Mistake("name: first", "name: 1st", ("metadata.name",)),
    Mistake("name: first", "name: v1.first", ("metadata.name",)),
    Mistake("name: first", f"name: {'very-' * 10}long", ("metadata.name",)),
    Mistake("name: first", "name: first\n  namespace: nowhere", ("nowhere", "not found")),
    Mistake("name: first", "name: first\n  labels: {team: 7}", ("metadata.labels",)),
    # How many members
    _spec("replicas: 2", "spec.replicas"),
    _spec("parameterServers: 2", "spec.parameterServers"),
    _spec("worker: {replicas: 2}", "spec.worker"),
    _spec("maxReplicas: 4", "spec.maxReplicas"),
    _servers("2", "spec.servers"),
    _servers('{replicas: "2"}', "spec.servers.replicas"),
    _servers("{replicas: 0}", "spec.servers.replicas"),
    _servers("{replicas: -1}", "spec.servers.replicas"),
    _servers("{replicas: 1.5}", "spec.servers.replicas"),
    _servers("{replicas: 2000}", "spec.servers.replicas"),
    _servers("{replicas: 2, replication: 2}", "spec.servers.replication"),
    _servers("{replicas: 2, minReplicas: 3}", "spec.servers.replicas"),
    _servers("{replicas: 2, gpus: 1}", "spec.servers.gpus"),
    _workers("{replicas: 0}", "spec.workers.replicas"),
    _workers("{replicas: 4, maxReplicas: 2}", "spec.workers.replicas"),
    _workers("{replicas: 2, gpusPerWorker: -1}", "spec.workers.gpusPerWorker"),
    _workers("{replicas: 2, batchSize: 128}", "spec.workers.batchSize"),
    # The program
    _command('command: probe_worker --steps 50000', "spec.command"),
    _command('command: ["", "train.py"]', "spec.command"),
    _command('command: [probe_worker, --steps, 50000]', "spec.command"),
    _command("command: [train.py]", "train.py"),
    _command("command: [probe_worker, --learning-rate, fast]", "exit"),
    _image("", "spec.image"),
    _image('  image: ""\n', "spec.image"),
    _image("  image: localhost/prope:1\n", "localhost/prope:1"),
    _image("  image: localhost/Probe:1\n", "localhost/Probe:1"),
    _spec("env: {LR: 0.1}", "spec.env"),
    _spec("env: [{name: LR, value: 0.1}]", "spec.env[0].value"),
    _spec("env: [{value: adam}]", "spec.env[0].name"),
    _spec('env: [{name: "LR=0.1"}]', "spec.env[0].name"),
    _spec("env: [{name: PUSHPULL_WORKERS, value: '4'}]", "PUSHPULL_"),
    _spec("env: [{name: KEY, valueFrom: {secretKeyRef: {name: keys, key: wandb}}}]", "keys"),
    # How steps wait
    _spec("sync: Async", "spec.sync"),
    _spec("sync: {mode: async}", "spec.sync.mode"),
    _spec("sync: {mode: SSP, staleness: 3}", "spec.sync.mode"),
    _spec("sync: {mode: AllReduce}", "spec.sync.mode"),
    _spec("sync: {staleness: 3}", "spec.sync.staleness"),
    _spec("sync: {backupWorkers: 2}", "spec.sync.backupWorkers"),
    _spec("sync: {mode: Async, gated: true}", "spec.sync.gated"),
    _spec("sync: {localReduce: Rack}", "spec.sync.localReduce"),
    # Checkpoints
    _spec("checkpoint: {}", "spec.checkpoint"),
    _spec("checkpoint: {uri: 's3://models/first'}", "spec.checkpoint.uri"),
    _spec("checkpoint: {claim: models, path: ../other}", "spec.checkpoint.path"),
    _spec("checkpoint: {claim: models, everySeconds: 10m}", "spec.checkpoint.everySeconds"),
    _spec("checkpoint: {claim: My Models}", "spec.checkpoint.claim"),
    _spec("checkpoint: {claim: models}", "models"),
    # Restarts, ends
    _spec("restart: Never", "spec.restart"),
    _spec("restart: {backoffLimit: -1}", "spec.restart.backoffLimit"),
    _spec("restart: {rules: [{exitCodes: {in: [1]}}]}", "spec.restart.rules[0].action"),
    _spec("restart: {rules: [{action: FailJob, exitCodes: {in: [0]}}]}", "spec.restart.rules[0].exitCodes.in[0]"),
    _spec("activeDeadlineSeconds: 0", "spec.activeDeadlineSeconds"),
    _spec("ttlAfterFinishedSeconds: 1h", "spec.ttlAfterFinishedSeconds"),
    # Pods
    _workers("{replicas: 2, resources: 2Gi}", "spec.workers.resources"),
    _workers("{replicas: 2, resources: {requests: {memory: 2GB}}}", "quantit"),
    _workers("{replicas: 2, resources: {requests: {cpu: 4}, limits: {cpu: 2}}}", "cpu"),
    _workers("{replicas: 2, resources: {requests: {cpu: 1000}}}", "Insufficient cpu"),
    _workers("{replicas: 2, gpusPerWorker: 1}", "Insufficient nvidia.com/gpu"),
    _workers("{replicas: 2, template: {spec: {container: []}}}", "container"),
    _workers("{replicas: 2, template: {spec: {restartPolicy: OnFailure}}}", "restartPolicy"),
    _workers("{replicas: 2, template: {metadata: {labels: {pushpull.dev/job: second}}}}", "spec.workers.template.metadata.labels"),
    _workers("{replicas: 2, template: {spec: {containers: [{name: worker, volumeMounts: [{name: data, mountPath: /data}]}]}}}", "data"),
    _spec("podDefaults: {nodeSelector: {disk: 1}}", "spec.podDefaults.nodeSelector.disk"),
    _spec("podDefaults: {nodeSelector: {disk: fast}}", "node"),
    _spec("podDefaults: {serviceAccountName: trainer}", "trainer"),
    _spec("scheduling: {priorityClass: urgent}", "urgent"),
    _spec("scheduling: {gang: Volcano}", "spec.scheduling.gang"),
    _spec("security: {tls: off}", "spec.security.tls"),
    _spec("security: {secretName: certificates}", "certificates"),
]
