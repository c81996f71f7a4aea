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
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from polyak.writing import replacing
from polyak.zoo.errors import ZooError
from polyak.zoo.options import CommandOptions, option
from polyak.zoo.report.figures import read_page
from polyak.zoo.report.page import body, render
from polyak.zoo.report.runs import find_runs

#: Seconds between two readings of the files, for any number of readers.
PATIENCE = 1.0


@dataclass
class BoardOptions(CommandOptions):
    """Serve the page of `polyak report` while runs continue, to this machine only unless another host is given."""

    logs: str = option("logs", help="Log folder, a folder of one algorithm in it, or a single run.")
    port: int = option(6007, "--port", help="Port to listen on; 0 takes a free one.", at_least=0, at_most=65535)
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
    logs = Path(options.logs)
    find_runs(logs, [])
    where = f"--host {options.host} --port {options.port}"
    try:
        return BoardServer(options.host, options.port, logs)
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


class BoardServer(ThreadingMixIn, TCPServer):
    """Serves ``/``, ``/data.json`` and videos from a private folder, in which it writes the current data of the runs.

    Args:
        host: name or address to listen on.
        port: 0 takes a free one.
        logs: the folder of runs to show.

    Raises:
        OSError: it cannot listen there.
    """

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # on Windows that would let two boards share a port

    def __init__(self, host: str, port: int, logs: Path) -> None:
        self.logs, self._lock, self._looked = logs, threading.Lock(), -PATIENCE
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        self._kept = TemporaryDirectory(prefix="polyak-board-")
        self.folder = Path(self._kept.name)
        super().__init__((str(address[0]), port), partial(_Handler, directory=self._kept.name))
        self.is_private = ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback

    @property
    def url(self) -> str:
        """The address of the board for a browser."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def look(self) -> None:
        """Write the files to serve, unless they were written just now."""
        with self._lock:
            if time.monotonic() - self._looked < PATIENCE:
                return
            data = read_page(self.logs)
            for film in data["films"]:
                film["src"] = film["id"]
                if not (link := self.folder / film["id"]).exists():
                    link.symlink_to(film["path"])
            fresh = json.dumps({"figures": data["figures"], "body": body(data)}, allow_nan=False)
            for name, text in (("data.json", fresh), ("index.html", render(data, live=True))):
                with replacing(self.folder / name) as file:  # another reader may be at it
                    file.write(text.encode())
            self._looked = time.monotonic()

    def server_close(self) -> None:
        """End it, and delete the folder."""
        super().server_close()
        self._kept.cleanup()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore readers that disconnected; report other errors as usual."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    server: BoardServer
    server_version, sys_version = "polyak", ""
    timeout = 60

    def send_head(self) -> Any:
        """Answer requests under this machine's own names only: a web page may reach it by another name."""
        name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        if self.server.is_private and name != "localhost" and not _is_loopback(name):
            return self.send_error(HTTPStatus.FORBIDDEN, "This board answers to localhost only.")
        self.server.look()
        return super().send_head()

    def list_directory(self, path: Any) -> None:
        """Show no folder."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        """Let nobody keep an answer, or take it for another kind."""
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: requests are not logged."""


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
