# SPDX-License-Identifier: Apache-2.0
"""Collectives between processes over both channels, as `pushpull bench collective` makes them: right elements, the
bytes that each rank sends, and what becomes of all ranks when one is killed."""
import json
import os
import pathlib
import re
import signal
import subprocess
import unittest
from typing import Any

import hosts_test
import job

ALGORITHMS = ("ring", "bidirectional-ring", "tree", "halving-doubling", "root", "host", "split")


class CollectiveTest(job.JobTestCase):

    def bench(self, *words: Any) -> dict[str, Any]:
        done = job.run_command("bench", "collective", "--json", *words,
                               environment=self.environment(TMPDIR=str(self.folder)), seconds=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [], "files of the benchmark are left")
        result = json.loads(done.stdout)
        self.assertTrue(result["verified"], result)
        return result

    def rank_pid(self, rank: int) -> int:
        ending = f" --rank {rank} "

        def find() -> int:
            for pid, command in job.tagged_processes(self.tag).items():
                if "collective-rank" in command and command.endswith(ending):
                    return pid
            return 0

        return job.wait_until(find, job.START_SECONDS, f"rank {rank} runs")

    def test_every_algorithm_gives_right_elements(self) -> None:
        for channel in ("shm", "tcp"):
            for ranks in (2, 3, 5):
                with self.subTest(channel=channel, ranks=ranks):
                    result = self.bench("--ranks", ranks, "--channel", channel, "--repeats", 2,
                                        "--algorithm", "all", "--bytes", "4,1004,400K")

                    self.assertEqual((result["ranks"], result["channel"]), (ranks, channel))
                    self.assertEqual({one["algorithm"] for one in result["results"]}, {*ALGORITHMS, "auto"})
                    for one in result["results"]:
                        self.assertIn(one["used"], ALGORITHMS if one["algorithm"] == "auto" else [one["algorithm"]])
                    self.assertEqual(len(result["results"]), 3 * 8)
                    for one in result["results"]:
                        self.assertGreaterEqual(one["seconds"]["p99"], one["seconds"]["p50"])
                        self.assertGreater(one["bus_bytes_per_second"], 0)

    def test_every_collective_gives_right_elements(self) -> None:
        for collective in ("reduce-scatter", "all-gather", "broadcast"):
            with self.subTest(collective=collective):
                result = self.bench("--ranks", 4, "--collective", collective, "--repeats", 2,
                                    "--algorithm", "all", "--bytes", "404,400K")

                self.assertEqual(result["collective"], collective)

    def test_sizes_beyond_those_that_are_tried_are_guessed(self) -> None:
        sizes = [4 * size for size in range(1, 41)]

        result = self.bench("--ranks", 2, "--repeats", 2, "--algorithm", "auto", "--bytes", ",".join(map(str, sizes)))

        self.assertEqual([one["bytes"] for one in result["results"]], sizes)
        self.assertTrue(all(one["used"] in ALGORITHMS for one in result["results"]))

    def test_private_arrays_give_right_elements(self) -> None:
        self.bench("--private", "--ranks", 3, "--repeats", 2, "--algorithm", "ring,split", "--bytes", "404,2M")

    def test_ranks_in_networks_of_their_own_reach_each_other(self) -> None:
        reason = hosts_test.why_not()
        if reason:
            self.skipTest(reason)
        names = [f"pp{self.tag[:8]}{rank}" for rank in range(2)]
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            self.addCleanup(subprocess.run, ["ip", "netns", "delete", name], check=False)
        subprocess.run(["ip", "-n", names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", names[1]],
                       check=True)
        for rank, name in enumerate(names):
            subprocess.run(["ip", "-n", name, "addr", "add", f"10.213.78.{rank + 1}/24", "dev", "eth0"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "eth0", "up"], check=True)

        result = self.bench("--at", ",".join(f"{name}=10.213.78.{rank + 1}" for rank, name in enumerate(names)),
                            "--channel", "tcp", "--repeats", 2, "--algorithm", "ring", "--bytes", "400K")

        self.assertEqual(result["results"][0]["bytes_sent_per_rank"], 400_000)

    def test_rings_send_the_least_bytes(self) -> None:
        for ranks in (2, 4, 8):
            with self.subTest(ranks=ranks):
                result = self.bench("--ranks", ranks, "--repeats", 1, "--bytes", "8M",
                                    "--algorithm", "ring,bidirectional-ring")

                for one in result["results"]:
                    least = 2 * (ranks - 1) / ranks * 8_000_000
                    self.assertAlmostEqual(one["bytes_sent_per_rank"], least, delta=0.02 * least)

    def wait_for_calls(self, pid: int) -> None:
        """Until the rank has computed for a while: before its first call it does next to nothing."""
        ticks = 0.2 * os.sysconf("SC_CLK_TCK")

        def has_computed() -> bool:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12]) > ticks

        job.wait_until(has_computed, job.START_SECONDS, f"rank {pid} computes")

    def test_a_rank_killed_in_a_call_ends_all(self) -> None:
        for channel in ("shm", "tcp"):
            with self.subTest(channel=channel):
                program = self.start(job.PUSHPULL, "bench", "collective", "--ranks", 3, "--channel", channel,
                                     "--bytes", "1M", "--repeats", 100_000, "--algorithm", "ring")
                killed = self.rank_pid(1)
                self.wait_for_calls(killed)

                os.kill(killed, signal.SIGKILL)
                code = program.wait(30)

                self.assertEqual(code, 1, program.output)
                self.assertRegex(program.output, "rank 1 was killed by signal 9")
                self.assertRegex(program.output,
                                 r"rank [02] of 3: call \d+, all-reduce by \w+ of \d+ elements of 4 bytes "
                                 r"\(float32 sum\): rank 1 ")
                self.wait_until_gone(10)

    def test_a_rank_that_never_comes_ends_all(self) -> None:
        program = self.start(job.PUSHPULL, "bench", "collective", "--ranks", 5, "--repeats", 100_000)

        os.kill(self.rank_pid(4), signal.SIGKILL)
        code = program.wait(30)

        self.assertEqual(code, 1, program.output)
        self.assertRegex(program.output, "rank 4 was killed by signal 9")
        self.wait_until_gone(10)

    def test_a_stopped_run_leaves_nothing(self) -> None:
        program = self.start(job.PUSHPULL, "bench", "collective", "--ranks", 2, "--bytes",
                             ",".join(["1M"] * 2000), "--repeats", 20, "--algorithm", "ring")
        self.rank_pid(1)

        os.kill(program.pid, signal.SIGINT)
        code = program.wait(30)

        self.assertEqual(code, 130, program.output)
        self.wait_until_gone(10)

    def test_a_table_is_printed(self) -> None:
        done = job.run_command("bench", "collective", "--bytes", "4K", "--repeats", 1,
                               environment=self.environment())

        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("all-reduce of float32 over shm, 2 ranks, 1 repeats: every element is right", done.stdout)
        self.assertTrue(re.search(r"^ +4000  auto: ", done.stdout, re.MULTILINE), done.stdout)

    def test_a_wrong_value_of_it_is_one_line(self) -> None:
        for words in (("--bytes", "12X"), ("--bytes", "6"), ("--channel", "grpc"), ("--algorithm", "butterfly"),
                      ("--collective", "gather"), ("--ranks", 65), ("--repeats", 0), ("--at", "ring0"),
                      ("--at", "ring0=10.0.0.1,ring1=10.0.0.2")):
            with self.subTest(words=words):
                done = job.run_command("bench", "collective", *words, environment=self.environment())

                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(words[0].removeprefix("--"), done.stderr)


if __name__ == "__main__":
    unittest.main()
