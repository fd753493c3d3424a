# SPDX-License-Identifier: Apache-2.0
"""A tensor of over 4 GiB. Needs 18 GB of memory, so it runs alone and only where they are free."""
import unittest

import job

VALUES = 1_100_000_000  # 4.4 GB of float32: no size in bytes fits 32 bits
MEMORY_NEEDED = 19 << 30


def available_memory() -> int:
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


class LargeTensorTest(job.JobTestCase):

    def test_tensor_of_over_4_gib_arrives_whole(self) -> None:
        if available_memory() < MEMORY_NEEDED:
            self.skipTest(f"needs {MEMORY_NEEDED >> 30} GiB of free memory")
        # The probe compares every one of the values that come back.
        started = self.run_job(
            self.spec("--steps", 1, "--values", VALUES, "--tensors", 1, servers=1, workers=1))

        code = started.launcher.wait(400)

        self.assertEqual(code, 0, started.launcher.output)
        self.assertGreaterEqual(started.report()["bytes"]["pushed"], 4 * VALUES)


if __name__ == "__main__":
    unittest.main()
