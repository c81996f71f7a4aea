"""Off-policy evaluation: densities by quadrature, estimators by hand, metrics by their definitions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from polyak import DQN, PPO, SAC, TD3, DiscreteSAC
from polyak.callbacks.offline_evaluation import OfflineEvalCallback
from polyak.envs import VecNormalize, make_vec_env
from polyak.evaluation.off_policy.estimate import of_episodes, rank_correlation
from polyak.evaluation.off_policy.importance_sampling import critic_arrays, estimate_from_ratios, log_ratios_of
from polyak.evaluation.off_policy.log_probs import NotApplicableError, distribution_of, log_prob_of
from polyak.evaluation.off_policy.metrics import (
    METRICS,
    action_distance,
    action_match,
    action_values,
    average_value,
    initial_value,
    negative_log_likelihood,
    soft_opc,
    td_error,
)
from polyak.evaluation.off_policy.policy_actions import choices_of
from polyak.experience import Dataset, collect
from polyak.logging.logger import Logger
from tests.tolerance import bound

WIDE = spaces.Box(-2.0, 6.0, (1,), np.float32)
SEEN = spaces.Box(-1.0, 1.0, (3,), np.float32)


def model_of(cls: Any, action_space: spaces.Space, observation_space: spaces.Space = SEEN, **options: Any) -> Any:
    """An untrained model that has no environment."""
    torch.manual_seed(0)
    options.setdefault("policy_kwargs", {"net_arch": [8]})
    model = cls("MlpPolicy", None, device="cpu", _init_setup_model=False, **options)
    model.observation_space, model.action_space = observation_space, action_space
    model._setup_model()
    return model


def states(n: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (n, 3)).astype(np.float32)


# -- densities ---------------------------------------------------------------------------------------------------------


def integral(model: Any, state: np.ndarray, points: int = 20_001) -> float:
    """Of the density over the inside of WIDE, by Simpson's rule."""
    grid = np.linspace(-2, 6, points)[1:-1].astype(np.float32)
    log_probs = log_prob_of(model, np.repeat(state[None], len(grid), 0), grid[:, None])
    ends = log_probs[[0, -1]]  # the bounds themselves are another matter
    from scipy.integrate import simpson

    return float(simpson(np.exp(np.concatenate([ends[:1], log_probs, ends[1:]])), x=np.linspace(-2, 6, points)))


QUADRATURE = 1e-4  # of densities whose fourth derivative is moderate; and float32's of actions near the bounds


@pytest.mark.parametrize("use_sde", [False, True])
def test_a_squashed_density_adds_up_to_one_in_the_units_of_the_environment(use_sde: bool) -> None:
    model = model_of(SAC, WIDE, use_sde=use_sde)
    if use_sde:
        with torch.no_grad():
            model.actor.log_std.fill_(0.0)  # else it is a spike
    for state in states(3):
        assert integral(model, state) == pytest.approx(1.0, abs=QUADRATURE)


def test_a_squashed_density_is_that_of_torch() -> None:
    model, seen = model_of(SAC, WIDE), states(50)
    actions = np.random.default_rng(1).uniform(-1.9, 5.9, (50, 1)).astype(np.float32)
    with torch.no_grad():
        mean, log_std, _ = model.actor.get_action_dist_params(torch.from_numpy(seen))
    reference = TransformedDistribution(Normal(mean.double(), log_std.double().exp()), [TanhTransform()])
    wanted = reference.log_prob(torch.from_numpy((actions.astype(np.float64) - 2) / 4)).squeeze(1) - np.log(4)
    np.testing.assert_allclose(log_prob_of(model, seen, actions), wanted.numpy(), atol=1e-3)


def test_a_clipped_density_and_what_is_beyond_the_bounds_add_up_to_one() -> None:
    model = model_of(PPO, WIDE)
    with torch.no_grad():
        model.policy.log_std.fill_(1.0)
        model.policy.action_net.bias.fill_(1.5)
    for state in states(3):
        at_bounds = log_prob_of(model, np.stack([state, state]), np.array([[-2.0], [6.0]], np.float32))
        assert np.exp(at_bounds).min() > 0.01
        assert integral(model, state) + np.exp(at_bounds).sum() == pytest.approx(1.0, abs=QUADRATURE)


def test_recorded_actions_of_ppo_are_as_likely_as_it_says() -> None:
    """The mean of 1 / p over what a policy does is the size of where it can be: a Box of 8, and two bounds."""
    model, seen = model_of(PPO, WIDE), np.repeat(states(1), 100_000, 0)
    with torch.no_grad():
        model.policy.log_std.fill_(1.0)
    actions, _ = model.predict(seen, deterministic=False)
    inverse = np.exp(-log_prob_of(model, seen, actions))
    error = 5 * inverse.std() / len(seen) ** 0.5
    assert inverse.mean() == pytest.approx(10.0, abs=error)
    assert error < 0.5


@pytest.mark.parametrize(
    ("cls", "space"), [(PPO, spaces.Discrete(4)), (PPO, spaces.Discrete(3, start=2)), (DiscreteSAC, spaces.Discrete(4))]
)
def test_probabilities_of_choices_add_up_to_one(cls: Any, space: spaces.Discrete) -> None:
    model, seen = model_of(cls, space), states(20)
    each = [log_prob_of(model, seen, np.full(20, space.start + k)) for k in range(int(space.n))]
    np.testing.assert_allclose(np.exp(each).sum(0), 1.0, atol=1e-5)


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)])
def test_probabilities_of_several_choices_add_up_to_one(space: Any) -> None:
    model, seen = model_of(PPO, space), states(5)
    first, second = (2, 3) if isinstance(space, spaces.MultiDiscrete) else (2, 2)
    pairs = [np.tile([i, j], (5, 1)) for i in range(first) for j in range(second)]
    total = sum(np.exp(log_prob_of(model, seen, actions)) for actions in pairs)
    np.testing.assert_allclose(total, 1.0, atol=1e-5)


@pytest.mark.parametrize(("cls", "space"), [(TD3, WIDE), (DQN, spaces.Discrete(2))])
def test_a_deterministic_policy_has_no_density(cls: Any, space: Any) -> None:
    model = model_of(cls, space)
    with pytest.raises(NotApplicableError, match=f"{cls.__name__} acts deterministically.*Use fitted Q evaluation"):
        log_prob_of(model, states(1), np.zeros((1, 1)))


def test_memory_and_strangers_are_refused() -> None:
    recurrent = model_of(SAC, WIDE, policy_kwargs={"net_arch": [8], "memory": "gru"})
    with pytest.raises(NotApplicableError, match="SAC acts on a recurrent state"):
        distribution_of(recurrent, states(1))
    with pytest.raises(NotApplicableError, match="has no networks of polyak"):
        distribution_of(lambda obs: 0, states(1))


def test_a_model_under_normalisation_sees_normalised_observations() -> None:
    env = VecNormalize(make_vec_env("Pendulum-v1"))
    model = SAC("MlpPolicy", env, device="cpu", seed=0, learning_starts=10, policy_kwargs={"net_arch": [8]}).learn(50)
    raw = np.stack([env.observation_space.sample() for _ in range(5)])
    actions = np.zeros((5, 1), np.float32)
    normalised = model.actor.get_distribution(torch.from_numpy(env.normalize_obs(raw)))
    wanted = normalised.log_prob(torch.zeros(5, 1)).detach().numpy() - np.log(2)
    np.testing.assert_allclose(log_prob_of(model, raw, actions), wanted, atol=1e-5)


# -- choices -----------------------------------------------------------------------------------------------------------


def test_choices_are_probabilities_or_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyak.evaluation.off_policy.log_probs.slices.__defaults__", (7,))
    space, seen = spaces.Discrete(3, start=1), states(20)
    ppo = model_of(PPO, space)
    probabilities = choices_of(ppo, seen, space)
    for k in range(3):
        np.testing.assert_allclose(probabilities[:, k], np.exp(log_prob_of(ppo, seen, np.full(20, k + 1))), rtol=1e-5)
    likeliest = choices_of(ppo, seen, space, deterministic=True)
    np.testing.assert_array_equal(likeliest.argmax(1) + 1, ppo.predict(seen, deterministic=True)[0])
    assert (likeliest.sum(1) == 1).all()
    dqn = model_of(DQN, space)
    np.testing.assert_array_equal(choices_of(dqn, seen, space), choices_of(dqn, seen, space, deterministic=True))
    np.testing.assert_array_equal(choices_of(lambda obs: 2, seen, space), np.eye(3)[np.ones(20, int)])
    td3, sac = model_of(TD3, WIDE), model_of(SAC, WIDE)
    np.testing.assert_allclose(choices_of(td3, seen, WIDE, 5)[:, 0], td3.predict(seen)[0], atol=bound(8, 6.0))
    drawn = choices_of(sac, seen, WIDE, 5)
    assert drawn.shape == (20, 5, 1)
    assert drawn.std(1).min() > 0
    assert WIDE.contains(drawn[0, 0])


def test_what_is_no_action_is_refused() -> None:
    with pytest.raises(ValueError, match=r"chose 5 to 5, which are not all in Discrete\(3\)"):
        choices_of(lambda obs: 5, states(2), spaces.Discrete(3))
    with pytest.raises(ValueError, match=r"gave actions of shape \(2, 4\)"):
        choices_of(lambda obs: np.zeros(4), states(2), WIDE)


# -- estimates ---------------------------------------------------------------------------------------------------------


def test_rank_correlation() -> None:
    assert rank_correlation([1.0, 5.0, 9.0], [10, 20, 30]) == pytest.approx(1.0)
    estimates = [of_episodes(np.full(2, x), 0.95) for x in (3.0, 2.0, 1.0)]
    assert rank_correlation(estimates, [1, 2, 3]) == pytest.approx(-1.0)
    with pytest.raises(ValueError, match="got 2 estimates and 3 returns"):
        rank_correlation([1, 2], [1, 2, 3])


# -- ratios of a dataset -----------------------------------------------------------------------------------------------


def recorded(model: Any, log_probs: bool = False, seed: int = 0) -> Dataset:
    """Five episodes of unequal lengths in which a discrete model has acted; the fourth ends in a terminal state."""
    rng, lengths = np.random.default_rng(seed), np.array([3, 1, 4, 2, 3])
    n = int(lengths.sum())
    seen = rng.uniform(-1, 1, (n + 5, 3)).astype(np.float32)
    ends = np.zeros(n, bool)
    ends[lengths.cumsum() - 1] = True
    terminal = np.zeros(n, bool)
    terminal[lengths.cumsum()[3] - 1] = True
    acted = np.delete(seen, lengths.cumsum() + np.arange(5), 0)
    actions = model.predict(acted, deterministic=False)[0]
    columns = {"log_probs": log_prob_of(model, acted, actions)} if log_probs else {}
    return Dataset(
        seen, actions, rng.normal(size=n), terminal, ends & ~terminal, columns=columns,
        observation_space=SEEN, action_space=model.action_space,
    )  # fmt: skip


@pytest.fixture(scope="module")
def two() -> tuple[Any, Any]:
    """Two stochastic models of three choices."""
    first, second = (model_of(PPO, spaces.Discrete(3)) for _ in range(2))
    with torch.no_grad():
        second.policy.action_net.bias.copy_(torch.tensor([0.5, -0.5, 0.2]))
    return first, second


def test_a_policy_that_has_acted_itself_has_earned_what_was_recorded(two: tuple[Any, Any]) -> None:
    policy, data = two[0], recorded(two[0], log_probs=True)
    returns = np.array([(e.rewards * 0.9 ** np.arange(len(e.rewards))).sum() for e in data.episodes()])
    for method in ("is", "pdis", "wis", "wpdis"):
        for behaviour in (None, policy):
            estimate = estimate_from_ratios(policy, data, method, behaviour=behaviour, gamma=0.9)  # type: ignore[arg-type]
            assert estimate.value == pytest.approx(returns.mean(), abs=1e-5)
            assert estimate.effective_size == pytest.approx(5.0, abs=1e-4)
            assert estimate.low < estimate.value < estimate.high


class Critic:
    """Values that have nothing to do with anything, by two critics."""

    def q_values(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return np.stack([observations[:, 0] + actions, observations[:, 0] - actions])

    def values(self, observations: np.ndarray) -> np.ndarray:
        return observations[:, 1] * 2


def test_estimates_are_those_of_loops_over_episodes(two: tuple[Any, Any]) -> None:
    policy, behaviour = two
    data, critic = recorded(behaviour), Critic()
    found: dict[str, list[float]] = {"is": [], "pdis": [], "dr": [], "rho": [], "return": []}
    for episode in data.episodes():
        seen, steps = episode.observations, len(episode.rewards)
        ratios = np.exp(
            log_prob_of(policy, seen[:-1], episode.actions) - log_prob_of(behaviour, seen[:-1], episode.actions)
        )
        q, v = critic.q_values(seen[:-1], episode.actions).mean(0), critic.values(seen)
        value = 0.0 if episode.terminated else v[-1]
        for t in reversed(range(steps)):
            value = v[t] + ratios[t] * (episode.rewards[t] + 0.9 * value - q[t])
        discounted = 0.9 ** np.arange(steps) * episode.rewards
        found["is"].append(ratios.prod() * discounted.sum())
        found["pdis"].append((ratios.cumprod() * discounted).sum())
        found["dr"].append(value)
        found["rho"].append(ratios.prod())
        found["return"].append(discounted.sum())
    for method in ("is", "pdis", "dr"):
        more = {"critic": critic} if method == "dr" else {}
        estimate = estimate_from_ratios(policy, data, method, behaviour=behaviour, gamma=0.9, **more)  # type: ignore[arg-type]
        assert estimate.value == pytest.approx(np.mean(found[method]), rel=1e-5)
    rho = np.array(found["rho"])
    weighted = estimate_from_ratios(policy, data, "wis", behaviour=behaviour, gamma=0.9)
    assert weighted.value == pytest.approx((rho * found["return"]).sum() / rho.sum(), rel=1e-5)
    assert weighted.effective_size == pytest.approx(rho.sum() ** 2 / (rho**2).sum(), rel=1e-5)


def test_a_critic_is_silent_about_terminal_states(two: tuple[Any, Any]) -> None:
    data = recorded(two[0])
    q, v = critic_arrays(Critic(), data)
    assert q.shape == (5, 4)
    assert v.shape == (5, 5)
    for row, episode in enumerate(data.episodes()):
        steps = len(episode.rewards)
        wanted = 2 * episode.observations[:, 1] * np.append(np.ones(steps), not episode.terminated)
        np.testing.assert_allclose(v[row, : steps + 1], wanted)
        assert (v[row, steps + 1 :] == 0).all()


def test_ratios_that_cannot_be_are_refused(two: tuple[Any, Any]) -> None:
    policy, data = two[0], recorded(two[0])
    with pytest.raises(ValueError, match="behaviour=None, and the dataset has no column 'log_probs'"):
        log_ratios_of(policy, data)
    certain = recorded(two[0], log_probs=True)
    certain.columns["log_probs"][4] = -np.inf  # type: ignore[index]
    with pytest.raises(ValueError, match="row 4: the behaviour gave the action the log-probability -inf"):
        log_ratios_of(policy, certain)
    with pytest.raises(ValueError, match="method='dm' is unknown: use one of 'is', 'wis'"):
        estimate_from_ratios(policy, data, "dm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"method='dr' needs one: a trained FQE"):
        estimate_from_ratios(policy, data, "dr", behaviour=policy)
    with pytest.raises(ValueError, match=r"method='is' takes no critic"):
        estimate_from_ratios(policy, data, "is", behaviour=policy, critic=Critic())


def test_an_interval_that_a_few_episodes_make_comes_with_a_warning(two: tuple[Any, Any]) -> None:
    behaviour = two[1]
    data = recorded(behaviour)
    certain = model_of(PPO, spaces.Discrete(3))
    with torch.no_grad():
        certain.policy.action_net.bias.copy_(torch.tensor([9.0, 0.0, 0.0]))
    with pytest.warns(
        UserWarning, match=r"method='wis' is unreliable: its 5 episodes are worth \d\.\d equally weighted"
    ):
        estimate_from_ratios(certain, data, "wis", behaviour=behaviour)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = estimate_from_ratios(behaviour, data, "is", behaviour=behaviour)
        assert str(found) == f"{found.value:.4g} [{found.low:.4g} to {found.high:.4g}]"
        alone = estimate_from_ratios(behaviour, data.select([0]), "wis", behaviour=behaviour)
    assert str(alone) == f"{alone.value:.4g} [unknown]"


# -- metrics -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swings() -> Dataset:
    return collect("Pendulum-v1", None, 500, seed=0)


@pytest.fixture(scope="module")
def poles() -> Dataset:
    return collect("CartPole-v1", None, 120, seed=0)


def fresh(cls: Any, env: str, **options: Any) -> Any:
    return cls("MlpPolicy", env, device="cpu", seed=0, policy_kwargs={"net_arch": [8]}, **options)


def test_metrics_of_a_continuous_model(swings: Dataset) -> None:
    model, all_of = fresh(SAC, "Pendulum-v1", gamma=0.9), swings.transitions()
    now, then, taken = (torch.from_numpy(a) for a in (all_of.observations, all_of.next_observations, all_of.actions))
    with torch.no_grad():
        q = model.critic.q_values(now, taken / 2)
        best, best_then = (model.actor(obs, deterministic=True) for obs in (now, then))
        v, v_then = model.critic.q_values(now, best).amin(0), model.critic.q_values(then, best_then).amin(0)
    wanted = ((q - (torch.from_numpy(all_of.rewards) + 0.9 * v_then)) ** 2).mean().item()
    assert td_error(model, swings) == pytest.approx(wanted, rel=1e-5)
    assert average_value(model, swings) == pytest.approx(v.mean().item(), abs=1e-5)
    assert initial_value(model, swings) == pytest.approx(v[swings.starts].mean().item(), abs=1e-5)
    assert action_distance(model, swings) == pytest.approx(((best - taken / 2) ** 2).mean().item(), rel=1e-5)
    np.testing.assert_allclose(action_values(model, all_of.observations, all_of.actions), q.numpy(), atol=1e-5)
    likelihood = log_prob_of(model, all_of.observations, all_of.actions).mean()
    assert negative_log_likelihood(model, swings) == pytest.approx(-likelihood)
    better = swings.returns >= np.median(swings.returns)
    successful = torch.from_numpy(better[swings.episode_numbers])
    wanted = (q.amin(0)[successful].mean() - q.amin(0).mean()).item()
    assert soft_opc(model, swings) == pytest.approx(wanted, abs=1e-5)
    with pytest.raises(ValueError, match="no episode reaches it"):
        soft_opc(model, swings, threshold=1e9)
    with pytest.raises(NotApplicableError, match="Use action_distance"):
        action_match(model, swings)


def test_metrics_of_a_discrete_model(poles: Dataset) -> None:
    model, all_of = fresh(DQN, "CartPole-v1", gamma=0.9), poles.transitions()
    with torch.no_grad():
        q, q_then = (model.q_net(torch.from_numpy(o)) for o in (all_of.observations, all_of.next_observations))
    taken, rows = all_of.actions, np.arange(120)
    following = q_then.amax(1).numpy() * ~all_of.terminations
    assert all_of.terminations.any()
    wanted = ((q.numpy()[rows, taken] - (all_of.rewards + 0.9 * following)) ** 2).mean()
    assert td_error(model, poles) == pytest.approx(wanted, rel=1e-5)
    assert action_match(model, poles) == pytest.approx((q.argmax(1).numpy() == taken).mean())
    assert average_value(model, poles) == pytest.approx(q.amax(1).mean().item(), abs=1e-6)
    for metric in (action_distance, negative_log_likelihood):
        with pytest.raises(NotApplicableError):
            metric(model, poles)
    for metric in (td_error, initial_value, soft_opc):
        with pytest.raises(NotApplicableError, match="PPO has no critics of actions"):
            metric(fresh(PPO, "CartPole-v1"), poles)


def test_several_critics_of_choices_are_all_asked(poles: Dataset) -> None:
    model, all_of = fresh(DiscreteSAC, "CartPole-v1"), poles.transitions()
    with torch.no_grad():
        q = model.critic.q_values(torch.from_numpy(all_of.observations)).numpy()
    found = action_values(model, all_of.observations, all_of.actions)
    np.testing.assert_allclose(found, q[:, np.arange(120), all_of.actions], atol=1e-6)


# -- while learning ----------------------------------------------------------------------------------------------------


def test_the_callback_logs_what_applies_and_changes_nothing(swings: Dataset) -> None:
    held_out = swings.select([1, 2])
    callback = OfflineEvalCallback(held_out, eval_freq=20)
    lines: list[dict[str, Any]] = []

    class Lines(Logger):
        def dump(self, step: int = 0) -> None:
            lines.append(dict(self.name_to_value))
            super().dump(step)

    def learned(callback: Any) -> SAC:
        model = SAC("MlpPolicy", swings, device="cpu", seed=0, policy_kwargs={"net_arch": [8]}, batch_size=8)
        model.set_logger(Lines(None, []))
        return model.learn(60, callback)

    alone, watched = learned(lambda locals_, globals_: True), learned(callback)
    for name, tensor in watched.learner.networks().items():
        assert torch.equal(tensor, alone.learner.networks()[name]), name
    assert callback.timesteps == [20, 40, 60]
    assert set(callback.results) == METRICS.keys() - {"action_match"}
    assert all(len(values) == 3 for values in callback.results.values())
    assert callback.results["td_error"][-1] == td_error(watched, held_out)
    logged = [line["eval/td_error"] for line in lines if "eval/td_error" in line]
    assert logged == callback.results["td_error"]


def test_the_callback_takes_names_and_functions(poles: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    model = fresh(PPO, "CartPole-v1", n_steps=32, batch_size=32)
    named = OfflineEvalCallback(poles, ["negative_log_likelihood"], eval_freq=32, verbose=1)
    own = OfflineEvalCallback(poles, {"size": lambda model, dataset: float(len(dataset))}, eval_freq=64)
    model.learn(64, callback=[named, own])
    assert len(named.results["negative_log_likelihood"]) == 2
    assert own.results == {"size": [120.0]}
    assert "negative_log_likelihood" in capsys.readouterr().out


def test_the_callback_refuses_what_it_cannot_do(poles: Dataset, swings: Dataset) -> None:
    with pytest.raises(ValueError, match=r"metrics: 'td_eror' is unknown; .* Did you mean 'td_error'"):
        OfflineEvalCallback(poles, ["td_eror"])
    with pytest.raises(ValueError, match="eval_freq must be at least 1, got 0"):
        OfflineEvalCallback(poles, eval_freq=0)
    with pytest.raises(ValueError, match=r"dataset has observation_space.*Use dataset\.for_env"):
        fresh(PPO, "CartPole-v1").learn(8, OfflineEvalCallback(swings))
    with pytest.raises(ValueError, match="metrics: 'td_error' cannot be computed. PPO has no critics"):
        fresh(PPO, "CartPole-v1").learn(8, OfflineEvalCallback(poles, ["td_error"]))
