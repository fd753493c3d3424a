# SPDX-License-Identifier: Apache-2.0
"""A registry of one image, which may take its time or want a password.

    registry.py PORT NAME:TAG ARCHIVE [--seconds SECONDS] [--user NAME:PASSWORD]     on loopback, until it is ended

ARCHIVE is of docker/archive.sh. Each pull of the layer lasts SECONDS; prints a line when one begins.
"""
import argparse
import base64
import hashlib
import http.server
import io
import json
import tarfile
import threading

PIECES = 100
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def read(archive: str) -> tuple[bytes, bytes]:
    """The configuration and the layer."""
    with tarfile.open(archive) as tar:
        def content(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file is not None, name
            return file.read()
        entry = json.loads(content("manifest.json"))[0]
        return content(entry["Config"]), content(entry["Layers"][0])


def part(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "size": len(content), "digest": "sha256:" + hashlib.sha256(content).hexdigest()}


def serve(port: int, image: str, archive: str, seconds: float, user: str) -> None:
    wanted = "Basic " + base64.b64encode(user.encode()).decode() if user else None
    config, layer = read(archive)
    name, _, tag = image.partition(":")
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": _MANIFEST, "config": part("application/vnd.docker.container.image.v1+json", config),
        "layers": [part("application/vnd.docker.image.rootfs.diff.tar", layer)]}).encode()
    digest = hashlib.sha256(manifest).hexdigest()
    contents = {f"/v2/{name}/blobs/sha256:{hashlib.sha256(blob).hexdigest()}": blob for blob in (config, layer)}
    contents |= {f"/v2/{name}/manifests/{tag}": manifest, f"/v2/{name}/manifests/sha256:{digest}": manifest}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def refuse(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="images"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def answer(self, has_body: bool) -> None:
            if wanted is not None and self.headers.get("Authorization") != wanted:
                self.refuse()
                return
            content = contents.get(self.path.partition("?")[0], b"")
            self.send_response(200 if content or self.path == "/v2/" else 404)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Type", _MANIFEST if content is manifest else "application/octet-stream")
            self.send_header("Docker-Content-Digest", "sha256:" + hashlib.sha256(content).hexdigest())
            self.end_headers()
            if has_body and content is layer:
                self.send_slowly(content)
            elif has_body:
                self.wfile.write(content)

        def send_slowly(self, content: bytes) -> None:
            print("pull begins", flush=True)
            rest, pace = io.BytesIO(content), threading.Event()
            while piece := rest.read(len(content) // PIECES + 1):
                pace.wait(seconds / PIECES)
                self.wfile.write(piece)

        def do_GET(self) -> None:
            self.answer(True)

        def do_HEAD(self) -> None:
            self.answer(False)

        def log_message(self, *_: object) -> None:
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("image", metavar="NAME:TAG")
    parser.add_argument("archive")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--user", metavar="NAME:PASSWORD", default="")
    arguments = parser.parse_args()
    serve(arguments.port, arguments.image, arguments.archive, arguments.seconds, arguments.user)


if __name__ == "__main__":
    main()
