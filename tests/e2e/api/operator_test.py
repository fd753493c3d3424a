# SPDX-License-Identifier: Apache-2.0
"""The operator on a real API server. Its pods are real processes that player.py starts."""
import base64
import json
import signal
import subprocess
import time
import unittest
from typing import Any

import api_server
import audit
from api_server import kubectl, wait_until
from operator_case import JOB_SECONDS, LONG_JOB_STEPS, OPERATOR, PROBE, QUICK_LEASE, OperatorTestCase


class OperatorTest(OperatorTestCase):

    def test_job_runs_to_its_end(self) -> None:
        operator = self.start_operator()
        self.start_job("whole", servers={"replicas": 2})
        self.await_status("whole", "it runs", phase="Running", servers={"ready": 2}, workers={"ready": 2})

        status = self.await_complete("whole")

        self.assertEqual((status["phase"], status["observedGeneration"]), ("Succeeded", 1))
        self.assertEqual(status["workers"]["succeeded"], 2)
        self.assertEqual(status["coordinator"]["term"], 1)
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        self.assertEqual(status["progress"]["step"], LONG_JOB_STEPS)
        self.assert_each_pod_was_made_once("whole-coordinator", "whole-server-0", "whole-server-1", "whole-worker-0",
                                           "whole-worker-1")
        # Servers and coordinator go, workers stay for their logs.
        wait_until(lambda: kubectl("get", "pods", "-o", "name", "-l", "pushpull.dev/job=whole").stdout.split() ==
                   ["pod/whole-worker-0", "pod/whole-worker-1"], JOB_SECONDS, "the other pods go")
        events = self.must(kubectl("get", "events", "-o", "jsonpath={.items[*].reason}",
                                   "--field-selector", "involvedObject.name=whole")).split()
        self.assertEqual(events[0], "Starting")
        self.assertEqual(len(events), len(set(events)), events)
        self.assertIn("AllReady", events)
        self.assertIn("AllWorkersDone", events)
        wait_until(lambda: kubectl("get", "secret", "whole-tls").returncode != 0, JOB_SECONDS, "its keys are gone")
        self.assertEqual([one for one in status["conditions"] if not one["message"]], [])
        metrics = operator.metrics()
        self.assertLessEqual(operator.resident_mebibytes(), 40)
        self.assertGreaterEqual(metrics['pushpull_operator_jobs{phase="Succeeded"}'], 1)
        self.assertEqual(metrics['pushpull_operator_reconcile_errors_total{controller="job"}'], 0, operator.log())

    def test_unreadable_job_is_told_and_delays_nobody(self) -> None:
        deep: list[Any] = []
        for _ in range(300):
            deep = [deep]
        for name, odd in (("deep", deep), ("large", "x" * 1_200_000)):
            self.create_job(name, image="i", command=[PROBE, "--steps", "5"],
                            workers={"replicas": 1, "template": {"odd": odd}})
        operator = self.start_operator()
        self.start_job("beside", workers=1)

        self.await_status("beside", "it runs", phase="Running", servers={"ready": 1}, workers={"ready": 1})
        for name, words in (("deep", "nests deeper than 200 levels"), ("large", "is larger than 1024 KiB")):
            told = self.await_condition(name, "Reconciled", "Unreadable")
            self.assertIn("spec.workers.template " + words, told["message"])
            wait_until(lambda n=name: "Unreadable" in kubectl(
                "get", "events", "-o", "jsonpath={.items[*].reason}",
                "--field-selector", f"involvedObject.name={n}").stdout, JOB_SECONDS, f"an event of {name} says so")
            self.assertEqual(self.must(kubectl("get", "pods", "-o", "name", "-l", f"pushpull.dev/job={name}")), "")
        self.must(kubectl("patch", "tj", "deep", "--type=json",
                          "-p", '[{"op":"remove","path":"/spec/workers/template"}]'))

        self.await_condition("deep", "Reconciled", "Reconciled")
        self.await_complete("deep")
        self.await_complete("beside")
        self.assertNotIn("watch failed", operator.log())
        self.assertLessEqual(operator.resident_mebibytes(), 64)

    def test_servers_follow_the_scale_subresource(self) -> None:
        self.start_operator()
        self.start_job("scaled")
        self.await_status("scaled", "it runs", phase="Running", servers={"ready": 1})

        self.must(kubectl("scale", "tj/scaled", "--replicas=3"))
        self.await_status("scaled", "three servers", phase="Running", servers={"ready": 3, "replicas": 3})
        self.must(kubectl("scale", "tj/scaled", "--replicas=1"))
        self.await_status("scaled", "one server", phase="Running", servers={"ready": 1, "replicas": 1})

        status = self.await_complete("scaled")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        self.assert_each_pod_was_made_once("scaled-server-0", "scaled-server-1", "scaled-server-2", "scaled-worker-0")

    def test_workers_and_mode_follow_a_patch(self) -> None:
        self.start_operator()
        self.start_job("patched", workers=1)
        self.await_status("patched", "it runs", phase="Running")

        self.must(kubectl("patch", "tj", "patched", "--type=merge", "-p",
                          '{"spec":{"sync":{"mode":"Bounded","staleness":2},"workers":{"replicas":2}}}'))

        self.await_status("patched", "two workers", phase="Running", workers={"ready": 2})

        def mode() -> dict[str, Any]:
            return json.loads(self.must(self.ask("patched", certificates_of="patched-coordinator")))
        wait_until(lambda: "Bounded" in json.dumps(mode()), JOB_SECONDS, "the mode is in force")
        self.await_complete("patched")

    def test_certificates_are_renewed_while_the_job_trains(self) -> None:
        operator = self.start_operator_with("operator", self.config(certificateLifeSeconds=60), api_server.kubeconfig())
        self.start_job("renewed")
        self.await_status("renewed", "it runs", phase="Running", servers={"ready": 1}, workers={"ready": 2})
        first = self.secret("renewed")
        members = ("renewed-coordinator", "renewed-server-0")
        ends = {pod: self.end_of_certificate(pod) for pod in members}

        def step() -> int:
            return json.loads(self.must(self.ask("renewed", certificates_of="renewed-worker-0")))["step"]
        wait_until(lambda: self.secret("renewed")["server-0.crt"] != first["server-0.crt"], JOB_SECONDS, "the pair is another")
        for pod, end in ends.items():
            wait_until(lambda p=pod, e=end: self.end_of_certificate(p) > e, JOB_SECONDS, lambda: f"{pod} uses it{self.logs()}")
        before = step()
        # With connections that begin now.
        self.must(kubectl("scale", "tj/renewed", "--replicas=2"))
        self.await_status("renewed", "two servers", phase="Running", servers={"ready": 2})
        wait_until(lambda: step() > before, JOB_SECONDS, "training goes on")

        self.assertEqual(self.secret("renewed")["ca.crt"], first["ca.crt"])
        status = self.await_complete("renewed")
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        self.assert_each_pod_was_made_once(*members, "renewed-server-1", "renewed-worker-0", "renewed-worker-1")
        for key in ("ca.key", "server-0.key"):
            for line in base64.b64decode(first[key]).decode().splitlines():
                self.assertNotIn(line, operator.log())
            self.assertNotIn(first[key], operator.log())

    def test_whoever_is_not_of_the_job_is_refused(self) -> None:
        self.start_operator()
        for job in ("one", "other"):
            self.start_job(job, workers=1)
        for job in ("one", "other"):
            self.await_status(job, "it runs", phase="Running", workers={"ready": 1})

        self.assertEqual(json.loads(self.must(self.ask("one", certificates_of="one-worker-0")))["job"], "one")
        self.refused(self.ask("one", certificates_of="other-worker-0"), "certificates")
        self.refused(self.ask("one", certificates_of=None), "PUSHPULL_TLS_DIR")
        self.refused(self.run_with("one-worker-0", "scale", "--coordinator", self.coordinator_of("one"), "--servers", "2"),
                     "worker-0.one.default.pushpull may not resize the job")

        for job in ("one", "other"):
            self.await_complete(job)

    def test_killed_worker_is_restarted_and_counted(self) -> None:
        operator = self.start_operator()
        self.start_job("wounded")
        self.await_status("wounded", "it runs", phase="Running", workers={"ready": 2})

        self.player.kill("wounded-worker-1")

        self.await_status("wounded", "it is counted and made again", restarts={"counted": 1}, workers={"ready": 2})
        status = self.await_complete("wounded")
        self.assertEqual((status["restarts"]["last"]["pod"], status["restarts"]["last"]["exitCode"]),
                         ("wounded-worker-1", 137))
        self.assertEqual(len(self.player.uids["wounded-worker-1"]), 2)
        self.assertEqual(operator.metrics()['pushpull_operator_restarts_total{reason="Error"}'], 1)

    def test_worker_0_is_enough(self) -> None:
        self.start_operator()
        command = ["sh", "-c", '[ "$PUSHPULL_INDEX" = 0 ] && steps=40; exec "$@" --steps "${steps:-20000}"', "sh", PROBE,
                   "--optimizer", "sgd", "--step-milliseconds", "20"]

        self.create_job("decided", image="i", command=command, workers={"replicas": 3}, restart={"successPolicy": "Worker0"})

        complete = self.await_condition("decided", "Complete", "SuccessPolicy")
        self.assertIn("decided-worker-0 has done its part", complete["message"])
        status = self.status("decided")
        self.assertEqual((status["phase"], status["workers"]["succeeded"]), ("Succeeded", 1))
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        self.assert_each_pod_was_made_once("decided-worker-0", "decided-worker-1", "decided-worker-2")
        for index in (1, 2):
            self.assertIn(f"worker-{index} leaves after step", (self.folder / "decided-coordinator.log").read_text(encoding="utf-8"))

    def test_workers_have_a_limit_of_their_own(self) -> None:
        self.start_operator()
        self.start_job("limited", restart={"backoffLimit": 9, "roleLimits": {"workers": 0}})
        # The end of a server that was never ready would not be counted.
        self.await_status("limited", "it runs", phase="Running", servers={"ready": 1}, workers={"ready": 2})
        self.player.kill("limited-server-0")
        self.await_status("limited", "a server is counted", restarts={"counted": 1})
        self.await_status("limited", "it runs again", phase="Running", servers={"ready": 1}, workers={"ready": 2})

        self.player.kill("limited-worker-1")

        failed = self.await_condition("limited", "Failed", "BackoffLimitExceeded")
        self.assertIn("spec.restart.roleLimits.workers (0) is reached for this member", failed["message"])

    def test_server_that_never_gets_ready_fails_no_job(self) -> None:
        self.start_operator()
        self.start_job("spare", restart={"backoffLimit": 1, "initialDelaySeconds": 1, "maxDelaySeconds": 1})
        self.await_status("spare", "it runs", phase="Running", workers={"ready": 2})
        self.player.break_next("spare-server-1", "coordinator: DNS query cancelled")

        self.must(kubectl("scale", "tj/spare", "--replicas=2"))

        blocked = self.await_condition("spare", "ScalingBlocked", "MemberNotReady")
        self.assertRegex(blocked["message"], "spare-server-1 exited with code 3 .*: coordinator: DNS query cancelled")
        wait_until(lambda: len(self.player.uids.get("spare-server-1", ())) >= 4, JOB_SECONDS, "it is tried again and again")
        self.assertEqual(self.await_status("spare", "it trains", phase="Scaling")["restarts"].get("counted", 0), 0)
        self.player.mend("spare-server-1")
        self.await_status("spare", "it has its size", phase="Running", servers={"ready": 2})
        self.await_complete("spare")
        self.assert_each_pod_was_made_once("spare-server-0", "spare-worker-0", "spare-worker-1")

    def test_program_that_is_not_in_the_image_fails_the_job(self) -> None:
        self.start_operator()
        self.create_job("missing", command=["no-such-program"], workers={"replicas": 1})

        failed = self.await_condition("missing", "Failed", "MemberFailed")

        for words in ("missing-worker-0 could not be started", "not found in $PATH", "spec.image is not set"):
            self.assertIn(words, failed["message"])
        self.assert_each_pod_was_made_once("missing-worker-0")

    def test_typo_in_a_template_is_named_before_anything_runs(self) -> None:
        operator = self.start_operator()
        self.create_job("typo", image="i", command=[PROBE], workers={"template": {"spec": {"nodeSelektor": {"a": "b"}}}})

        failed = self.await_condition("typo", "Failed", "InvalidSpec")

        self.assertIn("spec.workers", failed["message"])
        self.assertIn('unknown field "spec.nodeSelektor"', failed["message"])
        self.assertEqual(kubectl("get", "pods", "-o", "name", "-l", "pushpull.dev/job=typo").stdout, "")
        self.assertNotIn(" warning ", operator.log())

    def test_wrong_usage_of_a_role_fails_the_job_at_once(self) -> None:
        self.start_operator()
        template = {"spec": {"containers": [{"name": "server", "args": ["--no-such-flag"]}]}}
        self.create_job("misused", image="i", command=[PROBE], servers={"replicas": 1, "template": template})

        failed = self.await_condition("misused", "Failed", "MemberFailed")

        self.assertIn("unknown flag --no-such-flag", failed["message"])
        self.assert_each_pod_was_made_once("misused-server-0")

    def test_killed_coordinator_comes_back_with_a_higher_term(self) -> None:
        self.start_operator()
        self.start_job("headless")
        self.await_status("headless", "it runs", phase="Running", workers={"ready": 2})

        self.player.kill("headless-coordinator")

        self.await_status("headless", "it runs again", restarts={"counted": 1}, coordinator={"term": 2, "ready": True})
        self.await_complete("headless")
        self.assert_each_pod_was_made_once("headless-server-0", "headless-worker-0", "headless-worker-1")

    def test_suspended_job_goes_on_when_it_is_resumed(self) -> None:
        self.start_operator()
        self.start_job("paused")
        self.await_status("paused", "it runs", phase="Running", workers={"ready": 2})
        self.must(kubectl("patch", "tj", "paused", "--type=merge", "-p", '{"spec":{"suspend":true}}'))
        self.await_status("paused", "it is suspended", phase="Suspended")
        self.assertEqual(kubectl("get", "pods", "-o", "name", "-l", "pushpull.dev/job=paused").stdout, "")

        self.must(kubectl("patch", "tj", "paused", "--type=merge", "-p", '{"spec":{"suspend":false}}'))

        self.await_status("paused", "it runs again", phase="Running", servers={"ready": 1}, workers={"ready": 2},
                          coordinator={"term": 2, "ready": True})
        self.await_complete("paused")

    def test_standby_leads_after_a_kill_and_the_job_goes_on(self) -> None:
        leader = self.start_operator("first")
        wait_until(leader.leads, 60, lambda: f"the first one leads: {leader.log()}")
        standby = self.start_operator("second")
        self.start_job("orphan")
        self.await_status("orphan", "it runs", phase="Running", workers={"ready": 2})
        self.assertFalse(standby.leads())
        # A rollout waits for both.
        self.assertTrue(leader.is_ready())
        self.assertTrue(standby.is_ready())

        begin = time.monotonic()
        leader.end()
        wait_until(standby.leads, 85, "the standby leads")  # 17 s on an idle machine
        print(f"\n      the standby led after {time.monotonic() - begin:.1f} s", flush=True)

        self.must(kubectl("scale", "tj/orphan", "--replicas=2"))
        self.await_status("orphan", "two servers", phase="Running", servers={"ready": 2})
        self.await_complete("orphan")
        self.assert_each_pod_was_made_once("orphan-coordinator", "orphan-server-0", "orphan-server-1",
                                           "orphan-worker-0", "orphan-worker-1")

    def test_paused_leader_writes_nothing_after_it_wakes(self) -> None:
        leader = self.start_operator("first")
        wait_until(leader.leads, 60, lambda: f"the first one leads: {leader.log()}")
        self.start_job("frozen")
        self.await_status("frozen", "it runs", phase="Running", workers={"ready": 2})
        # As another user, so that the audit log tells the two apart.
        self.must(kubectl("create", "serviceaccount", "second"))
        self.addCleanup(kubectl, "delete", "serviceaccount", "second")
        self.must(kubectl("create", "clusterrolebinding", "second", "--clusterrole=cluster-admin", "--serviceaccount=default:second"))
        self.addCleanup(kubectl, "delete", "clusterrolebinding", "second")
        standby = self.start_operator_with("second", self.config(), self.kubeconfig_of("second", "default"))
        paused_until = time.monotonic() + 30

        leader.process.send_signal(signal.SIGSTOP)
        wait_until(standby.leads, 85, "the standby leads")
        before = len(audit.requests())
        self.must(kubectl("scale", "tj/frozen", "--replicas=2"))
        self.await_status("frozen", "two servers", phase="Running", servers={"ready": 2})
        wait_until(lambda: time.monotonic() >= paused_until, 30, "the pause is over")
        leader.process.send_signal(signal.SIGCONT)
        self.must(kubectl("scale", "tj/frozen", "--replicas=1"))
        wait_until(lambda: "continues as standby" in leader.log(), 60, "it knows that it leads no more")
        self.await_status("frozen", "one server", phase="Running", servers={"ready": 1, "replicas": 1})
        self.await_complete("frozen")

        self.assertTrue(standby.leads())
        requests = [one for one in audit.requests()[before:] if not one.user.endswith(":second")]
        self.assertNotEqual(requests, [])
        self.assertEqual([one for one in requests if one.verb not in ("get", "list", "watch")], [])
        self.assert_each_pod_was_made_once("frozen-coordinator", "frozen-server-0", "frozen-server-1", "frozen-worker-0",
                                           "frozen-worker-1")

    def test_leader_that_is_told_to_stop_gives_the_lease_back(self) -> None:
        leader = self.start_operator("first")
        wait_until(leader.leads, 60, lambda: f"the first one leads: {leader.log()}")
        standby = self.start_operator("second")
        self.start_job("handed")
        self.await_status("handed", "it runs", phase="Running", workers={"ready": 2})

        begin = time.monotonic()
        self.assertEqual(leader.end(signal.SIGTERM), 143, leader.log())
        wait_until(standby.leads, 10, lambda: f"the standby leads: {standby.log()}")  # 15 s without the lease given back
        print(f"\n      the standby led after {time.monotonic() - begin:.1f} s", flush=True)

        self.await_complete("handed")
        self.assert_each_pod_was_made_once("handed-coordinator", "handed-server-0", "handed-worker-0", "handed-worker-1")

    def test_wall_clocks_that_jump_move_no_lease(self) -> None:
        leader, standby = (self.start_operator_with(name, self.config(QUICK_LEASE), api_server.kubeconfig(), has_own_clock=True)
                           for name in ("first", "second"))
        wait_until(lambda: leader.leads() or standby.leads(), 60, lambda: f"one of them leads{self.logs()}")
        if standby.leads():
            leader, standby = standby, leader
        leader.set_clock("+600")
        self.start_job("timeless")
        self.await_status("timeless", "it runs", phase="Running", workers={"ready": 2})
        holder = self.lease_record()["holderIdentity"]

        for operator in (leader, standby):
            for offset in ("+600", "-600", "+0"):
                operator.set_clock(offset)
                for _ in range(6):  # a lease that is not renewed has expired by then
                    before = self.lease_record()["renewTime"]
                    wait_until(lambda b=before: self.lease_record()["renewTime"] != b, 60, lambda: f"it is renewed{self.logs()}")
                self.assertEqual(self.lease_record()["holderIdentity"], holder)
                self.assertEqual((leader.leads(), standby.leads()), (True, False))
        standby.set_clock("-600")
        leader.end()
        wait_until(standby.leads, 85, "the standby leads")
        self.must(kubectl("scale", "tj/timeless", "--replicas=2"))
        self.await_status("timeless", "two servers", phase="Running", servers={"ready": 2})

        self.await_complete("timeless")
        self.assert_each_pod_was_made_once("timeless-coordinator", "timeless-server-0", "timeless-server-1",
                                           "timeless-worker-0", "timeless-worker-1")

    def lease_record(self) -> dict[str, Any]:
        return json.loads(self.must(kubectl("get", "lease", self.lease, "-o", "json")))["spec"]

    def test_operator_killed_again_and_again_makes_no_pod_twice(self) -> None:
        operator = self.start_operator("life-0", **QUICK_LEASE)
        self.start_job("hunted", servers={"replicas": 2})
        marks = ["hunted-coordinator", "hunted-server-0", "hunted-server-1", "hunted-worker-0", "hunted-worker-1"]
        for life, mark in enumerate(marks, start=1):
            wait_until(lambda m=mark: m in self.player.uids, JOB_SECONDS, lambda: f"{mark} is there{self.logs()}")
            operator.end()
            operator = self.start_operator(f"life-{life}", **QUICK_LEASE)
        self.await_status("hunted", "it runs", phase="Running", workers={"ready": 2})

        status = self.await_complete("hunted")

        self.assert_each_pod_was_made_once(*marks)
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)

    def test_api_server_outage_beyond_the_lease_costs_no_pod(self) -> None:
        operator = self.start_operator(**QUICK_LEASE)
        self.start_job("cutoff")
        self.await_status("cutoff", "it runs", phase="Running", workers={"ready": 2})

        self.must(api_server.run(api_server.CLUSTER, "api", "stop"))
        try:
            wait_until(lambda: "continues as standby" in operator.log(), 60, "the lease is lost")
        finally:
            self.must(api_server.run(api_server.CLUSTER, "api", "start"))
        wait_until(operator.leads, 60, lambda: f"it leads again: {operator.log()}")

        self.must(kubectl("scale", "tj/cutoff", "--replicas=2"))
        self.await_status("cutoff", "two servers", phase="Running", servers={"ready": 2})
        status = self.await_complete("cutoff")
        self.assertIsNone(operator.process.poll())
        self.assertEqual(status.get("restarts", {}).get("counted", 0), 0)
        self.assert_each_pod_was_made_once("cutoff-coordinator", "cutoff-server-0", "cutoff-server-1", "cutoff-worker-0",
                                           "cutoff-worker-1")


class ProgramTest(unittest.TestCase):

    def run_operator(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([OPERATOR, *words], capture_output=True, text=True, timeout=60)

    def test_wrong_usage_and_files_have_codes_of_their_own(self) -> None:
        self.assertEqual(self.run_operator("--help").returncode, 0)
        self.assertIn("pushpull-operator ", self.run_operator("version").stdout)
        for words, code, what in ((("--no-such-flag",), 2, "--no-such-flag"), ((), 2, "--config"),
                                  (("--config", "/no/such/file"), 3, "/no/such/file")):
            with self.subTest(words):
                result = self.run_operator(*words)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(what, result.stderr)


if __name__ == "__main__":
    unittest.main()
