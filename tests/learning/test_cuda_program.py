"""CUDA graphs of gradient steps, with a stand-in that repeats on the CPU what a recording repeats on a GPU."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from polyak import A2C, DQN, PPO, SAC
from polyak.algorithms import REGISTRY, get
from polyak.experience import Transition
from polyak.experience.batch import gathered
from polyak.learning.engine import cuda_program, engine, program
from polyak.learning.engine.cuda_program import CudaProgram
from polyak.learning.engine.optimizer_rules import UntraceableError, check_traceable, device_factors, factors
from polyak.learning.engine.pytree import tensors_of
from polyak.learning.learner import Learner
from tests.pairs import one_of_each
from tests.tolerance import bound
from tests.trials import trial

from . import changes
from .changes import loaded_optimizer, near, replaced_network, sac, weights


class Repeater:
    """Records by keeping; like a CUDA graph it continues with the memory that the arguments had then."""

    made: int

    def __init__(self, device: torch.device) -> None:
        type(self).made += 1

    def record(self, run: Callable[..., Sequence[Tensor]], arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        self._run, self._memory = run, [argument.detach() for argument in arguments]
        with torch.no_grad():
            self._outputs = [output.clone() for output in run([memory.clone() for memory in self._memory])]
        return self._outputs

    def replay(self) -> None:
        with torch.no_grad():
            for output, new in zip(self._outputs, self._run(self._memory), strict=True):
                output.copy_(new)


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Learners on the CPU run as those on a GPU do, but for the fusing of operations, which takes seconds."""

    def missing(*_: Any) -> None:
        raise ImportError("no Triton here\nand more")

    Repeater.made = 0
    monkeypatch.setattr(CudaProgram, "recorder", Repeater)
    if "slow" not in request.keywords:
        monkeypatch.setattr(cuda_program, "fused", missing)
    monkeypatch.setitem(engine.COMPILED, "cpu", CudaProgram)
    monkeypatch.setattr(Learner, "gathers_late", False)  # no rows of main memory on a GPU


def ppo(**options: Any) -> PPO:
    return PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=3, seed=0, device="cpu", **options)


def batch_of(model: Any) -> Transition:
    return Transition.from_samples(model.replay_buffer.sample(16), model.gamma)


def assert_same(ours: Any, theirs: Any, rate: float = 3e-4) -> None:
    changes.assert_same(weights(ours), weights(theirs), near(ours, rate, rows=getattr(ours, "batch_size", None) or 5))


@pytest.mark.parametrize(
    "train",
    [
        pytest.param(lambda compile: sac(compile=compile).learn(80), marks=pytest.mark.slow),
        lambda compile: sac(compile=compile, learning_rate=lambda left: 1e-2 * left).learn(80),
        pytest.param(
            lambda compile: ppo(compile=compile, clip_range_vf=0.2, learning_rate=lambda left: 1e-2 * left).learn(192),
            marks=pytest.mark.slow,
        ),
        lambda compile: ppo(compile=compile, target_kl=1e-4, learning_rate=3e-3).learn(192),
        pytest.param(
            lambda compile: A2C("MlpPolicy", "CartPole-v1", seed=0, device="cpu", compile=compile).learn(100),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda compile: A2C(
                "MlpPolicy", "CartPole-v1", use_rms_prop=False, device="cpu", seed=0, compile=compile
            ).learn(100),
            marks=pytest.mark.slow,
        ),
        lambda compile: DQN(
            "MlpPolicy", "CartPole-v1", learning_starts=50, device="cpu", seed=0, compile=compile, buffer_size=500
        ).learn(150),
    ],
    ids=["sac", "sac with a schedule", "ppo", "ppo that stops early", "a2c", "a2c with adam", "dqn"],
)
def test_a_recorded_training_is_the_plain_one(train: Callable[[bool], Any]) -> None:
    plain, recorded = train(False), train(True)
    assert recorded.engine.status == "compiled: one CUDA graph of torch's own kernels (ImportError: no Triton here)"
    assert Repeater.made > 0
    assert plain._n_updates == recorded._n_updates
    assert_same(plain, recorded, rate=1e-2)  # the highest of them
    ours, theirs = (model.learner.optimizers.items() for model in (plain, recorded))
    for (_, mine), (_, other) in zip(ours, theirs, strict=True):
        for a, b in zip(mine.state.values(), other.state.values(), strict=True):
            assert float(a["step"]) == float(b["step"])


@pytest.mark.slow
def test_a_fused_step_is_the_plain_one() -> None:
    plain, fused = sac(compile=False).learn(40), sac(compile=True).learn(40)
    assert fused.engine.status == "compiled: one CUDA graph of fused kernels"
    assert_same(plain, fused)


def test_one_recording_of_a_method_serves_a_whole_training() -> None:
    sac(compile=True).learn(80)
    assert Repeater.made == 1
    ppo(compile=True).learn(192)
    assert Repeater.made == 1 + 2  # its steps, and the evaluation of its rollouts


def test_recording_changes_nothing() -> None:
    model = sac(compile=False).learn(40)
    before, random = copy.deepcopy(model.learner.state_dict()), torch.get_rng_state()
    states = copy.deepcopy(model.actor.optimizer.state_dict())
    CudaProgram(model.learner, "gradient_step", batch_of(model), (True,)).compile()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.learner.state_dict().items())
    for i, state in model.actor.optimizer.state_dict()["state"].items():
        assert all(torch.equal(value, states["state"][i][key]) for key, value in state.items())
    assert torch.equal(torch.get_rng_state(), random)


def test_what_a_step_returned_is_not_overwritten_by_the_next() -> None:
    model = sac(compile=True).learn(40)
    first = model.learner.update(batch_of(model))
    kept = {name: value.clone() for name, value in first.metrics.items()}
    td_error = first.td_error.clone()
    second = model.learner.update(batch_of(model))
    assert sorted(first.metrics) == ["actor_loss", "critic_loss", "ent_coef", "ent_coef_loss"]
    assert all(torch.equal(first.metrics[name], kept[name]) for name in kept)
    assert torch.equal(first.td_error, td_error)
    assert not torch.equal(first.td_error, second.td_error)
    assert first.td_error.shape == (16,)
    assert first.skipped is None


def test_a_batch_is_not_copied_twice_but_a_changed_one_is() -> None:
    model = sac(compile=False).learn(40)
    batch = batch_of(model)
    step = CudaProgram(model.learner, "gradient_step", batch, (True,))
    step.compile()
    leaves = tensors_of(batch)
    step(leaves)
    rewards = step._batch[2]
    rewards.fill_(7.0)
    step(leaves)
    assert bool((rewards == 7.0).all())
    leaves[2].add_(1.0)
    step(leaves)
    assert torch.equal(rewards, leaves[2])


def moved_memory(model: SAC) -> None:
    for parameter in model.policy.parameters():
        parameter.data = parameter.data.clone()


@pytest.mark.parametrize("change", one_of_each([moved_memory, loaded_optimizer, replaced_network], replaced_network))
def test_it_records_again_when_the_learner_has_other_tensors(change: Callable[[SAC], None]) -> None:
    plain, recorded = (sac(compile=choice).learn(40) for choice in (False, True))
    for model in (plain, recorded):
        change(model)
        torch.manual_seed(1)
        np.random.seed(1)
        for _ in range(4):
            model.learner.update(batch_of(model))
    assert Repeater.made == 2
    assert_same(plain, recorded)


def test_a_batch_elsewhere_runs_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(engine.COMPILED, "cpu")
    model = sac()
    model.engine.expect(10_000_000, 64)
    model.learn(40)
    assert model.engine.status == "uncompiled: programs run on cuda devices, and the learner is on cpu"


# -- optimizers on a GPU -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RAdam, torch.optim.RMSprop, torch.optim.SGD]
)
def test_factors_on_a_device_are_those_of_the_host(make: Callable[..., torch.optim.Optimizer]) -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = make([parameter], lr=3e-4)
    group = optimizer.param_groups[0]
    for _ in range(8):  # after five RAdam steps otherwise
        parameter.grad = torch.ones(3)
        optimizer.step()
        step = optimizer.state[parameter].get("step")
        ours = device_factors(optimizer, group, torch.tensor(3e-4, dtype=torch.float64), step)
        assert ours.dtype is torch.float32
        torch.testing.assert_close(ours, torch.tensor(factors(optimizer, group)), rtol=bound(), atol=0)


def test_adams_steps_must_be_counted_where_its_parameters_are() -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(3)
    optimizer.step()
    check_traceable(optimizer, parameter.device)
    with pytest.raises(UntraceableError, match="fused=True"):
        check_traceable(optimizer, torch.device("meta"))


# -- steps on a GPU ----------------------------------------------------------------------------------------------------


class Devices(TorchDispatchMode):
    """Notes on what devices the results of operations are."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        self.seen += [leaf.device.type for leaf in tree_leaves(results) if isinstance(leaf, Tensor)]
        return results


OF_EACH_KIND = ("ppo", "recurrent_ppo", "appo", "rainbow", "sac", "crossq", "cql", "bc", "mbpo")
ENOUGH = 45
"""Calls of :attr:`Learner.run` after which each step that a short training takes has been taken, rare ones too."""


def steps_of(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[Any, ...], tuple[Any, Any]]:
    """The gradient steps of a short training: method and static arguments -> the learner and its last batch."""
    taken: dict[tuple[Any, ...], tuple[Any, Any]] = {}
    calls = 0

    def run(self: Learner, method: Callable[..., Any], batch: Any, *static: Any) -> Any:
        nonlocal calls
        calls += 1
        taken[(method.__name__, *static)] = self, gathered(batch)
        return self.eagerly(method, batch, *static)

    with monkeypatch.context() as context:
        context.setattr(Learner, "run_by", lambda self, _: vars(self).update(run=partial(run, self)))
        model = get(name)(**{"policy": "MlpPolicy", "device": "cpu", **trial(get(name))})
        model.learn(130, callback=lambda *_: calls < ENOUGH)
    return {step: made for step, made in taken.items() if made[0] is model.learner}


@pytest.mark.parametrize(
    "name", one_of_each(sorted(name for name in REGISTRY if hasattr(get(name), "learner_class")), *OF_EACH_KIND)
)
def test_steps_stay_on_their_device_and_do_not_wait_for_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On tensors without values, which stand for those of a GPU: no step reads a value or makes a tensor elsewhere."""
    steps = steps_of(name, monkeypatch)
    assert steps
    devices = Devices()

    def trace(step: Callable[..., Any], changed: Sequence[Tensor], given: Sequence[Tensor], _: Any) -> GraphModule:
        tensors = [*changed, *given]
        empty = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in tensors]
        for ours, theirs in zip(tensors, empty, strict=True):
            theirs.requires_grad_(ours.requires_grad)
        with devices:
            step(*empty)
        return GraphModule(nn.Module(), Graph())

    monkeypatch.setattr(program, "trace", trace)
    monkeypatch.setattr(program, "_hoist_random_numbers", lambda graph, *_: ([], []))
    for (method, *static), (learner, batch) in steps.items():
        program.Program(learner, method, batch, tuple(static))
    assert len(devices.seen) > (20 if name == "ars" else 50)
    assert set(devices.seen) == {"meta"}
