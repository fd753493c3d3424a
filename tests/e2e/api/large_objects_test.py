# SPDX-License-Identifier: Apache-2.0
"""As many large TrainingJobs as broke every list: the operator goes on with all others, within its memory."""
from typing import Any

from api_server import kubectl, wait_until
from operator_case import JOB_SECONDS, OperatorTestCase

# The API server takes 1.5 MiB in etcd.
LARGE_BYTES = 1_400_000
LARGE_JOBS = 45
# The memory limit of the chart.
LIMIT_MEBIBYTES = 256


def workers(content: Any) -> dict[str, Any]:
    """A template whose fields nobody checks before a pod is made of it."""
    return {"replicas": 1, "template": {"metadata": {"annotations": {}}, "spec": {"content": content}}}


class LargeObjectsTest(OperatorTestCase):

    def is_told(self, name: str) -> bool:
        return any(each["reason"] == "Unreadable" for each in self.status(name).get("conditions", []))

    def test_large_jobs_cost_bounded_memory(self) -> None:
        for number in range(LARGE_JOBS):
            # Of the last ones three bytes of text become forty of memory, which the API server takes seconds to patch.
            content = [[]] * (LARGE_BYTES // 3) if number >= LARGE_JOBS - 2 else "x" * LARGE_BYTES
            self.create_job(f"large-{number}", image="i", command=["x"], workers=workers(content))
        operator = self.start_operator()
        self.start_job("beside-large", servers={"replicas": 1})

        self.await_status("beside-large", "it runs beside large ones", phase="Running")
        wait_until(lambda: all(self.is_told(f"large-{number}") for number in range(LARGE_JOBS)), JOB_SECONDS,
                   "each is told")

        self.await_complete("beside-large")
        print(f"resident at most {operator.most_mebibytes():.0f} MiB", flush=True)
        self.assertLess(operator.most_mebibytes(), LIMIT_MEBIBYTES)
