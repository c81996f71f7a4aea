"""Several learners that make each gradient step together, on the plain face: ``n_learners``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyak
from polyak import A2C, DQN, PPO, SAC, TRPO, RecurrentPPO
from polyak.distributed import learners
from polyak.distributed.learner_process import said_of
from polyak.distributed.learners import InTurns, LostLearnerError, _joined
from polyak.experience import Transition
from polyak.learning.learner import Learner, Update
from tests.distributed.test_runners import REPLAY, ROLLOUT, SMALL, weights
from tests.pairs import one_of_each


def two() -> Any:
    return polyak.envs.make_vec_env("CartPole-v1", 2)


CASES: dict[str, Any] = {
    "ppo": lambda **o: PPO("MlpPolicy", "CartPole-v1", **ROLLOUT, **o),
    "minibatches": lambda **o: PPO("MlpPolicy", "CartPole-v1", **{**ROLLOUT, "batch_size": 4, **o}),
    "a2c": lambda **o: A2C("MlpPolicy", "CartPole-v1", use_rms_prop=False, **{**SMALL, "n_steps": 16}, **o),
    "dqn": lambda **o: DQN("MlpPolicy", "CartPole-v1", prioritized=True, target_update_interval=20, **REPLAY, **o),
    "recurrent": lambda **o: RecurrentPPO("MlpLstmPolicy", "CartPole-v1", **ROLLOUT, **o),
    "impala": lambda **o: polyak.IMPALA(
        "MlpPolicy", two, n_runners=1, n_steps=16, asynchronous=False, **{**SMALL, "transport": "local", **o}
    ),
}  # fmt: skip
CASES["stopping"] = partial(CASES["minibatches"], target_kl=1e-4, learning_rate=3e-3)
DRAWING: dict[str, Any] = {
    "sac": lambda **o: SAC("MlpPolicy", "Pendulum-v1", **REPLAY, **o),
    "td3": lambda **o: polyak.TD3("MlpPolicy", "Pendulum-v1", **REPLAY, **o),
}
STEPS = 64


@pytest.mark.parametrize("case", ["ppo", "stopping", "a2c", "dqn", "impala"])
def test_two_learners_learn_what_one_learns(case: str) -> None:
    """To rounding: gradients of means over half the rows each, and their mean. Optimizers divide by the gradient's
    size, so an entry near 0 may move by the learning rate; the first steps are compared, in their mean."""
    one = CASES[case]().learn(STEPS)
    two = CASES[case](n_learners=2, transport="local").learn(STEPS)
    assert one.learner.steps == two.learner.steps > 0
    before = weights(CASES[case]())
    moved = np.abs(weights(one) - before).mean()
    assert moved > 1e-5
    assert np.abs(weights(one) - weights(two)).mean() < 1e-3 * moved


@pytest.mark.parametrize("case", one_of_each(["recurrent", *DRAWING], "recurrent"))
def test_equal_seeds_give_equal_numbers(case: str) -> None:
    made = {**CASES, **DRAWING}[case]
    one = made(n_learners=3, transport="local").learn(STEPS)
    other = made(n_learners=3, transport="local").learn(STEPS)
    np.testing.assert_array_equal(weights(one), weights(other))
    assert np.isfinite(weights(one)).all()


@pytest.mark.parametrize("case", one_of_each(["ppo", "dqn", "sac", "impala"], "ppo", "dqn"))
def test_all_learners_have_the_same_networks(case: str) -> None:
    model = {**CASES, **DRAWING}[case](n_learners=3, transport="local").learn(STEPS)
    mine = model.learner.networks()
    for fellow in model._learners.fellows._fellows:
        for name, tensor in fellow.learner.networks().items():
            torch.testing.assert_close(tensor, mine[name], rtol=0, atol=0)
        assert fellow.learner.steps == model.learner.steps


def test_a_changed_hyperparameter_reaches_all() -> None:
    model = CASES["ppo"](n_learners=2, transport="local").learn(STEPS)
    model.ent_coef, model.learning_rate = 0.125, 1e-4
    model.learn(STEPS)
    fellow = model._learners.fellows._fellows[0].learner
    assert float(fellow.ent_coef) == 0.125
    assert float(fellow.optimizers["policy"].param_groups[0]["lr"]) == pytest.approx(1e-4)


def test_training_resumes_exactly(tmp_path: Path) -> None:
    whole = CASES["ppo"](n_learners=2, transport="local").learn(32)
    whole.save(tmp_path / "half.zip")
    whole.learn(32, reset_num_timesteps=False)
    half = PPO.load(tmp_path / "half.zip", env="CartPole-v1", resume=True, device="cpu")
    assert half.n_learners == 2
    half.learn(32, reset_num_timesteps=False)
    np.testing.assert_array_equal(weights(whole), weights(half))


def test_a_failure_in_one_learner_ends_the_step_of_all() -> None:
    model = CASES["ppo"](n_learners=2, transport="local").learn(STEPS)

    def broken(batch: Any) -> Any:
        raise ZeroDivisionError("in a fellow")

    model._learners.fellows._fellows[0].learner.gradient_step = broken
    model._prepare_to_learn = lambda reset: None
    with pytest.raises(RuntimeError, match="another learner"):
        model.train()


def asked_of(model: Any, steps: int) -> list[str]:
    """What its fellows are asked for in a training, with the rollouts that are put where they read them."""
    fellows, asked = model._learners.fellows, list[str]()
    put, together = fellows.put, fellows.together
    fellows.put = lambda value: (asked.append("a rollout"), put(value))[1]
    fellows.together = lambda here, method, others: (asked.append(method), together(here, method, others))[1]
    model.learn(steps)
    return asked


def test_a_rollout_and_all_passes_over_it_are_one_request() -> None:
    asked = asked_of(CASES["ppo"](n_learners=2, transport="local").learn(STEPS), STEPS)
    assert asked == ["take", "join", *["a rollout", "update"] * (STEPS // ROLLOUT["n_steps"])]


def test_passes_that_may_be_left_out_are_asked_for_one_by_one() -> None:
    model = CASES["stopping"](n_learners=2, transport="local").learn(STEPS)
    before = model._n_updates, model.learner.steps
    asked = asked_of(model, STEPS)
    assert asked.count("a rollout") == STEPS // ROLLOUT["n_steps"]
    assert asked.count("update") == model._n_updates - before[0]
    assert model.learner.steps - before[1] < 4 * asked.count("update")


def test_what_a_lost_learner_has_not_made_is_made_once() -> None:
    """The third step of a rollout is the first that it does not make."""
    whole = CASES["minibatches"](n_learners=2, transport="local").learn(STEPS)
    model = CASES["minibatches"](n_learners=2, transport="local")
    model._prepare_to_learn(True)
    fellows = model._learners.fellows
    together, learner = fellows.together, fellows._fellows[0].learner
    step, made = learner.gradient_step, list[Any]()

    def broken(batch: Any) -> Any:
        made.append(batch)
        if len(made) == 3:
            raise ZeroDivisionError("in a fellow")
        return step(batch)

    def dying(*asked: Any) -> Any:
        try:
            return together(*asked)
        except RuntimeError as error:
            raise LostLearnerError("a learner is gone.") from error

    learner.gradient_step, fellows.together = broken, dying
    model._prepare_to_learn = lambda reset: None
    with pytest.warns(RuntimeWarning, match="a learner is gone"):
        model.learn(STEPS)
    assert model._learners.restarts == 1
    assert model.learner.steps == whole.learner.steps
    np.testing.assert_array_equal(weights(model), weights(whole))


def test_learners_that_die_before_they_have_begun_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(InTurns):
        deaths = 2

        def ask_all(self, method: str, *arguments: Any) -> list[Any]:
            if method == "take" and self.deaths:
                self.deaths -= 1
                raise LostLearnerError("a learner is gone.")
            return super().ask_all(method, *arguments)

    monkeypatch.setattr(learners, "InTurns", Dying)
    model = CASES["ppo"](n_learners=2, transport="local")
    with pytest.warns(RuntimeWarning, match="a learner is gone. All learners continue from the one here"):
        model.learn(32)
    assert model._learners.restarts == 2
    assert model.learner.steps == 4
    Dying.deaths = 3
    with pytest.warns(RuntimeWarning), pytest.raises(RuntimeError, match="3 times in a row before they had begun"):
        CASES["ppo"](n_learners=2, transport="local").learn(32)


def test_update_here_alone_is_refused() -> None:
    model = CASES["ppo"](n_learners=2, transport="local").learn(STEPS)
    with pytest.raises(RuntimeError, match=r"learner\.learn"):
        model.learner.update(next(model.rollout_buffer.get(16)))


def test_no_learners_are_refused() -> None:
    with pytest.raises(ValueError, match="n_learners=0"):
        PPO("MlpPolicy", "CartPole-v1", n_learners=0)
    with pytest.raises(ValueError, match="n_learners=2.*TRPO"):
        TRPO("MlpPolicy", "CartPole-v1", n_learners=2)


@pytest.mark.parametrize(("rows", "size"), [(6, 2), (7, 2), (5, 3), (4, 1)])
def test_shares_are_equal_and_errors_come_back_in_order(rows: int, size: int) -> None:
    column = torch.arange(rows, dtype=torch.float32)
    batch = Transition({"a": column[:, None]}, column[:, None], column, {"a": column[:, None]}, column, column)
    dealt = [Learner().share(batch, rank, size) for rank in range(size)]
    assert {len(share.rewards) for share in dealt} == {-(-rows // size)}
    errors = [share.observations["a"][:, 0] for share in dealt]
    for times in (1, 4):  # rows of sequences
        said = [said_of([Update({}, error.repeat_interleave(times))]) for error in errors]
        (whole,) = _joined(said, [batch])
        torch.testing.assert_close(whole.td_error, column.repeat_interleave(times), rtol=0, atol=0)


def test_every_part_learns_at_its_own_rate_in_all_learners() -> None:
    model = DRAWING["sac"](n_learners=2, transport="local", learning_rates={"actor": 1e-5}).learn(STEPS)
    mine = model.learner.networks()
    for name, tensor in model._learners.fellows._fellows[0].learner.networks().items():
        torch.testing.assert_close(tensor, mine[name], rtol=0, atol=0)
