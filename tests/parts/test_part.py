"""What a model does with its parts: it makes those that its classes name, and calls them at their moments."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

import polyak
from polyak import DQN, PPO, custom
from polyak.hyperparameters.declaration import HyperparameterError

SMALL = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu", "seed": 0, "compile": False}
ROLLS = {**SMALL, "n_steps": 16, "batch_size": 16, "n_epochs": 1}


class Moments(custom.Part):
    """Notes at which moments it was called."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.seen: list[str] = []

    def check(self) -> None:
        self.seen.append("check")

    def prepare(self) -> None:
        self.seen.append(f"prepare, without networks: {self.model.policy is None}")

    def build(self) -> None:
        self.seen.append(f"build, with a runner: {self.model.runner is not None}")

    def check_ready(self, first: bool) -> None:
        self.seen.append(f"ready {first}")

    def adopt(self, name: str, before: Any) -> None:
        self.seen.append(f"{name}: {before}")

    def begin(self, reset: bool) -> None:
        self.seen.append(f"begin {reset}")


@dataclass(eq=False, repr=False)
class Watched(PPO):
    """PPO with a part more."""

    made_of: ClassVar = {"moments": Moments}


def test_a_part_is_called_at_its_moments() -> None:
    model: Any = Watched("MlpPolicy", "CartPole-v1", **ROLLS)
    built = ["check", "prepare, without networks: True", "build, with a runner: True", "ready True"]
    assert model.moments.seen == built
    model.gamma = 0.5
    assert model.moments.seen[4:] == ["check", "gamma: 0.99"]
    model.learn(16)
    assert model.moments.seen[6:] == ["ready False", "begin True"]
    assert list(model.parts) == ["rollouts", "moments"]


def test_a_part_of_the_same_name_takes_the_place_of_the_one_above() -> None:
    class Half(custom.Rollouts):
        def updates_per_rollout(self, rows: int) -> int:
            return 7

    @dataclass(eq=False, repr=False)
    class Own(Watched):
        """With rollouts of its own."""

        made_of: ClassVar = {"rollouts": Half}

    model: Any = Own("MlpPolicy", "CartPole-v1", **ROLLS)
    assert list(model.parts) == ["rollouts", "moments"]
    assert model._expected_updates(160) == (70, 16)


def test_the_functions_of_parts_are_called_by_the_loop() -> None:
    seen: list[Any] = []

    class Steps(custom.Part):
        after_step: ClassVar = (lambda model: seen.append(model.num_timesteps),)
        storing: ClassVar = (lambda model, step: step._replace(rewards=step.rewards + 5),)
        watching: ClassVar = (lambda model, metrics: seen.append(sorted(metrics)),)

    @dataclass(eq=False, repr=False)
    class Own(DQN):
        """With functions that its loop calls."""

        made_of: ClassVar = {"steps": Steps}

    options = {**SMALL, "learning_starts": 4, "batch_size": 4, "train_freq": 2, "buffer_size": 20}
    model: Any = Own("MlpPolicy", "CartPole-v1", **options).learn(6)
    assert seen == [1, 2, 3, 4, 5, 6, ["loss"]]
    assert (model.replay_buffer.contents()["rewards"] == 6).all()


def test_kept_attributes_are_in_files(tmp_path: Path) -> None:
    @dataclass(eq=False, repr=False)
    class Own(PPO):
        """With numbers that files hold."""

        made_of: ClassVar = {"kept": partial(custom.KeptAttributes, names={"rounds": "_rounds", "mood": "_mood"})}
        _rounds, _mood = 0, "calm"

    model: Any = Own("MlpPolicy", "CartPole-v1", **ROLLS)
    model._rounds, model._mood = 3, "angry"
    model.save(tmp_path / "model")
    loaded: Any = Own.load(tmp_path / "model")
    assert (loaded._rounds, loaded._mood) == (3, "angry")


def test_arguments_of_the_policy_are_handed_on_and_not_given_twice() -> None:
    @dataclass(eq=False, repr=False)
    class Wide(PPO):
        """With the width of its policy as a hyper-parameter."""

        _: KW_ONLY
        log_std_init: float = -1.0
        """First logarithm of the deviation."""
        made_of: ClassVar = {"network": custom.of_policy("log_std_init")}

    options = {key: value for key, value in ROLLS.items() if key != "policy_kwargs"}
    model: Any = Wide("MlpPolicy", "Pendulum-v1", **options)
    assert model.policy.log_std.item() == -1
    with pytest.raises(HyperparameterError, match=r"log_std_init=-1.0 says otherwise"):
        Wide("MlpPolicy", "Pendulum-v1", policy_kwargs={"log_std_init": 0.5}, **options)


def test_a_method_of_a_part_is_one_of_the_model() -> None:
    model = polyak.SAC("MlpPolicy", "Pendulum-v1", buffer_size=20, **SMALL)
    assert polyak.SAC.save_replay_buffer.__name__ == "save_replay_buffer"
    assert "without pickle" in (polyak.SAC.save_replay_buffer.__doc__ or "")
    with pytest.raises(AttributeError):
        polyak.PPO.save_replay_buffer  # type: ignore[attr-defined]  # noqa: B018
    assert callable(model.save_replay_buffer)


def test_what_parts_have_taken_over_is_named_where_a_class_still_has_it() -> None:
    with pytest.warns(UserWarning, match=r"Old\.lesson is never read: it belongs to a part"):

        class Old(PPO):
            def lesson(self, minibatches: Any) -> Any:
                return None
