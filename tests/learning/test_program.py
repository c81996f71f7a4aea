"""Gradient steps as programs: the same numbers as the plain step, whatever happens to the learner meanwhile."""

import copy
import math
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyak import A2C, DQN, PPO, SAC, TD3
from polyak.envs import make_vec_env
from polyak.envs.testing import FakeImageEnv
from polyak.experience import Transition
from polyak.learning.engine import engine
from polyak.learning.engine import shared_library as libraries
from polyak.learning.engine.optimizer_rules import TracedOptimizer, check_traceable, factors
from polyak.learning.engine.program import Program
from polyak.learning.engine.pytree import rebuilt, tensors_of
from polyak.learning.learner import Learner, Update
from polyak.nn.backends.tracing import UntraceableError
from polyak.nn.networks.encoders import BaseFeaturesExtractor
from polyak.nn.optim import RMSpropTFLike
from tests.pairs import one_of_each
from tests.tolerance import bound, drift

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

pytestmark = pytest.mark.usefixtures("interpreted_if_quick")


def batches(model: Any, n: int) -> list[Transition]:
    return [Transition.from_samples(model.replay_buffer.sample(16), model.gamma) for _ in range(n)]


# -- optimizers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, lr=1e-2, betas=(0.8, 0.99), eps=1e-5),
        lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
        lambda p: torch.optim.RAdam(p, lr=1e-2, betas=(0.8, 0.99)),
        lambda p: torch.optim.RAdam(p, lr=1e-2, weight_decay=0.1),
        lambda p: torch.optim.RMSprop(p, lr=1e-2, alpha=0.9, eps=1e-5),
        lambda p: torch.optim.RMSprop(p, lr=1e-2, centered=True, momentum=0.5, weight_decay=0.1),
        lambda p: RMSpropTFLike(p, lr=1e-2, alpha=0.9, eps=1e-5),
        lambda p: RMSpropTFLike(p, lr=1e-2, centered=True, momentum=0.5, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=1e-2),
        lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, dampening=0.1, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
    ],
)
def test_rules_do_what_torchs_optimizers_do(make: Callable[..., torch.optim.Optimizer]) -> None:
    generator = torch.Generator().manual_seed(0)
    theirs = [nn.Parameter(torch.randn(3, 4, generator=generator)), nn.Parameter(torch.randn(5, generator=generator))]
    optimizer = make(theirs)
    for step in range(8):
        grads = [torch.randn(p.shape, generator=generator) for p in theirs]
        if step == 1:  # by now there is state to continue from
            ours = [p.detach().clone() for p in theirs]
            states = [copy.deepcopy(optimizer.state[p]) for p in theirs]
            by = torch.empty(len(factors(optimizer, optimizer.param_groups[0])))
            rule = TracedOptimizer(optimizer, [ours], [states], [by])
        if step >= 1:
            by.copy_(torch.tensor(factors(optimizer, optimizer.param_groups[0])))
        for p, grad in zip(theirs, grads, strict=True):
            p.grad = grad.clone()
        optimizer.step()
        if step >= 1:
            for p, grad in zip(ours, grads, strict=True):
                p.grad = grad.clone()
            rule.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=0, atol=bound(8 * 12, size=3))  # 8 steps of up to 12 roundings


@pytest.mark.parametrize("forbidden", [True, False])
def test_a_step_that_is_forbidden_leaves_all_as_it_was(forbidden: bool) -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    parameter.grad = torch.ones(3)
    optimizer.step()
    state = optimizer.state[parameter]
    before = [t.detach().clone() for t in (parameter, *state.values())]
    moved = parameter.detach().clone()
    moved.grad = torch.full((3,), 2.0)
    by = torch.tensor(factors(optimizer, optimizer.param_groups[0]))
    TracedOptimizer(optimizer, [[moved]], [[state]], [by]).step(unless=torch.tensor(forbidden))
    same = [torch.equal(a, b) for a, b in zip(before, (moved, *state.values()), strict=True)]
    assert same == [forbidden] * 4


def test_optimizers_without_a_rule_are_named() -> None:
    parameter = nn.Parameter(torch.ones(3))
    with pytest.raises(UntraceableError, match="Adagrad"):
        check_traceable(torch.optim.Adagrad([parameter]), parameter.device)
    with pytest.raises(UntraceableError, match="amsgrad=True"):
        check_traceable(torch.optim.Adam([parameter], amsgrad=True), parameter.device)


# -- programs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kl", one_of_each([1e-4, 1e3], 1e-4))
def test_ppo_stops_where_the_plain_update_stops(kl: float) -> None:
    models = []
    for compile in (False, True):
        options = {"n_steps": 64, "n_epochs": 5, "learning_rate": 3e-3, "compile": compile}
        models.append(PPO("MlpPolicy", "CartPole-v1", target_kl=kl, seed=0, device="cpu", **options).learn(256))
    plain, traced = models
    assert plain.learner.steps == traced.learner.steps == (20 if kl > 1 else plain.learner.steps)
    assert (plain._n_updates == 20) == (kl > 1)
    assert plain._n_updates == traced._n_updates
    assert_same(weights(plain), weights(traced), near(plain, 3e-3, rows=64))


@pytest.mark.parametrize(
    "optimizer", one_of_each([torch.optim.Adam, torch.optim.RMSprop, RMSpropTFLike], torch.optim.Adam)
)
def test_a_step_that_ppo_leaves_out_is_not_counted(optimizer: Any) -> None:
    counts = []
    for compile in (False, True):
        options = {"n_steps": 64, "learning_rate": 0.5, "target_kl": 1e-4, "compile": compile}
        kwargs = {"net_arch": [8], "optimizer_class": optimizer}
        model = PPO("MlpPolicy", "CartPole-v1", seed=0, device="cpu", policy_kwargs=kwargs, **options).learn(256)
        counts.append({int(state["step"]) for state in model.policy.optimizer.state.values()})
    assert model.engine.status == "compiled"
    assert counts[0] == counts[1]
    assert max(counts[0]) < model.learner.steps


def test_learning_rates_and_other_dials_reach_it() -> None:
    models = []
    for compile in (False, True):
        model = PPO(
            "MlpPolicy", "CartPole-v1", n_steps=32, batch_size=32, n_epochs=2, seed=0, device="cpu", compile=compile,
            learning_rate=lambda left: 1e-2 * left, clip_range=lambda left: 0.3 * left,
        )  # fmt: skip
        model.learn(160)
        model.ent_coef, model.max_grad_norm = 0.5, 0.01
        models.append(model.learn(160, reset_num_timesteps=False))
    assert_same(*map(weights, models), near(models[0], 1e-2, rows=32))


def test_a_learning_rate_that_is_a_plain_number_reaches_it_too() -> None:
    models = [
        A2C(
            "MlpPolicy", "CartPole-v1", learning_rate=lambda left: 1e-2 * left, seed=0, device="cpu", compile=compile
        ).learn(100)
        for compile in (False, True)
    ]
    assert not isinstance(models[1].policy.optimizer.param_groups[0]["lr"], Tensor)
    assert_same(*map(weights, models), near(models[0], 1e-2, rows=5))


def other_betas(model: SAC) -> None:
    model.actor.optimizer.param_groups[0]["betas"] = (0.5, 0.9)


def loaded_weights(model: SAC) -> None:
    model.learner.load_networks({k: v + 0.01 for k, v in model.learner.networks().items()})


CHANGES = [replaced_network, loaded_optimizer, other_option, a_hook, other_activation, other_betas, loaded_weights]


@pytest.mark.parametrize("changes", one_of_each([CHANGES[:4], CHANGES], CHANGES[:4]))
def test_it_draws_the_plain_steps_numbers_and_notices_what_is_done_to_the_learner(
    changes: list[Callable[[SAC], None]],
) -> None:
    plain, traced = (sac(compile=choice).learn(40) for choice in (False, True))
    assert plain._last_obs.tobytes() == traced._last_obs.tobytes()  # acting drew the same numbers too
    assert_same(weights(plain), weights(traced), near(plain, 3e-4, rows=16))
    for change in changes:
        for model in (plain, traced):
            change(model)
            torch.manual_seed(1)
            np.random.seed(1)
            for batch in batches(model, 2):
                model.learner.update(batch)
        assert traced.engine.status == "compiled"
        assert_same(weights(plain), weights(traced), near(plain, 3e-4, rows=16))


def test_a_copy_another_network_and_another_batch_size_get_programs_of_their_own() -> None:
    model = sac(compile=True).learn(40)
    ((before,),) = model.engine.programs["gradient_step"].values()
    twin, untrained = copy.deepcopy(model), weights(model)
    twin.learner.update(batches(twin, 1)[0])
    assert_same(untrained, weights(model), 0.0)
    assert any(not torch.equal(a, b) for a, b in zip(untrained.values(), weights(twin).values(), strict=True))
    loaded_optimizer(model)
    model.train(gradient_steps=1, batch_size=16)
    assert list(model.engine.programs["gradient_step"].values()) == [[before]]
    kept = model.policy.actor.latent_pi[1]
    other_activation(model)
    model.train(gradient_steps=1, batch_size=16)
    ((new, old),) = model.engine.programs["gradient_step"].values()
    assert old is before
    model.policy.actor.latent_pi[1] = kept
    model.train(gradient_steps=1, batch_size=16)
    assert list(model.engine.programs["gradient_step"].values()) == [[before, new]]
    model.learner.update(Transition.from_samples(model.replay_buffer.sample(5), 0.99))
    assert len(model.engine.programs["gradient_step"]) == 2


@pytest.mark.parametrize("n_envs", one_of_each([1, 3], 3))
def test_new_exploration_noise_needs_no_new_program_and_no_look_at_the_learner(
    n_envs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[Program] = []
    monkeypatch.setattr(Program, "rebind", lambda self, rebind=Program.rebind: (bound.append(self), rebind(self))[1])
    env = make_vec_env("Pendulum-v1", n_envs)
    options: dict[str, Any] = {"use_sde": True, "sde_sample_freq": 2, "env": env, "train_freq": 3, "gradient_steps": 2}
    plain, traced = (sac(compile=choice, **options).learn(120) for choice in (False, True))
    assert traced.engine.status == "compiled"
    assert_same(weights(plain), weights(traced), near(plain, 3e-4, rows=16))
    assert len(traced.engine.programs["gradient_step"]) == 1
    assert not bound


def test_exploration_noise_is_in_no_file() -> None:
    model = sac(use_sde=True)
    assert "exploration_noise" in dict(model.policy.actor.named_children())
    for state in (model.learner.networks(), model.policy.state_dict(), model.get_parameters()["policy"]):
        assert not [name for name in state if "noise" in name]


def test_a_copy_draws_exploration_noise_of_its_own() -> None:
    model = sac(compile=True, use_sde=True).learn(40)
    for twin in (copy.deepcopy(model.learner), pickle.loads(pickle.dumps(model.policy))):
        policy = getattr(twin, "policy", twin)
        noise, theirs = model.policy.actor.exploration_noise, policy.actor.exploration_noise
        assert torch.equal(theirs.shared, noise.shared)
        policy.reset_noise()
        assert not torch.equal(theirs.shared, noise.shared)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, RMSpropTFLike])
def test_small_rollouts_are_evaluated_by_a_program_which_counts_no_step(optimizer: Any) -> None:
    kwargs = {"optimizer_class": optimizer, "net_arch": [8]}
    env = make_vec_env("CartPole-v1", 3)
    plain, traced = (
        A2C("MlpPolicy", env, seed=0, device="cpu", compile=compile, policy_kwargs=kwargs).learn(450)
        for compile in (False, True)
    )
    ((program,),) = traced.engine.programs["evaluation_and_next"].values()
    for mode in (True, False):  # which no layer of this policy reads
        traced.policy.set_training_mode(mode)
        assert program.current
    assert_same(weights(plain), weights(traced), near(plain, 7e-4, rows=15))
    for one, other in zip(plain.rollout_buffer.values, traced.rollout_buffer.values, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=bound(4 + 8) + 8 * drift(30, 7e-4, 15 + 4 + 8))
    counts = [next(iter(m.policy.optimizer.state.values()))["step"] for m in (plain, traced)]
    assert counts[0] == counts[1] == 30


def test_large_rollouts_are_evaluated_without_a_program() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=320, seed=0, device="cpu", compile=True).learn(640)
    assert model.engine.programs["gradient_step"]
    assert not {"evaluation", "evaluation_and_next"} & model.engine.programs.keys()


def test_an_optimizer_that_rests_counts_no_step() -> None:
    kwargs = {"optimizer_class": RMSpropTFLike, "net_arch": [8]}
    counts = []
    for compile in (False, True):
        model = TD3("MlpPolicy", "Pendulum-v1", learning_starts=20, buffer_size=200, batch_size=16, seed=0,
                    device="cpu", compile=compile, policy_kwargs=kwargs).learn(60)  # fmt: skip
        states = [optimizer.state.values() for optimizer in model.learner.optimizers.values()]
        counts.append([[int(state["step"]) for state in each] for each in states])
    assert counts[0] == counts[1]
    assert len({count for each in counts[0] for count in each}) == 2


@pytest.mark.parametrize("share", one_of_each([True, False], True))
def test_a_module_with_several_names_is_put_back_as_it_was(share: bool) -> None:
    def train(compile: bool) -> PPO:
        options = {"n_steps": 16, "batch_size": 8, "n_epochs": 2, "policy_kwargs": {"share_features_extractor": share}}
        env = FakeImageEnv(screen_height=40, screen_width=40)
        return PPO("CnnPolicy", env, device="cpu", seed=0, compile=compile, **options).learn(48)

    ours, theirs = train(True), train(False)
    assert ours.engine.status == "compiled"
    assert all(type(p) is nn.Parameter for p in ours.learner.parameters())
    assert_same(weights(ours), weights(theirs), near(ours, 3e-4, rows=8))


@pytest.mark.parametrize("buffer", one_of_each([{}, {"sampler": "prioritized"}], {"sampler": "prioritized"}))
def test_programs_gather_the_rows_of_the_replay_buffer(buffer: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = sac(compile=True, replay_buffer_kwargs=buffer).learn(40)
    shapes = {tuple(leaf.shape) for leaf in tensors_of(ours.replay_buffer.storage.tensors)}
    assert shapes == {(200, 3), (200, 1), (200,)}
    assert all(any(shape[:1] == (200,) for shape, *_ in key[0]) for key in ours.engine.programs["gradient_step"])
    monkeypatch.setattr(Learner, "gathers_late", False)
    theirs = sac(compile=True, replay_buffer_kwargs=buffer).learn(40)
    assert all(all(shape[:1] == (16,) for shape, *_ in key[0]) for key in theirs.engine.programs["gradient_step"])
    assert_same(weights(ours), weights(theirs), near(ours, 3e-4, rows=16))


def test_what_is_taken_apart_is_put_together_again() -> None:
    a, b, c = (torch.full((1,), float(i)) for i in range(3))
    for nested in (
        a,
        {"x": a},
        ({"x": a, "y": b}, None, [c]),
        Update({"m": a, "n": b}, None, c),
        {"x": (a, {"y": b}), "z": c},
    ):
        assert str(rebuilt(nested, iter(tensors_of(nested)))) == str(nested)


def test_the_tensors_of_a_batch_keep_the_order_of_dicts_and_tuples() -> None:
    a, b, c = (torch.full((1,), float(i)) for i in range(3))
    assert [t.item() for t in tensors_of(({"x": a, "y": b}, None, c))] == [0.0, 1.0, 2.0]


# -- the choice --------------------------------------------------------------------------------------------------------


class Halved(BaseFeaturesExtractor):
    """A user's extractor."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x / 2


def dqn(**options: Any) -> DQN:
    return DQN("MlpPolicy", "CartPole-v1", learning_starts=50, buffer_size=500, device="cpu", seed=0, **options)


def test_short_runs_are_not_compiled() -> None:
    model = dqn().learn(200)
    assert model.compile == "auto"
    assert model.engine.status == f"replayed from update {engine.REPLAYED_FROM} on"


def test_what_counts_is_what_a_program_saves() -> None:
    small, large = (dqn(policy_kwargs={"net_arch": [width]}) for width in (8, 64))
    deep, tensors = dqn(policy_kwargs={"net_arch": [8] * 9}), len(list(small.learner.parameters()))
    enough = math.ceil(engine.WORTHWHILE_SECONDS / engine.TENSOR_SECONDS / tensors)
    rows = math.ceil(engine.WORTHWHILE_SECONDS / engine.NUMBER_SECONDS / enough / 4)  # of CartPole's four numbers
    for model, updates, observed, compiles in (
        (small, enough - 1, 0, False),
        (small, enough, 0, True),
        (large, enough - 1, 0, False),
        (large, enough - 1, rows, True),
        (deep, enough - 1, 0, True),
        (dqn(policy_kwargs={"net_arch": [8]}), enough // 2, 1_000, False),
        (dqn(policy_kwargs={"net_arch": [512]}), enough // 2, 1_000, True),
    ):
        model.engine.expect(updates, observed)
        assert model.engine.compiles is compiles


def test_long_runs_are() -> None:
    model = dqn()
    model.engine.expect(10_000_000, 64)
    model.learn(200)
    assert model.engine.status == "compiled"


class Counting(Halved):
    """One whose code does more than compute."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


def test_own_code_that_only_computes_is_replayed() -> None:
    plain, replayed = (
        dqn(policy_kwargs={"features_extractor_class": Halved}, train_freq=1, compile=kind).learn(300)
        for kind in (False, "auto")
    )
    assert replayed.engine.status == "replayed"
    assert_same(weights(plain), weights(replayed), near(plain, 1e-4, 32))


def test_changed_attributes_of_own_classes_are_noticed() -> None:
    class Scaled(Halved):
        scale = 1.0

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * x

    def trained(kind: bool | str) -> DQN:
        Scaled.scale = 1.0
        model = dqn(policy_kwargs={"features_extractor_class": Scaled}, train_freq=1, compile=kind).learn(200)
        Scaled.scale = 2.0
        return model.learn(50, reset_num_timesteps=False)

    plain, other = trained(False), trained("auto")
    assert other.engine.status == "replayed"
    assert_same(weights(plain), weights(other), near(plain, 1e-4, 32))


def test_hooks_on_gradients_are_called() -> None:
    """Those of modules are recorded, those of parameters end the programs."""

    def trained(kind: bool | str) -> DQN:
        model = dqn(train_freq=1, compile=kind).learn(200)
        layer = next(part for part in model.policy.q_net.modules() if isinstance(part, nn.Linear))
        layer.register_forward_hook(lambda module, inputs, output: output + 1)
        model.learn(50, reset_num_timesteps=False)
        assert model.engine.status in ("replayed", "uncompiled")
        layer.bias.register_hook(lambda gradient: 0 * gradient).remove()
        layer.bias.register_hook(lambda gradient: 0 * gradient)
        return model.learn(50, reset_num_timesteps=False)

    with pytest.warns(UserWarning, match="could not be replayed: a hook on a parameter changes its gradient"):
        plain, other = trained(False), trained("auto")
    assert_same(weights(plain), weights(other), near(plain, 1e-4, 32))


def test_functions_hooked_to_an_optimizer_are_called() -> None:
    calls = []
    model = dqn(train_freq=1)
    model.policy.optimizer.register_step_post_hook(lambda *_: calls.append(1))
    with pytest.warns(UserWarning, match="could not be replayed: a function is hooked to the optimizer Adam"):
        model.learn(200)
    assert len(calls) == model.learner.steps


def test_own_code_that_does_more_is_left_alone() -> None:
    kwargs, said = {"features_extractor_class": Counting}, []
    model = dqn(policy_kwargs=kwargs, train_freq=1)
    model.engine.report = said.append
    with warnings.catch_warnings(action="error"):
        model.learn(300)
    assert model.engine.status.endswith("Counting.forward() has an effect: STORE_ATTR calls")
    assert said[-1].startswith(model.engine.status)


def test_what_cannot_be_compiled_runs_uncompiled() -> None:
    model = sac(policy_kwargs={"optimizer_class": torch.optim.Adagrad})
    model.engine.expect(10_000_000, 64)
    with pytest.warns(UserWarning, match="training continues uncompiled, since gradient_step .*Adagrad") as said:
        model.learn(60)
    assert len(said) == 1
    assert model.engine.status.startswith("uncompiled: ")
    assert model._n_updates > 0


def test_what_cannot_be_compiled_but_must_be_is_an_error() -> None:
    kwargs = {"optimizer_class": torch.optim.Adagrad}
    with pytest.raises(RuntimeError, match="compile=True, but .*Adagrad.*Use compile='auto' or False"):
        dqn(policy_kwargs=kwargs, compile=True).learn(200)


def test_a_wrong_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="compile='yes'"):
        dqn(compile="yes")


def test_an_algorithm_that_sets_itself_up_without_an_engine_learns() -> None:
    model = dqn(compile=False)
    model.engine = None
    assert model.learn(100)._n_updates > 0


# -- the compiler ------------------------------------------------------------------------------------------------------


def test_what_is_built_is_announced_what_is_found_is_not_and_neither_draws_random_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))

    def build(graph: Any, arguments: Any, folder: Path) -> None:
        folder.mkdir()
        (folder / libraries.LIBRARY).touch()

    monkeypatch.setattr(libraries, "_build", build)
    model = sac(compile=False).learn(40)
    batch, state = batches(model, 1)[0], torch.get_rng_state()
    program = Program(model.learner, "gradient_step", batch, (True,))
    assert torch.equal(torch.get_rng_state(), state)
    said: list[str] = []
    program.report = said.append
    for _ in range(2):
        libraries.library(program.graph, program._arguments, program._building)
    assert said == [
        "compiling the gradient step (once for this machine, network and batch size; 15 to 40 s) ...",
        "compiled the gradient step in 0 s",
    ]


@pytest.mark.slow
def test_libraries_are_built_once_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))
    dqn(compile=True).learn(100)
    (library,) = tmp_path.glob("*/program.so")
    monkeypatch.setattr(libraries, "_build", None)
    assert dqn(compile=True).learn(100).engine.status == "compiled"
    assert list(tmp_path.iterdir()) == [library.parent]


@pytest.mark.slow
def test_a_failed_build_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))

    def half(*_: Any, options: dict[str, Any]) -> None:
        library = Path(options["aot_inductor.output_path"])
        library.parent.mkdir(parents=True)
        library.write_text("half of it")
        raise OSError("the disk is full")

    monkeypatch.setattr("torch._inductor.aot_compile", half)
    with pytest.raises(RuntimeError, match="could not be compiled: the disk is full"):
        dqn(compile=True).learn(100)
    assert list(tmp_path.iterdir()) == []
