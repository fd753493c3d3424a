# SPDX-License-Identifier: Apache-2.0
"""What the operators write to their logs during a test, those that end meanwhile included."""
import datetime
import json
import pathlib
import subprocess

from api_server import CLUSTER, run

SYSTEM = "pushpull-system"
_OPERATORS = ["-n", SYSTEM, "-l", "app.kubernetes.io/component=operator"]


class OperatorLog:
    """From now on. Containers that are there now are followed, for a pod takes its log with it; those that start
    later are read at the end, with those that ended before them in the same pod."""

    def __init__(self, folder: pathlib.Path) -> None:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        self._begin = now[:now.index("+")]  # as lines begin
        # Of whole seconds: the test before may have its last lines there.
        self._since = f"--since-time={self._begin[:-4]}Z"
        self._followers: list[subprocess.Popen[bytes]] = []
        self._files: list[pathlib.Path] = []
        pods = self._pods()
        assert pods, f"no operator in {SYSTEM} whose log could be read"
        for pod in pods:
            self._files.append(folder / f"{pod}.log")
            with self._files[-1].open("wb") as file:
                self._followers.append(subprocess.Popen(
                    [CLUSTER, "kubectl", "logs", "--follow", self._since, "-n", SYSTEM, pod], stdout=file, stderr=subprocess.DEVNULL))

    @staticmethod
    def _pods() -> list[str]:
        found = run(CLUSTER, "kubectl", "get", "pods", *_OPERATORS, "-o", "json")
        return [pod["metadata"]["name"] for pod in json.loads(found.stdout)["items"]]

    def close(self) -> None:
        for follower in self._followers:
            follower.terminate()
        for follower in self._followers:
            follower.wait(timeout=30)
        self._followers = []

    def trouble(self) -> list[str]:
        """Warnings and errors. Follows nothing from then on."""
        texts = [run(CLUSTER, "kubectl", "logs", self._since, *which, "-n", SYSTEM, pod).stdout
                 for pod in self._pods() for which in ([], ["--previous"])]
        self.close()
        texts += [file.read_text(encoding="utf-8", errors="replace") for file in self._files]
        lines = {line for text in texts for line in text.splitlines()}
        return sorted(line for line in lines
                      if line >= self._begin and (" warning " in line or " error " in line))
