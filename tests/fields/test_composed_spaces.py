"""Algorithms in composed spaces, and in spaces that do not start at 0: they train, save, load, resume and compile as in
any other; those that cannot say so."""

import copy
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import polyak
from polyak.algorithm import Algorithm
from polyak.algorithms import REGISTRY, get
from polyak.callbacks.evaluating import EvalCallback
from polyak.envs import DummyVecEnv, Monitor, make_vec_env
from polyak.envs.nested_spaces import parts
from polyak.envs.spaces import SpaceError
from polyak.evaluation.in_environments import evaluate, evaluate_policy
from polyak.experience import Dataset
from polyak.learning.engine.program import Program
from polyak.network_algorithm import NetworkAlgorithm
from polyak.nn import PolicyError
from polyak.nn.networks.encoders import make_preprocess
from polyak.zoo.enjoy import play
from tests.pairs import one_of_each
from tests.tolerance import drift
from tests.trials import trial
from tests.worlds import Drawn

VECTOR = spaces.Box(-1, 1, (3,))
DICT = spaces.Dict(
    button=spaces.Discrete(3, start=1),
    arm=spaces.Dict(force=spaces.Box(-2, 2, (2, 2)), flags=spaces.MultiBinary(2)),
    dials=spaces.MultiDiscrete([2, 3], start=[1, -1]),
)
NESTED = spaces.Dict(
    eye=spaces.Dict(left=VECTOR, right=spaces.Tuple((spaces.Discrete(3, start=2), spaces.MultiBinary(2)))), x=VECTOR
)
STARTED, TABLE = (
    spaces.MultiDiscrete([3, 2], start=[1, -1]),
    spaces.MultiDiscrete([[3, 2], [2, 4]], start=[[1, 0], [5, -1]]),
)
WORLDS: dict[str, tuple[spaces.Space, spaces.Space]] = {
    "dict action": (VECTOR, DICT),
    "tuple action": (VECTOR, spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,))))),
    "discrete parts": (VECTOR, spaces.Dict(a=spaces.Discrete(2), b=spaces.MultiBinary(3))),
    "nested observation": (NESTED, spaces.Discrete(3)),
    "tuple observation": (spaces.Tuple((VECTOR, spaces.Discrete(2))), DICT),
    "started": (STARTED, STARTED),
    "started number": (spaces.Discrete(4, start=-2), spaces.Discrete(3, start=5)),
    "table": (TABLE, TABLE),
}


class Summed(Drawn):
    """Shows samples of its space, rewards what adds up to much, and insists on actions of its space."""

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space) -> None:
        self.observation_space, self.action_space = copy.deepcopy((observation_space, action_space))

    def act(self, action: Any) -> float:
        assert self.action_space.contains(action), action
        return sum(float(np.sum(part.of(action))) for part in parts(self.action_space))

    def over(self) -> bool:
        self.truncates = self.t == 9
        return self.truncates or self.np_random.random() < 0.05


def worlds(name: str, n: int = 2) -> Any:
    return make_vec_env(lambda: Summed(*WORLDS[name]), n, seed=0)


SMALL: dict[str, Any] = {"seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [16, 16]}}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "PPO": {"n_steps": 32, "batch_size": 32, "n_epochs": 2},
    "A2C": {"n_steps": 8},
    "TRPO": {"n_steps": 32, "batch_size": 32, "n_critic_updates": 2},
    "REINFORCE": {},
    "RecurrentPPO": {"n_steps": 32, "batch_size": 32, "n_epochs": 2},
    "IMPALA": {"n_steps": 16, "asynchronous": False},
    "APPO": {"n_steps": 16, "asynchronous": False},
}


def made(algo: str, name: str, env: Any = None, **changes: Any) -> Any:
    composed = isinstance(WORLDS[name][0], spaces.Dict | spaces.Tuple)
    options = {**SMALL, **ALGORITHMS[algo], **changes}
    return getattr(polyak, algo)("MultiInputPolicy" if composed else "MlpPolicy", env or worlds(name), **options)


def networks(model: Any) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in model.learner.networks().items()}


#: PPO in all of them, the others where actions are composed. Slow: in two more each, such that each space is met twice.
MET = [
    *product(["PPO"], WORLDS),
    ("RecurrentPPO", "dict action"),
    *(
        pytest.param(algo, name, marks=pytest.mark.slow)
        for i, algo in enumerate(ALGORITHMS)
        if i
        for name in {*list(WORLDS)[2 * i - 2 : 2 * i], "dict action"}
        if (algo, name) != ("RecurrentPPO", "dict action")
    ),
]


@pytest.mark.parametrize(("algo", "name"), MET)
def test_it_trains_saves_loads_and_goes_on(algo: str, name: str, tmp_path: Any) -> None:
    model = made(algo, name)
    before = networks(model)
    model.learn(128)
    assert any(not np.array_equal(before[key], value) for key, value in networks(model).items() if "action_net" in key)
    model.save(tmp_path / "model.zip")
    env = copy.deepcopy(model.get_env())

    model.learn(64, reset_num_timesteps=False)
    torch.manual_seed(99)
    np.random.seed(99)
    resumed = type(model).load(tmp_path / "model.zip", env=env, resume=True, force_reset=False, device="cpu")
    resumed.learn(64, reset_num_timesteps=False)
    for key, value in networks(model).items():
        np.testing.assert_array_equal(networks(resumed)[key], value, err_msg=key)

    observation, _ = Summed(*WORLDS[name]).reset(seed=7)
    space = WORLDS[name][1]
    resumed.save(tmp_path / "again.zip")
    loaded = type(model).load(tmp_path / "again.zip", device="cpu")
    for deterministic in (True, False):
        torch.manual_seed(0)
        ours, _ = model.predict(observation, deterministic=deterministic)
        torch.manual_seed(0)
        theirs, _ = loaded.predict(observation, deterministic=deterministic)
        np.testing.assert_equal(theirs, ours)
        assert space.contains(np.int64(ours) if isinstance(space, spaces.Discrete) else ours)
    result = evaluate(resumed, Summed(*WORLDS[name]), 3, seed=0, deterministic=False)
    assert len(result.returns) == 3


@pytest.mark.parametrize("algo", one_of_each(["PPO", "A2C"], "PPO"))
def test_traced_it_equals_eager(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)  # the graph runs operation by operation
    eager, traced = (made(algo, "dict action", compile=choice).learn(128) for choice in (False, True))
    assert traced.engine.status == "compiled"
    expected = networks(eager)
    for key, value in networks(traced).items():
        np.testing.assert_allclose(value, expected[key], rtol=0, atol=drift(eager.learner.steps, 1e-3, 32 + 3 + 32))


def test_the_rollout_holds_flat_actions_and_acting_goes_through_arrays() -> None:
    model = made("PPO", "dict action").learn(64)
    assert model.rollout_buffer.actions.shape[-1] == 4 + 2 + 1 + 2
    assert model.rollout_buffer.actions.dtype == np.float32
    assert model.policy.log_std.shape == (4,)
    assert model.runner.actor._decide.reason is None
    values, log_probs, entropy = model.policy.evaluate_actions(
        torch.zeros(5, 3), model.policy.act(torch.zeros(5, 3)), entropy_index=2.0
    )
    assert values.shape == (5, 1)
    assert log_probs.shape == entropy.shape == (5,)


@pytest.mark.parametrize("algo", ["PPO", "TRPO"])
def test_sparse_choices_and_tsallis_entropies(algo: str) -> None:
    options = {"policy_kwargs": {**SMALL["policy_kwargs"], "sparse": True}}
    more = {"entropy_index": 2.0, "ent_coef": 0.01} if algo == "PPO" else {}
    model = made(algo, "dict action", **options, **more).learn(200)
    assert all(np.isfinite(value).all() for value in networks(model).values())


def test_it_is_evaluated_and_watched(tmp_path: Any) -> None:
    env = Monitor(Summed(*WORLDS["dict action"]))
    callback = EvalCallback(env, eval_freq=50, n_eval_episodes=2, best_model_save_path=str(tmp_path), verbose=0)
    model = made("PPO", "dict action").learn(200, callback=callback)
    assert (tmp_path / "best_model.zip").exists()
    assert np.isfinite(evaluate_policy(model, worlds("dict action"), 4)[0])
    assert len(play(model, worlds("dict action"), 60).returns) > 0


def test_rows_of_a_batch_are_a_list_of_actions() -> None:
    model = made("PPO", "dict action")
    one, _ = model.predict(np.zeros(3, np.float32), deterministic=True)
    several, _ = model.predict(np.zeros((4, 3), np.float32), deterministic=True)
    assert isinstance(several, list)
    assert all(DICT.contains(action) for action in (one, *several))
    assert one["button"] == several[2]["button"]


# -- spaces that do not start at 0 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [STARTED, TABLE, spaces.Discrete(4, start=-2)])
def test_networks_see_choices_counted_from_0(space: spaces.Space) -> None:
    sizes = [int(space.n)] if isinstance(space, spaces.Discrete) else space.nvec.reshape(-1).tolist()
    space.seed(0)
    samples = np.stack([space.sample() for _ in range(20)])
    features = make_preprocess(space)(torch.as_tensor(samples))
    counted = (samples - space.start).reshape(20, -1)
    columns = [np.eye(n)[counted[:, i]] for i, n in enumerate(sizes)]
    np.testing.assert_array_equal(features.numpy(), np.concatenate(columns, axis=1))


class Echo(Drawn):
    """Rewards each choice that repeats what is shown, in spaces that start anywhere."""

    length, truncates = 20, True

    def __init__(self, space: spaces.Space) -> None:
        self.observation_space = self.action_space = space

    def look(self) -> Any:
        self.shown = super().look()
        return self.shown

    def act(self, action: Any) -> float:
        assert np.shape(action) == self.action_space.shape
        return float(np.mean(np.equal(action, self.shown)))


@pytest.mark.parametrize("algo", one_of_each(["PPO", "DQN", "DiscreteSAC", "DeepSARSA"], "PPO"))
def test_choices_that_start_elsewhere_are_learned(algo: str) -> None:
    space: spaces.Space = TABLE if algo == "PPO" else spaces.Discrete(4, start=-2)
    space.seed(0)
    options: dict[str, Any] = {
        "PPO": {"n_steps": 128, "batch_size": 64, "n_epochs": 5},
        "DQN": {"learning_starts": 100, "train_freq": 2, "target_update_interval": 50, "exploration_fraction": 0.5},
        "DiscreteSAC": {"learning_starts": 100, "train_freq": 2, "tau": 0.02},
        "DeepSARSA": {"n_steps": 32},
    }[algo]
    options |= {
        "seed": 0,
        "device": "cpu",
        "gamma": 0.3,
        "learning_rate": 3e-3,
        "policy_kwargs": {"net_arch": [32, 32]},
    }
    model = getattr(polyak, algo)("MlpPolicy", DummyVecEnv([lambda: Monitor(Echo(space))]), **options)
    model.learn({"PPO": 3_000, "DQN": 2_500, "DiscreteSAC": 2_000}.get(algo, 5_000))
    assert evaluate(model, Monitor(Echo(space)), 5, seed=0).mean >= 0.9 * 20


# -- what is refused ---------------------------------------------------------------------------------------------------


def acts_from_the_start(name: str) -> bool:
    """Whether it is given an environment, and nothing besides."""
    return not get(name).card.needs and not isinstance(trial(get(name))["env"], Dataset)


@pytest.mark.parametrize("name", sorted(filter(acts_from_the_start, REGISTRY)))
def test_others_refuse_composed_actions_and_say_who_takes_them(name: str) -> None:
    cls = get(name)
    if not (issubclass(cls, Algorithm) and cls.steps_environments) or spaces.Dict in cls.action_spaces:
        assert cls.__name__ in ALGORITHMS
        return
    with pytest.raises(SpaceError, match="use another algorithm, such as PPO, A2C or TRPO, or wrap"):
        cls(env=Summed(VECTOR, DICT), **({"policy": "MlpPolicy"} if issubclass(cls, NetworkAlgorithm) else {}))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (spaces.Box(-np.inf, np.inf, (2,)), r"In the action space Dict.*, part 'b/0': PPO needs finite bounds"),
        (spaces.Text(3), r"part 'b/0': PPO does not support the action space Text"),
        (spaces.MultiBinary([2, 2]), r"part 'b/0': Multi-dimensional MultiBinary"),
    ],
)
def test_parts_that_it_would_refuse_by_themselves(part: spaces.Space, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        polyak.PPO("MlpPolicy", Summed(VECTOR, spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple((part,)))))
    with pytest.raises(SpaceError, match="has no parts"):
        polyak.PPO("MlpPolicy", Summed(VECTOR, spaces.Dict(a=spaces.Tuple(()))))


@pytest.mark.parametrize("algo", ["PPO", "A2C", "TRPO", "REINFORCE"])
def test_state_dependent_exploration_needs_a_box(algo: str) -> None:
    with pytest.raises(PolicyError, match="use_sde=True: state-dependent exploration needs continuous actions"):
        made(algo, "dict action", use_sde=True)


@pytest.mark.parametrize("algo", ["PPO", "A2C"])
def test_under_the_peers_names_they_are_refused_as_there(algo: str) -> None:
    from polyak.compat import sb3

    with pytest.raises(AssertionError, match="does not support the action space Dict"):
        getattr(sb3, algo)("MlpPolicy", Summed(VECTOR, DICT))
    with pytest.raises(NotImplementedError, match="Nested observation spaces are not supported here"):
        getattr(sb3, algo)("MultiInputPolicy", Summed(NESTED, spaces.Discrete(2)))
    getattr(sb3, algo)("MultiInputPolicy", worlds("nested observation"), n_steps=8).learn(16)
    with pytest.raises(ValueError, match="cannot act in Dict"):
        made(algo, "dict action").save_sb3("nowhere.zip")
