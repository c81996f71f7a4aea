"""A stand-in for the Hugging Face Hub: the part of its HTTP API that pushing and loading use, on 127.0.0.1."""

import base64
import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

COMMIT = "0" * 40


class Hub(ThreadingHTTPServer):
    """Repositories of models in memory: ``repositories[id][path]`` is a file's content."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.messages: list[str] = []
        self.may_write = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        parts = path.strip("/").split("/")
        if path == "/api/models":
            author = parse_qs(urlparse(self.path).query)["author"][0]
            self._json([{"id": name} for name in self.server.repositories if name.startswith(f"{author}/")])
        elif parts[:2] == ["api", "models"] and len(parts) >= 4:
            self._about("/".join(parts[2:4]), parts[4:])
        elif len(parts) >= 5 and parts[2] == "resolve":
            self._file("/".join(parts[:2]), "/".join(parts[4:]))
        else:
            self._json({"error": "unknown"}, 404)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        path, body = unquote(urlparse(self.path).path), self._body()
        parts = path.strip("/").split("/")
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            if not self.server.may_write:
                self._json({"error": "You have no right to write here"}, 403)
                return
            known = name in self.server.repositories
            self.server.repositories.setdefault(name, {})
            self._json({"url": f"{self.server.url}/{name}"}, 409 if known else 200)
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif parts[4:5] == ["preupload"]:
            files = json.loads(body)["files"]
            self._json(
                {"files": [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in files]}
            )
        elif parts[4:5] == ["commit"]:
            self._commit("/".join(parts[2:4]), body)
        else:
            self._json({"error": "unknown"}, 404)

    def _about(self, name: str, rest: list[str]) -> None:
        files = self.server.repositories.get(name)
        if files is None:
            self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        elif rest[:1] == ["tree"]:
            self._json(
                [{"type": "file", "path": path, "size": len(data), "oid": sha(data)} for path, data in files.items()]
            )
        else:
            siblings = [{"rfilename": path} for path in files]
            self._json({"id": name, "sha": COMMIT, "private": False, "tags": [], "siblings": siblings})

    def _file(self, name: str, path: str) -> None:
        data = self.server.repositories[name][path]
        self._send(data, 200, {"ETag": f'"{sha(data)}"', "X-Repo-Commit": COMMIT})

    def _commit(self, name: str, body: bytes) -> None:
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "header":
                self.server.messages.append(line["value"]["summary"])
            elif line["key"] == "file":
                self.server.repositories[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        self._json({"success": True, "commitOid": COMMIT, "commitUrl": f"{self.server.url}/{name}/commit/{COMMIT}"})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(value).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def sha(data: bytes) -> str:
    """Return what the Hub names a file's content by."""
    return hashlib.sha1(data).hexdigest()
