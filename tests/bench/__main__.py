# SPDX-License-Identifier: Apache-2.0
"""`./dev bench`: what CHANGELOG and README claim about speed, measured again.

Runs `pushpull bench sync` in rounds, each case once a round, so that a case and what it is compared with
see the same machine; writes everything that was measured as JSON, and prints the ratios last.

  python3 tests/bench [--rounds 5] [--out FILE] [--program build/release/pushpull]
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any, Callable, NamedTuple, Optional

RESULTS = pathlib.Path(__file__).parent / "results"
RUN_SECONDS = 600

# Case -> words of `pushpull bench sync`.
CASES: dict[str, list[str]] = {
    "tcp": ["--steps", "16"],
    "tcp, payload checksum": ["--steps", "16", "--payload-checksum", "on"],
    "tcp, TLS": ["--steps", "8", "--tls"],
    "grpc": ["--steps", "16", "--channel", "grpc"],
    "shm": ["--steps", "16", "--channel", "shm"],
    "shm, registered": ["--steps", "16", "--channel", "shm", "--registered"],
    "3 workers": ["--steps", "12", "--workers", "3"],
    "3 workers, deterministic": ["--steps", "12", "--workers", "3", "--deterministic"],
    "4 KB tensors": ["--steps", "40", "--bytes", "20M", "--tensors", "4K"],
    "1 KiB tensor": ["--steps", "4000", "--workers", "1", "--servers", "1", "--bytes", "1Ki",
                     "--tensors", "1Ki"],
}

COSTS = "costs"  # of a round, what step_costs prints

Round = dict[str, dict[str, Any]]  # case -> result


class Ratio(NamedTuple):
    name: str
    of_round: Callable[[Round], float]
    bound: str  # as issues state it
    is_kept: Callable[[float], bool]


def p50(one: Round, case: str) -> float:
    return one[case]["step_seconds"]["p50"]


def cpu_of_step(one: Round) -> float:
    return one["tcp"]["cpu_seconds_per_gigabyte"] * one["tcp"]["wire_bytes_per_step"] / 1e9


def check_of_step(one: Round) -> float:
    received = one["tcp"]["wire_bytes_per_step"] / 2 / 1e9
    return one[COSTS]["check_seconds_per_gigabyte"] * received / cpu_of_step(one)


def chunks_of_step(one: Round) -> float:
    """A chunk is two messages, there and back."""
    return one["tcp"]["messages_per_second"] * one["tcp"]["step_seconds"]["p50"] / 2


def metrics_of_step(one: Round) -> float:
    costs = one[COSTS]
    return ((costs["metrics_seconds_per_chunk"] * chunks_of_step(one) + costs["metrics_seconds_per_step"] * one["tcp"]["workers"])
            / cpu_of_step(one))


def trace_of_step(one: Round) -> float:
    return one[COSTS]["trace_seconds_per_chunk"] * chunks_of_step(one) / cpu_of_step(one)


RATIOS = [
    Ratio("tcp: wire over link", lambda r: r["tcp"]["wire_over_link"], ">= 0.80", lambda x: x >= 0.80),
    Ratio("tcp: CPU over link", lambda r: r["tcp"]["cpu_over_link"], "<= 1.30", lambda x: x <= 1.30),
    Ratio("payload checksum: time over tcp",
          lambda r: p50(r, "tcp, payload checksum") / p50(r, "tcp"), "<= 1.30", lambda x: x <= 1.30),
    Ratio("4 KB tensors: wire over link", lambda r: r["4 KB tensors"]["wire_over_link"], ">= 0.30",
          lambda x: x >= 0.30),
    Ratio("1 KiB tensor: time over a round trip",
          lambda r: p50(r, "1 KiB tensor") / r["1 KiB tensor"]["round_trip_seconds"], "<= 3.00",
          lambda x: x <= 3.0),
    Ratio("TLS: goodput over tcp", lambda r: p50(r, "tcp") / p50(r, "tcp, TLS"), ">= 0.33",
          lambda x: x >= 0.33),
    Ratio("grpc: wire over link", lambda r: r["grpc"]["wire_over_link"], ">= 0.45", lambda x: x >= 0.45),
    Ratio("deterministic: time over the same without",
          lambda r: p50(r, "3 workers, deterministic") / p50(r, "3 workers"), "<= 1.15",
          lambda x: x <= 1.15),
    Ratio("check for NaN: CPU of a step", check_of_step, "<= 0.03", lambda x: x <= 0.03),
    Ratio("metrics: CPU of a step", metrics_of_step, "<= 0.01", lambda x: x <= 0.01),
    Ratio("trace: CPU of a step that is recorded", trace_of_step, "<= 0.02", lambda x: x <= 0.02),
    Ratio("shm: time over tcp", lambda r: p50(r, "shm") / p50(r, "tcp"), "<= 0.65",
          lambda x: x <= 0.65),
    Ratio("shm, registered: time over tcp", lambda r: p50(r, "shm, registered") / p50(r, "tcp"),
          "<= 0.25", lambda x: x <= 0.25),
]


def openssl(folder: pathlib.Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)


def make_certificates(folder: pathlib.Path) -> None:
    """An authority and one member, for a day."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(folder, "req", "-x509", *curve, "-subj", "/CN=bench", "-days", "1", "-keyout", "ca.key",
            "-out", "ca.crt")
    openssl(folder, "req", *curve, "-subj", "/CN=member", "-addext", "subjectAltName=DNS:pushpull",
            "-keyout", "tls.key", "-out", "request")
    openssl(folder, "x509", "-req", "-in", "request", "-CA", "ca.crt", "-CAkey", "ca.key",
            "-CAcreateserial", "-copy_extensions", "copy", "-days", "1", "-out", "tls.crt")


def run_case(program: str, words: list[str], certificates: pathlib.Path) -> dict[str, Any]:
    environment = {**os.environ, "PUSHPULL_TLS_DIR": str(certificates)}
    done = subprocess.run([program, "bench", "sync", "--json", *words], env=environment,
                          capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def run_costs(program: str) -> dict[str, Any]:
    beside = pathlib.Path(program).parent / "tests/step_costs"
    done = subprocess.run([beside], capture_output=True, text=True, timeout=RUN_SECONDS, check=True)
    return json.loads(done.stdout)


def run_round(program: str, certificates: pathlib.Path) -> Round:
    results = {COSTS: run_costs(program)}
    for case, words in CASES.items():
        results[case] = run_case(program, words, certificates)
        print(f"  {case:24} step {1e3 * results[case]['step_seconds']['p50']:9.3f} ms, wire/link "
              f"{results[case]['wire_over_link']:.3f}, CPU/link {results[case]['cpu_over_link']:.2f}",
              flush=True)
    return results


def machine() -> dict[str, Any]:
    names = [line.partition(":")[2].strip()
             for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return {"cores": os.cpu_count(), "processor": names[0] if names else "",
            "kernel": os.uname().release}


def version_of(program: str) -> dict[str, Any]:
    done = subprocess.run([program, "version", "--json"], capture_output=True, text=True, timeout=60,
                          check=True)
    return json.loads(done.stdout)


def summarize(rounds: list[Round]) -> list[dict[str, Any]]:
    summary = []
    for ratio in RATIOS:
        values = [ratio.of_round(one) for one in rounds]
        middle = statistics.median(values)
        summary.append({"name": ratio.name, "median": middle, "min": min(values), "max": max(values),
                        "bound": ratio.bound, "is_kept": ratio.is_kept(middle)})
    return summary


def print_ratios(summary: list[dict[str, Any]]) -> None:
    print(f"\n{'ratio':40} {'median':>8} {'min':>8} {'max':>8}  bound")
    for line in summary:
        print(f"{line['name']:40} {line['median']:8.4f} {line['min']:8.4f} {line['max']:8.4f}  "
              f"{line['bound']} {'' if line['is_kept'] else 'MISSED'}")


def main(words: Optional[list[str]] = None) -> None:
    parser = argparse.ArgumentParser(prog="./dev bench", description="Measures what is claimed about speed.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, help="file for the results, else one in tests/bench/results")
    parser.add_argument("--program", default="build/release/pushpull")
    flags = parser.parse_args(words)
    if flags.rounds < 1:
        parser.error("--rounds: must be at least 1")
    began = datetime.datetime.now(datetime.timezone.utc)
    version = version_of(flags.program)
    loads, rounds = [], []
    with tempfile.TemporaryDirectory(prefix="pushpull-bench-") as folder:
        certificates = pathlib.Path(folder)
        make_certificates(certificates)
        for number in range(flags.rounds):
            loads.append(os.getloadavg()[0])
            print(f"round {number + 1} of {flags.rounds}, load {loads[-1]:.1f}", flush=True)
            rounds.append(run_round(flags.program, certificates))
    summary = summarize(rounds)
    out = flags.out or RESULTS / f"{began:%Y%m%d-%H%M%S}-{version['commit']}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"commit": version["commit"], "date": f"{began:%Y-%m-%d}",
                               "machine": machine(), "load_before_rounds": loads,
                               "cases": CASES, "ratios": summary, "rounds": rounds}, indent=1) + "\n")
    print(f"\nresults: {out}")
    print_ratios(summary)


if __name__ == "__main__":
    main()
