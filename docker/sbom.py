#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The software bill of materials of an image, and the versions of Debian's packages that images are made of.

    sbom.py ROOT PROGRAM... [FOLDER...] [debian:PACKAGE...]
        writes ROOT/usr/share/doc/pushpull/sbom.spdx.json, SPDX 2.3: each program with its checksum, each Debian package of
        which ROOT has a file, each Python package of none of those, with its version, and what `pushpull` itself contains of
        npm. The arguments are those of rootfs.sh, which calls this. The same files give
        the same bytes. Packages of docker/packages.txt that headers of the programs come from are named as what it was built
        with. Those whose version is not that of docker/versions.txt are told; with PUSHPULL_PINNED=1 they end it with 1.
    sbom.py --pin
        prints docker/versions.txt anew: docker/packages.txt, and what those packages depend on, as installed here.
"""
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any, Iterable, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES, VERSIONS = HERE / "packages.txt", HERE / "versions.txt"
PLACE = "usr/share/doc/pushpull/sbom.spdx.json"
# What the status page is made with. Nothing else of npm is in a program.
NPM_LOCK = HERE.parent / "runtime/status/page/package-lock.json"
NAMESPACE = "https://pushpull.dev/sbom"
# They are in every image, and dpkg does not know them as files of a package.
GENERATED = {"/etc/ssl/certs/ca-certificates.crt": "ca-certificates"}
_FIELDS = "${Package}\\t${db:Status-Status}\\t${Version}\\t${Architecture}\\t${source:Package}\\t${source:Version}\\t${Depends}, ${Pre-Depends}\\n"


class Debian(NamedTuple):
    name: str
    version: str
    architecture: str
    source: str
    source_version: str
    depends: str


def output(*command: str) -> str:
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def installed() -> dict[str, Debian]:
    rows = (line.split("\t") for line in output("dpkg-query", "--show", "--showformat", _FIELDS).splitlines())
    return {row[0]: Debian(row[0], *row[2:7]) for row in rows if row[1] == "installed"}


def wanted() -> list[str]:
    words = (line.partition("#")[0].strip() for line in PACKAGES.read_text(encoding="utf-8").splitlines())
    return [word for word in words if word]


def pins() -> dict[str, str]:
    lines = VERSIONS.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def closure(names: Iterable[str], known: dict[str, Debian]) -> set[str]:
    """With what is installed of all that they depend on, alternatives included."""
    found, waiting = set(), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and name in known:
            found.add(name)
            waiting += [re.sub(r"[ (:].*", "", word.strip()) for word in re.split(r"[,|]", known[name].depends) if word.strip()]
    return found


def owners(root: pathlib.Path) -> dict[str, set[str]]:
    """The packages of which `root` has a file, with these files. Debian knows some by the place that they had before /lib
    became a link to /usr/lib."""
    files = [f"/{path.relative_to(root)}" for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
    found: dict[str, set[str]] = {}
    for file, package in GENERATED.items():
        if file in files:
            found.setdefault(package, set()).add(file)
    asked = {alias: file for file in files for alias in (file, file.removeprefix("/usr"), str(pathlib.Path(file).resolve()))
             if pathlib.Path(file).exists()}
    names = sorted(asked)
    for begin in range(0, len(names), 1000):
        for line in output("dpkg-query", "--search", *names[begin:begin + 1000]).splitlines():
            packages, _, file = line.rpartition(": ")
            for package in packages.split(", "):
                if file in asked and not package.startswith("diversion "):
                    found.setdefault(package.partition(":")[0], set()).add(asked[file])
    return found


def identifier(kind: str, name: str) -> str:
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def entry(kind: str, name: str, version: str, **more: Any) -> dict[str, Any]:
    return {"SPDXID": identifier(kind, name), "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
            **more}


def debian_entry(package: Debian, has_licence: bool) -> dict[str, Any]:
    # A + of a version is %2B in a package URL, a ~ stays.
    version = package.version.replace(":", "%3A").replace("+", "%2B")
    place = f"pkg:deb/debian/{package.name.replace('+', '%2B')}@{version}?arch={package.architecture}&distro=debian-12"
    more = {"comment": f"licence: /usr/share/doc/{package.name}/copyright"} if has_licence else {}
    return entry("Debian", package.name, package.version, supplier="Organization: Debian",
                 sourceInfo=f"built from {package.source} {package.source_version}",
                 externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": place}], **more)


def own_version() -> str:
    chart = (HERE.parent / "charts/pushpull/Chart.yaml").read_text(encoding="utf-8")
    return re.search(r"^appVersion: (\S+)$", chart, re.MULTILINE)[1]


def program_entry(root: pathlib.Path, name: str) -> dict[str, Any]:
    content = (root / "usr/local/bin" / name).read_bytes()
    is_ours = name.startswith("pushpull")
    return entry("Program", name, own_version() if is_ours else "NOASSERTION", packageFileName=f"/usr/local/bin/{name}",
                 licenseDeclared="Apache-2.0" if is_ours else "NOASSERTION", primaryPackagePurpose="APPLICATION",
                 checksums=[{"algorithm": "SHA256", "checksumValue": hashlib.sha256(content).hexdigest()}])


def python_entries(root: pathlib.Path, owned: set[str]) -> list[dict[str, Any]]:
    found = []
    for path in sorted(root.rglob("*.dist-info/METADATA")):
        if f"/{path.relative_to(root)}" not in owned:
            fields = dict(re.findall(r"^(Name|Version): (\S+)$", path.read_text(encoding="utf-8").partition("\n\n")[0], re.MULTILINE))
            place = f"pkg:pypi/{fields['Name'].lower()}@{fields['Version']}"
            found.append(entry("Python", fields["Name"], fields["Version"], externalRefs=[
                {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": place}]))
    return found


def npm_entries(root: pathlib.Path) -> list[dict[str, Any]]:
    if not os.path.lexists(root / "usr/local/bin/pushpull"):
        return []
    locked = json.loads(NPM_LOCK.read_text(encoding="utf-8"))["packages"]
    inside = {path.removeprefix("node_modules/"): package for path, package in locked.items() if path and not package.get("dev")}
    return [entry("Npm", name, package["version"], licenseDeclared=package["license"], externalRefs=[
        {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": f"pkg:npm/{name}@{package['version']}"}])
        for name, package in sorted(inside.items())]


def document(root: pathlib.Path, programs: list[str], named: list[str]) -> tuple[dict[str, Any], list[Debian]]:
    """And the packages of Debian that it is about."""
    known = installed()
    files = owners(root)
    found = set(files) | set(named)
    inside = [known[name] for name in sorted(found)]
    built = [known[name] for name in wanted() if name.endswith("-dev") and name in known and name not in found]
    packages = [program_entry(root, name) for name in programs]
    packages += [debian_entry(one, (root / "usr/share/doc" / one.name / "copyright").exists()) for one in inside]
    packages += python_entries(root, set().union(*files.values()))
    packages += npm_entries(root)
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image")]
    relations += [("SPDXRef-Image", "CONTAINS", one["SPDXID"]) for one in packages]
    relations += [(identifier("Debian", one.name), "BUILD_DEPENDENCY_OF", "SPDXRef-Image") for one in built]
    image = {**entry("Image", "image", own_version(), primaryPackagePurpose="CONTAINER"), "SPDXID": "SPDXRef-Image"}
    packages = [image, *packages, *(debian_entry(one, False) for one in built)]
    when = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    content = hashlib.sha256(json.dumps(packages).encode()).hexdigest()
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "pushpull",
            "documentNamespace": f"{NAMESPACE}/{content}",
            "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: pushpull-sbom"]},
            "packages": packages,
            "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations]}, inside


def unlike_pins(packages: list[Debian]) -> list[str]:
    pinned = pins()
    return [f"{one.name} is {one.version}, docker/versions.txt has {pinned.get(one.name, 'none')}"
            for one in packages if pinned.get(one.name) != one.version]


def main(arguments: list[str]) -> int:
    if arguments == ["--pin"]:
        known = installed()
        print("# Debian 12 packages that images are made of and with, each with its version: docker/sbom.py --pin > docker/versions.txt")
        print("\n".join(f"{name}={known[name].version}" for name in sorted(closure(wanted(), known))))
        return 0
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[0])
    programs = [pathlib.Path(word).name for word in arguments[1:] if pathlib.Path(word).is_file()]
    named = [word.removeprefix("debian:") for word in arguments[1:] if word.startswith("debian:")]
    content, packages = document(root, programs, named)
    place = root / PLACE
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    unlike = unlike_pins(packages)
    for line in unlike:
        print(f"sbom.py: {line}", file=sys.stderr)
    if unlike and os.environ.get("PUSHPULL_PINNED") == "1":
        print("sbom.py: install these versions, from a mirror of that day; or take those that are installed: docker/sbom.py --pin > "
              "docker/versions.txt; or, in a Dockerfile, build with --build-arg PINNED=0", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
