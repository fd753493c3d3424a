# SPDX-License-Identifier: Apache-2.0
"""Plays the kubelets of a cluster that has no nodes: starts the real programs of each pod on a loopback address
of its own, and writes to the pod's status what a kubelet would.

What it does not play: images, volumes but those of Secrets, limits, names of Services (addresses are put in their place), and the
garbage collector. A pod is bound to a node that does not exist, so that the API server gives it its grace.
"""
import base64
import dataclasses
import datetime
import http.client
import itertools
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import threading
import urllib.request
from typing import Any, Optional

from api_server import ROOT, connect

PUSHPULL = os.environ.get("PUSHPULL_BIN", str(ROOT / "build/release/pushpull"))
PODS = "/api/v1/namespaces/default/pods"
SECRETS = "/api/v1/namespaces/default/secrets"
SELECTOR = "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dpushpull-operator"
# Before a command: it ends when the thread that has started it does, however the tests end.
MORTAL = ("setpriv", "--pdeathsig", "KILL")
_LOOK_SECONDS = 0.1
# So many looks until a Secret that has changed is seen in the pods.
_LOOKS_A_REFRESH = 10
_REQUEST_SECONDS = 30
# Of a termination message that comes from a log.
_MESSAGE_MAX = 2048
# Of the loopback addresses, so that what is left of one test meets nothing of the next.
_NETWORK = os.getpid() % 200 + 20
_NUMBERS = itertools.count(1)


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Api:
    """Requests with the administrator's certificate, on one connection."""

    def __init__(self) -> None:
        self._connection = connect(_REQUEST_SECONDS)

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """The code and the body; code 0: there was no answer."""
        try:
            self._connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": kind})
            answer = self._connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return 0, None

    def close(self) -> None:
        self._connection.close()


class SecretVolume:
    """A Secret as files, which all change at once: a link is swapped."""

    def __init__(self, folder: pathlib.Path, volume: dict) -> None:
        self.folder, self.name = folder, volume["name"]
        self._secret = volume["secret"]["secretName"]
        self._paths = {item["key"]: item["path"] for item in volume["secret"]["items"]}
        self._mode = volume["secret"].get("defaultMode", 0o644)
        self._version = ""
        self._count = 0

    def refresh(self, api: "Api") -> bool:
        """False: the Secret, or a key, is not there. What was there before stays."""
        code, secret = api.request("GET", f"{SECRETS}/{self._secret}")
        if code != 200 or not self._paths.keys() <= secret.get("data", {}).keys():
            return False
        version = secret["metadata"]["resourceVersion"]
        if version == self._version:
            return True
        self._count += 1
        content = self.folder / f"..{self._count}"
        content.mkdir(parents=True)
        for key, path in self._paths.items():
            (content / path).write_bytes(base64.b64decode(secret["data"][key]))
            (content / path).chmod(self._mode)
            if not (self.folder / path).is_symlink():
                (self.folder / path).symlink_to(f"..data/{path}")
        link = self.folder / "..next"
        link.symlink_to(content.name)
        link.replace(self.folder / "..data")
        self._version = version
        return True


@dataclasses.dataclass
class Played:
    """One pod and its process."""
    name: str
    role: str
    ip: str
    process: subprocess.Popen
    told: Optional[dict] = None  # the status that was written last
    started: str = ""
    has_program: bool = True
    is_ready: bool = False
    ready_changed: str = ""  # when it became ready, or ceased to be; first when the pod came
    is_stopping: bool = False
    message: pathlib.Path = pathlib.Path()  # its termination message
    log: pathlib.Path = pathlib.Path()
    secrets: list["SecretVolume"] = dataclasses.field(default_factory=list)


class Player:
    """Use as a context: its thread plays until the end, which leaves no process behind."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.as_user: tuple[str, ...] = ()  # before the command of every process
        self.uids: dict[str, set[str]] = {}  # of all pods that were ever seen, by name
        self._addresses: dict[str, str] = {}
        self._broken: dict[str, str] = {}
        self._played: dict[str, Played] = {}  # by uid
        self._looks = 0
        self._mu = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)

    def __enter__(self) -> "Player":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()
        for played in self._played.values():
            _signal(played, signal.SIGKILL)
            played.process.wait()

    def address(self, name: str) -> str:
        """The loopback address of every pod of this name."""
        with self._mu:
            if name not in self._addresses:
                number = next(_NUMBERS)
                self._addresses[name] = f"127.{_NETWORK}.{number // 250}.{number % 250 + 1}"
            return self._addresses[name]

    def kill(self, name: str) -> None:
        """The pod's process dies of SIGKILL."""
        with self._mu:
            victims = [played for played in self._played.values() if played.name == name]
        if not victims:
            raise AssertionError(f"no pod {name} is played")
        for played in victims:
            _signal(played, signal.SIGKILL)

    def break_next(self, name: str, last_words: str) -> None:
        """The next pods of this name end with code 3 and these words, before they are ready, until `mend`."""
        with self._mu:
            self._broken[name] = last_words

    def mend(self, name: str) -> None:
        with self._mu:
            del self._broken[name]

    def tls_folder(self, name: str) -> pathlib.Path:
        """The certificates as the pod's process has them."""
        with self._mu:
            folders = [volume.folder for played in self._played.values() if played.name == name
                       for volume in played.secrets]
        if len(folders) != 1:
            raise AssertionError(f"pod {name} has {len(folders)} volumes of Secrets")
        return folders[0]

    def _run(self) -> None:
        api = Api()
        while not self._stop.wait(_LOOK_SECONDS):
            self._looks += 1
            code, listed = api.request("GET", f"{PODS}?{SELECTOR}")
            if code == 200:
                self._look(api, {pod["metadata"]["uid"]: pod for pod in listed["items"]})
        api.close()

    def _look(self, api: Api, pods: dict[str, dict]) -> None:
        for uid, pod in pods.items():
            name = pod["metadata"]["name"]
            self.uids.setdefault(name, set()).add(uid)
            played = self._played.get(uid)
            if played is not None:
                self._go_on(api, pod, played)
            elif "deletionTimestamp" in pod["metadata"]:
                self._remove(api, name, uid)
            elif pod.get("status", {}).get("phase", "Pending") == "Pending":
                self._begin(api, pod)
        for uid in set(self._played) - set(pods):
            if self._is_there(api, uid):
                continue  # somebody has changed its labels
            _signal(self._played[uid], signal.SIGKILL)  # taken out of the API server by force
            self._forget(uid)

    def _is_there(self, api: Api, uid: str) -> bool:
        code, pod = api.request("GET", f"{PODS}/{self._played[uid].name}")
        return code == 200 and pod["metadata"]["uid"] == uid

    def _begin(self, api: Api, pod: dict) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if "nodeName" not in pod["spec"]:
            api.request("POST", f"{PODS}/{name}/binding",
                        {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                         "target": {"apiVersion": "v1", "kind": "Node", "name": "played"}})
        volumes = [SecretVolume(self.folder / uid / volume["name"], volume)
                   for volume in pod["spec"]["volumes"] if "secret" in volume]
        if not all(volume.refresh(api) for volume in volumes):
            return  # its containers wait
        role = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        command, environment = self._command(pod, role, volumes)
        log = open(self.folder / f"{name}.log", "a", encoding="utf-8")
        with log:
            log.write(f"== {uid}: {shlex.join(command)}\n")
            log.flush()
            process = subprocess.Popen([*self.as_user, *MORTAL, *command], env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                       start_new_session=True)
        with self._mu:
            self._played[uid] = Played(name, role, "", process, started=now(), ready_changed=now(), secrets=volumes,
                                       has_program=shutil.which(command[0]) is not None,
                                       message=self._message_of(pod), log=self.folder / f"{name}.log")
        self._played[uid].ip = self.address(name)
        self._go_on(api, pod, self._played[uid])

    def _command(self, pod: dict, role: str, volumes: list[SecretVolume]) -> tuple[list[str], dict[str, str]]:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        job, ip = pod["metadata"]["labels"]["pushpull.dev/job"], self.address(name)
        coordinator = self.address(f"{job}-coordinator")
        places = {f"{job}-coordinator.default.svc:7170": f"{coordinator}:7170", "$(POD_IP)": ip,
                  "/etc/pushpull/job.json": str(self.folder / f"{pod['metadata']['uid']}.json"), "pushpull": PUSHPULL}
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        places["/dev/termination-log"] = str(self._message_of(pod))
        places.update({mounts[volume.name]: str(volume.folder) for volume in volumes})
        words = [*container["command"], *container.get("args", [])]
        words = [places.get(word, word) for word in words]
        with self._mu:
            if name in self._broken:
                words = ["sh", "-c", 'echo "$0" >&2; exit 3', self._broken[name]]
                role = "none"  # it takes no more flags
        if role == "coordinator":
            manifest = pod["metadata"]["annotations"]["pushpull.dev/manifest"]
            pathlib.Path(places["/etc/pushpull/job.json"]).write_text(manifest, encoding="utf-8")
            words += ["--listen", f"{ip}:7170", "--metrics", f"{ip}:9464"]
        if role == "server":
            words += ["--listen", f"{ip}:7171", "--metrics", f"{ip}:9464"]
        given = {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}
        given = {key: places.get(value, value) for key, value in given.items()}
        if role == "worker":
            given["PUSHPULL_METRICS_PORT"] = "0"
        return words, {**os.environ, **given}

    def _message_of(self, pod: dict) -> pathlib.Path:
        return self.folder / f"{pod['metadata']['uid']}.end"

    def _go_on(self, api: Api, pod: dict, played: Played) -> None:
        uid = pod["metadata"]["uid"]
        if "deletionTimestamp" in pod["metadata"] and not played.is_stopping:
            played.is_stopping = True
            _signal(played, signal.SIGTERM)
        if self._looks % _LOOKS_A_REFRESH == 0:
            for volume in played.secrets:
                volume.refresh(api)
        code = played.process.poll()
        if code is not None and played.is_stopping:
            self._remove(api, played.name, uid)
            return
        was_ready = played.is_ready
        if code is None and not played.is_ready:
            played.is_ready = played.role == "worker" or _answers(f"http://{played.ip}:9464/readyz")
        if code is not None:
            played.is_ready = False
        if played.is_ready != was_ready:
            played.ready_changed = now()
        status = _status(played, code)
        if status != played.told and api.request("PATCH", f"{PODS}/{played.name}/status",
                                                 {"metadata": {"uid": uid}, "status": status},
                                                 "application/strategic-merge-patch+json")[0] == 200:
            played.told = status

    def _remove(self, api: Api, name: str, uid: str) -> None:
        """As a kubelet does when the containers have ended."""
        api.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
        self._forget(uid)

    def _forget(self, uid: str) -> None:
        with self._mu:
            self._played.pop(uid, None)


def _signal(played: Played, number: int) -> None:
    if played.process.poll() is None:
        os.killpg(played.process.pid, number)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def _end(played: Played, code: int) -> dict[str, Any]:
    """Of its container: exit code, reason, and the last words as terminationMessagePolicy FallbackToLogsOnError has them."""
    if not played.has_program:
        return {"exitCode": 128, "reason": "StartError", "message": "exec: executable file not found in $PATH"}
    if code == 0:
        return {"exitCode": 0, "reason": "Completed"}
    source = played.message if played.message.exists() else played.log
    words = source.read_text(encoding="utf-8", errors="replace")[-_MESSAGE_MAX:]
    return {"exitCode": code if code > 0 else 128 - code, "reason": "Error", "message": words}


def _status(played: Played, code: Optional[int]) -> dict[str, Any]:
    is_ready = code is None and played.is_ready
    status: dict[str, Any] = {"podIP": played.ip, "podIPs": [{"ip": played.ip}], "startTime": played.started}
    container: dict[str, Any] = {"name": played.role, "image": "i", "imageID": "i", "restartCount": 0, "ready": is_ready}
    if code is None:
        status["phase"] = "Running"
        container["state"] = {"running": {"startedAt": played.started}}
    else:
        status["phase"] = "Succeeded" if code == 0 else "Failed"
        finished = (played.told or {}).get("containerStatuses", [{}])[0].get("state", {}).get("terminated", {})
        container["state"] = {"terminated": {**_end(played, code), "startedAt": played.started,
                                             "finishedAt": finished.get("finishedAt", now())}}
    status["conditions"] = [{"type": "Ready", "status": "True" if is_ready else "False",
                             "lastTransitionTime": played.ready_changed}]
    status["containerStatuses"] = [container]
    return status
