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


def test_the_board_follows_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
    (run / "episode.mp4").write_bytes(b"a film")
    with serving(tmp_path) as port:
        status, page, _ = ask(port, "/")
        assert status == 200
        assert data_of(page.decode())["live"] is True
        status, body, headers = ask(port, "/data.json")
        data = json.loads(body)
        assert data["runs"][0]["episodes"] == 1
        assert ask(port, "/data.json", If_None_Match=headers["etag"])[0] == 304
        assert ask(port, f"/{data['films'][0]['src']}")[:2] == (200, b"a film")
        with (run / "0.monitor.csv").open("a") as file:
            file.write("5.0,10,4.0\n")
        status, body, _ = ask(port, "/data.json", If_None_Match=headers["etag"])
        assert status == 200
        assert json.loads(body)["runs"][0]["episodes"] == 2


def test_the_board_serves_nothing_else(tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    paths = ["/film/", "/film/../secret.mp4", "/film/%2e%2e%2fsecret.mp4", "//etc/passwd", "/../../etc/passwd"]
    paths += ["/ppo/X-v0_1/0.monitor.csv", "/secret.mp4", f"/film/{run}", "/data.json/..", "/favicon.ico"]
    with serving(tmp_path) as port:
        for path in paths:
            status, body, _ = ask(port, path)
            assert status == 404, path
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
        assert json.loads(ask(port, "/data.json")[1])["runs"] == []
        write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
        assert len(json.loads(ask(port, "/data.json")[1])["runs"]) == 1


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
