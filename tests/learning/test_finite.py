"""Training stops at the first value that is not finite, says where it was, and leaves a model that is good."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import A2C, DDPG, DQN, PPO, SAC, TD3
from polyak.envs import DummyVecEnv, VecCheckNan, VecNormalize
from polyak.envs.nan_checks import NonFiniteError, all_finite, is_finite
from polyak.experience.batch import gathered
from polyak.learning import nan_guard as finite
from polyak.learning.engine.program import Program
from polyak.learning.nan_guard import Guard
from tests.pairs import one_of_each

ALGORITHMS = [PPO, A2C, DQN, SAC, TD3, DDPG]
CONTINUOUS = [PPO, A2C, SAC, TD3, DDPG]
#: Each value that is not finite, and each algorithm: `is_finite` is tested for all of them by itself.
REWARDS = [(cls, bad) for cls in ALGORITHMS for bad in (np.nan, np.inf, -np.inf)]
RUINED = {(PPO, False), (SAC, False), (DQN, True)}
QUICK = {(PPO, np.inf), (DQN, np.nan), (SAC, -np.inf)}


class Spoiled(gym.Env):
    """Episodes of ten steps; from ``since`` on, one kind of value is ``bad``. Notes every action."""

    def __init__(self, what: str = "", bad: float = np.nan, since: int = 0, discrete: bool = False, keys: bool = False):
        box = spaces.Box(-1, 1, (3,), np.float32)
        self.observation_space = spaces.Dict({"a": box, "b": box}) if keys else box
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-2, 2, (1,), np.float32)
        self.what, self.bad, self.since = what, bad, since
        self.steps, self.seen = 0, []

    def _obs(self, spoiled: bool) -> Any:
        good, other = np.full(3, self.steps % 10 / 10, np.float32), np.full(3, 0.5, np.float32)
        if spoiled:
            other[1] = self.bad
        return (
            {"a": good, "b": other} if isinstance(self.observation_space, spaces.Dict) else other if spoiled else good
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._obs(self.what == "reset"), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.seen.append(np.array(action))
        ended, late = self.steps % 10 == 0, self.steps >= self.since
        obs = self._obs(late and (self.what == "observation" or (self.what == "last observation" and ended)))
        return obs, self.bad if late and self.what == "reward" else float(self.steps % 3), ended, False, {}


def make(cls: Any, env: Any, **options: Any) -> Any:
    small: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "seed": 0, "device": "cpu"}
    if cls in (PPO, A2C):
        small |= {"n_steps": 8} | ({"batch_size": 8, "n_epochs": 2} if cls is PPO else {})
    else:
        small |= {"buffer_size": 200, "learning_starts": 20, "batch_size": 8}
    policy = "MultiInputPolicy" if isinstance(getattr(env, "observation_space", None), spaces.Dict) else "MlpPolicy"
    return cls(policy, env, **small | options)


def states(model: Any) -> dict[str, torch.Tensor]:
    """Copies of all that gradient steps change."""
    return {name: tensor.clone() for name, tensor in finite._tensors(model.learner).items()}


def assert_good(model: Any, path: Path) -> None:
    """Everything learned is finite, saves, loads and acts, and training continues."""
    assert all(bool(torch.isfinite(tensor).all()) for tensor in states(model).values())
    model.save(path / "model")
    env = DummyVecEnv([lambda: Spoiled(discrete=type(model) is DQN)] * model.n_envs)
    loaded = type(model).load(path / "model", env=env)
    assert np.isfinite(loaded.predict(np.zeros(3, np.float32))[0]).all()
    loaded.learn(40)
    model.set_env(env)
    model.learn(40)


# -- what goes to the environments and comes from them -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "bad"), [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in REWARDS]
)
def test_a_reward(cls: Any, bad: float, tmp_path: Path) -> None:
    envs = [Spoiled(discrete=cls is DQN), Spoiled("reward", bad, since=33, discrete=cls is DQN)]
    model = make(cls, DummyVecEnv([lambda env=env: env for env in envs]))
    with pytest.raises(NonFiniteError, match=rf"reward of environment 1 in step 33 is {bad}.*VecCheckNan"):
        model.learn(500)
    assert envs[1].steps == 33
    assert all(np.isfinite(action).all() for action in envs[1].seen)
    if cls not in (PPO, A2C):
        assert np.isfinite(model.replay_buffer.rewards).all()
    assert_good(model, tmp_path)


@pytest.mark.parametrize("cls", ALGORITHMS)
@pytest.mark.parametrize(("what", "step"), [("observation", 4), ("last observation", 10)])
def test_an_observation_also_while_actions_are_random(cls: Any, what: str, step: int) -> None:
    model = make(cls, Spoiled(what, since=4, discrete=cls is DQN))
    with pytest.raises(NonFiniteError, match=rf"observation of environment 0 in step {step}, entry 1 is nan"):
        model.learn(100)
    assert model.num_timesteps == step - 1  # the step that showed it is neither counted nor stored
    with pytest.raises(NonFiniteError, match=r"observation.*nan"):
        make(cls, Spoiled("reset", discrete=cls is DQN)).learn(100)


def test_an_observation_in_a_dict() -> None:
    model = make(SAC, Spoiled("observation", np.inf, since=5, keys=True))
    with pytest.raises(NonFiniteError, match=r"environment 0 in step 5 at key 'b', entry 1 is inf"):
        model.learn(100)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("what", ["observation", "reward"])
def test_a_number_that_float32_does_not_have_is_called_that(what: str) -> None:
    found = rf"{what} of environment 0 in step 5.* is inf, or a number too large for float32 \(3.4e\+38 at most\)"
    with pytest.raises(NonFiniteError, match=found):
        make(SAC, Spoiled(what, 1e300, since=5)).learn(100)
    with pytest.raises(NonFiniteError, match=r"1 entries beyond the range of float32.* the first is 1e\+300 at index"):
        make(SAC, Spoiled()).predict(np.array([0, 1e300, 0]))


def test_a_loss_that_is_infinite_comes_with_advice() -> None:
    model = make(SAC, Spoiled())
    guard = Guard(model.learner)
    with pytest.raises(
        NonFiniteError, match=r"critic_loss is inf after 0 gradient steps. Lower learning_rate, set max"
    ):
        guard.after_update({"critic_loss": torch.tensor(np.inf)})


@pytest.mark.parametrize("cls", one_of_each(CONTINUOUS, PPO, TD3))
def test_an_action_is_not_sent(cls: Any, tmp_path: Path) -> None:
    env = Spoiled()
    model = make(cls, env).learn(64)
    with torch.no_grad():
        kept = states(model)
    sent = len(env.seen)

    def spoil(*_: Any) -> bool:
        if model.num_timesteps == 30:
            with torch.no_grad():
                for parameter in model.policy.parameters():
                    parameter.fill_(np.nan)
        return True

    with pytest.raises(NonFiniteError, match=r"(action|left NaN).*put back to what it was after gradient step \d+"):
        model.learn(64, callback=spoil)
    assert len(env.seen) == sent + 30
    assert all(np.isfinite(action).all() for action in env.seen)
    assert states(model).keys() == kept.keys()
    assert_good(model, tmp_path)


@pytest.mark.parametrize("overlap", [False, True])
def test_ahead_of_time_too(overlap: bool) -> None:
    with pytest.raises(NonFiniteError, match="reward of environment 0 in step 33 is nan"):
        make(SAC, Spoiled("reward", since=33), overlap=overlap).learn(100)


@pytest.mark.parametrize("cls", [PPO, SAC])
@pytest.mark.parametrize("what", ["reward", "observation"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_normalisation_neither_hides_nor_keeps_them(cls: Any, what: str, bad: float) -> None:
    env = VecNormalize(DummyVecEnv([lambda: Spoiled(what, bad, since=25)]))
    model = make(cls, env)
    with pytest.raises(NonFiniteError, match=rf"{what} of environment 0 in step 25.* is {bad}"):
        model.learn(100)
    for statistics in (env.obs_rms, env.ret_rms):
        assert np.isfinite(statistics.mean).all()
        assert np.isfinite(statistics.var).all()
    assert np.isfinite(env.returns).all()


def test_vec_check_nan_still_comes_first() -> None:
    env = VecCheckNan(DummyVecEnv([lambda: Spoiled("reward", since=3)]), raise_exception=True)
    with pytest.raises(ValueError, match="nan in rewards of environment 0. Originated from the environment"):
        make(PPO, env).learn(100)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int64, bool])
def test_the_quick_answer_is_the_exact_one(dtype: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "invalid value")  # infinities, which an error reports
        for shape in [(), (1,), (7,), (3, 5), (0,)]:
            assert is_finite(np.ones(shape, dtype))
            assert is_finite(np.ones((*shape, 4), dtype)[..., ::2])
        if np.dtype(dtype).kind == "f":
            largest = np.finfo(dtype).max
            assert is_finite(np.array([largest, -largest, largest], dtype))
            for bad in (np.nan, np.inf, -np.inf):
                for place in range(6):
                    array = np.full((2, 3), largest, dtype)
                    array.reshape(-1)[place] = bad
                    assert not is_finite(array)
                    assert not is_finite(array.T)
                    assert not all_finite({"a": np.zeros(2), "b": array})


# -- what is learned ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "compile"),
    [
        pytest.param(cls, compile, marks=[] if (cls, compile) in RUINED else [pytest.mark.slow])
        for cls in ALGORITHMS
        for compile in (False, True)
    ],
)
def test_a_batch_that_ruins_the_networks(
    cls: Any, compile: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    monkeypatch.setattr(finite, "UPDATES_PER_COPY", 3)
    model = make(cls, Spoiled(discrete=cls is DQN), compile=compile)
    model.learn(80)
    update, good = model.learner.update, {}

    def spoiled(batch: Any) -> Any:
        batch = gathered(batch)
        if model.learner.steps == ruined:
            name = "returns" if hasattr(batch, "returns") else "rewards"
            batch = batch._replace(**{name: torch.full_like(getattr(batch, name), np.nan)})
        elif model.learner.steps < ruined:
            good[model.learner.steps] = states(model)
        return update(batch)

    ruined = model.learner.steps + 7
    model.learner.update = spoiled
    with pytest.raises(NonFiniteError, match=r"loss is nan.*left NaN or infinity in .*put back .*step (\d+), and") as e:
        model.learn(200)
    step = int(str(e.value).split("after gradient step ")[1].split(",")[0])
    assert ruined - 8 <= step <= ruined
    for name, tensor in good.get(step, states(model)).items():
        assert torch.equal(tensor, states(model)[name]), name
    model.learner.update = update
    assert_good(model, tmp_path)


def test_gradients_that_ruin_a_parameter_in_the_last_update_of_all(tmp_path: Path) -> None:
    model = make(A2C, Spoiled()).learn(40)
    before = states(model)
    update = model.learner.update

    def spoiled(batch: Any) -> Any:
        metrics = update(batch)
        with torch.no_grad():
            model.policy.log_std.fill_(np.inf)
        return metrics

    model.learner.update = spoiled
    with pytest.raises(
        NonFiniteError, match=r"Gradient step 6 of the learner left NaN or infinity in policy.log_std\."
    ):
        model.learn(8)
    for name, tensor in before.items():
        assert torch.equal(tensor, states(model)[name]), name
    model.learner.update = update
    assert_good(model, tmp_path)


def test_an_optimizer_that_had_no_state_has_none_again() -> None:
    model = make(A2C, Spoiled())
    guard = Guard(model.learner, rarely=True)  # as on another device than the CPU
    model.learn(16)
    assert model.policy.optimizer.state
    assert guard.put_back()
    assert not model.policy.optimizer.state
    model.learn(16)


def test_a_model_that_is_ruined_from_the_start_is_refused() -> None:
    model = make(PPO, Spoiled())
    with torch.no_grad():
        model.policy.log_std.fill_(np.nan)
    with pytest.raises(NonFiniteError, match=r"NaN or infinity in policy\.log_std before training begins"):
        model.learn(16)


def test_a_mask_of_infinities_in_a_users_network_is_no_fault() -> None:
    model = make(PPO, Spoiled())
    model.policy.register_buffer("mask", torch.tensor([0.0, -np.inf]))
    model.learn(32)


def test_an_unusual_end_of_training_leaves_the_guard_behind() -> None:
    model = make(PPO, Spoiled())

    def stop(*_: Any) -> bool:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        model.learn(16, callback=stop)
    assert model.host.guard is None


def test_an_accelerator_is_not_waited_for_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(A2C, Spoiled()).learn(16)
    guard = Guard(model.learner, rarely=True)  # as on another device than the CPU
    looked: list[int] = []

    class Loss:
        def __float__(self) -> float:
            looked.append(model.learner.steps)
            return 0.0

    for _ in range(250):
        model.learner.steps += 1
        guard.after_update({"loss": Loss()})  # type: ignore[dict-item]
    assert [step - looked[0] for step in looked] == [0, 100]
