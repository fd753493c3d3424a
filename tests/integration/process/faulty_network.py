# SPDX-License-Identifier: Apache-2.0
"""A network between workers and a server that corrupts a frame on request.

It stands on the address that the server advertises and passes on what comes, frame by frame, and keeps
what priorities it has seen. Workers and server are on one host, where they would agree on no payload checksums, so it
has the workers' hello ask for them.
"""
import enum
import signal
import socket
import threading
from typing import Optional

import frames
import job

FAULT_SECONDS = 20.0
SERVER_CLOSES_SECONDS = 2.0  # after a fault that it has read
_CHECKSUMS_ON = 1  # PayloadChecksums::kOn
_CHECKSUMS_FROM_END = 1  # of a hello's meta: its last byte
_READ_BYTES = 1 << 20


class Fault(enum.Enum):
    WRONG_CHECKSUM = "a payload that is not what its checksum says"
    OVERSIZED = "a payload that is longer than a frame may have"
    TRUNCATED = "half a payload, and then the end of the connection"
    # After these the connection goes on: the server understands what it refuses.
    OTHER_CODEC = "a codec that the tensor is not registered with"
    LATER_CODEC_BYTES = "a codec's bytes of a later version"


_REFUSED = (Fault.OTHER_CODEC, Fault.LATER_CODEC_BYTES)
# These end the connection, and the worker comes back with the same push.
ENDING = tuple(fault for fault in Fault if fault not in _REFUSED)
_BFLOAT16 = 2


def read_exactly(connection: socket.socket, num_bytes: int) -> bytes:
    """EOFError where the connection ends before."""
    data = bytearray()
    while len(data) < num_bytes:
        part = connection.recv(min(_READ_BYTES, num_bytes - len(data)))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


class FaultyNetwork:
    """Listens on `host`:`port` for a server at 127.0.0.1:`port`."""

    def __init__(self, host: str, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._changed = threading.Condition()
        self._fault: Optional[Fault] = None  # for the next push
        self._is_over = True                 # the last fault has ended its connection
        self._open: set[socket.socket] = set()
        self._priorities: set[tuple[int, int, int]] = set()
        self._listener = socket.create_server((host, port))
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def inject(self, fault: Fault) -> None:
        """Corrupts the next push; returns when its connection has ended, or when it is rejected."""
        with self._changed:
            self._fault = fault
            self._is_over = False
            if not self._changed.wait_for(lambda: self._is_over, FAULT_SECONDS):
                raise AssertionError(f"the connection stays open after {fault.value}")

    def priorities(self, kind: int) -> set[tuple[int, int]]:
        """Chunk and priority of each frame of that type so far."""
        with self._changed:
            return {(chunk, priority) for of, chunk, priority in self._priorities if of == kind}

    def close(self) -> None:
        with self._changed:
            for connection in (self._listener, *self._open):
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # the other side was first
                    pass
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _start(self, target, *arguments) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                worker, _ = self._listener.accept()
            except OSError:  # closed
                return
            server = socket.create_connection(self._server, FAULT_SECONDS)
            server.settimeout(None)
            for connection in (worker, server):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self._open |= {worker, server}
            self._start(self._serve, worker, server)

    def _serve(self, worker: socket.socket, server: socket.socket) -> None:
        answers = threading.Thread(target=self._pass_answers, args=(server, worker), daemon=True)
        answers.start()
        spoilt: Optional[Fault] = None
        try:
            while spoilt is None:
                spoilt = self._pass_frame(worker, server)
        except (EOFError, OSError):  # one of the two has closed
            self._end(worker, server)
        answers.join(None if spoilt is None else SERVER_CLOSES_SECONDS)
        # A push that comes a second time is dropped, and its payload's checksum is not looked at. The
        # connection's end brings the push that counts, which is spoilt then.
        is_unread = spoilt is not None and answers.is_alive()
        self._end(worker, server)
        answers.join()
        worker.close()
        server.close()
        with self._changed:
            self._open -= {worker, server}
            if is_unread:
                self._fault = spoilt
            elif spoilt is not None:
                self._is_over = True
                self._changed.notify_all()

    def _end(self, *connections: socket.socket) -> None:
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # it has ended
                pass

    def _pass_answers(self, server: socket.socket, worker: socket.socket) -> None:
        try:
            while True:
                worker.sendall(self._read_frame(server).whole())
        except (EOFError, OSError):  # a reset is an end as well
            pass

    def _read_frame(self, connection: socket.socket) -> frames.Frame:
        frame = frames.Frame(read_exactly(connection, frames.HEADER_BYTES))
        frame.body = read_exactly(connection, frame.meta_bytes + frame.payload_bytes)
        with self._changed:
            self._priorities.add((frame.type, frame.chunk, frame.priority))
        return frame

    def _pass_frame(self, worker: socket.socket, server: socket.socket) -> Optional[Fault]:
        """The fault of this frame if the server has to close the connection for it."""
        frame = self._read_frame(worker)
        if frame.type == frames.HELLO:
            server.sendall(frame.with_byte(_CHECKSUMS_FROM_END, _CHECKSUMS_ON))
            return None
        fault = self._take_fault() if frame.type in (frames.PUSH, frames.PUSH_PULL) else None
        if fault is None:
            server.sendall(frame.whole())
            return None
        try:
            self._spoil(fault, frame, server)
        except OSError:  # it need not read all of it
            pass
        if fault in ENDING:
            return fault
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        return None

    def _spoil(self, fault: Fault, frame: frames.Frame, server: socket.socket) -> None:
        if fault is Fault.WRONG_CHECKSUM:
            assert frame.has_checksum
            server.sendall(frame.with_byte(1, frame.body[-1] ^ 1))
        elif fault is Fault.OVERSIZED:
            server.sendall(frame.oversized())
        elif fault is Fault.OTHER_CODEC:
            server.sendall(frame.with_codec(_BFLOAT16))
        elif fault is Fault.LATER_CODEC_BYTES:
            server.sendall(frame.with_payload_byte(0, 9))
        else:
            server.sendall(frame.whole()[:-frame.payload_bytes // 2])
            server.shutdown(socket.SHUT_WR)

    def _take_fault(self) -> Optional[Fault]:
        with self._changed:
            fault, self._fault = self._fault, None
            return fault


class FaultyJob:
    """Coordinator, one server behind a faulty network and two workers, started by hand."""

    HOST = "127.0.0.2"  # all of 127.0.0.0/8 is this machine's

    def __init__(self, test: job.JobTestCase, *probe_flags: object) -> None:
        spec = test.spec(*probe_flags, servers=1)
        self.coordinator = test.start(
            job.PUSHPULL, "coordinator", "--manifest", test.write_manifest(spec), "--listen",
            "127.0.0.1:0", "--metrics", "127.0.0.1:0")
        address = self.coordinator.wait_for_line(r"listening .*control=(\S+)")[1]
        self.server = test.start(
            job.PUSHPULL, "server", "--job", test.job_name, "--index", 0, "--coordinator", address,
            "--listen", "127.0.0.1:0", "--advertise", self.HOST, "--metrics", "127.0.0.1:0")
        listening = self.server.wait_for_line(r"listening .*data=\S+:(\d+) metrics=(\S+)")
        self._metrics_address = listening[2]
        self.network = FaultyNetwork(self.HOST, int(listening[1]))
        test.addCleanup(self.network.close)
        environment = {"PUSHPULL_JOB": test.job_name, "PUSHPULL_ROLE": "worker",
                       "PUSHPULL_COORDINATOR": address, "PUSHPULL_METRICS_PORT": "0"}
        self.workers = [
            test.start(*spec["command"], environment={**environment, "PUSHPULL_INDEX": str(index)})
            for index in range(2)]

    def errors(self, reason: str) -> float:
        """The server's count."""
        series = job.read_metrics(self._metrics_address)
        return series[f'pushpull_errors_total{{reason="{reason}"}}']

    def wait_for_workers(self, seconds: float) -> list[int]:
        return [worker.wait(seconds) for worker in self.workers]

    def stop(self) -> None:
        self.coordinator.process.send_signal(signal.SIGTERM)
        self.coordinator.wait(15)
        self.server.wait(15)

    @property
    def output(self) -> str:
        return "\n".join(p.output for p in (self.coordinator, self.server, *self.workers))
