"""Agents that come along: listed with the scores that they have, and played without a run folder of one's own."""

import json

import pytest

from polyak.envs.games.known import GAMES
from polyak.zoo.gallery import AGENTS, agents
from tests.zoo.test_cli import run


def test_each_agent_is_listed_with_its_score(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gallery") == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    found = agents()
    assert len(lines) == len(found) == len(list(AGENTS.glob("*/*")))
    for line, agent in zip(lines, found, strict=True):
        assert line.split()[:2] == [agent["algo"], agent["env"]]
        assert (AGENTS / agent["algo"] / f"{agent['env']}_1" / f"{agent['env']}.zip").exists()
        assert agent["n_episodes"] == 100
    assert run("gallery", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out) == found


def test_an_agent_reaches_its_score_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("evaluate", "--pretrained", "--algo", "ppo", "--env", "CartPole-v1", "-n", 3, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["mean_return"] == 500


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--env", "Pendulum-v1", "--algo", "qac"],
            "No agent of qac on Pendulum-v1 comes along. `polyak gallery` lists",
        ),
        (["--env", "tictactoe"], "--env 'tictactoe' is a game: `polyak play --game tictactoe` plays it"),
        (["--load-best"], "--pretrained agents have one model each"),
        (["--log-folder", "elsewhere"], "--pretrained agents have one model each"),
    ],
)
def test_what_there_is_not_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("enjoy", "--pretrained", "--no-render", *words) == 2
    assert said in capsys.readouterr().err


def test_the_agent_of_a_game_plays(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["0", "1", "2", "3", "4", "5", "6", "7", "8"] * 9)  # those that are no longer free are refused
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert run("play", "--game", "tictactoe", "--pretrained", "-n", 25, "--quiet") == 0
    assert "You have lost." in capsys.readouterr().out  # from left to right, whoever does not see threats
    assert run("play", "--game", "go", "--pretrained") == 2
    assert "No agent of go comes along. `polyak gallery` lists" in capsys.readouterr().err
    assert run("play", "--game", "go", "--pretrained", "--model", "x.zip") == 2
    assert "--pretrained and --model 'x.zip' exclude each other" in capsys.readouterr().err


ACTING = [agent for agent in agents() if agent["env"] not in GAMES]


@pytest.mark.slow
@pytest.mark.parametrize("agent", ACTING, ids=lambda agent: f"{agent['algo']}-{agent['env']}")
def test_every_agent_acts(agent: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--pretrained", "--algo", str(agent["algo"]), "--env", str(agent["env"]), "-n", 20, "-o", "json"]
    if "Lander" in str(agent["env"]):
        pytest.importorskip("Box2D")
    assert run("evaluate", *words) == 0
    found = json.loads(capsys.readouterr().out)
    # twenty episodes and the hundred of the list: four standard errors of their difference
    error = float(str(agent["std_return"])) * (1 / 20 + 1 / 100) ** 0.5
    assert abs(found["mean_return"] - float(str(agent["mean_return"]))) <= 4 * error + 1e-6
