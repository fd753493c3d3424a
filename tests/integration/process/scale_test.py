# SPDX-License-Identifier: Apache-2.0
"""`pushpull scale` on running jobs: more servers, fewer, and what is refused."""
import ctypes
import os
import signal
import time
import unittest
from typing import Any, Callable

import job

QUICK_RESTARTS = {"backoffLimit": 3, "initialDelaySeconds": 0}


def server_indices(status: dict[str, Any]) -> list[int]:
    return [server["index"] for server in status["servers"]]


def member_indices(status: dict[str, Any]) -> list[int]:
    return [worker["index"] for worker in status["workers"] if worker["member"]]


def end_at_once(pid: int) -> None:
    """As `pushpull run` ends its coordinator: SIGTERM with kUrgent of runtime/base/signals.h."""
    ctypes.CDLL(None).sigqueue(pid, int(signal.SIGTERM), ctypes.c_void_p(0x50505550))


class ScaleTest(job.JobTestCase):

    def test_servers_come_and_go_while_training_goes_on(self) -> None:
        started = self.run_job(self.spec("--steps", 300, "--step-milliseconds", 200,
                                         "--values", 20_000))
        started.wait_for_step(3)

        grown = started.scale(4, "--wait")
        status_of_four = started.status()
        shrunk = started.scale(1, "--wait")
        status_of_one = started.status()
        code = started.finish()

        self.assertEqual(grown.returncode, 0, grown.stderr)
        self.assertRegex(grown.stdout, r"4 servers of 4, 0 shards to move")
        self.assertEqual(server_indices(status_of_four), [0, 1, 2, 3])
        self.assertEqual(shrunk.returncode, 0, shrunk.stderr)
        self.assertEqual(server_indices(status_of_one), [0])
        self.assertEqual(code, 0, started.launcher.output)  # the probe has compared every sum
        report = started.report()
        self.assertEqual((report["steps"], report["restarts"], report["servers"]), (300, 0, 1))
        self.assertEqual([(r["from"], r["to"], r["settled"]) for r in report["resizes"]],
                         [(2, 4, True), (4, 1, True)])
        self.assertTrue(all(r["moved_bytes"] > 0 and r["pause_seconds"] > 0
                            for r in report["resizes"]), report["resizes"])

    def start_by_hand(self, *flags: Any) -> tuple[job.Program, job.Program, job.Program, str]:
        """Coordinator, server and worker of a job, and the coordinator's address."""
        spec = self.spec("--steps", 2000, "--step-milliseconds", 50, servers=1, workers=1)
        spec["servers"]["maxReplicas"] = 2
        coordinator = self.start(
            job.PUSHPULL, "coordinator", "--manifest", self.write_manifest(spec), "--listen",
            "127.0.0.1:0", "--metrics", "127.0.0.1:0", *flags)
        address = coordinator.wait_for_line(r"listening .*control=(\S+)")[1]
        server = self.start(job.PUSHPULL, "server", "--job", self.job_name, "--index", 0,
                            "--coordinator", address, "--listen", "127.0.0.1:0", "--metrics",
                            "127.0.0.1:0")
        worker = self.start(*spec["command"], environment={
            "PUSHPULL_JOB": self.job_name, "PUSHPULL_ROLE": "worker", "PUSHPULL_INDEX": "0",
            "PUSHPULL_COORDINATOR": address, "PUSHPULL_METRICS_PORT": "0"})
        return coordinator, server, worker, address

    def test_wait_ends_well_when_the_job_succeeds(self) -> None:
        self.check_wait_when_the_job_succeeds(lambda pid: os.kill(pid, signal.SIGTERM))

    def test_wait_hears_of_success_from_a_launchers_coordinator(self) -> None:
        self.check_wait_when_the_job_succeeds(end_at_once)

    def check_wait_when_the_job_succeeds(self, end: Callable[[int], Any]) -> None:
        coordinator, _, worker, address = self.start_by_hand()
        job.wait_until(lambda: job.run_command("status", "--coordinator", address).stdout.count("member"),
                       job.START_SECONDS, "the worker is a member")
        waiting = self.start(job.PUSHPULL, "scale", "--coordinator", address, "--servers", 2, "--wait")
        waiting.wait_for_line("1 servers of 2")

        self._let_go.touch()
        self.assertEqual(worker.wait(60), 0)
        end(coordinator.pid)

        self.assertEqual(waiting.wait(30), 0, waiting.output)
        self.assertIn("has succeeded", waiting.output)
        self.assertEqual(coordinator.wait(10), 143, coordinator.output)

    def test_commands_wait_for_a_coordinator_that_collects(self) -> None:
        spec = self.spec("--steps", 5, servers=1, workers=1)
        coordinator = self.start(
            job.PUSHPULL, "coordinator", "--manifest", self.write_manifest(spec), "--listen",
            "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--term", 2, "--recover")
        address = coordinator.wait_for_line(r"listening .*control=(\S+)")[1]

        for words in (("scale", "--workers", 1), ("set", "mode=Async"), ("checkpoint", "now")):
            done = job.run_command(*words, "--coordinator", address, "--timeout", 1)

            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("still collecting its members after 1 s (--timeout)", done.stderr)
        begin = time.monotonic()
        shown = job.run_command("status", "--coordinator", address, "--timeout", 1)
        self.assertIn("Recovering", shown.stdout)
        self.assertGreater(time.monotonic() - begin, 1)

    def test_endpoints_follow(self) -> None:
        started = self.run_job(self.long_spec())
        started.wait_for_step(3)

        self.assertEqual(started.scale(3, "--wait").returncode, 0)
        third = started.endpoint("server", 2)
        self.assertEqual(started.scale(1, "--wait").returncode, 0)

        self.assertIsNotNone(third)
        job.wait_until(lambda: started.endpoint("server", 1) is None, 10, "server-1 is gone")
        self.assertIsNone(started.endpoint("server", 2))

    def test_target_can_rise_again_at_once(self) -> None:
        started = self.run_job(self.long_spec())
        started.wait_for_step(3)

        for servers in (4, 1, 4, 2):
            self.assertEqual(started.scale(servers).returncode, 0)
        settled = started.scale(3, "--wait")

        self.assertEqual(settled.returncode, 0, settled.stderr)
        self.assertEqual(server_indices(started.status()), [0, 1, 2])
        self.assertIsNone(started.launcher.process.poll(), started.launcher.output)

    def test_bad_numbers_are_refused_and_change_nothing(self) -> None:
        spec = self.long_spec(servers=3, restart=QUICK_RESTARTS)
        spec["servers"].update(replication=1, maxReplicas=4)
        started = self.run_job(spec)
        started.wait_for_step(3)

        for servers, code, text in ((0, 2, "--servers"), (1, 2, "spec.servers.replication"),
                                    (5, 2, "maxReplicas"), ("x", 2, "--servers")):
            with self.subTest(servers=servers):
                refused = started.scale(servers, "--wait")

                self.assertEqual(refused.returncode, code, refused.stderr)
                self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
                self.assertIn(text, refused.stderr)
        refused = started.scale(4, workers=5000)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("--workers", refused.stderr)
        self.assertEqual(server_indices(started.status()), [0, 1, 2])
        self.assertIsNone(started.launcher.process.poll(), started.launcher.output)

    def test_workers_come_and_go_and_every_sample_counts_once(self) -> None:
        started = self.run_job(self.spec("--samples", 6000, "--epochs", 4, "--batch", 10,
                                         "--step-milliseconds", 50))
        started.wait_for_step(3)

        grown = started.scale(None, "--wait", workers=4)
        status_of_four = started.status()
        shrunk = started.scale(None, "--wait", workers=1)
        status_of_one = started.status()
        again = started.scale(None, "--wait", workers=3)
        code = started.finish()

        for resized in (grown, shrunk, again):
            self.assertEqual(resized.returncode, 0, resized.stderr)
        self.assertEqual(member_indices(status_of_four), [0, 1, 2, 3])
        self.assertEqual(member_indices(status_of_one), [0])
        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual((report["workers"], report["restarts"]), (3, 0))
        self.assertEqual({name: report["final"][name] for name in ("least", "most", "total")},
                         {"least": 4, "most": 4, "total": 24000})

    def test_the_global_batch_stays_whatever_the_workers(self) -> None:
        spec = self.spec("--samples", 960, "--epochs", 2, "--batch", 7, "--step-milliseconds", 200)
        spec["workers"]["globalBatch"] = 10
        started = self.run_job(spec)
        started.wait_for_step(3)

        grown = started.scale(None, "--wait", workers=3)
        code = started.finish()

        self.assertEqual(grown.returncode, 0, grown.stderr)
        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual((report["steps"], report["final"]["total"]), (192, 1920))

    def test_a_killed_workers_samples_are_handed_out_again(self) -> None:
        spec = self.spec("--samples", 12000, "--batch", 10, "--step-milliseconds", 100, workers=3,
                         restart=QUICK_RESTARTS)
        started = self.run_job(spec)
        started.wait_for_step(10)

        started.kill_and_await_next("worker", 1)
        code = started.finish()

        self.assertEqual(code, 0, started.launcher.output)
        report = started.report()
        self.assertEqual(report["restarts"], 1)
        # One death may leave one step uneven: its batch counts twice in a chunk, or not at all.
        self.assertAlmostEqual(report["final"]["total"], 12000, delta=10)

    def test_undesired_joining_workers_cost_no_restart(self) -> None:
        may_join = self.folder / "may-join"
        spec = self.long_spec(workers=1, restart={"backoffLimit": 0})
        spec["command"] = ["sh", "-c", f'[ "$PUSHPULL_INDEX" = 0 ] || until [ -e {may_join} ]; do '
                           'sleep 0.05; done; exec "$@"', "sh", *spec["command"]]
        started = self.run_job(spec)
        started.wait_for_step(3)
        self.assertEqual(started.scale(workers=2).returncode, 0)
        late = job.wait_until(lambda: started.endpoint("worker", 1), job.START_SECONDS, "worker-1")

        # So that it hears of both at once: that the worker has ended, and that nobody wants it.
        started.launcher.process.send_signal(signal.SIGSTOP)
        self.assertEqual(started.scale(workers=1).returncode, 0)
        may_join.touch()
        job.wait_until(lambda: late["pid"] not in job.tagged_processes(self.tag), 30, "its end")
        started.launcher.process.send_signal(signal.SIGCONT)

        job.wait_until(lambda: started.endpoint("worker", 1) is None, 30, "no worker-1")
        started.wait_for_step(started.status()["step"] + 10)
        self.assertIn("there is no place for worker-1", started.launcher.output)

    def test_under_kubernetes_kubectl_is_named(self) -> None:
        environment = self.environment(KUBERNETES_SERVICE_HOST="10.0.0.1", PUSHPULL_JOB="mnist",
                                       PUSHPULL_COORDINATOR=job.closed_port())

        refused = job.run_command("scale", "--servers", 4, environment=environment)

        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn("kubectl scale trainingjob/mnist --replicas=4", refused.stderr)

    def test_nobody_at_the_address_is_named(self) -> None:
        address = job.closed_port()

        refused = job.run_command("scale", "--servers", 4, "--coordinator", address)

        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn(address, refused.stderr)

    def test_killed_new_server_of_replicated_job_is_restarted(self) -> None:
        spec = self.long_spec(servers=2, restart=QUICK_RESTARTS)
        spec["servers"]["replication"] = 1
        started = self.run_job(spec)
        started.wait_for_step(3)
        self.assertEqual(started.scale(3, "--wait").returncode, 0)

        started.signal_member("server", 2, signal.SIGKILL)

        started.launcher.wait_for_line(r"server-2 was ended by signal 9 .*; restart, 1 of 3")
        again = started.scale(3, "--wait")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIsNone(started.launcher.process.poll(), started.launcher.output)


if __name__ == "__main__":
    unittest.main()
