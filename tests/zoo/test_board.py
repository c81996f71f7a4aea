"""The board: it follows runs, serves nothing else, and says what keeps it from listening."""

import http.client
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from polyak.zoo.errors import ZooError
from polyak.zoo.report import board as board_module
from polyak.zoo.report.board import BoardOptions, open_server
from tests.processes import PATIENCE
from tests.zoo.runs_on_disk import data_of, serving, write_run


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Return status, body and headers of one request; the path is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def episodes(port: int) -> list[int]:
    """Return how many episodes each run has, as the board says now."""
    figures = json.loads(ask(port, "/data.json")[1])["figures"]
    panels = [panel for figure in figures if figure["name"] == "return" for panel in figure["panels"]]
    return [len(trace["x"]) for panel in panels for trace in panel["data"]]


def test_the_board_follows_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
    (run / "episode.mp4").write_bytes(b"a film")
    with serving(tmp_path) as port:
        status, page, _ = ask(port, "/")
        assert status == 200
        assert data_of(page.decode())["live"] is True
        assert episodes(port) == [1]
        (film,) = re.findall(r'<video src="(\w+\.mp4)"', page.decode())
        status, content, headers = ask(port, f"/{film}")
        assert (status, content, headers["content-type"]) == (200, b"a film", "video/mp4")
        with (run / "0.monitor.csv").open("a") as file:
            file.write("5.0,10,4.0\n")
        assert episodes(port) == [2]
        assert "<td>2</td>" in json.loads(ask(port, "/data.json")[1])["body"]


def test_the_board_serves_nothing_else(tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    paths = ["/../secret.mp4", "/%2e%2e%2fsecret.mp4", "//etc/passwd", "/../../etc/passwd", "/ppo/X-v0_1/0.monitor.csv"]
    paths += ["/secret.mp4", f"/{run}", "/data.json/..", "/favicon.ico", str(tmp_path / "secret.mp4"), "/./", "/ppo/"]
    with serving(tmp_path) as port:
        for path in paths:
            status, body, _ = ask(port, path)
            assert status in (301, 404) or body.startswith(b"<!doctype html>\n<html lang"), path
            assert b"secret" not in body
        assert ask(port, "/", "POST")[0] == 501
        assert ask(port, "/data.json", "HEAD")[:2] == (200, b"")


def test_a_private_board_does_not_answer_to_other_names(tmp_path: Path) -> None:
    write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
    with serving(tmp_path) as port:
        assert ask(port, "/data.json", Host=f"evil.example:{port}")[0] == 403
        assert ask(port, "/data.json", Host=f"localhost:{port}")[0] == 200
        assert ask(port, "/data.json", Host=f"127.0.0.1:{port}")[0] == 200


def test_an_empty_folder_can_be_watched_until_runs_come(tmp_path: Path) -> None:
    with serving(tmp_path) as port:
        assert episodes(port) == []
        write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
        assert episodes(port) == [1]


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ZooError, match=rf"--port {port} is in use"):
            open_server(BoardOptions(str(tmp_path), port))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"logs": "nowhere"}, "does not exist"), ({"port": 70000}, "--port"), ({"host": "300.1.1.1"}, "--host")],
)
def test_mistakes_of_the_board(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=re.escape(message)):
        open_server(BoardOptions(**{"logs": str(tmp_path), **options}))


def test_ctrl_c_closes_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(server: Any, *_: object, **__: object) -> None:
        servers.append(server)
        raise KeyboardInterrupt

    servers: list[Any] = []

    monkeypatch.setattr(board_module.BoardServer, "serve_forever", interrupted)
    board_module.board(BoardOptions(str(tmp_path), 0))
    said = capsys.readouterr().out
    assert re.search(r"http://127\.0\.0\.1:\d+/", said)
    assert said.endswith("The board is closed.\n")
    assert servers[0].socket.fileno() == -1
