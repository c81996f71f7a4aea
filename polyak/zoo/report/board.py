"""``polyak board``: the page of `polyak.zoo.report.page`, served while runs continue."""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit

from polyak.zoo.errors import ZooError
from polyak.zoo.options import option
from polyak.zoo.report.films import FILMS
from polyak.zoo.report.logbook import Json, Logbook
from polyak.zoo.report.page import render

#: Seconds between two looks at the files, however many readers ask.
PATIENCE = 1.0


@dataclass
class BoardOptions:
    """Serve the page of `polyak report` while runs continue, to this machine only unless another host is given."""

    logs: str = option("logs", help="Log folder, a folder of one algorithm in it, or a single run.")
    port: int = option(6007, "--port", help="Port to listen on; 0 takes a free one.")
    host: str = option("127.0.0.1", "--host", help="Address to listen on; 0.0.0.0 lets every machine read the logs.")


def board(options: BoardOptions) -> None:
    """Serve until Ctrl-C.

    Raises ZooError when the folder is wrong, or nothing can listen on that host and port.
    """
    with open_server(options) as server:
        print(f"Board of {options.logs} at {server.url} (Ctrl-C ends it)", flush=True)
        if not server.is_private:
            print(f"--host {options.host}: every computer that reaches this machine can read these logs.", flush=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("The board is closed.")


def open_server(options: BoardOptions) -> BoardServer:
    """Return a server that listens already and serves once ``serve_forever`` is called; ZooError if it cannot be."""
    logbook = Logbook(Path(options.logs))
    if not 0 <= options.port <= 65535:
        raise ZooError(f"--port must be between 0 and 65535, got {options.port}.")
    where = f"--host {options.host} --port {options.port}"
    try:
        return BoardServer(options.host, options.port, Live(logbook))
    except socket.gaierror as error:
        raise ZooError(f"--host {options.host!r} is no address of this machine. Try --host 127.0.0.1.") from error
    except PermissionError as error:
        raise ZooError(f"{where}: not allowed to listen there. Give a --port of at least 1024.") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ZooError(
                f"--port {options.port} is in use, perhaps by another board. Give another, such as --port "
                f"{options.port % 65535 + 1}, or --port 0 for a free one."
            ) from error
        raise ZooError(f"{where}: cannot listen there: {error.strerror or error}.") from error


class Live:
    """The content that the board serves: the page, its data, and the videos that the data names.

    Args:
        logbook: its source.
    """

    def __init__(self, logbook: Logbook) -> None:
        self._logbook = logbook
        self._lock = threading.Lock()
        self._looked = -PATIENCE
        self._data: Json = {}
        self._body, self._tag = b"", ""

    def data(self) -> tuple[bytes, str]:
        """Return the data as JSON, and a tag that changes with it."""
        with self._lock:
            self._look()
            return self._body, self._tag

    def page(self) -> bytes:
        """Return the page with the present data in it."""
        with self._lock:
            self._look()
            return render({**self._data, "tag": self._tag}, live=True).encode()

    def film(self, identifier: str) -> Path | None:
        """Return the file of a video that the data names."""
        with self._lock:
            return self._logbook.film(identifier)

    def _look(self) -> None:
        if time.monotonic() - self._looked < PATIENCE:
            return
        data = self._logbook.read()
        for film in data["films"]:
            film["src"] = f"film/{film['id']}"
        self._data = data
        self._body = json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
        self._tag = f'"{sha256(self._body).hexdigest()[:32]}"'
        self._looked = time.monotonic()


class BoardServer(ThreadingMixIn, TCPServer):
    """Serves ``/``, ``/data.json`` and ``/film/<identifier>``, and nothing else; it only reads.

    Args:
        host: name or address to listen on.
        port: 0 takes a free one.
        live: what to serve.

    Raises:
        OSError: it cannot listen there.
    """

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # on Windows that would let two boards share a port

    def __init__(self, host: str, port: int, live: Live) -> None:
        self.live = live
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        super().__init__((str(address[0]), port), _Handler)
        self.is_private = ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore readers that disconnected; report other errors as usual."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: BoardServer
    server_version, sys_version = "polyak", ""
    timeout = 60

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if not self._is_meant_for_us():
            self._answer(HTTPStatus.FORBIDDEN, b"This board answers to localhost only.\n", "text/plain")
        elif path == "/":
            self._answer(HTTPStatus.OK, self.server.live.page(), "text/html; charset=utf-8")
        elif path == "/data.json":
            self._send_data()
        elif path.startswith("/film/"):
            self._send_film(path.removeprefix("/film/"))
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"There is nothing here.\n", "text/plain")

    do_HEAD = do_GET

    def _is_meant_for_us(self) -> bool:
        """Refuse pages of the web that reach a private board under a name of their own (DNS rebinding)."""
        if not self.server.is_private:
            return True
        name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        try:
            return name == "localhost" or ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    def _send_data(self) -> None:
        body, tag = self.server.live.data()
        if self.headers.get("If-None-Match") == tag:
            self._answer(HTTPStatus.NOT_MODIFIED, b"", "application/json", tag)
        else:
            self._answer(HTTPStatus.OK, body, "application/json", tag)

    def _send_film(self, identifier: str) -> None:
        path = self.server.live.film(identifier)
        try:
            file = None if path is None else path.open("rb")
        except OSError:
            file = None
        if path is None or file is None:
            self._answer(HTTPStatus.NOT_FOUND, b"There is no such video.\n", "text/plain")
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            self._begin(HTTPStatus.OK, size, FILMS[path.suffix.lower()])
            if self.command != "HEAD":
                self.wfile.write(file.read(size))  # no more than announced, should it grow meanwhile

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, tag: str = "") -> None:
        self._begin(status, len(body), kind, tag)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: HTTPStatus, size: int, kind: str, tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(size))
        if tag:
            self.send_header("ETag", tag)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing for each request."""
