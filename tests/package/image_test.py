# SPDX-License-Identifier: Apache-2.0
"""The bill of materials that docker/rootfs.sh puts into an image names everything that is in it.

PUSHPULL_BIN names the program that the image is made of.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
from typing import Any, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOTFS, SBOM, VERSIONS = ROOT / "docker/rootfs.sh", ROOT / "docker/sbom.py", ROOT / "docker/versions.txt"
PLACE = "usr/share/doc/pushpull/sbom.spdx.json"
PROGRAM = pathlib.Path(os.environ["PUSHPULL_BIN"])


def run(*command: object, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env={**os.environ, **variables})


def owner(file: str) -> Optional[str]:
    """Debian's package of this file, asked one by one and by both places that it may have."""
    for name in (file, file.removeprefix("/usr"), os.path.realpath(file)):
        found = run("dpkg-query", "--search", name)
        if found.returncode == 0:
            return found.stdout.partition(":")[0]
    return None


class ImageTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def image(self, name: str, *contents: object) -> pathlib.Path:
        root = self.folder / name
        root.mkdir()
        made = run(ROOTFS, root, *contents)
        self.assertEqual(made.returncode, 0, made.stderr)
        return root

    def inside(self, root: pathlib.Path) -> dict[str, dict[str, Any]]:
        """What the bill says that the image contains, by name."""
        bill = json.loads((root / PLACE).read_text(encoding="utf-8"))
        packages = {package["SPDXID"]: package for package in bill["packages"]}
        self.assertEqual(len(packages), len(bill["packages"]))
        related = [one["relatedSpdxElement"] for one in bill["relationships"] if one["relationshipType"] == "CONTAINS"]
        return {packages[one]["name"]: packages[one] for one in related}

    def test_every_package_of_the_image_is_named(self) -> None:
        inside = self.inside(root := self.image("root", PROGRAM))

        libraries = sorted({path.resolve() for path in (root / "usr/lib").rglob("*") if path.is_file() and not path.is_symlink()})
        self.assertGreater(len(libraries), 10)
        for library in libraries:
            file = f"/{library.relative_to(root.resolve())}"
            with self.subTest(file):
                package = owner(file)
                self.assertIn(package, inside)
                version = run("dpkg-query", "--show", "--showformat", "${Version}", package).stdout
                self.assertEqual(inside[package]["versionInfo"], version.partition(" ")[0])
        licences = {path.parent.name for path in (root / "usr/share/doc").glob("*/copyright")}
        self.assertEqual(licences - set(inside), set())
        self.assertIn("ca-certificates", inside)

    def test_program_has_version_and_checksum(self) -> None:
        root = self.image("root", PROGRAM)

        program = self.inside(root)[PROGRAM.name]

        content = (root / "usr/local/bin" / PROGRAM.name).read_bytes()
        self.assertEqual(program["checksums"], [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(content).hexdigest()}])
        version = re.search(r"^appVersion: (\S+)$", (ROOT / "charts/pushpull/Chart.yaml").read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(program["versionInfo"], version[1])

    def test_document_has_what_spdx_requires(self) -> None:
        bill = json.loads((self.image("root", PROGRAM) / PLACE).read_text(encoding="utf-8"))

        for field in ("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo"):
            self.assertTrue(bill[field], field)
        for package in bill["packages"]:
            self.assertRegex(package["SPDXID"], r"^SPDXRef-[A-Za-z0-9.-]+$")
            for field in ("name", "downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText", "versionInfo"):
                self.assertTrue(package[field], package)
        known = {package["SPDXID"] for package in bill["packages"]} | {"SPDXRef-DOCUMENT"}
        ends = {relation[end] for relation in bill["relationships"] for end in ("spdxElementId", "relatedSpdxElement")}
        self.assertEqual(ends, known)

    def test_same_contents_give_the_same_bytes(self) -> None:
        first, second = (self.image(name, PROGRAM) / PLACE for name in ("first", "second"))

        self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_package_that_pip_has_unpacked_is_named(self) -> None:
        root = self.image("root", PROGRAM)
        metadata = root / "usr/lib/python3/dist-packages/Trainer-2.1.dist-info/METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text("Metadata-Version: 2.1\nName: Trainer\nVersion: 2.1\n\nVersion: of the text\n", encoding="utf-8")

        self.assertEqual(run(SBOM, root, PROGRAM).returncode, 0)

        trainer = self.inside(root)["Trainer"]
        self.assertEqual(trainer["versionInfo"], "2.1")
        self.assertEqual(trainer["externalRefs"][0]["referenceLocator"], "pkg:pypi/trainer@2.1")

    def test_chart_library_of_the_status_page_is_named(self) -> None:
        inside = self.inside(self.image("root", PROGRAM))

        self.assertEqual(inside["uplot"]["licenseDeclared"], "MIT")
        self.assertEqual(inside["uplot"]["externalRefs"][0]["referenceLocator"], f"pkg:npm/uplot@{inside['uplot']['versionInfo']}")
        self.assertNotIn("axe-core", inside)  # only its tests use it

    def test_another_version_than_the_pinned_one_is_told(self) -> None:
        copy = self.folder / "copy"
        shutil.copytree(SBOM.parent, copy / "docker")
        for name in ("charts/pushpull/Chart.yaml", "runtime/status/page/package-lock.json"):
            (copy / name).parent.mkdir(parents=True)
            shutil.copy(ROOT / name, copy / name)
        now = run(copy / "docker/sbom.py", "--pin").stdout
        root = self.image("root", PROGRAM)
        for text, code, words in ((now, 0, ""), (re.sub(r"^libc6=.*$", "libc6=1.0", now, flags=re.MULTILINE), 1, "has 1.0"),
                                  (re.sub(r"^libc6=.*\n", "", now, flags=re.MULTILINE), 1, "has none")):
            (copy / "docker/versions.txt").write_text(text, encoding="utf-8")

            strict, lenient = (run(copy / "docker/sbom.py", root, PROGRAM, PUSHPULL_PINNED=pinned) for pinned in ("1", "0"))

            self.assertEqual((strict.returncode, lenient.returncode), (code, 0), strict.stderr)
            self.assertEqual("libc6 is " in strict.stderr, bool(words), strict.stderr)
            self.assertIn(words, strict.stderr)

    def test_every_wanted_package_is_pinned(self) -> None:
        pinned = dict(line.split("=", 1) for line in VERSIONS.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
        wanted = [line.partition("#")[0].strip() for line in (ROOT / "docker/packages.txt").read_text(encoding="utf-8").splitlines()]

        self.assertEqual([name for name in wanted if name and name not in pinned], [])


if __name__ == "__main__":
    unittest.main()
