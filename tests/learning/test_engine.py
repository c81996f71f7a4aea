"""Algorithms of a user's own: what an engine carries out is refused where gradient steps are made without one."""

from typing import Any

import pytest
import torch
from torch import Tensor

from polyak import PPO
from polyak.algorithms.ppo import PPOLearner
from polyak.learning.learner import Update
from polyak.schedules import get_schedule_fn
from tests.tolerance import drift

ASKED: list[dict[str, Any]] = [{"precision": "bfloat16"}, {"compile": True}]


pytestmark = pytest.mark.usefixtures("interpreted")


def make(cls: type[PPO], **options: Any) -> PPO:
    settings = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "policy_kwargs": {"net_arch": [8]}}
    return cls("MlpPolicy", "CartPole-v1", seed=0, device="cpu", **settings | options)


class SetUpAlone(PPO):
    """Builds its learner without an engine."""

    def _setup_model(self) -> None:
        self._setup_lr_schedule()
        self.clip_range = get_schedule_fn(self.clip_range)
        self.learner = self.learner_factory()()
        self.policy = self.learner.policy
        self.rollouts.build()


class Replaced(PPO):
    """Puts another learner where the engine's was."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.learner = self.learner_factory()()
        self.policy = self.learner.policy


class Steps(PPO):
    """Has a training loop of its own."""

    def train(self) -> None:
        for batch in self.rollout_buffer.get(16):
            values, log_prob, _ = self.policy.evaluate_actions(batch.observations, batch.actions)
            loss = ((values.flatten() - batch.returns) ** 2).mean() - (log_prob * batch.advantages).mean()
            self.policy.optimizer.zero_grad()
            loss.backward()
            self.policy.optimizer.step()
        self._n_updates += 1


class Asks(PPO):
    """Has a training loop of its own around the learner's gradient steps."""

    def train(self) -> None:
        for batch in self.rollout_buffer.get(16):
            self.learner.update(batch)
        self._n_updates += 1


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("cls", [SetUpAlone, Replaced])
def test_a_learner_without_an_engine_is_refused_at_once(cls: type[PPO], asked: dict[str, Any]) -> None:
    (name,) = asked
    with pytest.raises(ValueError, match=rf"{name}=.* cannot be used: {cls.__name__}._setup_model\(\) gives"):
        make(cls, **asked)
    assert make(cls).learn(32)._n_updates == 4


def test_it_is_refused_before_learning_if_it_was_set_up_later() -> None:
    model = make(SetUpAlone, precision="bfloat16", _init_setup_model=False)
    model._setup_model()
    with pytest.raises(ValueError, match="precision='bfloat16' cannot be used"):
        model.learn(32)
    assert model.num_timesteps == 0


@pytest.mark.parametrize("asked", ASKED)
def test_a_training_loop_that_goes_round_the_learner_is_refused_after_its_first_update(asked: dict[str, Any]) -> None:
    model = make(Steps, **asked)
    with pytest.raises(ValueError, match=r"Steps makes gradient steps of its own.*self\.run\(self\.gradient"):
        model.learn(64)
    assert model.num_timesteps == 16
    assert make(Steps).learn(32)._n_updates == 2


@pytest.mark.parametrize("asked", ASKED)
def test_a_training_loop_that_asks_the_learner_is_not(asked: dict[str, Any]) -> None:
    def weights(**options: Any) -> Tensor:
        model = make(Asks, **options).learn(64)
        assert model._n_updates == 4
        return torch.cat([p.detach().flatten() for p in model.policy.parameters()])

    near = drift(updates=4, rate=3e-4, terms=16 + 4 + 8)
    same = torch.allclose(weights(), weights(**asked), rtol=0, atol=near)
    assert same == (asked == {"compile": True})


def test_continuing_with_a_loaded_model_is_no_such_case(tmp_path: Any) -> None:
    make(PPO, precision="bfloat16").learn(32).save(tmp_path / "model")
    model = PPO.load(tmp_path / "model", env="CartPole-v1")
    assert model._n_updates == 4
    assert model.learn(32, reset_num_timesteps=False)._n_updates == 8


def test_a_learner_that_does_not_run_its_steps_by_the_engine_is_refused_after_its_first_update() -> None:
    class Alone(PPOLearner):
        def update(self, batch: Any) -> Update:
            self.steps += 1
            return self.gradient_step(batch)

    class Odd(PPO):
        learner_class = Alone

    with pytest.raises(ValueError, match=r"Odd makes gradient steps of its own.*self\.run\(self\.gradient"):
        make(Odd, precision="bfloat16").learn(64)
    assert make(Odd).learn(32)._n_updates == 4
