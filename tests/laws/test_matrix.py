"""Every algorithm with every kind of space, memory and masks: it trains, or is refused at once with the reason."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak import warning as advice
from polyak.algorithms import REGISTRY, get
from polyak.algorithms.tabular.table import TableAlgorithm
from polyak.arrays import mapped
from polyak.envs import make_vec_env
from polyak.experience import Dataset, collect
from polyak.hyperparameters.declaration import HyperparameterError
from tests.pairs import pairwise
from tests.trials import trial

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
PICTURE = spaces.Box(0, 255, (36, 36, 3), np.uint8)
OBSERVATIONS = {"box": BOX, "dict": spaces.Dict({"where": BOX, "which": spaces.Discrete(3)}), "picture": PICTURE}
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "continuous": spaces.Box(-1.0, 1.0, (2,), np.float32),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "dict": spaces.Dict({"button": spaces.Discrete(3), "lever": spaces.Box(-1.0, 1.0, (1,), np.float32)}),
}
POLICIES = {"box": "MlpPolicy", "dict": "MultiInputPolicy", "picture": "CnnPolicy"}
CELLS = ("box", "dict", "picture", "mask", "memory", "multi-discrete", "dict action")
NAMES = sorted(name for name in REGISTRY if getattr(get(name), "steps_environments", False))  # others learn games

#: What a refusal must say, by cell.
REASONS = {
    "dict": "(?i)observation|MultiInput",
    "picture": "(?i)CnnPolicy|picture|image|convolution",
    "mask": "(?i)action",
    "memory": "(?i)memory|remember",
    "multi-discrete": "(?i)action",
    "dict action": "(?i)action",
}

#: Take discrete actions, and warn at construction that they do not support masks.
IGNORING_MASKS = {"ars", "deep_sarsa", "discrete_sac"}
#: Have a row for each observation, so that they take none of these, and say so.
TABULAR = {name for name in NAMES if issubclass(get(name), TableAlgorithm)}
TABULAR_REASON = "cannot be numbered: a table has a row for each value|no table P|does not support the action space"
#: Predict observations or changes of them, or set goals that are such changes: vectors.
NEEDS_A_VECTOR = {"hiro", "pets", "mbpo"}
COMPOSED = {"ppo", "a2c", "impala", "appo", "trpo", "reinforce", "recurrent_ppo"}
RECURRENT = {
    "bc",
    "marwil",
    "ppo",
    "a2c",
    "appo",
    "impala",
    "trpo",
    "recurrent_ppo",
    "dqn",
    "c51",
    "qrdqn",
    "iqn",
    "rainbow",
    "sac",
    "td3",
    "ddpg",
    "redq",
    "cql",
    "dagger",
    "discrete_cql",
    "edac",
    "rebrac",
    "td3_bc",
    "gail",
    "bcq",
}


def choices(action_space: spaces.Space[Any]) -> list[int]:
    """How many there are in each part of an action."""
    if isinstance(action_space, spaces.Discrete):
        return [int(action_space.n)]
    return [int(n) for n in action_space.nvec] if isinstance(action_space, spaces.MultiDiscrete) else []


def is_masked(name: str, cell: str) -> bool:
    """MaskablePPO has masks everywhere, but where there is nothing to mask."""
    return cell == "mask" or (name == "maskable_ppo" and cell != "dict action")


class Anything(gym.Env[Any, Any]):
    """Episodes of 7 steps of noise; if `masked`, the first choice is always allowed, the others are now and then."""

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], masked: bool, strict: bool
    ) -> None:
        self.observation_space, self.action_space, self.strict = observation_space, action_space, strict
        self.time = 0
        self.allowed = [np.ones(n, dtype=bool) for n in choices(action_space)]
        if masked:
            self.action_masks = lambda: np.concatenate(self.allowed)

    def _observation(self) -> Any:
        self.allowed = [np.append(True, self.np_random.random(len(part) - 1) < 0.5) for part in self.allowed]
        return self.observation_space.sample()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        if self.strict:
            parts = zip(self.allowed, np.atleast_1d(action), strict=True)
            assert all(part[choice] for part, choice in parts), "took an action that is not allowed"
        self.time += 1
        return self._observation(), float(self.np_random.normal()), self.time == 7, False, {}


def build(name: str, cell: str) -> Any:
    """The small model of this algorithm that the cell asks for."""
    cls = get(name)
    seen = cell if cell in OBSERVATIONS else "box"
    native = "discrete" if spaces.Discrete in cls.action_spaces else "continuous"
    acted = {"mask": "discrete", "multi-discrete": "multi-discrete", "dict action": "dict"}.get(cell, native)
    recorded = isinstance(trial(cls)["env"], Dataset)
    masked = is_masked(name, cell) and not recorded  # a dataset knows no masks
    maker = partial(Anything, OBSERVATIONS[seen], ACTIONS[acted], masked, masked and name not in IGNORING_MASKS)
    env = collect(maker(), None, 100, seed=3) if recorded else make_vec_env(maker, n_envs=1, seed=3)
    options = {**trial(cls), "policy": POLICIES[seen], "env": env}
    if name in TABULAR:
        return cls(options.pop("env"))
    if "target" in options:  # which acts in the same environment
        options["target"] = lambda observation: env.action_space.sample()
    if "demonstrations" in options and acted != "dict":
        options["demonstrations"] = collect(Anything(OBSERVATIONS[seen], ACTIONS[acted], False, False), None, 30)
    if cell == "memory":
        options["policy_kwargs"] = {**options.get("policy_kwargs", {}), "memory": "lstm", "memory_size": 8}
    if cell == "picture":
        options["policy_kwargs"] = {
            **options.get("policy_kwargs", {}),
            "features_extractor_kwargs": {"features_dim": 16},
        }
    return cls(**options)


def is_refused(name: str, cell: str) -> bool:
    """Whether the algorithm cannot do this at all."""
    acts = get(name).action_spaces
    if name in TABULAR:
        return True
    return {
        "mask": spaces.Discrete not in acts or name == "airl",
        "multi-discrete": spaces.MultiDiscrete not in acts,
        "dict action": name not in COMPOSED,
        "memory": name not in RECURRENT,
        "picture": name in NEEDS_A_VECTOR or not hasattr(get(name), "learner_class"),
        "dict": name in NEEDS_A_VECTOR or not hasattr(get(name), "learner_class"),
    }.get(cell, False)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_built_or_refused_with_the_reason(name: str) -> None:
    for cell in CELLS:
        if is_refused(name, cell):
            reason = TABULAR_REASON if name in TABULAR else REASONS[cell]
            with pytest.raises((ValueError, HyperparameterError, NotImplementedError), match=reason):
                build(name, cell)
        elif cell == "mask" and name in IGNORING_MASKS:
            advice.forget()
            with pytest.warns(UserWarning, match="does not support masks"):
                build(name, cell)
        else:
            build(name, cell)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the environment says which actions it allows")
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", NAMES)
def test_it_trains_is_saved_and_goes_on(name: str, cell: str, tmp_path: Path) -> None:
    if is_refused(name, cell):
        pytest.skip("refused at construction")
    model = build(name, cell).learn(200)
    assert model.num_timesteps >= 200
    model.save(tmp_path / "model")
    env = model.get_env()
    callers = {name: getattr(model, name) for name in ("expert", "target") if hasattr(model, name)}  # in no file
    loaded = type(model).load(tmp_path / "model", env=model.dataset if env is None else env, **callers)
    start, state = np.ones(1, dtype=bool), None
    observation = mapped(lambda array: array[:1], model.dataset.observations) if env is None else env.reset()
    masked = is_masked(name, cell) and name not in IGNORING_MASKS and env is not None
    masks = {"action_masks": np.stack(env.env_method("action_masks"))} if masked else {}
    for _ in range(3):
        ours, after = model.predict(observation, state, start, deterministic=True, **masks)
        theirs, _ = loaded.predict(observation, state, start, deterministic=True, **masks)
        for one, other in zip(np.atleast_1d(ours), np.atleast_1d(theirs), strict=True):
            np.testing.assert_equal(one, other)
        state, start = after, np.zeros(1, dtype=bool)
    loaded.learn(200, reset_num_timesteps=False)
    assert loaded.num_timesteps >= 400


# -- tables ------------------------------------------------------------------------------------------------------------

NUMBERED = {
    "discrete": (spaces.Discrete(5), True),
    "discrete from 3 on": (spaces.Discrete(5, start=3), True),
    "multi-discrete": (spaces.MultiDiscrete([2, 3]), True),
    "multi-binary": (spaces.MultiBinary(3), True),
    "tuple": (spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2))), True),
    "dict": (spaces.Dict({"where": spaces.Discrete(3), "what": spaces.MultiBinary(2)}), True),
    "nested": (spaces.Dict({"a": spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2)))}), True),
    "dict with numbers": (OBSERVATIONS["dict"], False),
    "too many": (spaces.MultiDiscrete([100] * 10), False),
}


@pytest.mark.parametrize(
    ("name", "kind", "masked"), pairwise(itertools.product(sorted(TABULAR), NUMBERED, [False, True]))
)
def test_a_table_takes_what_can_be_numbered(name: str, kind: str, masked: bool, tmp_path: Path) -> None:
    space, fits = NUMBERED[kind]
    env = make_vec_env(partial(Anything, space, spaces.Discrete(3), masked, masked), n_envs=2, seed=3)
    if not fits or "iteration" in name:
        with pytest.raises(ValueError, match="numbered|a table a row for each|no table P"):
            get(name)(env)
        return
    model = get(name)(env, seed=3).learn(60)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=env)
    observation, masks = env.reset(), {"action_masks": np.stack(env.env_method("action_masks"))} if masked else {}
    ours, theirs = (one.predict(observation, deterministic=True, **masks)[0] for one in (model, loaded))
    np.testing.assert_array_equal(ours, theirs)
    assert ours.shape == (2,)
    single = model.predict(space.sample(), deterministic=True)[0]
    assert single.shape == ()
    assert model.action_space.contains(single)
    assert loaded.learn(60, reset_num_timesteps=False).num_timesteps >= 120


@pytest.mark.parametrize("name", sorted(TABULAR))
def test_a_table_refuses_actions_that_are_not_choices(name: str) -> None:
    for acts in (ACTIONS["continuous"], ACTIONS["multi-discrete"], ACTIONS["dict"]):
        with pytest.raises(ValueError, match="does not support the action space"):
            get(name)(Anything(spaces.Discrete(3), acts, False, False))
