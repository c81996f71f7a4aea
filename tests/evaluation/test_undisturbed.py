"""Watching a training changes nothing of it."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import A2C, C51, DQN, IQN, PPO, PQN, QRDQN, SAC, TD3, TQC, CrossQ, DiscreteSAC, RecurrentPPO
from polyak.algorithms.alphazero import AlphaZero
from polyak.callbacks.callback import BaseCallback
from polyak.callbacks.evaluating import EvalCallback
from polyak.callbacks.offline_evaluation import OfflineEvalCallback
from polyak.callbacks.past_selves import PastSelves
from polyak.callbacks.saving import CheckpointCallback
from polyak.envs import DummyVecEnv, Monitor, SelfPlayVecEnv, VecNormalize
from polyak.evaluation.in_environments import evaluate, evaluate_policy
from polyak.evaluation.undisturbed import undisturbed
from polyak.experience import collect
from polyak.noise import OrnsteinUhlenbeckActionNoise
from tests.pairs import one_of_each
from tests.worlds import World

SMALL: dict[str, Any] = {"seed": 4, "device": "cpu", "compile": False, "policy_kwargs": {"net_arch": [8]}}
REPLAY: dict[str, Any] = {**SMALL, "learning_starts": 16, "batch_size": 8, "buffer_size": 200}
STEPS = 96


class Drift(World):
    """A noisy walk of eight steps."""

    observation_space, length, truncates = spaces.Box(-np.inf, np.inf, (3,), np.float32), 8, True

    def __init__(self, continuous: bool) -> None:
        self.action_space = spaces.Box(-1, 1, (2,), np.float32) if continuous else spaces.Discrete(3)

    def begin(self) -> None:
        self.state = self.np_random.normal(size=3)

    def look(self) -> np.ndarray:
        return self.state.astype(np.float32)

    def act(self, action: Any) -> float:
        self.state = 0.9 * self.state + 0.1 * np.sum(action) + 0.1 * self.np_random.normal(size=3)
        return float(self.state.sum())


def drifts(continuous: bool, n: int = 2) -> DummyVecEnv:
    return DummyVecEnv([lambda: Monitor(Drift(continuous))] * n)


def on(cls: Any, continuous: bool = False, policy: str = "MlpPolicy", env: Any = None, **options: Any) -> Any:
    return cls(policy, drifts(continuous) if env is None else env, n_steps=8, **{**SMALL, **options})


def off(cls: Any, continuous: bool, **options: Any) -> Any:
    return cls("MlpPolicy", drifts(continuous), gradient_steps=2, train_freq=4, **{**REPLAY, **options})


def ou() -> OrnsteinUhlenbeckActionNoise:
    return OrnsteinUhlenbeckActionNoise(np.zeros(2), np.full(2, 0.5))


EPSILON = {"exploration_fraction": 0.9, "exploration_final_eps": 0.4}
MODELS: dict[str, Callable[[], Any]] = {
    "PPO": lambda: on(PPO, batch_size=8, n_epochs=2),
    "PPO normalised": lambda: on(PPO, batch_size=8, n_epochs=1, env=VecNormalize(drifts(False))),
    "PPO gSDE": lambda: on(PPO, True, batch_size=8, n_epochs=2, use_sde=True, sde_sample_freq=4),
    "A2C": lambda: on(A2C),
    "recurrent PPO": lambda: on(
        RecurrentPPO, policy="MlpLstmPolicy", batch_size=8, n_epochs=1, policy_kwargs={"memory_size": 4}
    ),
    "PQN": lambda: on(PQN, batch_size=8, **EPSILON),
    "DQN": lambda: off(DQN, False, **EPSILON),
    "DQN noisy": lambda: off(DQN, False, noisy=True),
    "QR-DQN": lambda: off(QRDQN, False, **EPSILON),
    "C51": lambda: off(C51, False, **EPSILON),
    "IQN": lambda: off(IQN, False, **EPSILON),
    "discrete SAC": lambda: off(DiscreteSAC, False),
    "SAC": lambda: off(SAC, True),
    "SAC gSDE": lambda: off(SAC, True, use_sde=True, sde_sample_freq=3),
    "TD3": lambda: off(TD3, True, action_noise=ou()),
    "TQC": lambda: off(TQC, True),
    "CrossQ": lambda: off(CrossQ, True),
}


def trace(model: Any) -> dict[str, Any]:
    """What was learned, and where every random stream stands."""
    found: dict[str, Any] = {name: tensor.clone() for name, tensor in model.learner.networks().items()}
    found |= {"python": random.getstate(), "numpy": np.random.get_state()[1:3], "torch": torch.get_rng_state()}
    found["space"] = model.action_space.np_random.bit_generator.state
    found["modes"] = [module.training for module in model.learner.modules()]
    found |= {f"actor {key}": value for key, value in model.runner.actor.state().items()}
    if (normalizer := model.get_vec_normalize_env()) is not None:
        found |= {f"statistics {key}": value for key, value in normalizer.state_dict().items()}
    return found


def learned(make: Callable[[], Any], callback: Any) -> dict[str, Any]:
    model = make()
    random.seed(4)
    model.learn(STEPS, callback=callback, log_interval=None)
    return trace(model)


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(found[key], value), key
        else:
            np.testing.assert_equal(found[key], value, err_msg=key)


def evaluation(name: str, **options: Any) -> EvalCallback:
    env: Any = drifts(any(part in name for part in ("TD3", "TQC", "CrossQ", "gSDE")) or name == "SAC", 1)
    if "normalised" in name:
        env = VecNormalize(env, training=False, norm_reward=False)
    return EvalCallback(env, n_eval_episodes=2, eval_freq=5, verbose=0, warn=False, **options)


@pytest.mark.filterwarnings("ignore:eval_env is wrapped")
@pytest.mark.parametrize("name", one_of_each(MODELS, "PPO normalised", "DQN noisy", "SAC gSDE"))
def test_evaluated_often_or_never_a_model_learns_the_same(name: str) -> None:
    never = learned(MODELS[name], None)
    assert_same(learned(MODELS[name], evaluation(name, deterministic=False)), never)
    assert_same(learned(MODELS[name], evaluation(name, deterministic=True)), never)


class Watcher(BaseCallback):
    """Calls a function of the model at every fifth step."""

    def __init__(self, watch: Callable[[Any], Any]) -> None:
        super().__init__()
        self.watch = watch

    def _on_step(self) -> bool:
        if self.n_calls % 5 == 0:
            self.watch(self.model)
        return True


def watchers(tmp_path: Any) -> dict[str, Any]:
    other = MODELS["DQN"]()
    options = {"n_eval_episodes": 2, "deterministic": False, "warn": False}
    return {
        "evaluate_policy": Watcher(lambda model: evaluate_policy(model, drifts(False), **options)),
        "its policy": Watcher(lambda model: evaluate_policy(model.policy, drifts(False), **options)),
        "another model": Watcher(lambda model: evaluate_policy(other, drifts(False), **options)),
        "evaluate": Watcher(lambda model: evaluate(model, drifts(False), 2, deterministic=False)),
        "evaluate, seeded": Watcher(lambda model: evaluate(model, drifts(False), 2, deterministic=False, seed=1)),
        "a seed of its own": evaluation("DQN", deterministic=False, seed=3),
        "files": CheckpointCallback(5, tmp_path, save_replay_buffer=True),
        "files for others": CheckpointCallback(5, tmp_path, file_format="sb3"),
        "metrics of a dataset": OfflineEvalCallback(collect(drifts(False), n=40, seed=1), {"drawn": _sampled}, 5),
        "a context": Watcher(lambda model: _explore(model)),
    }


def _sampled(model: Any, dataset: Any) -> float:
    return float(model.predict(np.zeros((9, 3), np.float32))[0].sum())


def _explore(model: Any) -> None:
    with undisturbed(model):
        model.action_space.seed(0)
        model.policy.set_training_mode(True)
        model.predict(np.zeros((9, 3), np.float32))
        random.random()


def test_whatever_watches_changes_nothing(tmp_path: Any) -> None:
    kinds = watchers(tmp_path)
    never = learned(MODELS["DQN"], None)
    for name, callback in kinds.items():
        found = learned(MODELS["DQN"], callback)
        try:
            assert_same(found, never)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def test_a_model_without_a_seed_is_spared_too() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        np.random.seed(0)
        model = off(DQN, False, seed=None, **EPSILON)
        model.action_space.seed(0)
        model.env.seed(0)
        return model

    runs = [evaluation("DQN", deterministic=False) for _ in range(2)]
    never = learned(make, None)
    for run in runs:
        run.eval_env.seed(5)
        run.log_path = None
        assert_same(learned(make, run), never)
    assert runs[0].last_mean_reward == runs[1].last_mean_reward  # equal trainings are watched alike


def test_spaces_within_spaces_and_generators_of_a_models_own_are_kept() -> None:
    class Player:
        action_space = None

        def __init__(self) -> None:
            self.action_space = spaces.Dict(
                a=spaces.Discrete(9), b=spaces.Tuple((spaces.Box(0, 1), spaces.Discrete(5)))
            )
            self.action_space.seed(1)
            self.untouched = spaces.Discrete(3)
            self.numpy, self.old = np.random.default_rng(1), np.random.RandomState(1)
            self.python, self.torch = random.Random(1), torch.Generator().manual_seed(1)

        def draw(self) -> list[Any]:
            drawn = [
                self.numpy.random(),
                self.old.rand(),
                self.python.random(),
                torch.rand(1, generator=self.torch).item(),
            ]
            return [self.action_space.sample(), *drawn]

        def predict(self) -> None: ...

    expected = [Player().draw()]
    player = Player()
    with undisturbed(player, seed=7):
        first = player.draw()
    with undisturbed(player, seed=7):
        np.testing.assert_equal(player.draw(), first)
    np.testing.assert_equal([player.draw()], expected)
    with undisturbed(player, seed=8), pytest.raises(AssertionError):
        np.testing.assert_equal(player.draw(), first)


def test_equal_seeds_give_equal_evaluations_of_what_explores_by_its_space() -> None:
    model = MODELS["DQN"]()
    first, second = (evaluate(model, drifts(False), 5, deterministic=False, seed=6).returns for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_outside_of_learn_evaluations_without_a_seed_differ_from_each_other() -> None:
    model, env = MODELS["PPO"](), drifts(False)
    returns = []
    for _ in range(2):
        env.seed(0)
        returns.append(evaluate(model, env, 5, deterministic=False).returns)
    assert not np.array_equal(*returns)


def test_an_evaluation_in_the_training_environment_is_warned_of_however_it_is_wrapped() -> None:
    env = Monitor(Drift(False))
    venv = DummyVecEnv([lambda: env])
    for training, watched in ((venv, venv), (env, env), (VecNormalize(venv), VecNormalize(venv)), (venv, env)):
        model = PPO("MlpPolicy", training, n_steps=8, batch_size=8, **SMALL)
        with pytest.warns(UserWarning, match="eval_env is the training environment itself"):
            model.learn(8, callback=EvalCallback(watched, eval_freq=0))


def test_rated_games_change_nothing_that_self_play_learns() -> None:
    def make() -> Any:
        env = SelfPlayVecEnv("tictactoe", n_envs=4)
        return PPO("MlpPolicy", env, n_steps=16, batch_size=32, n_epochs=1, **SMALL)

    few, many = (learned(make, PastSelves(freq=32, rated_games=games, rated_against=2)) for games in (1, 6))
    assert_same(many, few)


def test_rated_games_change_nothing_that_alphazero_learns() -> None:
    found = []
    for rate_freq in (0, 12):
        model = AlphaZero(
            "MlpPolicy", "tictactoe", simulations=4, n_games=4, rate_freq=rate_freq, rated_games=2, **SMALL
        )
        model.learn(40, log_interval=None)
        streams = {"numpy": np.random.get_state()[1:3], "torch": torch.get_rng_state()}
        found.append({**{name: tensor.clone() for name, tensor in model.learner.networks().items()}, **streams})
        assert bool(model.past) == bool(rate_freq)
    assert_same(found[1], found[0])
