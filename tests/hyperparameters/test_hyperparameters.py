"""Hyper-parameters: what annotations let pass, how they read, and what help() and type checkers know of them."""

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
from torch import Tensor

from polyak import PPO, SAC
from polyak.algorithms.sac import SACLearner
from polyak.hyperparameters import docstrings as documentation
from polyak.hyperparameters.changing import NETWORKS, Reload, WithNetworks, why_fixed
from polyak.hyperparameters.declaration import (
    Count,
    Fraction,
    HyperparameterError,
    Natural,
    NonNegative,
    Only,
    Positive,
    Scheduled,
    described,
    fitted,
)
from polyak.learning.learner import Learner, Tunable
from polyak.schedules import LinearSchedule, Schedule
from tests.warm import python

EVEN = Annotated[int, Only("an even integer", lambda n: n % 2 == 0)]


@pytest.mark.parametrize(
    ("declaration", "good", "bad", "words"),
    [
        (int, [3, np.int64(3), 1e6], ["3", 2.5, True, None, np.nan], "an integer"),
        (float, [3, 0.5, np.float32(0.5), np.inf], ["0.5", True, None, np.nan, 1j], "a number"),
        (bool, [True, np.bool_(False), 0, 1], [2, "yes", None, 0.0], "True or False"),
        (Fraction, [0, 1, 0.5], [-0.1, 1.1, "0.5"], "a number in [0, 1]"),
        (Positive, [1e-9], [0, -1], "a positive number"),
        (NonNegative, [0], [-1e-9], "a number of at least 0"),
        (Count, [1], [0, 1.5], "an integer of at least 1"),
        (Natural, [0], [-1], "an integer of at least 0"),
        (EVEN | None, [2, None, 4.0], [3, "2"], "an even integer or None"),
        (
            Positive | Schedule,
            [0.1, LinearSchedule(1, 0, 1), lambda _: 0.1],
            ["lin_0.1", -1, None],
            "a positive number or a function of the remaining progress",
        ),
        (bool | Literal["auto"], [True, "auto"], ["Auto", None], "True or False, or 'auto'"),
        (dict[str, Any] | None, [{}, None], [[64]], "a dict or None"),
        (int | tuple[int, str], [4, (4, "step"), [4, "step"]], ["step", (4,), (4.5, "step")], None),
        (type[Learner] | None, [Learner, SACLearner, None], ["Learner", int, 3], "a subclass of Learner or None"),
        (Callable[[int], int], [abs], [3], "a function"),
        (Path, [Path("x")], ["x"], "an instance of Path"),
        (Any, [object()], [], "anything"),
    ],
)
def test_what_an_annotation_lets_pass(declaration: Any, good: list[Any], bad: list[Any], words: str | None) -> None:
    for value in good:
        assert fitted("x", value, declaration) == value
    for value in bad:
        with pytest.raises(HyperparameterError, match="^x=.* cannot be used: it must be "):
            fitted("x", value, declaration)
    assert words is None or described(declaration) == words


def test_an_integer_written_as_a_float_becomes_one() -> None:
    assert type(fitted("x", 1e6, Count)) is int
    assert type(fitted("x", np.float64(3), Count | None)) is int
    assert type(fitted("x", 1.0, float)) is float


def test_the_way_out_of_strings() -> None:
    with pytest.raises(HyperparameterError, match="Write x=3, without quotes.$"):
        fitted("x", "3", Count)
    with pytest.raises(HyperparameterError, match="at least 1.$"):
        fitted("x", "-3", Count)
    with pytest.raises(HyperparameterError, match="Pass the class itself, not its name.$"):
        fitted("x", "Learner", type[Learner] | None)


class ColdLearner(SACLearner):
    """SAC's, with one more hyper-parameter."""

    warmth: Tunable[Tensor]
    every: Tunable[int]


@dataclass(eq=False, repr=False)
class Cold(SAC):
    """One more hyper-parameter than SAC."""

    _: KW_ONLY
    warmth: Fraction = 0.5
    """How warm it is, in [0, 1]."""
    every: Count = 2
    """Steps between two of something;
    more of it."""

    learner_class: ClassVar[type[Learner]] = ColdLearner


def test_a_hyperparameter_takes_one_declaration_and_one_mention_in_the_learner() -> None:
    model = Cold("MlpPolicy", "Pendulum-v1", warmth=0.25, buffer_size=50, learning_starts=5, batch_size=4, device="cpu")
    assert isinstance(model.learner, ColdLearner)
    assert model.learner.warmth.shape == ()
    assert float(model.learner.warmth) == 0.25
    assert model.learner.every == 2
    model.warmth, model.every = 1.0, 3
    model.learn(8)
    assert float(model.learner.warmth) == 1.0
    assert model.learner.every == 3
    assert "warmth" not in model.learner.networks()
    with pytest.raises(HyperparameterError, match=r"warmth=2 cannot be used: it must be a number in \[0, 1\]"):
        Cold("MlpPolicy", "Pendulum-v1", warmth=2)
    assert "    warmth (float, default 0.5): How warm it is, in [0, 1]." in (Cold.__doc__ or "").splitlines()
    assert "Steps between two of something; more of it." in (Cold.__doc__ or "")
    assert "    tau (float, default 0.005): Rate at which" in (Cold.__doc__ or "")


@dataclass(eq=False, repr=False)
class Frozen(Cold):
    """Some of it cannot change."""

    _: KW_ONLY
    every: Reload[Count] = 2
    warmth: WithNetworks[Fraction | None] = 0.5  # type: ignore[assignment]


@dataclass(eq=False, repr=False)
class Thawed(Frozen):
    """With another default."""

    _: KW_ONLY
    every: Count = 5


def test_marks_say_what_cannot_change_and_nothing_else() -> None:
    reason = "the model is built with it. Make a new one, or save this one and use load(path, every=...)."
    assert [why_fixed(cls, "every") for cls in (Cold, Frozen, Thawed)] == [None, reason, reason]
    assert why_fixed(Thawed, "warmth") == NETWORKS
    assert why_fixed(Thawed, "env") == "use model.set_env(env)."
    for kind in (Count, EVEN | None, type[Learner] | None, bool | Literal["auto"], Any):
        assert described(Reload[kind]) == described(kind)  # type: ignore[valid-type]
    with pytest.raises(HyperparameterError, match="^x=0 cannot be used: it must be an integer of at least 1.$"):
        fitted("x", 0, Reload[Count])
    with pytest.raises(HyperparameterError, match="Pass the class itself, not its name.$"):
        fitted("x", "Learner", Reload[type[Learner] | None])
    assert "    warmth (float | None, default 0.5): How warm it is" in (Thawed.__doc__ or "")
    assert "every: int = 5" in str(inspect.signature(Thawed))


def test_limits_of_values_that_move_may_be_switched_on_later() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, n_epochs=1, device="cpu").learn(8)
    assert model.learner.clip_range_vf is None
    model.clip_range_vf = model.target_kl = 0.2
    model.learn(8)
    assert model.learner.clip_range_vf == model.learner.target_kl == 0.2


@dataclass(eq=False, repr=False)
class Cooling(Cold):
    """Its warmth moves."""

    _: KW_ONLY
    warmth: Scheduled[Fraction | Schedule] = 0.5  # type: ignore[assignment]


@dataclass(eq=False, repr=False)
class Warmer(Cooling):
    """With another default."""

    _: KW_ONLY
    warmth: Fraction = 0.75


def test_a_scheduled_number_is_a_function_of_the_remaining_progress() -> None:
    model: Any = Warmer("MlpPolicy", "Pendulum-v1", buffer_size=50, learning_starts=5, batch_size=4, device="cpu")
    assert model.warmth(1.0) == 0.75
    model.warmth = 0.25
    assert model.warmth(0.0) == 0.25
    model.learn(8)
    assert float(model.learner.warmth) == 0.25
    ranged: Any = PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu")
    assert (ranged.clip_range(0.5), ranged.clip_range_vf) == (0.2, None)
    ranged.clip_range_vf = 0.1
    assert ranged.clip_range_vf(0.5) == 0.1


def test_help_without_source_still_names_every_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: object) -> str:
        raise OSError("could not get source code")

    documentation.sentences.cache_clear()
    documentation._with_arguments.cache_clear()
    monkeypatch.setattr(documentation.inspect, "getsource", missing)
    try:
        assert "    tau (float, default 0.005)" in (SAC.__doc__ or "").splitlines()
    finally:
        documentation.sentences.cache_clear()
        documentation._with_arguments.cache_clear()


def test_importing_reads_no_source() -> None:
    code = """
        import polyak.algorithms.sac, polyak.compat.sb3_face.algorithms
        from polyak.hyperparameters.docstrings import sentences

        assert sentences.cache_info().misses == 0
        assert "Args:" in polyak.algorithms.sac.SAC.__doc__
        assert sentences.cache_info().misses > 0
    """
    python(["-c", textwrap.dedent(code)], check=True)


@pytest.mark.slow
def test_type_checkers_know_arguments_and_attributes(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
            import gymnasium as gym
            from torch import Tensor
            from polyak.algorithms.sac import SAC, SACLearner
            from polyak.envs import VecEnv
            from polyak.nn.policies.base import Policy

            model = SAC("MlpPolicy", gym.make("Pendulum-v1"), tau=0.1, device="cpu")
            policy: Policy = model.policy
            env: VecEnv | None = model.env
            SAC("MlpPolicy", "Pendulum-v1", train_freq=(1, "step"), tensorboard_log=None)

            def read(learner: SACLearner) -> Tensor:
                return learner.tau + learner.steps

            SAC(3, "Pendulum-v1")  # wrong
            SAC("MlpPolicy", 4)  # wrong
            SAC("MlpPolicy", None, tau="0.1")  # wrong
            SAC("MlpPolicy", None, tua=0.1)  # wrong
            SAC("MlpPolicy", None, compile="yes")  # wrong
        """)
    )
    text, _, _ = api.run(["--python-version", "3.11", "--cache-dir", str(tmp_path), str(tmp_path / "program.py")])
    lines = (tmp_path / "program.py").read_text().splitlines()
    wrong = {f"program.py:{number}:" for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    found = {f"program.py:{line.split(':')[1]}:" for line in text.splitlines() if "program.py:" in line}
    assert found == wrong, text
