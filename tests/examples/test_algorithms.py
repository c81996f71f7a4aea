"""The examples of algorithms of one's own: they learn, are saved and loaded, train on the command line, and stand in
the documentation as they are."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import polyak
from polyak import DQN, algorithms, make_vec_env
from tests.zoo.test_cli import run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "algorithms"
FILES = sorted(FOLDER.glob("*.py"))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the example of a name; what it registers is forgotten afterwards."""
    monkeypatch.setattr(algorithms, "_REGISTERED", {})

    def imported(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return imported


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_page_shows_the_file(file: Path) -> None:
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "custom_algorithm.md").read_text("utf-8"), re.DOTALL)
    assert file.read_text("utf-8") in shown
    assert len(shown) == len(FILES)


def test_one_more_term(example: Any) -> None:
    cls = example("one_more_term").SmoothSAC
    options = {"learning_starts": 10, "batch_size": 8, "seed": 0, "device": "cpu", "compile": False}
    models = [cls("MlpPolicy", "Pendulum-v1", smoothness=weight, **options).learn(30) for weight in (0.0, 10.0)]
    plain = polyak.SAC("MlpPolicy", "Pendulum-v1", **options).learn(30)
    weights = [next(model.policy.actor.parameters()) for model in (*models, plain)]
    assert torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[1], weights[2])
    assert models[1].learner.smoothness == 10
    with pytest.raises(ValueError, match="smoothness=-1"):
        cls("MlpPolicy", "Pendulum-v1", smoothness=-1)


def test_the_imitation_loss_weighs_and_clips(example: Any) -> None:
    loss = example("whole_algorithm").imitation_loss
    log_prob, advantages = torch.tensor([-1.0, -2.0]), torch.tensor([0.0, 100.0])
    torch.testing.assert_close(loss(log_prob, advantages, torch.tensor(1.0), 20.0), torch.tensor((1 + 2 * 20) / 2))


def test_a_whole_algorithm_learns_and_is_loaded(example: Any, tmp_path: Path) -> None:
    cls = example("whole_algorithm").AWR
    model = cls("MlpPolicy", make_vec_env("CartPole-v1", n_envs=2, seed=0), seed=0, device="cpu").learn(64)
    assert model._n_updates == 2
    of_its_kind = {"normalize_advantage", "vf_coef", "ent_coef", "entropy_index", "max_grad_norm"}
    assert model.learner.tunables.keys() == of_its_kind | {"learning_rate", "temperature", "largest_weight"}, (
        "nothing reads some of them"
    )
    model.save(tmp_path / "model")
    loaded = polyak.load(tmp_path / "model", device="cpu")
    assert type(loaded) is cls
    obs = np.zeros((3, 4), np.float32)
    np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])


def test_a_whole_algorithm_on_the_command_line(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"{FOLDER / 'whole_algorithm.py'}:AWR"
    assert run("train", "--algo", text, "-n", 256, "--eval-freq", -1, "--seed", 1, "-params", "n_envs:1") == 0
    assert "tuned settings of awr [default]" in capsys.readouterr().out
    assert run("enjoy", "--algo", text, "-n", 20, "--no-render") == 0
    assert run("plot", "--algo", text, "-e", "CartPole-v1", "-o", "awr.png") == 0
    words = ["-n", 64, "--n-trials", 1, "--n-evaluations", 1, "--eval-episodes", 1, "--no-optim-plots"]
    assert run("tune", "--algo", text, *words, "-params", "n_envs:1") == 0
    assert "temperature" in capsys.readouterr().out


def test_the_target_of_advantage_learning(example: Any) -> None:
    target = example("off_policy_algorithm").advantage_target
    rewards, discounts, actions = torch.tensor([1.0, 1.0]), torch.tensor([0.5, 0.0]), torch.tensor([[0], [1]])
    q, next_q = torch.tensor([[1.0, 3.0], [1.0, 3.0]]), torch.tensor([[4.0, 2.0], [4.0, 2.0]])
    found = target(rewards, discounts, next_q, q, actions, torch.tensor(0.5))
    torch.testing.assert_close(found, torch.tensor([1 + 0.5 * 4 - 0.5 * (3 - 1), 1.0]))


def test_an_algorithm_from_replay_learns_explores_and_is_resumed(example: Any, tmp_path: Path) -> None:
    cls = example("off_policy_algorithm").AdvantageLearning
    options = {"learning_starts": 10, "batch_size": 8, "buffer_size": 100, "seed": 0, "device": "cpu"}
    model = cls("MlpPolicy", "CartPole-v1", exploration_fraction=1.0, **options).learn(60)
    assert model._n_updates == 50
    assert model.epsilon.rate == pytest.approx(0.05)
    assert type(model).predict.__doc__ is not None
    model.save(tmp_path / "model", include=["replay_buffer"])
    loaded = cls.load(tmp_path / "model", env="CartPole-v1", resume=True, device="cpu")
    assert loaded.epsilon.rate == pytest.approx(0.05)
    assert loaded.replay_buffer.size() == 60
    assert loaded.learn(20, reset_num_timesteps=False)._n_updates == 70


def test_a_memory_that_prefers_what_is_new(example: Any) -> None:
    sampler = example("new_memory").Recent(power=2.0).prepare(100, 1)
    sampler.seed(0)
    sampler.include(np.arange(37))
    cells, weights = sampler.draw(4000, 100)
    assert weights is None
    assert cells.min() >= 0
    assert cells.max() < 100
    ages = (36 - cells) % 100
    # P(age < 25) is sqrt(0.25); six standard deviations of the share of 4000 draws
    assert abs((ages < 25).mean() - 0.5) < 6 * 0.5 / 4000**0.5
    with pytest.raises(ValueError, match="does not go with hindsight"):
        sampler.draw(1, 100, eligible=object())


def test_the_memory_serves_an_algorithm(example: Any) -> None:
    sampler = example("new_memory").Recent()
    options = {"learning_starts": 10, "batch_size": 8, "buffer_size": 50, "device": "cpu", "seed": 0}
    model = DQN("MlpPolicy", "CartPole-v1", replay_buffer_kwargs={"sampler": sampler}, **options).learn(80)
    assert model.replay_buffer.sampler.newest == 79 % 50
    state = model.replay_buffer.sampler.state_dict()
    sampler.load_state_dict(state)
    assert sampler.newest == 79 % 50


def test_an_algorithm_with_a_memory_of_its_own(example: Any) -> None:
    cls = example("new_memory").RecentDQN
    options = {"learning_starts": 10, "batch_size": 8, "buffer_size": 50, "device": "cpu", "seed": 0}
    model = cls("MlpPolicy", "CartPole-v1", recency=3.0, **options).learn(80)
    assert (model.replay_buffer.sampler.power, model.replay_buffer.sampler.newest) == (3.0, 79 % 50)
    with pytest.raises(AttributeError, match="recency"):
        model.recency = 1.0
