"""Trainings that wait for episodes end, also where no episode does; threads that share generators are warned of."""

import threading
import warnings
from typing import Any

import pytest
from gymnasium import spaces

from polyak import ARS, DQN, REINFORCE, SAC, DAgger
from polyak.callbacks import BaseCallback
from polyak.loops import clock
from polyak.seeding import alternating
from polyak.warning import forget
from tests.worlds import World


def world(name: str, **given: Any) -> World:
    """Where nothing happens."""
    return World(action_space=spaces.Box(-1, 1, (1,)) if name == "sac" else spaces.Discrete(2), **given)


SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [4]}, "seed": 0, "device": "cpu"}
REPLAY: dict[str, Any] = {**SMALL, "train_freq": (1, "episode"), "batch_size": 8}
MODELS: dict[str, Any] = {
    "dqn": lambda env: DQN("MlpPolicy", env, **REPLAY),
    "sac": lambda env: SAC("MlpPolicy", env, **REPLAY),
    "reinforce": lambda env: REINFORCE("MlpPolicy", env, episodes_per_update=1, **SMALL),
    "ars": lambda env: ARS("LinearPolicy", env, n_delta=1, seed=0),
    "dagger": lambda env: DAgger("MlpPolicy", env, expert=lambda seen: 0, **SMALL),
}


class Ends(BaseCallback):
    """Counts ends of training."""

    ended = 0

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.ended += 1


@pytest.mark.parametrize("name", MODELS)
def test_an_episode_without_end_ends_the_training(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "LONG", 150)
    model, callback = MODELS[name](world(name)), Ends()
    with pytest.warns(UserWarning, match="total_timesteps=40 are made, and no episode has ended in the last 150 steps"):
        model.learn(40, callback=callback)
    assert model.num_timesteps == 150
    assert callback.ended == 1


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_an_episode_that_ends_is_finished(name: str, monkeypatch: pytest.MonkeyPatch, recwarn: Any) -> None:
    monkeypatch.setattr(clock, "LONG", 150)
    model = MODELS[name](world(name, length=140))
    model.learn(150)
    assert model.num_timesteps == 280
    assert not [warning for warning in recwarn if "no episode has ended" in str(warning.message)]


def learn_in_two_threads(seed: int | None) -> list[str]:
    """What the second of two trainings warns of, which begins while the first is under way."""
    begun, over = threading.Event(), threading.Event()

    class Waits(BaseCallback):
        def _on_step(self) -> bool:
            begun.set()
            return over.wait(60)

    how: dict[str, Any] = {**SMALL, "seed": seed}
    other = DQN("MlpPolicy", World(length=5), **how)
    thread = threading.Thread(target=lambda: other.learn(1, callback=Waits()))
    model = DQN("MlpPolicy", World(length=5), **how)
    forget()
    thread.start()
    assert begun.wait(60)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.learn(3)
    finally:
        over.set()
        thread.join()
    return [str(warning.message) for warning in caught if "seed=" in str(warning.message)]


def test_a_seed_does_not_hold_where_two_threads_learn() -> None:
    (found,) = learn_in_two_threads(seed=3)
    assert found.startswith("seed=3 does not determine the numbers of this training")


def test_threads_without_seeds_or_that_take_turns_are_not_warned_of() -> None:
    assert not learn_in_two_threads(seed=None)
    with alternating():
        assert not learn_in_two_threads(seed=3)
