"""The loop: the same to the last bit however it is run, true to what environments do, and honest to callbacks."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TransformReward

from polyak import SARSA, DoubleQLearning, DynaQ, ExpectedSARSA, MonteCarloControl, QLearning
from polyak.algorithms.tabular import walking
from polyak.callbacks.callback import BaseCallback
from polyak.callbacks.evaluating import EvalCallback
from polyak.callbacks.saving import CheckpointCallback
from polyak.envs import Monitor, load_results, make_vec_env
from polyak.envs.tabular.table_env import TableEnv
from polyak.envs.tabular.worlds import DYNA_MAZE, blackjack, grid, random_walk
from polyak.evaluation.in_environments import evaluate
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.schedules import LinearSchedule

KINDS: list[tuple[Any, dict[str, Any]]] = [
    (QLearning, {}),
    (QLearning, {"n_steps": 3, "sigma": 0.5}),
    (QLearning, {"lambda_": 0.9, "traces": "replacing"}),
    (SARSA, {"learning_rate": "1/n"}),
    (SARSA, {"n_steps": 4, "learning_rate": LinearSchedule(0.5, 0.0, 1.0)}),
    (SARSA, {"lambda_": 0.8, "traces": "dutch", "epsilon": LinearSchedule(1.0, 0.1, 0.5)}),
    (ExpectedSARSA, {"n_steps": 2}),
    (DoubleQLearning, {}),
    (MonteCarloControl, {}),
    (MonteCarloControl, {"visits": "every", "off_policy": True}),
    (MonteCarloControl, {"exploring_starts": True, "epsilon": 0.0}),
    (DynaQ, {}),
    (DynaQ, {"prioritized": True}),
]


def name_of(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else "-".join(value) or "plain"


def tables_of(model: Any) -> dict[str, np.ndarray]:
    arrays = {**model.solver.tables._asdict(), **model.solver.places._asdict()}
    return {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}


def assert_same(one: Any, other: Any) -> None:
    ours, theirs = tables_of(one), tables_of(other)
    for name, array in ours.items():
        if array.ndim == 2 and array.shape != theirs[name].shape:  # room for an episode
            n = min(array.shape[1], theirs[name].shape[1], int(one.solver.tables.counts.max()))
            array, theirs[name] = array[:, :n], theirs[name][:, :n]
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


class Watching(BaseCallback):
    """Sees every step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        kept = ("actions", "rewards", "dones", "infos", "new_obs")
        self.steps.append({name: self.locals[name] for name in kept})
        return True


@pytest.mark.parametrize(("cls", "options"), KINDS, ids=name_of)
def test_watched_or_not_it_learns_the_same(cls: Any, options: dict[str, Any]) -> None:
    one, other = (cls("FrozenLake-v1", seed=1, compile=False, **options) for _ in range(2))
    one.learn(400)
    watching = Watching()
    other.learn(400, callback=watching)
    assert_same(one, other)
    assert len(watching.steps) == 400
    episodes = [info["episode"] for step in watching.steps for info in step["infos"] if "episode" in info]
    assert episodes
    assert [e["r"] for e in episodes] == [e["r"] for e in other.ep_info_buffer]
    assert sum(e["l"] for e in episodes) <= 400


@pytest.mark.parametrize(("cls", "options"), KINDS, ids=name_of)
def test_compiled_or_not_it_learns_the_same(cls: Any, options: dict[str, Any]) -> None:
    pytest.importorskip("numba")
    for env in (make_vec_env("Taxi-v4", n_envs=2), make_vec_env("FrozenLake-v1", n_envs=1)):
        one, other = (cls(env, seed=1, compile=compiled, **options).learn(1500) for compiled in (False, True))
        assert one.solver.walk_for(1500).__class__ is not other.solver.walk_for(1500).__class__
        assert_same(one, other)


def test_without_numba_compiling_is_an_error_and_auto_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "numba":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    walking.compiled.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"compile=True needs numba: pip install 'polyak\[fast\]'"):
        QLearning("FrozenLake-v1", compile=True)
    monkeypatch.setattr("polyak.algorithms.tabular.learning._FEW", 10)
    QLearning("FrozenLake-v1", seed=0).learn(50)
    walking.compiled.cache_clear()


def test_what_happens_is_what_the_table_says() -> None:
    """Every transition that was walked is one of the table's, and their shares are those of the table."""
    env = gym.make("FrozenLake-v1")
    table = env.unwrapped.P  # type: ignore[attr-defined]
    watching, model = Watching(), QLearning(env, seed=0, epsilon=1.0)
    model.learn(6000, callback=watching)
    state, length, counts = 0, 0, {}
    for step in watching.steps:
        action, there, info = int(step["actions"][0]), int(step["new_obs"][0]), step["infos"][0]
        length += 1
        if step["dones"][0]:
            last = int(info["terminal_observation"])
            assert info["TimeLimit.truncated"] == (
                length == 100 and not any(o[3] for o in table[state][action] if o[1] == last)
            )
            assert info["episode"]["l"] == length
            assert there == 0
        else:
            last = there
        row = [o for o in table[state][action] if o[1] == last]
        assert row
        assert step["rewards"][0] in [o[2] for o in row]
        counts.setdefault((state, action), []).append(last)
        state, length = (0, 0) if step["dones"][0] else (there, length)
    (state, action), ends = max(counts.items(), key=lambda item: len(item[1]))
    for there in {o[1] for o in table[state][action]}:
        p = sum(o[0] for o in table[state][action] if o[1] == there)
        assert abs(ends.count(there) / len(ends) - p) <= 5 * np.sqrt(p / len(ends))


def test_environments_know_where_they_stand(tmp_path: Path) -> None:
    env = Monitor(gym.make("FrozenLake-v1", is_slippery=False), str(tmp_path / "run"))
    model = QLearning(env, seed=0, epsilon=1.0).learn(3_333)
    inner = env.unwrapped
    assert inner.s == model.solver.places.states[0]
    assert env.get_total_steps() + len(env.rewards) == 3_333
    rows = load_results(str(tmp_path))
    assert len(rows) == model._episode_num == len(env.get_episode_rewards())
    assert rows["l"].sum() + len(env.rewards) == 3_333
    observation, _, terminated, truncated, _ = env.step(1)  # another program continues
    assert len(env.rewards) == model.solver.places.lengths[0] + 1
    assert 0 <= observation < 16
    assert terminated or truncated or not env.needs_reset


def test_an_environment_that_does_more_than_its_table_is_asked_for_each_step() -> None:
    doubled = TransformReward(gym.make("FrozenLake-v1", is_slippery=False), lambda r: 2 * float(r))
    model = QLearning(doubled, 0.5, seed=0, epsilon=0.5, initial_value=1.0, gamma=0.9)
    assert model.solver.known is None
    model.learn(1500)
    assert model.values.max() == pytest.approx(2.0, abs=1e-3)
    fickle = gym.make("Taxi-v4", fickle_passenger=True)
    assert QLearning(fickle).solver.known is None
    assert QLearning("Taxi-v4").solver.known is not None
    assert QLearning(make_vec_env("FrozenLake-v1", n_envs=2)).solver.known is not None


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        pytest.param(*kind, marks=() if number % 8 == 0 else pytest.mark.slow)
        for number, kind in enumerate(kind for kind in KINDS if "off_policy" not in kind[1])
    ],
    ids=name_of,
)
def test_both_ways_learn_the_corridor(cls: Any, options: dict[str, Any]) -> None:
    """A maze without chance: known or asked for step by step, the greedy path is found."""
    maze = ("S..", "##.", "G..")
    options = {"learning_rate": "1/n" if cls is MonteCarloControl else 0.2, **options}
    options["epsilon"] = 0.0 if options.get("epsilon") == 0.0 else 0.2
    for asked in (False, True):
        env: Any = gym.wrappers.TimeLimit(grid(maze, step=-1.0, goal=0.0), 30)
        env = TransformReward(env, float) if asked else env
        model = cls(env, seed=0, gamma=1.0, **{"compile": False, **options})
        assert (model.solver.known is None) == asked
        model.learn(1500)
        result = evaluate(model, Monitor(gym.wrappers.TimeLimit(grid(maze, step=-1.0, goal=0.0), 30)), 1, seed=0)
        assert result.mean == -5.0


# -- truncation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [QLearning, SARSA, ExpectedSARSA, DoubleQLearning, DynaQ])
def test_values_go_through_time_limits(cls: Any) -> None:
    """One state, reward 1, for ever: worth 1 / (1 - gamma), though episodes are cut after 5 steps."""
    table = {0: {0: [(1.0, 0, 1.0, False)]}}
    for wrap in (lambda e: e, lambda e: TransformReward(e, float)):
        env = wrap(gym.wrappers.TimeLimit(TableEnv(table), 5))
        model = cls(env, 0.5, gamma=0.8, seed=0).learn(600)
        assert model.values[0] == pytest.approx(5.0, abs=1e-6)


# -- callbacks, files, episodes ----------------------------------------------------------------------------------------


def test_callbacks_evaluate_save_and_stop(tmp_path: Path) -> None:
    evaluation = EvalCallback("FrozenLake-v1", eval_freq=500, unit="timesteps", log_path=str(tmp_path), verbose=0)
    saving = CheckpointCallback(400, str(tmp_path))
    model = QLearning("FrozenLake-v1", seed=0).learn(1000, callback=[evaluation, saving], progress_bar=False)
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [500, 1000]
    assert len(list(tmp_path.glob("rl_model_*.zip"))) == 2
    assert QLearning.load(next(tmp_path.glob("rl_model_*.zip"))).table.shape == (16, 4)
    model.learn(1000, callback=lambda *_: model.num_timesteps < 30)
    assert model.num_timesteps == 30


def test_training_continues_in_the_middle_of_an_episode(tmp_path: Path) -> None:
    """In a new environment, and as if nothing had happened."""
    for cls, options in KINDS:
        env = gym.make("FrozenLake-v1", is_slippery=False)
        whole = cls(env, seed=2, epsilon=0.9, **{k: v for k, v in options.items() if k != "epsilon"}).learn(101)
        whole.save(tmp_path / "half")
        half = cls.load(tmp_path / "half", gym.make("FrozenLake-v1", is_slippery=False), resume=True, force_reset=False)
        whole.learn(99, reset_num_timesteps=False)
        half.learn(99, reset_num_timesteps=False)
        assert_same(whole, half)


def test_episodes_are_reported_in_order() -> None:
    model = SARSA(random_walk(), 0.1, gamma=1.0, seed=0, n_steps=4)
    found = model.learn_episodes(30)
    assert len(found.returns) == len(found.lengths) == 30
    assert set(found.returns.tolist()) <= {-1.0, 1.0}
    assert model.num_timesteps == found.lengths.sum() == model._n_updates
    asked = SARSA(TransformReward(random_walk(), float), 0.1, gamma=1.0, seed=0).learn_episodes(5)
    assert len(asked.returns) == 5
    with pytest.raises(HyperparameterError, match="n_episodes=0 cannot be used"):
        model.learn_episodes(0)


def test_draws_do_not_depend_on_how_many_were_made_ahead() -> None:
    one, other = (QLearning("FrozenLake-v1", seed=5) for _ in range(2))
    one.learn_episodes(40)
    steps = one.num_timesteps
    other.learn(steps)
    np.testing.assert_array_equal(one.q, other.q)
    assert one.solver.stream.random() == other.solver.stream.random()


@pytest.mark.slow
def test_exploring_starts_begin_everywhere() -> None:
    maze = grid(DYNA_MAZE)
    watching, model = Watching(), MonteCarloControl(maze, exploring_starts=True, epsilon=1.0, seed=0)
    model.learn(40_000, callback=watching)
    firsts = {int(step["new_obs"][0]) for step in watching.steps if step["dones"][0]}
    over = maze.process.terminal
    walls = {i for i, field in enumerate("".join(DYNA_MAZE)) if field == "#"}
    assert not firsts & (walls | set(np.flatnonzero(over).tolist()))
    assert len(firsts) > 20


def test_predict_takes_what_environments_give() -> None:
    model = QLearning("Blackjack-v1", seed=0, epsilon=1.0).learn(300)
    env = gym.make("Blackjack-v1")
    hand, _ = env.reset(seed=0)
    action, state = model.predict(hand, deterministic=True)
    assert action.shape == ()
    assert state is None
    assert env.action_space.contains(action.item() + env.action_space.start)
    batch, _ = model.predict(model.get_env().reset())
    assert batch.shape == (1,)
    assert len({int(model.predict(hand)[0]) for _ in range(50)}) == 2  # explores unless it is deterministic
    assert evaluate(model, "Blackjack-v1", 5, seed=0).lengths.min() >= 1
    assert evaluate(model, Monitor(env), 5, seed=0).lengths.min() >= 1
    with pytest.raises(ValueError, match="does not lie in the observation space"):
        model.predict((40, 1, 0))


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (SARSA, {"n_steps": 2, "lambda_": 0.5}, "lambda_=0.5 cannot be used: n_steps=2 looks ahead already"),
        (DynaQ, {"prioritized": True, "planning_steps": 0}, "prioritized=True cannot be used"),
        (MonteCarloControl, {"off_policy": True, "learning_rate": 0.1}, "learning_rate=0.1 cannot be used"),
        (MonteCarloControl, {"off_policy": True, "epsilon": 0}, "epsilon=0 cannot be used"),
        (QLearning, {"learning_rate": "1/m"}, "learning_rate='1/m' cannot be used: it must be '1/n'"),
        (QLearning, {"epsilon": 1.5}, "epsilon=1.5 cannot be used: it must be a number in"),
    ],
)
def test_what_cannot_be(cls: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HyperparameterError, match=message):
        cls("FrozenLake-v1", **options)


def test_schedules_must_stay_where_the_numbers_may_be() -> None:
    model = QLearning("FrozenLake-v1", epsilon=LinearSchedule(0.5, -0.5, 1.0))
    with pytest.raises(HyperparameterError, match=r"epsilon=LinearSchedule.* cannot be used: it gives -0\.4.* to 0\.5"):
        model.learn(100)


def test_logs_say_how_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    QLearning("FrozenLake-v1", seed=0, verbose=1).learn(3000, log_interval=100)
    printed = capsys.readouterr().out
    for word in ("ep_rew_mean", "exploration_rate", "episodes", "total_timesteps"):
        assert word in printed


def test_averages_are_averages() -> None:
    """ "1/n" makes the values of a process without choices the averages of its returns."""
    model = MonteCarloControl(blackjack().process.under(np.zeros(704, int)), gamma=1.0, seed=0)
    found = model.learn_episodes(4000)
    weights = model.solver.tables.visits[0, :, 0]
    assert (weights * model.table[:, 0]).sum() / weights.sum() == pytest.approx(found.returns.mean(), abs=1e-9)
