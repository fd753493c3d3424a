# SPDX-License-Identifier: Apache-2.0
"""One address in front of one of several coordinators: what a service's address is in a cluster."""
import socket
import threading


class SwitchedNetwork:
    """Passes bytes on to `target`; a switch breaks every connection, and new ones go to another. A machine that is
    gone breaks none: then they are `kept`, open and silent if nobody answers at the other end."""

    def __init__(self, target: str) -> None:
        self._lock = threading.Lock()
        self._target = target
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def switch(self, target: str, kept: bool = False) -> None:
        """Empty: new connections are closed at once."""
        with self._lock:
            self._target = target
            connections, self._connections = ([], self._connections) if kept else (self._connections, [])
        for connection in connections:
            _end(connection)

    def close(self) -> None:
        self.switch("")
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                member, _ = self._listener.accept()
            except OSError:  # closed
                return
            with self._lock:
                target = self._target
            try:
                host, port = target.rsplit(":", 1)
                coordinator = socket.create_connection((host, int(port)), timeout=5)
            except (OSError, ValueError):
                _end(member)
                continue
            coordinator.settimeout(None)
            with self._lock:
                self._connections += [member, coordinator]
            for source, sink in ((member, coordinator), (coordinator, member)):
                threading.Thread(target=_pass, args=(source, sink), daemon=True).start()


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()


def _pass(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    _end(source)
    _end(sink)
