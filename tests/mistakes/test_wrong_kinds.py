"""Flags, masks, memory, observations, experts and modules of the wrong kind: refused by name."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import PPO, DAgger, QLearning, RecurrentPPO
from polyak.envs import DummyVecEnv, Monitor
from polyak.envs.masks import checked, masks_for_rows
from polyak.nn.errors import PolicyError


class Says(gym.Env[Any, Any]):
    """Returns what it is made to return."""

    action_space = spaces.Discrete(3)

    def __init__(
        self, space: Any = None, obs: Any = None, first: Any = None, ends: Any = False, last: Any = None
    ) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,)) if space is None else space
        self.obs = np.zeros(2, np.float32) if obs is None else obs
        self.first, self.ends, self.last, self.at = self.obs if first is None else first, ends, last, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.at = 0
        return self.first, {}

    def step(self, action: Any) -> Any:
        self.at += 1
        over = self.last is not None and self.at == 4
        return (self.last if over else self.obs), 0.0, over or self.ends, False, {}


@pytest.mark.parametrize("flag", ["yes", "no", None, np.array([False, True]), np.array([True]), 2, 0.5, float("nan")])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_end_of_an_episode_is_a_bool(flag: Any, wrapped: bool) -> None:
    env = Says()
    env.ends = flag
    envs = DummyVecEnv([lambda: Monitor(env) if wrapped else env])
    envs.reset()
    with pytest.raises(ValueError, match=r"step\(\) of Says returned terminated=.*Return True or False"):
        envs.step(np.array([0]))


@pytest.mark.parametrize("flag", [np.True_, 1, np.array(True), torch.tensor(True), np.int8(1)])
def test_what_is_as_good_as_a_bool_is_one(flag: Any) -> None:
    envs = DummyVecEnv([lambda: Says(ends=flag)])
    envs.reset()
    assert envs.step(np.array([0]))[2].tolist() == [True]


@pytest.mark.parametrize(
    ("space", "obs", "value"),
    [
        (spaces.Discrete(3), 5, "5"),
        (spaces.Discrete(3, start=2), 1, "1"),
        (spaces.Discrete(3), 0.7, "0.7"),
        (spaces.MultiDiscrete([2, 3]), np.array([0, 3]), "3"),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8), "2"),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([0.0, 0.5]), "0.5"),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([0, 256]), "256"),
    ],
    ids=str,
)
def test_the_first_observations_are_compared_with_their_space(space: Any, obs: Any, value: str) -> None:
    for whole, seen in ((space, obs), (spaces.Dict(part=space), {"part": obs})):
        envs = DummyVecEnv([lambda s=whole, o=seen: Says(s, o, first=s.sample())])
        envs.reset()
        with pytest.raises(ValueError, match="Says returned an observation") as error:
            envs.step(np.array([0]))
        assert value in str(error.value)
        assert ("'part'" in str(error.value)) == isinstance(whole, spaces.Dict)


def test_so_is_the_last_observation_of_an_episode() -> None:
    envs = DummyVecEnv([lambda: Says(spaces.Discrete(3), 0, last=3)])
    envs.reset()
    with pytest.raises(ValueError, match=r"with 3, which is not in its space Discrete\(3\)"):
        for _ in range(4):
            envs.step(np.array([0]))


def test_policies_name_the_value_that_a_space_does_not_have() -> None:
    model = PPO(
        "MultiInputPolicy",
        DummyVecEnv([lambda: Says(spaces.Dict(n=spaces.Discrete(3)), {"n": 0})]),
        n_steps=8,
        batch_size=8,
    )
    with pytest.raises(ValueError, match=r"environment 1 at key 'n' has the value 3, .*Discrete\(3\)"):
        model.predict({"n": np.array([0, 3])})
    for wrong in (0.5, -1):
        with pytest.raises(ValueError, match="has the value"):
            model.predict({"n": np.array(wrong)})
    table = QLearning(Says(spaces.Discrete(3), 0))
    with pytest.raises(ValueError, match="whole numbers"):
        table.predict(0.5)


def test_masks_are_zeros_and_ones() -> None:
    space = spaces.Discrete(3)
    assert checked([[1, 0, 1.0]], 3, space).tolist() == [[True, False, True]]
    for wrong in ([0, -np.inf, 0], [0.0, np.nan, 1.0], [1, 2, 0], ["yes", "no", "yes"], [None, True, True]):
        with pytest.raises(ValueError, match="True and False, or 1 and 0"):
            checked([wrong], 3, space)


def test_masks_and_starts_are_as_many_as_observations() -> None:
    model = PPO("MlpPolicy", Says(), n_steps=8, batch_size=8, device="cpu")
    seen = np.zeros((3, 2), np.float32)
    for masks in (np.ones(3), np.ones((1, 3)), np.ones((3, 3))):
        assert model.predict(seen, action_masks=masks)[0].shape == (3,)
    for obs, masks in ((seen[0], np.ones((4, 3))), (seen, np.ones((2, 3))), (seen, np.ones((3, 4)))):
        with pytest.raises(ValueError, match="masks"):
            model.predict(obs, action_masks=masks)
    with pytest.raises(ValueError, match="log"):
        model.predict(seen[0], action_masks=[0, -np.inf, 0])
    with pytest.raises(ValueError, match=r"episode_start has the shape \(2,\) for 3 observations"):
        model.predict(seen, episode_start=np.ones(2, bool))
    table = QLearning(Says(spaces.Discrete(3), 0))
    with pytest.raises(ValueError, match="action_masks has the shape"):
        table.predict(0, action_masks=np.ones((4, 3)))


def test_memory_fits_the_observations() -> None:
    model = RecurrentPPO("MlpLstmPolicy", Says(), n_steps=8, batch_size=8, device="cpu")
    seen = np.zeros((2, 2), np.float32)
    _, state = model.predict(seen)
    assert state is not None
    wide = tuple(part.astype(np.float64) for part in state)
    assert model.predict(seen, wide, np.zeros(2, bool))[0].shape == (2,)
    assert model.predict(seen, state, True)[0].shape == (2,)  # type: ignore[arg-type]
    for wrong in (state[:1], "memory", 3):
        with pytest.raises(ValueError, match="state must be a tuple"):
            model.predict(seen, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="state has the wrong shape"):
        model.predict(seen[0], state)
    with pytest.raises(ValueError, match="episode_start"):
        model.predict(seen, state, np.ones(3, bool))


@pytest.mark.parametrize("answer", [5, -1, None, 0.5, "left", [0, 1]])
def test_experts_answer_with_actions(answer: Any) -> None:
    model = DAgger("MlpPolicy", Says(), expert=lambda observation: answer, steps_per_round=8)
    with pytest.raises(ValueError, match=r"expert=.*Discrete\(3\)"):
        model.learn(8)


def test_modules_of_ones_own_have_outputs_of_the_right_shape() -> None:
    from polyak.compat.rllib_face import Columns, TorchRLModule
    from polyak.compat.rllib_face.models.actor_critics import WholeModulePolicy

    class Own(TorchRLModule):
        logits, values = 2, "rows"

        def setup(self) -> None:
            self.layer = torch.nn.Linear(2, self.logits)

        def _forward(self, batch: Any, **kwargs: Any) -> Any:
            return {Columns.ACTION_DIST_INPUTS: self.layer(batch[Columns.OBS])}

        def compute_values(self, batch: Any, embeddings: Any = None) -> Any:
            return torch.zeros(len(batch[Columns.OBS])) if self.values == "rows" else torch.tensor(0.0)

    class TooMany(Own):
        logits = 5

    class Alone(Own):
        values = "one"

    box, choice, obs = spaces.Box(-1, 1, (2,)), spaces.Discrete(2), torch.zeros(3, 2)
    assert WholeModulePolicy(box, choice, module_class=Own)(obs)[1].shape == (3, 1)
    with pytest.raises(PolicyError, match=r"TooMany.*Discrete\(2\).*\(3, 2\), got the shape \(3, 5\)"):
        WholeModulePolicy(box, choice, module_class=TooMany).act(obs)
    with pytest.raises(PolicyError, match=r"Alone: compute_values.*\(3,\) or \(3, 1\), got the shape \(\)"):
        WholeModulePolicy(box, choice, module_class=Alone)(obs)


@pytest.mark.parametrize(
    "given",
    [
        [1, 0, 1, 1, 0],
        [np.array([1, 0]), np.array([1, 1, 0])],
        [[1, 0], [1, 1, 0]],
        [[1, 0, 1, 1, 0]] * 2,
        [[np.array([1, 0]), np.array([1, 1, 0])]] * 2,
        np.array([[1, 0, 1, 1, 0]] * 2),
    ],
    ids=["flat", "arrays by choice", "lists by choice", "rows", "rows by choice", "array"],
)
def test_masks_of_several_choices_may_be_written_in_any_of_these_ways(given: Any) -> None:
    masks = masks_for_rows(given, 2, 5, spaces.MultiDiscrete([2, 3]))
    assert masks.tolist() == [[True, False, True, True, False]] * 2
