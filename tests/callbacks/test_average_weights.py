"""Averages of weights: by their recursion, who acts with them when, and that training does not notice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyak import A2C, DQN, IQL, PPO, SAC, QLearning
from polyak.callbacks import AverageWeights, BaseCallback, EvalCallback
from polyak.envs import make_vec_env
from polyak.experience import collect
from tests.pairs import one_of_each
from tests.tolerance import bound


def make(cls: Any = SAC, **options: Any) -> Any:
    env = "Pendulum-v1" if cls is SAC else "CartPole-v1"
    small: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu", "seed": 0, "compile": False}
    if cls in (SAC, DQN):
        small |= {"learning_starts": 20, "buffer_size": 500, "batch_size": 16}
    if cls is PPO:
        small |= {"n_steps": 16, "batch_size": 8, "n_epochs": 2}
    return cls("MlpPolicy", env, **{**small, **options})


def weights(policy: Any) -> Tensor:
    return nn.utils.parameters_to_vector(policy.parameters()).detach().double()


class Watches(BaseCallback):
    """Keeps the weights of the policy whenever they have changed, and at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []
        self.updates = 0

    def _on_step(self) -> bool:
        if self.model._n_updates != self.updates:
            self.updates = self.model._n_updates
            self.seen.append(weights(self.model.policy))
        return True

    def _on_training_end(self) -> None:
        self._on_step()


def averaged(seen: list[Tensor], decay: float | None) -> Tensor:
    total = seen[0]
    for n, one in enumerate(seen[1:], start=2):
        share = 1 / n if decay is None else 1 - decay
        total = total + share * (one - total)
    return total


@pytest.mark.parametrize(("cls", "decay"), [(SAC, None), (DQN, 0.9), (PPO, 0.9), (A2C, None)])
def test_the_average_is_that_of_its_definition_and_acts_once_training_is_over(cls: Any, decay: float | None) -> None:
    plain, watch = make(cls), Watches()
    plain.learn(80, watch)
    model = make(cls).learn(80, AverageWeights(decay))
    assert len(watch.seen) >= 5
    expected = averaged(watch.seen, decay)
    torch.testing.assert_close(weights(model.policy), expected, rtol=0, atol=bound(4 * len(watch.seen), 2))
    # those that are trained are as without, to the bit
    assert torch.equal(weights(model.learner.average.module), weights(plain.policy))
    assert model.learner.average.acts
    observations = np.stack([model.observation_space.sample() for _ in range(20)])
    with torch.no_grad():
        acted = model.policy.to_env(model.policy.act(model.policy.obs_to_tensor(observations)[0], True).numpy())
    np.testing.assert_array_equal(model.predict(observations, deterministic=True)[0], acted)


def test_weights_count_after_so_many_steps() -> None:
    watch = Watches()
    plain = make().learn(80, watch)
    model = make().learn(80, AverageWeights(None, after=60))
    late = averaged(watch.seen[-22:], None)  # those that step 60 was made with, and one update more after each step
    torch.testing.assert_close(weights(model.policy), late, rtol=0, atol=bound(4 * 22, 2))
    assert int(model.learner.average.n_averaged) == 22
    unmoved = make().learn(80, AverageWeights(after=81))
    assert torch.equal(weights(unmoved.policy), weights(plain.policy))
    assert not unmoved.learner.average.acts


def test_the_child_is_stepped_with_the_average_and_training_does_not_notice() -> None:
    seen: list[tuple[int, Tensor]] = []

    class Looks(BaseCallback):
        def _on_step(self) -> bool:
            seen.append((self.num_timesteps, weights(self.model.policy)))
            return True

    watch = Watches()
    plain = make().learn(80, watch)
    model = make().learn(80, AverageWeights(0.9, n_steps=25, callback=Looks()))
    assert [steps for steps, _ in seen] == [25, 50, 75]
    for steps, found in seen:
        expected = averaged(watch.seen[: steps - 21], 0.9)  # updates that were made before this step
        torch.testing.assert_close(found, expected, rtol=0, atol=bound(4 * steps, 2))
    assert torch.equal(weights(model.learner.average.module), weights(plain.policy))


def test_evaluations_and_the_best_model_are_of_the_average(tmp_path: Path) -> None:
    evaluation = EvalCallback(
        make_vec_env("Pendulum-v1"), eval_freq=1, n_eval_episodes=2, best_model_save_path=tmp_path
    )
    model = make().learn(60, AverageWeights(0.9, n_steps=60, callback=evaluation))
    best = SAC.load(tmp_path / "best_model", device="cpu")
    assert best.learner.average.acts
    # the last update came after the evaluation: the average before it is among the file's policy
    before = weights(best.policy)
    after = averaged([before, weights(model.learner.average.module)], 0.9)
    torch.testing.assert_close(weights(model.policy), after, rtol=0, atol=bound(10, 2))


@pytest.mark.parametrize("cls", one_of_each([SAC, PPO, DQN], PPO, DQN))
def test_resumed_from_a_file_it_is_bit_equal(cls: Any, tmp_path: Path) -> None:
    whole = make(cls).learn(64, AverageWeights(0.9))
    whole.save(tmp_path / "half", include=whole.saves_also)
    half = weights(whole.policy)
    whole.learn(64, AverageWeights(0.9), reset_num_timesteps=False)
    loaded = cls.load(tmp_path / "half", device="cpu")
    assert torch.equal(weights(loaded.policy), half)
    env = "Pendulum-v1" if cls is SAC else "CartPole-v1"
    resumed = cls.load(tmp_path / "half", env=env, resume=True, force_reset=False, device="cpu")
    resumed.learn(64, AverageWeights(0.9), reset_num_timesteps=False)
    for ours, theirs in (
        (whole.policy, resumed.policy),
        (whole.learner.average.module, resumed.learner.average.module),
    ):
        assert torch.equal(weights(ours), weights(theirs))
    assert int(whole.learner.average.n_averaged) == int(resumed.learner.average.n_averaged)


def test_without_the_callback_training_continues_with_the_weights_that_are_trained() -> None:
    plain = make().learn(60)
    plain.learn(40, reset_num_timesteps=False)
    model = make().learn(60, AverageWeights(0.9))
    model.learn(40, reset_num_timesteps=False)
    assert torch.equal(weights(model.policy), weights(plain.policy))
    assert not model.learner.average.acts


def test_it_averages_what_several_learners_train() -> None:
    one = make(A2C, n_steps=8).learn(80, AverageWeights(0.5))
    two = make(A2C, n_steps=8, n_learners=2, transport="local").learn(40, AverageWeights(0.5))
    two.learn(40, AverageWeights(0.5), reset_num_timesteps=False)
    torch.testing.assert_close(weights(two.policy), weights(one.policy), rtol=0, atol=1e-4)
    torch.testing.assert_close(
        weights(two.learner.average.module), weights(one.learner.average.module), rtol=0, atol=1e-4
    )


def test_it_averages_gradient_steps_on_a_dataset() -> None:
    data, watch = collect("Pendulum-v1", None, 200, seed=0), Watches()
    small: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 16, "device": "cpu", "seed": 0}
    IQL("MlpPolicy", data, **small).learn(30, watch)
    model = IQL("MlpPolicy", data, **small).learn(30, AverageWeights(0.9))
    expected = averaged(watch.seen, 0.9)
    torch.testing.assert_close(weights(model.policy), expected, rtol=0, atol=bound(120, 2))


@pytest.mark.parametrize("compiles", one_of_each([False, True], True))
def test_a_compiled_program_sees_the_exchange(compiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyak.learning.engine.program import Program

    monkeypatch.setattr(Program, "compile", lambda self: None)
    plain = make(compile=compiles).learn(100)
    model = make(compile=compiles).learn(60, AverageWeights(0.9, n_steps=10, callback=lambda a, b: True))
    model.learn(40, AverageWeights(0.9), reset_num_timesteps=False)
    assert torch.equal(weights(model.learner.average.module), weights(plain.policy))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay": 1.5}, "decay=1.5 cannot be used: it must be a number in"),
        ({"after": -1}, "after=-1 cannot be used: it must be an integer of at least 0"),
        ({"n_steps": 0}, "n_steps must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AverageWeights(**options)


def test_a_table_is_no_network() -> None:
    with pytest.raises(ValueError, match="AverageWeights averages the weights of a policy that gradients train"):
        QLearning("FrozenLake-v1").learn(10, AverageWeights())
