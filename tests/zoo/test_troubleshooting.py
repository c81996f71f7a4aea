"""The messages that the page of troubleshooting explains are those that the library gives."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak import DQN, PPO, SAC, HerReplayBuffer, QLearning
from polyak.envs import SimpleMultiObsEnv

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text("utf-8")
HEADINGS = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)
SHORT: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "device": "cpu"}


class Broken(gym.Env):
    """Returns what it is made with."""

    observation_space: spaces.Space = spaces.Box(-1, 1, (2,), np.float32)
    action_space: spaces.Space = spaces.Discrete(2)

    def __init__(self, *step: Any, actions: spaces.Space | None = None) -> None:
        self.returned = step
        self.action_space = actions or self.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return self.returned


def saved(**options: Any) -> str:
    PPO("MlpPolicy", "CartPole-v1", **SHORT, **options).save("model")
    return "model"


ZEROS, NAN = np.zeros(2, np.float32), np.full(2, np.nan, np.float32)
CAUSES: dict[str, Callable[[], Any]] = {
    "the action space Box": lambda: DQN("MlpPolicy", "Pendulum-v1"),
    "the action space Discrete": lambda: SAC("MlpPolicy", "CartPole-v1"),
    "finite bounds": lambda: PPO("MlpPolicy", Broken(actions=spaces.Box(-np.inf, np.inf, (1,)))),
    "'MlpPolicy' cannot": lambda: PPO("MlpPolicy", SimpleMultiObsEnv()),
    "'CnnPolicy' reads": lambda: PPO("CnnPolicy", "CartPole-v1"),
    "Unexpected observation shape": lambda: PPO("MlpPolicy", "CartPole-v1", device="cpu").predict(np.zeros(3)),
    "HerReplayBuffer": lambda: DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=HerReplayBuffer),
    "unexpected keyword": lambda: PPO("MlpPolicy", "CartPole-v1", n_step=64),
    "a rollout has only": lambda: PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=128),
    "device='cuda'": lambda: PPO("MlpPolicy", "CartPole-v1", device="cuda"),
    "is not a registered": lambda: PPO("MlpPolicy", "CartPole-v9"),
    "highway-env": lambda: PPO("MlpPolicy", "parking-v0"),
    "must return": lambda: PPO("MlpPolicy", Broken(ZEROS, 0.0, False, {}), **SHORT).learn(16),
    "is nan": lambda: PPO("MlpPolicy", Broken(NAN, 0.0, False, False, {}), **SHORT).learn(16),
    "cannot be numbered": lambda: QLearning("CartPole-v1"),
    "there is no file": lambda: PPO.load("nothing"),
    "holds a model of": lambda: SAC.load(saved()),
    "spaces do not match": lambda: PPO.load(saved(), env="Pendulum-v1"),
    "no environment to learn in": lambda: PPO.load(saved()).learn(16),
    "pickled code": lambda: PPO.load(saved(learning_rate=lambda remaining: 3e-4 * remaining)),
}


@pytest.mark.parametrize("words", CAUSES)
def test_a_message_is_what_the_page_says(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    [heading] = [heading for heading in HEADINGS if words in heading]
    said = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            CAUSES[words]()
        except Exception as error:
            said.append(str(error))
    said += [str(warning.message) for warning in warned]
    pattern = ".*".join(re.escape(part) for part in heading.split("..."))
    assert any(re.search(pattern, message, re.DOTALL) for message in said), said


def test_every_message_of_the_page_has_its_cause() -> None:
    assert len(HEADINGS) == len(CAUSES)
