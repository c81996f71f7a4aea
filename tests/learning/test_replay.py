"""Gradient steps replayed without a compiler: the numbers of the plain step, to rounding, whatever happens."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from polyak import PPO, SAC
from polyak.envs.testing import FakeImageEnv
from polyak.experience import Transition
from polyak.learning.engine import engine
from polyak.learning.engine.replay import ReplayedProgram
from tests.pairs import one_of_each

from .changes import (
    a_hook,
    assert_same,
    loaded_optimizer,
    near,
    other_activation,
    other_option,
    replaced_network,
    sac,
    weights,
)


def ppo(env: Any = "CartPole-v1", policy: str = "MlpPolicy", **options: Any) -> PPO:
    options = {"n_steps": 32, "batch_size": 16, "n_epochs": 2, "policy_kwargs": {"net_arch": [8]}} | options
    return PPO(policy, env, device="cpu", seed=0, **options)


def moments(model: Any) -> dict[str, Tensor]:
    states = [state for optimizer in model.learner.optimizers.values() for state in optimizer.state.values()]
    return {f"{i} {name}": state[name] for i, state in enumerate(states) for name in state}


# -- what it is made of ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"env": FakeImageEnv(screen_height=40, screen_width=40), "policy": "CnnPolicy", "policy_kwargs": None},
        {"precision": "bfloat16"},
        {"target_kl": 1e-4, "learning_rate": 3e-3},
        {"policy_kwargs": {"net_arch": [8], "optimizer_kwargs": {"weight_decay": 0.1, "l1": 0.01}}},
        pytest.param({"policy_kwargs": {"net_arch": [8], "optimizer_class": torch.optim.SGD}}, marks=pytest.mark.slow),
        pytest.param({"n_learners": 2, "transport": "local"}, marks=pytest.mark.slow),
    ],
)
def test_whatever_a_step_is_made_of(options: dict[str, Any]) -> None:
    plain, replayed = (ppo(compile=choice, **options).learn(96) for choice in (False, "replay"))
    assert replayed.engine.status == "replayed"
    assert plain.learner.steps == replayed.learner.steps
    rounding = 2.0**16 if "precision" in options else 1.0  # of a bfloat16 to that of a float32
    assert_same(weights(plain), weights(replayed), near(plain, plain.learning_rate) * rounding)


def other_memory(model: SAC) -> None:
    for parameter in model.policy.parameters():
        parameter.data = parameter.data.clone()


def loaded_weights(model: SAC) -> None:
    model.set_parameters({"policy": {k: v + 0.01 for k, v in model.policy.state_dict().items()}}, exact_match=False)


CHANGES = [replaced_network, loaded_optimizer, other_option, a_hook, other_memory, other_activation, loaded_weights]


@pytest.mark.parametrize("changes", one_of_each([CHANGES[3:5], CHANGES], CHANGES[3:5]))
def test_it_agrees_with_the_plain_step_and_notices_what_is_done_to_the_learner(
    changes: list[Callable[[SAC], None]],
) -> None:
    plain, replayed = (sac(compile=choice).learn(40) for choice in (False, "replay"))
    assert plain._last_obs.tobytes() == replayed._last_obs.tobytes()  # acting drew the same numbers too
    assert_same(weights(plain), weights(replayed), near(plain))
    for change in changes:
        for model in (plain, replayed):
            change(model)
            torch.manual_seed(1)
            np.random.seed(1)
            for _ in range(2):
                model.learner.update(Transition.from_samples(model.replay_buffer.sample(16), model.gamma))
        assert_same(weights(plain), weights(replayed), near(plain))
    assert replayed.engine.status == "replayed"


def test_a_copy_of_a_model_replays_on_its_own_weights() -> None:
    model = sac(compile="replay").learn(40)
    twin = copy.deepcopy(model)
    before = weights(model)
    twin.learn(20, reset_num_timesteps=False)
    assert_same(before, weights(model), 0.0)
    assert not torch.equal(twin.learner.state_dict()["policy.actor.mu.bias"], before["policy.actor.mu.bias"])


@pytest.mark.parametrize("make", one_of_each([sac, ppo], ppo))
def test_a_run_that_was_saved_and_loaded_is_the_run_undisturbed(make: Callable[..., Any], tmp_path: Path) -> None:
    whole = make(compile="replay").learn(64)
    whole.save(tmp_path / "half", include=whole.saves_also)
    whole.learn(64, reset_num_timesteps=False)
    resumed = type(whole).load(tmp_path / "half", env=whole.get_env().envs[0].spec.id, resume=True, device="cpu")
    resumed.learn(64, reset_num_timesteps=False)
    assert_same(weights(whole), weights(resumed), 0.0)
    assert_same(moments(whole), moments(resumed), 0.0)


def test_equal_seeds_give_equal_weights_whatever_lies_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))
    first, second = (weights(sac(compile="replay").learn(40)) for _ in range(2))
    assert_same(first, second, 0.0)
    assert list(tmp_path.iterdir()) == []  # nothing is kept


def test_what_cannot_be_replayed_but_must_be_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="compile='replay', but .* could not be replayed: .*Adagrad.*Use compile='a"):
        sac(compile="replay", policy_kwargs={"optimizer_class": torch.optim.Adagrad}).learn(60)


# -- the choice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", one_of_each([sac, ppo], sac))
def test_by_itself_it_begins_at_an_update_of_the_learner(
    make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a training in pieces makes the numbers of one that is whole."""
    monkeypatch.setattr(engine, "REPLAYED_FROM", 10)
    whole = make().learn(128)
    plain = make(compile=False).learn(128)
    piece = make().learn(24)
    assert piece.engine.status.startswith("replayed from update 10 on")
    for end in (64, 128):
        piece.save(tmp_path / "piece", include=piece.saves_also)
        piece = type(piece).load(tmp_path / "piece", env=piece.get_env().envs[0].spec.id, resume=True, device="cpu")
        piece.learn(end - piece.num_timesteps, reset_num_timesteps=False)
    assert piece.engine.status == whole.engine.status == "replayed"
    assert_same(weights(whole), weights(piece), 0.0)
    assert_same(moments(whole), moments(piece), 0.0)
    assert_same(weights(whole), weights(plain), near(plain))


def test_one_line_says_from_which_update_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "REPLAYED_FROM", 5)
    model = sac(verbose=1).learn(40)
    model.learn(20, reset_num_timesteps=False)
    said = [line for line in capsys.readouterr().out.splitlines() if "gradient steps" in line]
    assert said == ["gradient steps are replayed from update 6 on"]


def test_where_it_fails_steps_stay_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "REPLAYED_FROM", 5)

    def fail(self: Any) -> None:
        raise ValueError("no plan\nmore words")

    monkeypatch.setattr(ReplayedProgram, "compile", fail)
    with pytest.warns(
        UserWarning, match="training continues uncompiled, since .* could not be replayed: no plan"
    ) as said:
        model = sac().learn(60)
    assert len(said) == 1
    assert "\n" not in str(said[0].message)
    assert model.engine.status.startswith("uncompiled: no plan")
    assert_same(weights(model), weights(sac(compile=False).learn(60)), 0.0)
