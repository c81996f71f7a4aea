"""TRPO's step: curvature, direction, trust region, and which parameters are whose."""

import copy
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak import TRPO
from polyak.algorithms.trpo import TRPOLearner, conjugate_gradient, surrogate, surrogate_gain
from polyak.envs.testing import FakeImageEnv, SimpleMultiObsEnv
from polyak.experience import RolloutBufferSamples
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.learning.data_parallel import ThreadGroup
from polyak.learning.engine.engine import Engine
from polyak.learning.engine.program import Program
from polyak.nn import BaseFeaturesExtractor
from polyak.nn.distributions.gaussian import Squashed
from tests.pairs import one_of_each
from tests.tolerance import bound
from tests.worlds import Drawn

ROWS, FEATURES = 24, 2
SEEN = spaces.Box(-1, 1, (FEATURES,))
BOX = spaces.Box(-1, 1, (2,))
KINDS: dict[str, tuple[spaces.Space, dict[str, Any]]] = {
    "gaussian": (BOX, {}),
    "sde": (BOX, {"use_sde": True, "log_std_init": -0.5}),
    "sde by features": (BOX, {"use_sde": True, "full_std": False, "use_expln": True}),
    "sde squashed": (BOX, {"use_sde": True, "squash_output": True, "log_std_init": -0.5}),
    "categorical": (spaces.Discrete(3), {}),
    "multi-categorical": (spaces.MultiDiscrete([3, 2]), {}),
    "bernoulli": (spaces.MultiBinary(3), {}),
}


def model(kind: str = "gaussian", policy_kwargs: dict[str, Any] | None = None, **options: Any) -> TRPO:
    """About 20 numbers in the actor, with action heads that are not as small as they begin."""
    space, own = KINDS[kind]
    small = {"net_arch": {"pi": [3], "vf": [3]}, "ortho_init": False, **own, **(policy_kwargs or {})}
    options = {"use_sde": own.get("use_sde", False), "n_steps": ROWS, "batch_size": 8, **options}
    env = Drawn(observation_space=SEEN, action_space=space)
    return TRPO("MlpPolicy", env, policy_kwargs=small, device="cpu", seed=0, **options)


def rollout(trpo: TRPO, rows: int = ROWS) -> RolloutBufferSamples:
    """Observations, actions of the policy there, and advantages of no meaning."""
    rng = np.random.default_rng(0)
    observations, advantages, returns = (
        torch.from_numpy(rng.normal(size=shape).astype(np.float32)) for shape in ((rows, FEATURES), rows, rows)
    )
    torch.manual_seed(0)
    with torch.no_grad():
        distribution = trpo.policy.get_distribution(observations)
        actions = distribution.sample()
        log_prob = distribution.log_prob(actions)
    actions = actions.float() if actions.dim() > 1 else actions.float()[:, None]
    return RolloutBufferSamples(observations, actions, torch.zeros(rows), log_prob, advantages, returns)


def learner_of(trpo: TRPO) -> TRPOLearner:
    learner = trpo.learner
    assert isinstance(learner, TRPOLearner)
    return learner


def values_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def changed(before: dict[str, Tensor], module: nn.Module) -> set[str]:
    """Names of the parameters that are others now, in any bit."""
    return {name for name, p in module.named_parameters() if not torch.equal(p, before[name])}


def flat(parts: Any) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


# -- the objective -----------------------------------------------------------------------------------------------------


def test_the_surrogate_and_its_gain() -> None:
    new, old, advantages = (np.random.default_rng(i).normal(size=50) for i in range(3))
    ratio, before = np.exp(0.3 * new), np.exp(0.3 * old)
    got = surrogate(torch.tensor(0.3 * new), torch.tensor(advantages))
    assert got.item() == pytest.approx(np.mean(ratio * advantages))
    gain = surrogate_gain(torch.tensor(0.3 * new - 0.3 * old), torch.tensor(0.3 * old), torch.tensor(advantages))
    assert gain.item() == pytest.approx(np.mean(ratio * advantages) - np.mean(before * advantages))


def test_a_gain_far_below_the_rounding_of_the_objective_is_seen() -> None:
    change, advantages = torch.tensor([1e-9, -1e-9]), torch.tensor([1.0, -1.0])
    assert surrogate_gain(change, torch.zeros(2), advantages).item() == pytest.approx(1e-9)
    assert (surrogate(change, advantages) - surrogate(torch.zeros(2), advantages)).item() == 0


def test_at_the_old_policy_the_gradient_is_the_policy_gradient() -> None:
    trpo = model("categorical")
    batch = rollout(trpo)
    _, log_prob, _ = trpo.policy.evaluate_actions(batch.observations, batch.actions)
    ascent = learner_of(trpo).ascent(batch)
    actor = {name: p for name, p in trpo.policy.named_parameters() if "value" not in name}
    assert ascent.gradient.keys() == actor.keys()
    expected = torch.autograd.grad((log_prob * batch.advantages).mean(), list(actor.values()))
    for got, wanted in zip(ascent.gradient.values(), expected, strict=True):
        torch.testing.assert_close(got, wanted)


# -- the Fisher information matrix -------------------------------------------------------------------------------------


def fisher(trpo: TRPO, batch: RolloutBufferSamples, names: list[str]) -> Tensor:
    """E[grad log pi grad log pi^T] over states and actions, [P, P] in float64: row by row, from single gradients.

    Over actions by enumeration, or for Gaussians in closed form: means give (grad mu)(grad mu)^T / sigma^2, deviations
    2 (grad log sigma)(grad log sigma)^T.
    """
    policy = copy.deepcopy(trpo.policy).double()
    policy._preprocess = lambda obs: obs
    params = [dict(policy.named_parameters())[name] for name in names]
    observations = batch.observations.double()

    def gradient(number: Tensor) -> Tensor:
        grads = torch.autograd.grad(number, params, retain_graph=True, materialize_grads=True)
        return flat(grads)

    total = torch.zeros(2 * [sum(p.numel() for p in params)], dtype=torch.float64)
    for row in observations:
        distribution = policy.get_distribution(row[None])
        if isinstance(trpo.action_space, spaces.Box):
            gaussian = distribution.gaussian if isinstance(distribution, Squashed) else distribution
            for mean, std, log_std in zip(gaussian.mean[0], gaussian.std[0], gaussian.log_std[0], strict=True):
                by_mean, by_std = gradient(mean) / std.detach(), gradient(log_std)
                total += torch.outer(by_mean, by_mean) + 2 * torch.outer(by_std, by_std)
        else:
            for action in every_action(trpo.action_space):
                log_prob = distribution.log_prob(action)
                slope = gradient(log_prob[0])
                total += log_prob.detach().exp() * torch.outer(slope, slope)
    return total / len(observations)


def every_action(space: spaces.Space) -> list[Tensor]:
    if isinstance(space, spaces.Discrete):
        return [torch.tensor([action]) for action in range(space.n)]
    sizes = space.nvec if isinstance(space, spaces.MultiDiscrete) else [2] * space.n
    return [torch.tensor([action]) for action in itertools.product(*map(range, sizes))]


@pytest.mark.parametrize("kind", KINDS)
def test_products_are_those_of_the_whole_fisher_matrix(kind: str) -> None:
    """In float32: through the network forwards, backwards, and backwards again, and over the rows, some 100 additions
    round, of terms up to 10 times their sum. That is 100 * 10 * 6e-8 < 1e-4; a term that is missing makes 1e-1."""
    trpo = model(kind, cg_damping=0.1)
    batch, learner = rollout(trpo), learner_of(trpo)
    gradient = learner.ascent(batch).gradient
    matrix = fisher(trpo, batch, list(gradient))
    assert 12 <= len(matrix) <= 30
    for seed in range(5):
        vector = {
            name: torch.from_numpy(np.random.default_rng(seed).normal(size=part.shape).astype(np.float32))
            for name, part in gradient.items()
        }
        got, v = flat(learner.fisher_product((batch, vector)).values()).double(), flat(vector.values()).double()
        expected = matrix @ v + 0.1 * v
        assert ((got - expected).norm() / (matrix @ v).norm()).item() < 1e-4


@pytest.mark.parametrize("kind", one_of_each(KINDS, "sde squashed"))
def test_traced_products_and_critic_steps_equal_eager_ones(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    eager, traced = (model(kind, compile=choice) for choice in (False, True))
    batch = rollout(eager)
    gradient = learner_of(eager).ascent(batch).gradient
    for _ in range(3):  # an optimizer makes its state in its first step, which is never traced
        products, losses = [], []
        for trpo in (eager, traced):
            learner = learner_of(trpo)
            products.append(learner.run(learner.fisher_product, (batch, gradient)))
            losses.append(learner.run(learner.critic_step, batch, tuple(gradient))["value_loss"])
        for name, product in products[0].items():
            torch.testing.assert_close(product, products[1][name])
        torch.testing.assert_close(*losses)
    assert traced.engine is not None
    assert traced.engine.status == "compiled"
    assert traced.engine.programs.keys() == {"fisher_product", "critic_step"}
    assert changed(values_of(eager.policy), traced.policy) <= {n for n in values_of(eager.policy) if "value" in n}


# -- conjugate gradients -----------------------------------------------------------------------------------------------


def positive_definite(size: int, seed: int = 0) -> Tensor:
    root = torch.from_numpy(np.random.default_rng(seed).normal(size=(size, size)))
    return root @ root.T + size * torch.eye(size, dtype=torch.float64)


@pytest.mark.parametrize("guess", [0.0, 0.3])
def test_conjugate_gradients_solve_linear_equations(guess: float) -> None:
    matrix, b = positive_definite(12), torch.linspace(-1, 1, 12, dtype=torch.float64)
    exact = torch.linalg.solve(matrix, b)
    start = torch.full_like(b, guess)
    x = conjugate_gradient(matrix.__matmul__, b, 12, 0.0, start)
    # conditions below 10; in exact arithmetic twelve steps are enough
    torch.testing.assert_close(x, exact, rtol=0, atol=10 * bound(12 * 12, dtype=np.float64))
    assert torch.equal(start, torch.full_like(b, guess))

    single = conjugate_gradient(matrix.float().__matmul__, b.float(), 15, 1e-10 * float(b @ b), start.float())
    residual = matrix @ single.double() - b
    assert (residual.norm() / b.norm()).item() < 2e-5  # 1e-5 by the recursion, which rounding leaves behind


def test_each_step_brings_the_solution_nearer() -> None:
    matrix, b = positive_definite(12), torch.linspace(-1, 1, 12, dtype=torch.float64)
    exact = torch.linalg.solve(matrix, b)
    errors = [conjugate_gradient(matrix.__matmul__, b, n, 0.0, torch.zeros_like(b)) - exact for n in range(8)]
    distances = [float(error @ matrix @ error) for error in errors]
    assert sorted(distances, reverse=True) == distances
    assert distances[7] < 1e-3 * distances[0]


def test_conjugate_gradients_end_early() -> None:
    calls: list[Tensor] = []

    def product(matrix: Tensor) -> Callable[[Tensor], Tensor]:
        def multiply(v: Tensor) -> Tensor:
            calls.append(v)
            return matrix @ v

        return multiply

    b, start = torch.ones(4), torch.zeros(4)
    x = conjugate_gradient(product(2 * torch.eye(4)), b, 15, 1e-10, start)
    assert torch.equal(x, b / 2)
    assert len(calls) == 2, "the residual of the start, and one step"
    assert torch.equal(conjugate_gradient(product(torch.eye(4)), start, 15, 0.0, start), start)
    assert torch.equal(conjugate_gradient(product(-torch.eye(4)), b, 15, 1e-10, start), start), "no positive curvature"
    turned = conjugate_gradient(product(-torch.eye(4)), b, 15, 1e-10, start, definite=False)
    assert torch.equal(turned, -b), "asked for all the same"
    assert torch.equal(conjugate_gradient(product(torch.eye(4)), b * torch.nan, 15, 1e-10, start), start)


def test_the_direction_is_the_natural_gradient() -> None:
    trpo = model("gaussian", cg_damping=0.1, cg_max_steps=40)
    batch, learner = rollout(trpo), learner_of(trpo)
    gradient = learner.ascent(batch).gradient
    step = flat(next(iter(learner.steps_along(gradient, batch))).values()).double()
    matrix = fisher(trpo, batch, list(gradient))
    damped = matrix + 0.1 * torch.eye(len(matrix), dtype=torch.float64)
    natural = torch.linalg.solve(damped, flat(gradient.values()).double())
    natural *= (2 * 0.01 / (natural @ damped @ natural)).sqrt()
    assert ((step - natural).norm() / natural.norm()).item() < 1e-3  # products err by 1e-4, conditions are below 100


# -- the trust region --------------------------------------------------------------------------------------------------


class Watched(TRPOLearner):
    """Keeps the policy before each step of the actor, the policy after it, and what the step said of itself."""

    def improve(self, batch: RolloutBufferSamples) -> Any:
        before = copy.deepcopy(self.policy)
        metrics, actor = super().improve(batch)
        self.history = [*getattr(self, "history", []), (batch, before, copy.deepcopy(self.policy), metrics)]
        return metrics, actor


class WatchedTRPO(TRPO):
    learner_class = Watched


@pytest.mark.parametrize(
    ("env", "options"),
    [
        pytest.param("CartPole-v1", {}, marks=pytest.mark.slow),
        ("CartPole-v1", {"target_kl": 0.05, "sub_sampling_factor": 2, "cg_damping": 0.03}),
        pytest.param("Pendulum-v1", {"normalize_advantage": False}, marks=pytest.mark.slow),
        pytest.param("Pendulum-v1", {"use_sde": True}, marks=pytest.mark.slow),
    ],
)
def test_no_update_leaves_the_trust_region_or_makes_the_surrogate_worse(env: str, options: dict[str, Any]) -> None:
    trpo = WatchedTRPO("MlpPolicy", env, n_steps=256, device="cpu", seed=1, **options).learn(256 * 8)
    history = trpo.learner.history
    assert len(history) == 8
    successes = 0
    for batch, before, after, metrics in history:
        kl, log_ratio = measured(before, after, batch)
        successes += int(metrics["is_line_search_success"])
        if not metrics["is_line_search_success"]:
            assert not changed(values_of(before), after)
            continue
        assert kl <= trpo.target_kl + 1e-6  # rounding of means of numbers around target_kl
        assert kl >= 0.1 * trpo.target_kl, "far shorter than the region allows"
        assert metrics["kl_divergence_loss"].item() == pytest.approx(kl, abs=1e-6)
        advantages = batch.advantages.double()
        if trpo.normalize_advantage:
            advantages = (advantages - advantages.mean()) / advantages.std()
        assert (log_ratio.expm1() * advantages).mean() > 0
    assert successes >= 6


def measured(before: nn.Module, after: nn.Module, batch: RolloutBufferSamples) -> tuple[float, Tensor]:
    """KL(before || after) in float64 by torch.distributions, and log pi_after - log pi_before of the actions."""
    with torch.no_grad():
        old, new = (policy.get_distribution(batch.observations) for policy in (before, after))
        if hasattr(old, "logits"):
            pair = [torch.distributions.Categorical(logits=d.logits.double()) for d in (old, new)]
            actions = batch.actions.flatten().long()
            kl, log_probs = torch.distributions.kl_divergence(*pair), [d.log_prob(actions) for d in pair]
        else:
            normals = [torch.distributions.Normal(d.mean.double(), d.std.double()) for d in (old, new)]
            kl = torch.distributions.kl_divergence(*normals).sum(1)
            log_probs = [d.log_prob(batch.actions.double()).sum(1) for d in normals]
    return kl.mean().item(), log_probs[1] - log_probs[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_taken_for_every_kind_of_action(kind: str) -> None:
    trpo = model(kind)
    batch, learner = rollout(trpo), learner_of(trpo)
    before = copy.deepcopy(trpo.policy)
    metrics, actor = learner.improve(batch)
    assert metrics["is_line_search_success"].item() == 1
    with torch.no_grad():
        kl = before.get_distribution(batch.observations).kl(trpo.policy.get_distribution(batch.observations)).mean()
    assert 0 < kl <= 0.01
    assert kl.item() == pytest.approx(metrics["kl_divergence_loss"].item())
    assert metrics["policy_objective"] > learner.ascent(batch._replace(advantages=0 * batch.advantages)).objective
    assert changed(values_of(before), trpo.policy) == set(actor)


def test_without_advantages_nothing_moves() -> None:
    trpo = model()
    batch = rollout(trpo)
    before = values_of(trpo.policy)
    metrics, actor = learner_of(trpo).improve(batch._replace(advantages=torch.ones(ROWS)))
    assert not changed(before, trpo.policy)
    assert (metrics["is_line_search_success"], metrics["kl_divergence_loss"]) == (0, 0)
    assert set(actor) == {name for name in before if "value" not in name}


@pytest.mark.parametrize(
    "verdict", [{"kl": 0.02, "gain": 1.0}, {"kl": 0.0, "gain": 0.0}, {"kl": torch.nan, "gain": 1.0}]
)
def test_where_no_step_is_good_enough_the_old_parameters_come_back(
    verdict: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    trpo = model(line_search_max_iter=7, line_search_shrinking_factor=0.5)
    learner, lengths = learner_of(trpo), []
    judge = learner.outcome

    def harsh(batch: Any) -> Any:
        lengths.append(flat(batch[1].values()).norm().item())
        return judge(batch) | {name: torch.tensor(value) for name, value in verdict.items()}

    monkeypatch.setattr(learner, "outcome", harsh)
    before = values_of(trpo.policy)
    metrics, _ = learner.improve(rollout(trpo))
    assert not changed(before, trpo.policy)
    assert metrics["is_line_search_success"] == 0
    assert lengths == pytest.approx([lengths[0] * 0.5**i for i in range(7)])


def test_far_beyond_the_quadratic_model_no_step_improves() -> None:
    """There every action that was good has become impossible."""
    trpo = model(target_kl=1e6, line_search_max_iter=1, normalize_advantage=False)
    batch = rollout(trpo)
    before = values_of(trpo.policy)
    metrics, _ = learner_of(trpo).improve(batch._replace(advantages=batch.advantages.abs()))
    assert metrics["is_line_search_success"] == 0
    assert not changed(before, trpo.policy)


def test_an_error_while_a_step_is_tried_leaves_the_parameters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    trpo = model()
    learner, batch = learner_of(trpo), rollout(trpo)
    gradient, before, calls = learner.ascent(batch).gradient, values_of(trpo.policy), []
    ask = trpo.policy.get_distribution

    def failing(observations: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError
        return ask(observations)

    monkeypatch.setattr(trpo.policy, "get_distribution", failing)
    with pytest.raises(MemoryError):
        learner.outcome((batch, gradient))
    assert not changed(before, trpo.policy)


def test_the_fisher_matrix_of_some_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    trpo = model(sub_sampling_factor=5)
    learner, seen = learner_of(trpo), []
    slope = learner.divergence_slope
    monkeypatch.setattr(learner, "divergence_slope", lambda b: (seen.append(b[0].observations), slope(b))[1])
    batch = rollout(trpo)
    learner.improve(batch)
    assert all(torch.equal(rows, batch.observations[::5]) for rows in seen)
    assert seen


# -- whose parameters are whose ----------------------------------------------------------------------------------------


class Learned(BaseFeaturesExtractor):
    """A layer in which actor and critic may share an interest."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, features_dim=3)
        self.layer = nn.Linear(FEATURES, 3)

    def forward(self, observations: Tensor) -> Tensor:
        return self.layer(observations).tanh()


@pytest.mark.parametrize("kind", ["gaussian", "sde", "categorical"])
@pytest.mark.parametrize("shared", [None, True, False])
def test_the_critics_steps_leave_the_policy_alone_and_the_actors_step_the_critic(
    kind: str, shared: bool | None
) -> None:
    extractor = {"features_extractor_class": Learned, "share_features_extractor": shared}
    trpo = model(kind, {} if shared is None else extractor)
    learner, batch = learner_of(trpo), rollout(trpo)
    everything = set(values_of(trpo.policy))
    critic = {name for name in everything if name.startswith(("value_net", "mlp_extractor.value_net", "vf_"))}

    before = values_of(trpo.policy)
    _, actor = learner.improve(batch)
    assert changed(before, trpo.policy) == set(actor) == everything - critic
    assert any(name.startswith("features_extractor") for name in actor) == (shared is not None)

    before = values_of(trpo.policy)
    with torch.no_grad():
        logged = trpo.policy.get_distribution(batch.observations).log_prob(trpo.policy._flat(batch.actions))
    for _ in range(3):
        learner.critic_step(batch, actor)
    assert changed(before, trpo.policy) == critic
    with torch.no_grad():
        still = trpo.policy.get_distribution(batch.observations).log_prob(trpo.policy._flat(batch.actions))
    assert torch.equal(logged, still)
    assert {id(p) for p in learner.optimizers["policy"].state} == {
        id(p) for name, p in trpo.policy.named_parameters() if name in critic
    }


def test_frozen_parameters_stay() -> None:
    trpo = model()
    trpo.policy.action_net.requires_grad_(False)
    before = values_of(trpo.policy)
    learner_of(trpo).update(rollout(trpo))
    assert changed(before, trpo.policy) == {name for name in before if not name.startswith("action_net")}

    for name, p in trpo.policy.named_parameters():
        p.requires_grad_("value" in name)
    before = values_of(trpo.policy)
    update = learner_of(trpo).update(rollout(trpo))
    assert changed(before, trpo.policy) == {name for name in before if "value" in name}
    assert update.metrics["is_line_search_success"] == 0

    trpo.policy.requires_grad_(False)
    before = values_of(trpo.policy)
    learner_of(trpo).update(rollout(trpo))
    assert not changed(before, trpo.policy)


# -- several learners, all spaces, what is logged ----------------------------------------------------------------------


@pytest.mark.parametrize("compile", one_of_each([False, True], False))
def test_two_learners_on_halves_take_the_step_of_one_on_the_whole(
    compile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    trpo = model(compile=False)
    batch, group = rollout(trpo), ThreadGroup(2, timeout=60)
    twins = [copy.deepcopy(trpo.learner) for _ in range(2)]

    def learn(rank: int) -> None:
        Engine(twins[rank], compile)
        twins[rank].join(group.place(rank))
        for _ in range(3):
            twins[rank].update(type(batch)(*(column.chunk(2)[rank].contiguous() for column in batch)))

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(learn, rank) for rank in range(2)]:
            done.result()
    for _ in range(3):
        trpo.learner.update(batch)
    assert not changed(values_of(twins[0].policy), twins[1].policy)
    for name, p in trpo.policy.named_parameters():  # steps of 0.1 along directions that err by 1e-4
        torch.testing.assert_close(dict(twins[0].policy.named_parameters())[name], p, rtol=0, atol=1e-5)


@pytest.mark.slow  # every kind of action takes a step above
@pytest.mark.parametrize(
    ("policy", "env"),
    [
        ("MultiInputPolicy", SimpleMultiObsEnv(random_start=False)),
        ("CnnPolicy", FakeImageEnv(screen_height=36, screen_width=36, n_channels=1)),
        ("CnnPolicy", FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=False)),
    ],
)
def test_every_kind_of_observation(policy: str, env: gym.Env) -> None:
    small = {"features_extractor_kwargs": {"features_dim": 8}} if policy == "CnnPolicy" else {}
    trpo = TRPO(policy, env, n_steps=32, batch_size=16, n_critic_updates=2, policy_kwargs=small, device="cpu", seed=0)
    before = values_of(trpo.policy)
    trpo.learn(96)
    assert trpo.logger.name_to_value["train/kl_divergence_loss"] <= 0.01
    assert any("action_net" in name for name in changed(before, trpo.policy))


def test_what_is_logged() -> None:
    trpo = model().learn(ROWS)
    names = {name for name in trpo.logger.name_to_value if name.startswith("train/")}
    assert names == {
        f"train/{name}"
        for name in (
            *("policy_objective", "kl_divergence_loss", "is_line_search_success", "value_loss"),
            *("explained_variance", "learning_rate", "n_updates", "std"),
        )
    }


def test_a_minibatch_is_no_larger_than_the_rollout() -> None:
    with pytest.raises(HyperparameterError, match=rf"^batch_size={ROWS + 1} cannot be used"):
        model(batch_size=ROWS + 1)


@pytest.mark.parametrize("name", ["ent_coef", "vf_coef", "max_grad_norm"])
def test_it_has_none_of_ppos_weights(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        model(**{name: 0.5})
