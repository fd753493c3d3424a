# SPDX-License-Identifier: Apache-2.0
"""What jobs cost that nothing happens to, as the API server has it in its audit log."""
import unittest

import audit
from api_server import kubectl, wait_until
from operator_case import JOB_SECONDS, OperatorTestCase

# Of the lease; at its pace of 2 s a minute.
RENEWALS = 30
# A running job's figures change all the time.
RUNNING_MINUTES = 3
OPERATOR_MEBIBYTES_MAX = 40


class RestTest(OperatorTestCase):

    def requests_during(self, renewals: int) -> list[audit.Request]:
        """While the lease is renewed so often."""
        before = len(audit.requests())

        def renewed() -> int:
            return sum((one.verb, one.resource) == ("update", "leases") for one in audit.requests()[before:])
        wait_until(lambda: renewed() >= renewals, 2 * renewals + JOB_SECONDS, "the lease is renewed")
        return audit.requests()[before:]

    def pods(self) -> list[str]:
        return self.must(kubectl("get", "pods", "-o", "name")).split()

    def test_twenty_jobs_at_rest_cost_nothing_but_the_lease(self) -> None:
        operator = self.start_operator()
        for number in range(10):
            self.start_job(f"asleep-{number}", suspend=True)
            self.start_job(f"over-{number}", steps=5, workers=1)
        self.finish.touch()
        for number in range(10):
            self.await_status(f"asleep-{number}", "it is suspended", phase="Suspended")
            self.await_status(f"over-{number}", "it ends and its pods are gone", phase="Succeeded", servers={"replicas": 0})
        wait_until(lambda: len(self.pods()) == 10, JOB_SECONDS, lambda: f"the workers' pods are left, for their logs: {self.pods()}")
        self.requests_during(renewals=2)  # what the last pods' ends gave rise to

        found = {(one.verb, one.resource) for one in self.requests_during(RENEWALS)}

        # A watch ends after minutes and goes on where it was.
        watched = ("pods", "trainingjobs", "services", "networkpolicies", "poddisruptionbudgets", "trainingjobworkers",
                   "trainingruntimes")
        self.assertLessEqual(found, {("update", "leases"), ("get", "leases"), *(("watch", kind) for kind in watched)})
        print(f"\n      operator: {operator.resident_mebibytes():.1f} MiB", flush=True)
        self.assertLessEqual(operator.resident_mebibytes(), OPERATOR_MEBIBYTES_MAX)

    def test_status_is_written_at_most_once_a_minute(self) -> None:
        self.start_operator()
        self.start_job("busy")
        self.await_status("busy", "it runs", phase="Running", workers={"ready": 2})
        self.requests_during(renewals=5)

        requests = self.requests_during(renewals=RUNNING_MINUTES * 30)

        writes = [one for one in requests if one.verb not in ("get", "list", "watch") and one.resource != "leases"]
        print(f"\n      {len(writes)} writes in {RUNNING_MINUTES} minutes", flush=True)
        self.assertLessEqual({(one.verb, one.resource) for one in writes}, {("patch", "trainingjobs/status")})
        self.assertIn(len(writes), range(1, RUNNING_MINUTES + 2))  # the first may be due at once
        self.await_complete("busy")


if __name__ == "__main__":
    unittest.main()
