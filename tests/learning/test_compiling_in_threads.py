"""Other threads predict and save while a gradient step is traced and compiled: neither notices the other."""

import io
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from polyak import DQN, PPO, SAC
from polyak.learning.engine import engine as engines
from polyak.learning.engine.optimizer_rules import UnsteppedError
from polyak.learning.engine.program import Program
from polyak.learning.engine.quiet import quiet
from polyak.learning.engine.shield import unseen_by_others
from polyak.learning.learner import Learner

from .changes import weights

PREDICTING, SAVING = 8, 2
COMMON: dict[str, Any] = {"policy_kwargs": {"net_arch": [8, 8]}, "seed": 0, "device": "cpu"}
OFF_POLICY = {"learning_starts": 20, "batch_size": 16, "buffer_size": 200, "train_freq": 1}


def ppo(**options: Any) -> Any:
    return PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=16, n_epochs=2, **COMMON | options)


def sac(**options: Any) -> Any:
    return SAC("MlpPolicy", "Pendulum-v1", **OFF_POLICY, **COMMON | options)


def dqn(**options: Any) -> Any:
    return DQN("MlpPolicy", "CartPole-v1", **OFF_POLICY, **COMMON | options)


def assert_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


class Others:
    """Threads that use a model meanwhile, and what went wrong in them."""

    def __init__(self, model: Any) -> None:
        self.model, self.errors = model, list[str]()
        self.calls = {"predict": 0, "save": 0}
        self._observation = model.observation_space.sample()

    def predict(self) -> None:
        self.model.predict(self._observation, deterministic=True)

    def save(self) -> None:
        self.model.save(io.BytesIO())

    def once(self, what: Callable[[], None]) -> None:
        try:
            what()
            self.calls[what.__name__] += 1
        except Exception as error:
            self.errors.append(f"{what.__name__}: {error!r}")

    def threads(self, run: Callable[[Callable[[], None]], None]) -> list[threading.Thread]:
        jobs = [self.predict] * PREDICTING + [self.save] * SAVING
        threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        return threads

    def all_once(self) -> None:
        for thread in self.threads(self.once):
            thread.join()

    @contextmanager
    def always(self) -> Iterator[None]:
        stop = threading.Event()

        def run(what: Callable[[], None]) -> None:
            while not stop.wait(0.01):
                self.once(what)

        threads = self.threads(run)
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def in_the_middle(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    """``do`` before and after the step, while it is traced."""
    eagerly = Learner.eagerly

    def interrupted(self: Learner, method: Any, batch: Any, *static: Any) -> Any:
        tracing = not isinstance(next(self.parameters()), torch.nn.Parameter)  # but what stands for one
        if tracing:
            do()
        result = eagerly(self, method, batch, *static)
        if tracing:
            do()
        return result

    monkeypatch.setattr(Learner, "eagerly", interrupted)


@pytest.mark.parametrize(
    ("make", "steps"), [(dqn, 30), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((ppo, 96), (sac, 30)))]
)
@pytest.mark.usefixtures("interpreted")
def test_tracing_is_seen_by_no_other_thread(
    make: Callable[..., Any], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = weights(make(compile=True).learn(steps))
    model = make(compile=True)
    others = Others(model)
    in_the_middle(monkeypatch, others.all_once)
    model.learn(steps)
    assert others.errors == []
    assert others.calls["predict"] >= 2 * PREDICTING
    assert others.calls["save"] >= 2 * SAVING
    assert model.engine.status == "compiled"
    assert all(len(known) == 1 for each in model.engine.programs.values() for known in each.values())
    assert_equal(weights(model), alone)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "steps"), [(ppo, 96), (sac, 60), (dqn, 60)])
def test_compiling_is_seen_by_no_other_thread(
    make: Callable[..., Any], steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))
    model = make(compile=True)
    others = Others(model)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-3)
    try:
        with others.always():
            model.learn(steps)
    finally:
        sys.setswitchinterval(interval)
    assert others.errors == []
    assert min(others.calls.values()) > 0
    assert model.engine.status == "compiled"
    known = model.engine.programs["gradient_step"].values()
    assert known
    assert all(programs is not None and len(programs) == 1 for programs in known)
    assert_equal(weights(model), weights(make(compile=True).learn(steps)))  # by the same libraries, without threads


@pytest.mark.usefixtures("interpreted")
def test_predicting_between_gradient_steps_makes_no_further_program(monkeypatch: pytest.MonkeyPatch) -> None:
    model = dqn(compile=True).learn(30)
    (known,) = model.engine.programs["gradient_step"].values()
    monkeypatch.setattr(model.policy, "set_training_mode", lambda mode: None)
    for switched in model.policy.modules():  # one by one, as another thread switches them
        switched.training = not switched.training
        model.train(gradient_steps=1, batch_size=16)
    assert len(known) == 1


@pytest.mark.usefixtures("interpreted")
def test_layers_that_read_the_mode_get_a_program_for_each_mode() -> None:
    model = dqn(compile=True, policy_kwargs={"net_arch": [8]})
    model.q_net.q_net.append(torch.nn.Dropout(0.5))
    model.learn(30)
    (known,) = model.engine.programs["gradient_step"].values()
    model.policy.set_training_mode(False)
    assert not known[0].current


# -- what else is of the whole process --------------------------------------------------------------------------------


class Refusing(torch.fx.Tracer):
    """Refuses modules that it does not trace, as the compiler's own tracer does, and looks away from their parts."""

    def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
        raise NameError("module is not installed as a submodule")

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: Any) -> Any:
        return None


def test_what_a_tracer_puts_into_modules_is_put_there_for_its_thread_only() -> None:
    model = ppo()
    others = Others(model)
    layer = torch.nn.Linear(1, 1)
    refused: list[str] = []

    def traced(x: Any) -> Any:
        others.all_once()
        with pytest.raises(NameError):
            refused.append("here")
            layer(x)
        return x

    with unseen_by_others():
        Refusing().trace(traced)
    assert refused
    assert others.errors == []
    assert others.calls == {"predict": PREDICTING, "save": SAVING}


def test_notes_of_other_threads_stay_out_of_an_exported_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])
    meta = torch.fx.traceback.current_meta
    noted: list[bool] = []
    optimizer.register_state_dict_pre_hook(lambda _: noted.append("custom" in meta))
    monkeypatch.setattr(torch.compiler, "_is_exporting_flag", True)
    with unseen_by_others():
        other = threading.Thread(target=optimizer.state_dict)
        other.start()
        other.join()
        optimizer.state_dict()
    assert noted == [False, True]
    assert "custom" not in meta


def test_warnings_of_other_threads_are_given_while_torchs_own_are_not() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with quiet():
            warnings.warn("torch's", UserWarning, stacklevel=1)
            other = threading.Thread(target=warnings.warn, args=("the user's", UserWarning))
            other.start()
            other.join()
        warnings.warn("a later one", UserWarning, stacklevel=1)
    assert [str(each.message) for each in said] == ["the user's", "a later one"]


def test_a_thread_that_leaves_its_own_filters_later_does_not_keep_ours() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        theirs = warnings.catch_warnings()
        with quiet():
            theirs.__enter__()  # in another thread
        theirs.__exit__(None, None, None)
        with pytest.warns(UserWarning, match="heard"):
            warnings.warn("heard", UserWarning, stacklevel=1)


@pytest.mark.slow
def test_building_draws_no_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not put back afterwards: another thread may have drawn meanwhile, and would draw the same again."""
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))
    model = ppo(compile=False).learn(32)
    program = Program(model.learner, "gradient_step", next(iter(model.rollout_buffer.get(16))))
    before = random.getstate(), str(np.random.get_state()), torch.get_rng_state()
    program.compile()
    assert random.getstate() == before[0]
    assert str(np.random.get_state()) == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


# -- what stays uncompiled says so ------------------------------------------------------------------------------------


def failing(error: Exception) -> Callable[..., None]:
    def fail(*_: Any) -> None:
        raise error

    return fail


def test_a_failed_build_is_a_warning_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", failing(OSError("no compiler\nand a long trace")))
    model = dqn()
    model.engine.expect(10**6, 64)
    with pytest.warns(UserWarning, match="continues uncompiled, since gradient_step could not.*: no compiler") as said:
        model.learn(60)
    assert len(said) == 1
    assert "long trace" not in str(said[0].message)
    assert model.engine.status.startswith("uncompiled: no compiler")


def test_waiting_for_an_optimizer_for_long_is_a_warning_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def make(*_: Any) -> None:
        tried.append(1)
        raise UnsteppedError("the optimizer Adam has not stepped yet")

    monkeypatch.setattr(engines, "PATIENCE", 5)
    model = dqn(compile=True)
    monkeypatch.setattr(model.engine, "_make", make)
    with pytest.warns(UserWarning, match="gradient_step is still uncompiled after 5 calls: the optimizer Adam") as said:
        model.learn(41)  # 21 gradient steps
    assert len(said) == 1
    assert len(tried) == 5 + 4  # each time, then one time in five
    assert model.engine.status == "uncompiled so far: the optimizer Adam has not stepped yet"
