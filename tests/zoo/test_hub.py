"""Sharing agents on the Hugging Face Hub, which a small server in this process plays."""

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from polyak import PPO
from polyak.zoo.benchmark_agents import BenchmarkAgentsOptions, benchmark_agents
from polyak.zoo.enjoy import EnjoyOptions, enjoy
from polyak.zoo.errors import ZooError
from polyak.zoo.hub.load import LoadOptions, load_from_hub
from polyak.zoo.hub.push import PushOptions, push_to_hub
from polyak.zoo.hub.repository import repository_id
from polyak.zoo.run_folder import RunFolder
from tests.zoo.hub_server import Hub
from tests.zoo.test_cli import run

pytest.importorskip("huggingface_hub")

TAGS = "!!python/object/apply:collections.OrderedDict\n"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A Hub of one's own, to which a token gives access."""
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", "hf_token")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield server
        server.shutdown()


@pytest.fixture
def logs(trained: Path) -> Path:
    """A log folder with one short run, normalised, so that its statistics matter."""
    return trained


def push(logs: Path, **options: object) -> str:
    """Push the run; short, and without a film unless it is wanted."""
    how = {"organization": "me", "eval_episodes": 3, "render": False, "verbose": 0, **options}
    return push_to_hub(PushOptions(folder=str(logs), **how))


def load(folder: Path, **options: object) -> RunFolder:
    return load_from_hub(LoadOptions(**{"folder": str(folder), "organization": "me", "verbose": 0, **options}))


def left(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*")]


def returns(folder: Path) -> list[float]:
    """The returns of the latest run in `folder`."""
    return enjoy(EnjoyOptions(folder=str(folder), n_timesteps=10_000, n_episodes=4, render=False, seed=5)).returns


def test_repositories_are_named_as_the_peer_names_them() -> None:
    assert repository_id("sb3", "ppo", "CartPole-v1") == "sb3/ppo-CartPole-v1"
    assert repository_id("sb3", "dqn", "ALE/Pong-v5") == "sb3/dqn-ALE-Pong-v5"
    assert repository_id("me", "dqn", "ALE/Pong-v5", "mine") == "me/mine"


def test_a_pushed_agent_has_a_card_results_and_its_settings(hub: Hub, logs: Path) -> None:
    from huggingface_hub import ModelCard

    assert push(logs, commit_message="Best so far", seed=7) == f"{hub.url}/me/ppo-CartPole-v1"
    files = hub.repositories["me/ppo-CartPole-v1"]
    expected = {"README.md", "ppo-CartPole-v1.zip", "config.yml", "args.yml", "env_kwargs.yml", "vec_normalize.pkl"}
    assert set(files) == expected | {"train_eval_metrics.zip", "results.json"}
    assert hub.messages == ["Best so far"]

    played = enjoy(EnjoyOptions(folder=str(logs), n_timesteps=10_000, n_episodes=3, render=False, seed=7)).returns
    results = json.loads(files["results.json"])
    assert (results["mean_reward"], results["std_reward"]) == (np.mean(played), np.std(played))
    assert (results["n_eval_episodes"], results["is_deterministic"]) == (3, True)

    card = ModelCard(files["README.md"].decode())
    assert card.data.library_name == "polyak"
    assert {"CartPole-v1", "reinforcement-learning"} <= set(card.data.tags)
    (result,) = card.data.eval_results
    assert result.metric_value == f"{np.mean(played):.2f} +/- {np.std(played):.2f}"
    assert "polyak load-from-hub --algo ppo --env CartPole-v1 -orga me -f logs" in card.text
    assert "normalize: true" in card.text


def test_the_film_goes_along(hub: Hub, logs: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pygame")
    push(logs, render=True, n_timesteps=10, repo_name="filmed")
    assert hub.repositories["me/filmed"]["replay.mp4"][4:8] == b"ftyp"
    assert "--repo-name filmed" in hub.repositories["me/filmed"]["README.md"].decode()


@pytest.mark.parametrize("file_format", ["as-is", "sb3"])
def test_a_loaded_agent_plays_as_the_pushed_one(hub: Hub, logs: Path, tmp_path: Path, file_format: str) -> None:
    push(logs, format=file_format)
    loaded = load(tmp_path / "loaded")
    assert loaded.path == tmp_path / "loaded" / "ppo" / "CartPole-v1_1"
    original = RunFolder.find(logs, "ppo", "CartPole-v1")
    for name in ("0.monitor.csv", "1.monitor.csv", "evaluations.npz"):
        assert (loaded.path / name).read_bytes() == (original.path / name).read_bytes()
    assert loaded.read_yaml("config.yml") == original.read_yaml("config.yml")
    if file_format == "as-is":
        assert returns(tmp_path / "loaded") == returns(logs)
    else:  # the statistics lie beside a model of Stable-Baselines3's
        with zipfile.ZipFile(loaded.final_model) as archive:
            assert "policy.pth" in archive.namelist()
        assert loaded.normalizer.read_bytes()[:1] == b"\x80"
        assert "library_name: stable-baselines3" in hub.repositories["me/ppo-CartPole-v1"]["README.md"].decode()


@pytest.fixture
def peers(hub: Hub) -> dict[str, bytes]:
    """The files of an agent of the Zoo's, as its hub repositories have them, in ``sb3/ppo-CartPole-v1``."""
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, seed=1)
    buffer = io.BytesIO()
    model.save_sb3(buffer)
    config = TAGS + "- - - n_envs\n    - 8\n  - - policy\n    - MlpPolicy\n  - - n_timesteps\n    - 100000.0\n"
    arguments = TAGS + "- - - algo\n    - ppo\n  - - env\n    - CartPole-v1\n  - - env_kwargs\n    - null\n"
    files = {"ppo-CartPole-v1.zip": buffer.getvalue(), "config.yml": config.encode(), "args.yml": arguments.encode()}
    hub.repositories["sb3/ppo-CartPole-v1"] = {**files, "env_kwargs.yml": b"{}\n", "README.md": b"A card"}
    return hub.repositories["sb3/ppo-CartPole-v1"]


def load_peers(folder: Path, **options: object) -> RunFolder:
    return load(folder, organization="sb3", **options)


def test_the_peers_agents_are_loaded_and_play(peers: dict[str, bytes], tmp_path: Path) -> None:
    run = load_peers(tmp_path)
    assert yaml.safe_load((run.settings_folder / "config.yml").read_text())["policy"] == "MlpPolicy"
    assert run.final_model.read_bytes() == peers["ppo-CartPole-v1.zip"]
    assert len(returns(tmp_path)) == 4
    assert load_peers(tmp_path).path.name == "CartPole-v1_2"


def test_playing_a_trained_agent_downloads_it_once(
    peers: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agents = tmp_path / "rl-trained-agents"
    first, second = returns(agents), returns(agents)
    assert first == second
    assert capsys.readouterr().out.count("Downloading") == 1
    assert [path.name for path in (agents / "ppo").iterdir()] == ["CartPole-v1_1"]
    with pytest.raises(ZooError, match="No run at all of ppo on CartPole-v1"):
        returns(tmp_path / "logs")
    options = {"folder": str(agents), "env": "Acrobot-v1", "render": False}
    with pytest.raises(ZooError, match="sb3/ppo-Acrobot-v1"):
        enjoy(EnjoyOptions(**options))
    assert not list(agents.glob("**/Acrobot*"))


def test_agents_that_are_missing_are_downloaded_and_measured(hub: Hub, peers: dict[str, bytes], tmp_path: Path) -> None:
    hub.repositories |= {"sb3/demo": {}, "sb3/pop-CartPole-v1": {}, "sb3/dqn-Acrobot-v1": {}, "me/ppo-Acrobot-v1": {}}
    where = {"log_dir": str(tmp_path / "agents"), "benchmark_dir": str(tmp_path / "table")}
    page = benchmark_agents(BenchmarkAgentsOptions(**where, n_timesteps=600, verbose=0))
    assert [line.split(" | ")[1] for line in page.read_text().splitlines()[2:]] == ["CartPole-v1"]
    assert left(tmp_path / "agents" / "dqn") == []  # its repository is empty, which is printed
    benchmark_agents(BenchmarkAgentsOptions(**where, n_timesteps=600, verbose=0))
    assert [path.name for path in (tmp_path / "agents" / "ppo").iterdir()] == ["CartPole-v1_1"]


@pytest.mark.parametrize("name", ["config.yml", "args.yml", "env_kwargs.yml"])
def test_settings_that_run_code_are_refused(peers: dict[str, bytes], tmp_path: Path, name: str) -> None:
    marker = tmp_path / "ran"
    peers[name] = f"!!python/object/apply:os.mkdir ['{marker}']\n".encode()
    for trust in (False, True):
        with pytest.raises(ZooError, match=f"Cannot read sb3/ppo-CartPole-v1/{name} as plain YAML"):
            load_peers(tmp_path / "logs", trust=trust)
    assert not marker.exists()
    assert left(tmp_path / "logs") == []


def test_settings_that_name_foreign_code_need_trust(peers: dict[str, bytes], tmp_path: Path) -> None:
    peers["config.yml"] = b"policy: MlpPolicy\nenv_wrapper: subprocess.Popen\n"
    with pytest.raises(ZooError, match=r"ppo-CartPole-v1/config\.yml: env_wrapper names 'subprocess\.Popen'"):
        load_peers(tmp_path)
    assert left(tmp_path) == []
    assert load_peers(tmp_path, trust=True).read_yaml("config.yml")["env_wrapper"] == "subprocess.Popen"


def test_measurements_stay_in_the_run_folder(peers: dict[str, bytes], tmp_path: Path) -> None:
    def metrics(*names: str) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(name, "r,l,t\n")
        return buffer.getvalue()

    peers["train_eval_metrics.zip"] = metrics("0.monitor.csv", "run_me.py", "CartPole-v1.zip")
    run = load_peers(tmp_path)
    assert sorted(path.name for path in run.path.iterdir()) == ["0.monitor.csv", "CartPole-v1", "CartPole-v1.zip"]
    assert run.final_model.read_bytes() == peers["ppo-CartPole-v1.zip"]
    for damaged in (metrics("../0.monitor.csv"), b"no zip"):
        peers["train_eval_metrics.zip"] = damaged
        with pytest.raises(ZooError, match=r"train_eval_metrics\.zip cannot be unpacked"):
            load_peers(tmp_path)
    assert [path.name for path in (tmp_path / "ppo").iterdir()] == ["CartPole-v1_1"]


def test_an_existing_run_is_replaced_only_by_force(peers: dict[str, bytes], tmp_path: Path) -> None:
    run = load_peers(tmp_path, exp_id=4)
    (run.path / "mine.txt").write_text("mine")
    with pytest.raises(ZooError, match=r"CartPole-v1_4 already exists\. Give --force"):
        load_peers(tmp_path, exp_id=4)
    assert (run.path / "mine.txt").exists()
    load_peers(tmp_path, exp_id=4, force=True)
    assert not (run.path / "mine.txt").exists()
    assert left(tmp_path) == ["ppo", *(f"ppo/{name}" for name in left(tmp_path / "ppo"))]


def test_without_a_run_folder_only_its_own_files_are_replaced(peers: dict[str, bytes], tmp_path: Path) -> None:
    other = load_peers(tmp_path)
    run = load_peers(tmp_path, exp_id=-1)
    assert run.final_model == tmp_path / "ppo" / "CartPole-v1.zip"
    with pytest.raises(ZooError, match="already exists"):
        load_peers(tmp_path, exp_id=-1)
    load_peers(tmp_path, exp_id=-1, force=True)
    assert other.final_model.exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["load-from-hub", "--algo", "pop"], "Unknown algorithm --algo 'pop'"),
        (["load-from-hub", "--env", "Acrobot-v1"], "There is no repository sb3/ppo-Acrobot-v1 on http://127.0.0.1"),
        (["load_from_hub", "-name", "other"], "sb3/other holds no ppo-CartPole-v1.zip, the model of --algo ppo. It"),
        (["load-from-hub", "-orga", "a/b"], "'a/b/ppo-CartPole-v1' is no name of a repository"),
        (["push-to-hub"], "--organization is empty"),
        (["push-to-hub", "-orga", "me"], "No run at all of ppo on CartPole-v1"),
        (["push_to_hub", "-orga", "me", "--eval-episodes", 0], "--eval-episodes must be at least 1, got 0"),
        (["push-to-hub", "-orga", "me", "--format", "onnx"], "--format must be one of as-is, sb3, got 'onnx'"),
        (["push-to-hub", "-orga", "me", "--deterministic", "--stochastic"], "exclude each other"),
    ],
)
def test_mistakes_are_reported_in_a_line_and_leave_nothing(
    hub: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[object],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    hub.repositories["sb3/other"] = {"README.md": b""}
    assert run(*command) == 2
    assert message in capsys.readouterr().err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_without_network_or_rights_the_error_says_so(
    hub: Hub, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.may_write = False
    with pytest.raises(ZooError, match=r"refused me/ppo-CartPole-v1 \(status 403\).* right to write"):
        push(logs)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the port that discards; nothing answers there
    with pytest.raises(ZooError, match="Cannot reach http://127.0.0.1:9 for me/ppo-CartPole-v1"):
        load(tmp_path)
    with pytest.raises(ZooError, match="Cannot reach http://127.0.0.1:9 for me/ppo-CartPole-v1"):
        push(logs)


def test_without_a_token_nothing_is_computed(hub: Hub, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(ZooError, match="log in with `hf auth login`, or set HF_TOKEN"):
        push(logs)
    assert hub.repositories == {}
