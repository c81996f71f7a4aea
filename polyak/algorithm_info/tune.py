"""Functions that create parts of search spaces: ``Search(tune.rate(), tune.uniform("clip_range", 0.05, 0.4))``.

Numbers are rounded to three digits, so that written settings equal the tried ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyak.algorithm_info.search import Search, SearchPart, Task, Values

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

# -- one hyper-parameter -----------------------------------------------------------------------------------------------


def uniform(name: str, low: float, high: float) -> SearchPart:
    """Draws a number in [low, high]."""
    return SearchPart(name, lambda trial, task, drawn: {name: draw_uniform(trial, name, low, high)})


def log_uniform(name: str, low: float, high: float) -> SearchPart:
    """Draws a number in [low, high] whose logarithm is uniform."""
    return SearchPart(name, lambda trial, task, drawn: {name: draw_log_uniform(trial, name, low, high)})


def whole(name: str, low: int, high: int) -> SearchPart:
    """Draws an integer in [low, high]."""
    return SearchPart(name, lambda trial, task, drawn: {name: trial.suggest_int(name, low, high)})


def power_of_two(name: str, low: int, high: int) -> SearchPart:
    """Draws 2, 4, 8, ... between ``low`` and ``high``, which are powers of two."""
    return SearchPart(name, lambda trial, task, drawn: {name: draw_power_of_two(trial, name, low, high)})


def one_of(name: str, choices: Sequence[int], of_the_budget: float = math.inf) -> SearchPart:
    """Draws one of the ascending ``choices``, up to this multiple of the steps of a training."""
    return SearchPart(
        name, lambda trial, task, drawn: {name: draw_one_of(trial, name, choices, of_the_budget * task.n_timesteps)}
    )


def choice(name: str, choices: Sequence[Any] = (False, True)) -> SearchPart:
    """Draws one of ``choices``, which have no order."""
    return SearchPart(name, lambda trial, task, drawn: {name: trial.suggest_categorical(name, list(choices))})


# -- all learners -----------------------------------------------------------------------------------------------------


def rate(low: float = 1e-5, high: float = 5e-3, name: str = "learning_rate") -> SearchPart:
    """Draws a learning rate that is constant, or falls linearly to 0."""
    return SearchPart(name, lambda trial, task, drawn: {name: draw_rate(trial, name, low, high)})


def discount() -> SearchPart:
    """Draws the discount, with a horizon of about 10 to 10,000 steps."""
    return SearchPart(
        "gamma",
        lambda trial, task, drawn: {"gamma": round(1 - draw_log_uniform(trial, "one_minus_gamma", 1e-4, 1e-1), 6)},
    )


def network(widest: int = 256) -> SearchPart:
    """Draws hidden layers, up to ``widest``, and activation; for images the policy's defaults are kept.

    Args:
        widest: a power of two, at least 32.
    """

    def draw(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
        if task.images:
            return {}
        width = draw_power_of_two(trial, "width", 32, widest)
        layers = trial.suggest_int("layers", 1, 3)
        activation = trial.suggest_categorical("activation_fn", ["nn.Tanh", "nn.ReLU", "nn.SiLU"])
        options = {"net_arch": [width] * layers, "activation_fn": activation, **drawn.get("policy_kwargs", {})}
        return {"policy_kwargs": options}

    return SearchPart("policy_kwargs", draw)


def of_policy(part: SearchPart) -> SearchPart:
    """Turns a part's settings into entries of ``policy_kwargs``, beside those drawn before."""

    def draw(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
        return {"policy_kwargs": {**drawn.get("policy_kwargs", {}), **part.draw(trial, task, drawn)}}

    return SearchPart(f"policy_kwargs/{part.name}", draw)


def clipped_gradients(low: float = 0.1, high: float = 10.0) -> SearchPart:
    """Draws the norm that gradients are clipped to."""
    return log_uniform("max_grad_norm", low, high)


# -- rollouts ----------------------------------------------------------------------------------------------------------


def rollout(smallest: int = 128, per_env: int = 0) -> SearchPart:
    """Draws the steps per environment of a rollout, so that the budget allows at least four rollouts.

    Args:
        smallest: least number of rows of a rollout, over all environments.
        per_env: instead, least number of steps of each environment.
    """

    def draw(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
        least = per_env or smallest / task.n_envs
        low = 2 ** math.ceil(math.log2(max(2, least)))
        high = min(4096, max(2, task.n_timesteps // (4 * task.n_envs)))
        return {"n_steps": draw_power_of_two(trial, "n_steps", low, high)}

    return SearchPart("n_steps", draw)


def minibatches(most_epochs: int = 20) -> SearchPart:
    """Draws minibatches no larger than the rollout, whose ``n_steps`` is drawn before; and passes over it.

    Args:
        most_epochs: 1 draws none.
    """

    def draw(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
        batch_size = min(draw_power_of_two(trial, "batch_size", 32, 1024), drawn["n_steps"] * task.n_envs)
        epochs = {"n_epochs": trial.suggest_int("n_epochs", 1, most_epochs)} if most_epochs > 1 else {}
        return {"batch_size": batch_size, **epochs}

    return SearchPart("batch_size", draw)


def traces() -> SearchPart:
    """Draws the trace decay, from nearly one-step temporal differences to Monte Carlo."""
    return uniform("gae_lambda", 0.7, 1.0)


def entropy() -> SearchPart:
    """Draws the weight of the entropy bonus."""
    return log_uniform("ent_coef", 1e-8, 0.1)


# -- replay ------------------------------------------------------------------------------------------------------------


def replay(smallest_batch: int = 16, largest_batch: int = 512) -> SearchPart:
    """Draws batch size, buffer size and start of learning; with goals, the number of relabelled ones."""

    def draw(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
        values: Values = {"batch_size": draw_power_of_two(trial, "batch_size", smallest_batch, largest_batch)}
        if not task.images:  # buffers of images fill the memory: the tuned file sets their size
            sizes = [10_000, 100_000, 1_000_000]
            values["buffer_size"] = draw_one_of(trial, "buffer_size", sizes, 5 * task.n_timesteps)
        if task.goals:
            strategy = trial.suggest_categorical("goal_selection_strategy", ["future", "final", "episode"])
            n_goals = trial.suggest_int("n_sampled_goal", 1, 8)
            relabelling = {"n_sampled_goal": n_goals, "goal_selection_strategy": strategy}
            return {**values, "replay_buffer_kwargs": relabelling}
        starts = draw_one_of(trial, "learning_starts", [100, 1_000, 5_000, 10_000], task.n_timesteps / 5)
        return {**values, "learning_starts": starts}

    return SearchPart("replay", draw)


def batches() -> SearchPart:
    """Draws the rows of a minibatch from a dataset."""
    return power_of_two("batch_size", 64, 1024)


def n_step_returns() -> SearchPart:
    """Draws the number of rewards summed before bootstrapping; one if goals are relabelled."""
    return SearchPart(
        "n_steps", lambda trial, task, drawn: {} if task.goals else {"n_steps": trial.suggest_int("n_steps", 1, 5)}
    )


def many_updates() -> SearchPart:
    """Draws the critics' gradient steps for each environment step, after which the actor makes one."""

    def draw(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
        n_updates = draw_one_of(trial, "gradient_steps", [1, 5, 10, 20])
        return {"gradient_steps": n_updates, "policy_delay": n_updates}

    return SearchPart("gradient_steps", draw)


def updates(most: int = 256) -> SearchPart:
    """Draws how often the model learns, up to every ``most`` steps; one gradient step per 1 to 8 environment steps."""

    def draw(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
        train_freq = draw_one_of(trial, "train_freq", [1, 4, 16, 64, 256], most)
        spacing = draw_one_of(trial, "steps_per_update", [1, 2, 4, 8])
        return {"train_freq": train_freq, "gradient_steps": max(1, train_freq * task.n_envs // spacing)}

    return SearchPart("train_freq", draw)


def soft_target(high: float = 0.1) -> SearchPart:
    """Draws the rate of target updates."""
    return log_uniform("tau", 1e-3, high)


def hard_target() -> SearchPart:
    """Draws the environment steps between two copies of the network to its target."""
    return one_of("target_update_interval", [10, 100, 500, 1_000, 5_000, 10_000], of_the_budget=0.1)


# -- exploration -------------------------------------------------------------------------------------------------------


def epsilon() -> SearchPart:
    """Draws length and final value of epsilon's schedule."""
    return SearchPart(
        "exploration",
        lambda trial, task, drawn: {
            "exploration_fraction": draw_uniform(trial, "exploration_fraction", 0.02, 0.5),
            "exploration_final_eps": draw_log_uniform(trial, "exploration_final_eps", 0.005, 0.2),
        },
    )


def action_noise() -> SearchPart:
    """Draws the noise added to the actions of a deterministic policy."""

    def draw(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
        kind = trial.suggest_categorical("noise_type", ["none", "normal", "ornstein-uhlenbeck"])
        return {"noise_type": kind, "noise_std": draw_uniform(trial, "noise_std", 0.01, 1.0) if kind != "none" else 0.0}

    return SearchPart("action_noise", draw)


def gsde() -> SearchPart:
    """Draws state-dependent exploration, for continuous actions."""

    def draw(trial: BaseTrial, task: Task, drawn: Mapping[str, Any]) -> Values:
        if not task.continuous:
            return {}
        if not trial.suggest_categorical("use_sde", [False, True]):
            return {"use_sde": False}
        return {"use_sde": True, "sde_sample_freq": draw_one_of(trial, "sde_sample_freq", [4, 16, 64])}

    return SearchPart("use_sde", draw)


# -- kinds of algorithms -----------------------------------------------------------------------------------------------


def passes(most_epochs: int, *more: SearchPart) -> Search:
    """Returns the search of algorithms with several passes over each rollout, up to ``most_epochs``."""
    return Search(rollout(), rate(), discount(), minibatches(most_epochs), traces(), *more, network())


def clipped_steps(*more: SearchPart) -> Search:
    """Returns the search of PPO and its variants."""
    clipping, values = uniform("clip_range", 0.05, 0.4), uniform("vf_coef", 0.1, 1.0)
    return passes(20, clipping, values, entropy(), clipped_gradients(), *more)


def short_rollouts(per_env: int, *more: SearchPart) -> Search:
    """Returns the search of algorithms with one update per rollout, with at least ``per_env`` steps of each
    environment."""
    return Search(rate(), discount(), rollout(per_env=per_env), traces(), *more, clipped_gradients(), network())


def lagging_rollouts() -> Search:
    """Returns the search of algorithms that learn from rollouts of a slightly older policy."""
    parts = rate(), discount(), rollout(), traces(), log_uniform("vf_coef", 0.01, 1.0), entropy()
    return Search(*parts, clipped_gradients(0.5, 100.0), gsde(), network())


def actor_critic(*more: SearchPart, how_often: SearchPart | None = None) -> Search:
    """Returns the search of an actor-critic with replay and soft targets; ``how_often`` replaces :func:`updates`."""
    often = how_often or updates(most=64)
    return Search(rate(), discount(), replay(), often, soft_target(), *more, network(widest=512))


def q_learning(*more: SearchPart) -> Search:
    """Returns the search of DQN and its variants."""
    parts = hard_target(), n_step_returns(), rate(), discount(), replay(), updates()
    return Search(*parts, *more, network())


def of_data() -> Search:
    """Returns the search of algorithms that learn from a dataset."""
    return Search(rate(), discount(), batches(), network(widest=512))


def from_data() -> Search:
    """Returns the search of an actor-critic that learns from a dataset."""
    return Search(of_data(), soft_target())


# -- numbers -----------------------------------------------------------------------------------------------------------


def three_digits(value: float) -> float:
    """Rounds to three significant digits."""
    return float(f"{value:.3g}")


def draw_log_uniform(trial: BaseTrial, name: str, low: float, high: float) -> float:
    """Draws a number whose logarithm is uniform."""
    return three_digits(trial.suggest_float(name, low, high, log=True))


def draw_uniform(trial: BaseTrial, name: str, low: float, high: float) -> float:
    """Draws a uniform number."""
    return three_digits(trial.suggest_float(name, low, high))


def draw_power_of_two(trial: BaseTrial, name: str, low: int, high: int) -> int:
    """Draws 2, 4, 8, ... between `low` and `high`, which are powers of two; Optuna samples the exponent."""
    return 2 ** trial.suggest_int(f"{name}_pow", int(math.log2(low)), max(int(math.log2(low)), int(math.log2(high))))


def draw_one_of(trial: BaseTrial, name: str, choices: Sequence[int], at_most: float = math.inf) -> int:
    """Draws one of the ascending `choices` up to `at_most`; the smallest if all are larger."""
    fitting = [choice for choice in choices if choice <= at_most] or choices[:1]
    return fitting[trial.suggest_int(f"{name}_index", 0, len(fitting) - 1)]


def draw_rate(trial: BaseTrial, name: str, low: float, high: float) -> float | str:
    """Draws a number that is constant, or falls linearly to 0."""
    value = draw_log_uniform(trial, name, low, high)
    falls = trial.suggest_categorical(f"{name}_schedule", ["constant", "linear"]) == "linear"
    return f"lin_{value:g}" if falls else value
