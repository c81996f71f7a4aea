"""IMPALA and APPO: their losses by hand, who acts with which weights, and what happens in the actor's thread."""

from __future__ import annotations

import copy
import math
import threading
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
import torch

from polyak import A2C, APPO, GAIL, IMPALA
from polyak.algorithms.appo import clipped_surrogate, log_ratios
from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.parameters import restore
from polyak.checkpoint.saved import taken
from polyak.collecting.actor_thread import ActorThread
from polyak.envs import make_vec_env
from polyak.experience import RolloutBuffer, collect
from polyak.experience.reused_batches import CircularBuffer
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.loops.asynchronous import ThreadCollector
from tests.tolerance import bound

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [16, 16]}, "device": "cpu", "seed": 3, "n_steps": 16}
TURNS = {**SMALL, "asynchronous": False}
CART_POLE = "CartPole-v1"


def weights(model: Any) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in model.policy.state_dict().values()]


# -- losses ------------------------------------------------------------------------------------------------------------


def test_on_policy_impala_is_a2c() -> None:
    """With ratios of 1 V-trace's targets are n-step returns, and its advantages theirs (section 4.1)."""
    sgd = {"net_arch": [16, 16], "optimizer_class": torch.optim.SGD}
    options = {**SMALL, "policy_kwargs": sgd, "learning_rate": 1e-3, "max_grad_norm": 0.5, "ent_coef": 0.01}
    found = []
    for cls, own in ((IMPALA, {"asynchronous": False, "vf_coef": 0.5}), (A2C, {"vf_coef": 0.25})):
        model = cls("MlpPolicy", make_vec_env(CART_POLE, n_envs=4, seed=0), **options, **own)
        before = weights(model)
        found.append(weights(model.learn(5 * 64)))
        assert not all(map(torch.equal, before, found[-1]))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=bound(terms=64 + 3 * 16, size=5e-3))  # as far as steps have gone


def test_ratios_of_appo_are_those_of_its_paper() -> None:
    generator = torch.Generator().manual_seed(0)
    pi, mu, target = (torch.randn(6, 3, generator=generator, dtype=torch.float64) for _ in range(3))
    expected = torch.minimum((mu - target).exp(), torch.tensor(2.0)) * (pi - mu).exp()
    found = log_ratios(pi, mu, target, torch.tensor(2.0, dtype=torch.float64))
    torch.testing.assert_close(found.exp(), expected)
    torch.testing.assert_close(log_ratios(pi, target, target, torch.tensor(2.0)), pi - target)
    far = log_ratios(torch.tensor(0.0), torch.tensor(0.0), torch.tensor(-1e4), torch.tensor(2.0))
    assert float(far) == pytest.approx(math.log(2))


def test_the_surrogate_stops_counting_where_the_ratio_has_left_its_range() -> None:
    log_ratio = torch.tensor([[2.0, -2.0], [2.0, -2.0]], requires_grad=True)
    advantages = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    loss = clipped_surrogate(log_ratio, advantages, torch.tensor(0.4))
    terms = [1.4, math.exp(-2), -math.exp(2), -0.6]
    assert float(loss.detach()) == pytest.approx(-sum(terms) / 4)
    (gradient,) = torch.autograd.grad(loss, log_ratio)
    assert (gradient != 0).tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize("memory", [{}, {"memory": "lstm", "memory_size": 8}])
def test_objectives_by_a_loop_over_the_steps(memory: dict[str, Any]) -> None:
    options = {**TURNS, "policy_kwargs": {"net_arch": [16], **memory}, "broadcast_interval": 3, "learning_rate": 0.02}
    model = APPO("MlpPolicy", make_vec_env(CART_POLE, n_envs=3, seed=0), **options, target_update_interval=2)
    model.learn(48 * 4)
    (unroll,) = model.collector.unrolls
    learner: Any = model.learner
    t = unroll.trajectory
    assert t.cuts.any()
    evaluated = learner.evaluate_unroll(model.policy, unroll)
    assert evaluated.values.shape == (17, 3)
    with torch.no_grad():
        target = learner.evaluate_unroll(learner.target_policy, unroll).log_probs
    targets, advantages = torch.zeros(16, 3), torch.zeros(16, 3)
    values = evaluated.values.detach()
    for n in range(3):
        trace = torch.tensor(0.0)
        for s in reversed(range(16)):
            then = t.final_values[s, n] if t.cuts[s, n] else values[s + 1, n]
            after = then if t.cuts[s, n] or s == 15 else targets[s + 1, n]
            rho = (target[s, n] - t.log_probs[s, n]).exp().clamp(max=1.0)
            advantages[s, n] = rho * (t.rewards[s, n] + t.discounts[s, n] * after - values[s, n])
            delta = rho * (t.rewards[s, n] + t.discounts[s, n] * then - values[s, n])
            alive = t.discounts[s, n] * (not t.cuts[s, n])
            trace = delta + alive * rho * trace
            targets[s, n] = values[s, n] + trace
    found = learner.vtrace(unroll, evaluated.values, target)
    near = bound(terms=32, size=float(targets.abs().max()))
    torch.testing.assert_close(found[0], targets, rtol=0, atol=near)
    torch.testing.assert_close(found[1], advantages, rtol=0, atol=near)
    ratios = log_ratios(evaluated.log_probs, t.log_probs, target, torch.tensor(2.0))
    loss = clipped_surrogate(ratios, advantages, torch.tensor(0.4))
    loss = loss + 0.5 * ((targets - evaluated.values[:-1]) ** 2).mean() / 2 - 0.01 * evaluated.entropy.mean()
    torch.testing.assert_close(learner.objective(unroll, evaluated).loss, loss, rtol=1e-4, atol=near)


# -- who acts with which weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [IMPALA, APPO])
def test_the_actor_lags_as_many_updates_as_it_is_told(cls: Any) -> None:
    model = cls("MlpPolicy", make_vec_env(CART_POLE, n_envs=2, seed=0), **TURNS, broadcast_interval=4)
    per_rollout = model.rollouts.updates_per_rollout(32)
    lags = []
    for _ in range(6):
        old = weights(model)
        model.learn(32, reset_num_timesteps=False)
        (unroll,) = model.collector.unrolls
        lags.append(model.collector.lags[0])
        with torch.no_grad():
            now = model.learner.evaluate_unroll(model.policy, unroll).log_probs
            acted = model.learner.evaluate_unroll(model.runner.actor.policy, unroll).log_probs
        if model.learner.unpublished:
            torch.testing.assert_close(acted, unroll.trajectory.log_probs, rtol=0, atol=bound(terms=64, size=1.0))
            assert not torch.allclose(now, unroll.trajectory.log_probs, atol=1e-6)
        assert not all(map(torch.equal, old, weights(model)))
    period = 4 // per_rollout
    assert lags == [per_rollout * (number % period) for number in range(6)]


def test_a_lagging_actor_goes_on_from_a_file_as_if_nothing_had_happened(tmp_path: Path) -> None:
    model = IMPALA("MlpPolicy", make_vec_env(CART_POLE, n_envs=2, seed=0), **TURNS, broadcast_interval=4)
    model.learn(32 * 6)
    assert model.learner.unpublished == 2
    env = copy.deepcopy(model.get_env())
    model.save(tmp_path / "model")
    model.learn(32 * 4, reset_num_timesteps=False)
    torch.manual_seed(99)
    resumed = IMPALA.load(tmp_path / "model", env=env, resume=True, force_reset=False, device="cpu")
    resumed.learn(32 * 4, reset_num_timesteps=False)
    assert all(map(torch.equal, weights(model), weights(resumed)))


def test_the_target_network_follows_every_so_many_updates_and_a_penalty_finds_its_weight() -> None:
    options = {**TURNS, "learning_rate": 0.02, "kl_coef": 1.0, "kl_target": 1e-9}
    model = APPO("MlpPolicy", make_vec_env(CART_POLE, n_envs=2, seed=0), **options, target_update_interval=6, tau=0.5)
    learner: Any = model.learner
    first = [tensor.clone() for tensor in learner.target_policy.state_dict().values()]
    model.learn(64)  # four updates
    now = list(learner.target_policy.state_dict().values())
    assert all(map(torch.equal, first, now))
    assert model.kl_coef == 1
    model.learn(32, reset_num_timesteps=False)
    for was, followed, online in zip(first, now, weights(model), strict=True):
        torch.testing.assert_close(followed, (was + online) / 2)
    assert model.kl_coef == 2


# -- a few batches -----------------------------------------------------------------------------------------------------


def test_batches_are_drawn_as_often_as_they_may_and_the_oldest_makes_room() -> None:
    buffer: CircularBuffer[int] = CircularBuffer(size=3, uses=2)
    buffer.seed(0)
    buffer.add(1)
    assert list(buffer.draw(5)) == [1, 1]
    assert len(buffer) == 0
    for number in range(5):
        buffer.add(number)
    drawn = list(buffer.draw(100))
    assert sorted(drawn) == [2, 2, 3, 3, 4, 4]
    assert drawn != sorted(drawn), "at random"


# -- the thread --------------------------------------------------------------------------------------------------------


def actors() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "polyak-actor"]


@pytest.mark.parametrize("cls", [IMPALA, APPO])
def test_an_actor_in_a_thread_counts_what_is_learned_from_and_ends_with_learn(cls: Any) -> None:
    model = cls("MlpPolicy", make_vec_env(CART_POLE, n_envs=2, seed=0), **SMALL)
    before = weights(model)
    for made in (320, 640):
        model.learn(320, reset_num_timesteps=made == 320)
        assert model.num_timesteps >= made
        assert model.num_timesteps % 32 == 0
        assert not actors()
    assert not all(map(torch.equal, before, weights(model)))
    assert sum(episode["l"] for episode in model.ep_info_buffer) <= model.num_timesteps
    assert len(model.ep_info_buffer) > 5
    assert all(lag >= 0 for lag in model.collector.lags)
    copied = copy.deepcopy(model)
    copied.learn(64)
    assert not actors()


def test_callbacks_see_each_step_in_order_and_can_end_training(tmp_path: Path) -> None:
    class Watch(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.rewards: list[np.ndarray] = []
            self.threads: set[str] = set()

        def _on_step(self) -> bool:
            self.threads.add(threading.current_thread().name)
            self.rewards.append(self.locals["rewards"])
            if self.n_calls == 30:
                self.model.save(tmp_path / "model")
            assert self.locals["values"].shape == (2, 1)
            return self.n_calls < 40

    watch = Watch()
    model = IMPALA("MlpPolicy", make_vec_env(CART_POLE, n_envs=2, seed=0), **SMALL).learn(10_000, callback=watch)
    assert model.num_timesteps == 80
    assert len(watch.rewards) == 40
    assert watch.threads == {"MainThread"}
    assert not actors()
    loaded = IMPALA.load(tmp_path / "model", env=make_vec_env(CART_POLE, n_envs=2, seed=0), device="cpu")
    assert loaded.num_timesteps == 60
    loaded.learn(64)


class Breaks(gym.Wrapper[Any, Any, Any, Any]):
    """Raises at the 50th step."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 50:
            raise RuntimeError("the simulator has crashed")
        return super().step(action)


def test_what_an_environment_raises_is_raised_by_learn_with_the_users_lines() -> None:
    model = IMPALA("MlpPolicy", Breaks(gym.make(CART_POLE)), **SMALL)
    with pytest.raises(RuntimeError, match="the simulator has crashed") as caught:
        model.learn(1_000)
    assert any(entry.name == "step" and entry.path == Path(__file__) for entry in caught.traceback)
    assert model.num_timesteps == 48
    assert not actors()


def test_a_thread_makes_no_more_than_may_wait_and_keeps_what_waits() -> None:
    made: list[int] = []

    def make(stopping: Any) -> int:
        made.append(len(made))
        return made[-1]

    thread = ActorThread(make, size=2)
    thread.start()
    assert [thread.take() for _ in range(3)] == [0, 1, 2]
    thread.stop()
    waiting = len(thread)
    assert waiting <= 2
    assert len(made) <= 3 + waiting + 1
    thread.start()
    assert [thread.take() for _ in range(3)] == [3, 4, 5]
    thread.stop()


def test_an_error_that_nobody_took_is_raised_once_and_the_next_start_works() -> None:
    calls: list[int] = []

    def make(stopping: Any) -> int:
        calls.append(len(calls))
        if len(calls) == 1:
            raise RuntimeError("once")
        return calls[-1]

    thread = ActorThread(make, size=1)
    thread.start()
    thread.stop()
    thread.start()
    with pytest.raises(RuntimeError, match="once"):
        thread.take()
    assert not actors()
    thread.start()
    assert thread.take() == 1
    thread.stop()
    assert not actors()


def test_a_model_is_saved_while_its_actor_rests(tmp_path: Path) -> None:
    """Nothing moves between the observations in hand and what else the file holds of the actor."""
    resting: list[bool] = []

    def save(names: dict[str, Any], _: Any) -> bool:
        model = names["self"]
        if model.num_timesteps == 64:
            model.save(tmp_path / "model")
            resting.append(not actors())
        return True

    IMPALA("MlpPolicy", make_vec_env(CART_POLE, n_envs=2, seed=0), **SMALL).learn(200, save)
    assert resting == [True]


def test_rollouts_that_wait_are_dropped_where_new_episodes_begin() -> None:
    model = IMPALA("MlpPolicy", make_vec_env(CART_POLE, n_envs=2, seed=0), **SMALL)
    model.learn(320, lambda names, _: names["self"].num_timesteps < 100)
    before = model.runner.thread  # type: ignore[union-attr]
    model.learn(32, reset_num_timesteps=False)
    assert model.runner.thread is before  # type: ignore[union-attr]
    model.learn(32)
    assert model.runner.thread is not before  # type: ignore[union-attr]


# -- refusing ----------------------------------------------------------------------------------------------------------


class EarlyValues(RolloutBuffer):
    """Reads values where steps are stored."""

    def add(self, *args: Any, **kwargs: Any) -> None:
        super().add(*args, **kwargs)


def test_a_file_whose_actors_have_other_networks_is_refused() -> None:
    model = IMPALA("MlpPolicy", make_vec_env(CART_POLE, n_envs=2, seed=0), **TURNS, broadcast_interval=4).learn(64)
    saved = taken(model)
    name = next(name for name in saved.state if name.startswith("broadcast/"))
    saved.state[name] = saved.state[name][:1]
    with pytest.raises(ValueError, match="weights of its actors .* damaged"):
        restore(model.learner, saved)


def test_what_cannot_be_is_refused() -> None:
    for options, words in (
        ({"c_bar": 2.0}, "c_bar=2.0 .* at most rho_bar=1.0"),
        ({"queue_size": 0}, "queue_size=0"),
        ({"broadcast_interval": 0}, "broadcast_interval=0"),
        ({"rollout_buffer_class": EarlyValues}, "rollout_buffer_class=.*EarlyValues.* V-trace reads neither"),
    ):
        with pytest.raises(HyperparameterError, match=words):
            IMPALA("MlpPolicy", CART_POLE, **options)
    model = IMPALA("MlpPolicy", CART_POLE, **SMALL)
    with pytest.raises(HyperparameterError, match="V-trace reads neither"):
        model.rollout_buffer_class = EarlyValues
    with pytest.raises(HyperparameterError, match=r"kl_target=0.1 .* Give kl_coef"):
        APPO("MlpPolicy", CART_POLE, kl_target=0.1)
    demonstrations = collect(CART_POLE, None, 100, seed=0)
    with pytest.raises(HyperparameterError, match="'asynchronous': False"):
        GAIL("MlpPolicy", CART_POLE, demonstrations=demonstrations, generator="impala")


@pytest.mark.parametrize("memory", [None, "lstm"])
def test_the_actor_looks_at_no_weights_of_the_learner(memory: str | None) -> None:
    """While a program is built, the learner's weights are none: they have no numbers, and lie on another device."""
    env = make_vec_env(CART_POLE, n_envs=2, seed=0, env_kwargs={"max_episode_steps": 5})
    kwargs = {**SMALL["policy_kwargs"], **({"memory": memory} if memory else {})}
    model = IMPALA("MlpPolicy", env, **{**SMALL, "policy_kwargs": kwargs}).learn(64)
    model.policy.to(torch.device("meta"))
    rollout = cast(ThreadCollector, model.collector).make(lambda: False)
    assert rollout is not None
    assert np.isfinite(rollout.buffer.values).all()
    assert rollout.buffer.rewards.shape == (16, 2)
