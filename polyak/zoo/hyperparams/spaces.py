"""Where `polyak tune` looks for settings: one function per algorithm, put together from the parts that they share.

A space is a function ``space(trial, task) -> settings``. It draws numbers from an Optuna ``trial`` and returns settings
as they stand in YAML files: plain numbers, strings, lists and dicts, keyed by the constructor's parameters and the run
keys of `polyak.zoo.settings`. They replace those of the tuned file; what a space does not name stays as it is there.

Ranges go from what is known to be too small to what is known to be too large for most tasks, on a logarithmic scale
where a factor matters more than a difference. Where a setting costs experience (a rollout, a warm-up), the task's
budget bounds it. Numbers are rounded to three digits, so that what is written is what was tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

Values = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What a space may need to know: the budget of one training in environment steps, and what stays fixed in it.

    ``continuous`` says whether actions are a Box; ``images`` whether the policy sees pictures; ``goals`` whether
    experience is relabelled with other goals (HER).
    """

    n_timesteps: int
    n_envs: int = 1
    continuous: bool = False
    images: bool = False
    goals: bool = False


Space = Callable[["BaseTrial", Task], Values]

# -- parts that spaces share -------------------------------------------------------------------------------------------


def three_digits(value: float) -> float:
    """Round to three significant digits."""
    return float(f"{value:.3g}")


def log_uniform(trial: BaseTrial, name: str, low: float, high: float) -> float:
    """Draw a number whose logarithm is uniform."""
    return three_digits(trial.suggest_float(name, low, high, log=True))


def uniform(trial: BaseTrial, name: str, low: float, high: float) -> float:
    """Draw a number."""
    return three_digits(trial.suggest_float(name, low, high))


def power_of_two(trial: BaseTrial, name: str, low: int, high: int) -> int:
    """Draw 2, 4, 8, ... between `low` and `high`, which are powers of two; Optuna knows the exponent."""
    return 2 ** trial.suggest_int(f"{name}_pow", int(math.log2(low)), max(int(math.log2(low)), int(math.log2(high))))


def one_of(trial: BaseTrial, name: str, choices: Sequence[int], at_most: float = math.inf) -> int:
    """Draw one of the rising `choices` that are `at_most` so large; the smallest if all are larger."""
    fitting = [choice for choice in choices if choice <= at_most] or choices[:1]
    return fitting[trial.suggest_int(f"{name}_index", 0, len(fitting) - 1)]


def rate(trial: BaseTrial, low: float = 1e-5, high: float = 5e-3, name: str = "learning_rate") -> Values:
    """A learning rate that stays, or falls linearly to 0."""
    value = log_uniform(trial, name, low, high)
    falls = trial.suggest_categorical(f"{name}_schedule", ["constant", "linear"]) == "linear"
    return {name: f"lin_{value:g}" if falls else value}


def discount(trial: BaseTrial) -> Values:
    """How far rewards reach: from about 10 steps to about 10,000."""
    return {"gamma": round(1 - log_uniform(trial, "one_minus_gamma", 1e-4, 1e-1), 6)}


def traces(trial: BaseTrial) -> Values:
    """From nearly one-step temporal differences to Monte Carlo."""
    return {"gae_lambda": uniform(trial, "gae_lambda", 0.7, 1.0)}


def network(trial: BaseTrial, task: Task, *, widest: int = 256, **more: Any) -> Values:
    """Hidden layers, up to `widest`, and activation; pictures keep the encoder and the layers of their policy."""
    if task.images:
        return {"policy_kwargs": more} if more else {}
    width = power_of_two(trial, "width", 32, widest)
    layers = trial.suggest_int("layers", 1, 3)
    activation = trial.suggest_categorical("activation_fn", ["nn.Tanh", "nn.ReLU", "nn.SiLU"])
    return {"policy_kwargs": {"net_arch": [width] * layers, "activation_fn": activation, **more}}


def rollout(trial: BaseTrial, task: Task, smallest: int = 128) -> Values:
    """Steps per environment, so that a rollout of all has `smallest` or more and the budget holds four or more."""
    low = 2 ** math.ceil(math.log2(max(2, smallest / task.n_envs)))
    return {"n_steps": power_of_two(trial, "n_steps", low, min(4096, max(2, task.n_timesteps // (4 * task.n_envs))))}


def minibatches(trial: BaseTrial, task: Task, n_steps: int, most_epochs: int = 20) -> Values:
    """Passes over a rollout in minibatches that are no larger than it."""
    batch_size = min(power_of_two(trial, "batch_size", 32, 1024), n_steps * task.n_envs)
    return {"batch_size": batch_size, "n_epochs": trial.suggest_int("n_epochs", 1, most_epochs)}


def entropy(trial: BaseTrial) -> Values:
    """A reward for acting at random, from none to much."""
    return {"ent_coef": log_uniform(trial, "ent_coef", 1e-8, 0.1)}


def clipped_gradients(trial: BaseTrial) -> Values:
    """The norm that gradients are cut to."""
    return {"max_grad_norm": log_uniform(trial, "max_grad_norm", 0.1, 10.0)}


def gsde(trial: BaseTrial, task: Task) -> Values:
    """Exploration that depends on the state, for continuous actions."""
    if not task.continuous or not trial.suggest_categorical("use_sde", [False, True]):
        return {"use_sde": False} if task.continuous else {}
    return {"use_sde": True, "sde_sample_freq": one_of(trial, "sde_sample_freq", [4, 16, 64])}


def replay(trial: BaseTrial, task: Task, smallest_batch: int = 16, largest_batch: int = 512) -> Values:
    """What is kept, when learning begins, and how much is drawn at once."""
    values: Values = {"batch_size": power_of_two(trial, "batch_size", smallest_batch, largest_batch)}
    if not task.images:  # their buffers fill the memory: the tuned file says how large they may be
        values["buffer_size"] = one_of(trial, "buffer_size", [10_000, 100_000, 1_000_000], 5 * task.n_timesteps)
    if task.goals:
        return {**values, **relabelling(trial)}
    starts = one_of(trial, "learning_starts", [100, 1_000, 5_000, 10_000], task.n_timesteps / 5)
    return {**values, "learning_starts": starts}


def relabelling(trial: BaseTrial) -> Values:
    """Hindsight: how many goals are made up, and which."""
    strategy = trial.suggest_categorical("goal_selection_strategy", ["future", "final", "episode"])
    n_goals = trial.suggest_int("n_sampled_goal", 1, 8)
    return {"replay_buffer_kwargs": {"n_sampled_goal": n_goals, "goal_selection_strategy": strategy}}


def updates(trial: BaseTrial, task: Task, most: int = 256) -> Values:
    """How often one learns, and a gradient step for each 1 to 8 environment steps."""
    train_freq = one_of(trial, "train_freq", [1, 4, 16, 64, 256], most)
    spacing = one_of(trial, "steps_per_update", [1, 2, 4, 8])
    return {"train_freq": train_freq, "gradient_steps": max(1, train_freq * task.n_envs // spacing)}


def soft_target(trial: BaseTrial, high: float = 0.1) -> Values:
    """The pace at which target networks follow."""
    return {"tau": log_uniform(trial, "tau", 1e-3, high)}


def epsilon(trial: BaseTrial) -> Values:
    """How long, and how much in the end, actions are drawn blindly."""
    return {
        "exploration_fraction": uniform(trial, "exploration_fraction", 0.02, 0.5),
        "exploration_final_eps": log_uniform(trial, "exploration_final_eps", 0.005, 0.2),
    }


def action_noise(trial: BaseTrial) -> Values:
    """What is added to the actions of a deterministic policy."""
    kind = trial.suggest_categorical("noise_type", ["none", "normal", "ornstein-uhlenbeck"])
    return {"noise_type": kind, "noise_std": uniform(trial, "noise_std", 0.01, 1.0) if kind != "none" else 0.0}


# -- on-policy ---------------------------------------------------------------------------------------------------------


def ppo(trial: BaseTrial, task: Task) -> Values:
    """Proximal policy optimisation."""
    return {**_clipped(trial, task), **gsde(trial, task), **network(trial, task)}


def maskable_ppo(trial: BaseTrial, task: Task) -> Values:
    """The same, where some actions are forbidden."""
    return {**_clipped(trial, task), **network(trial, task)}


def recurrent_ppo(trial: BaseTrial, task: Task) -> Values:
    """The same with a memory."""
    size = power_of_two(trial, "memory_size", 32, 256)
    critic = trial.suggest_categorical("critic_memory", ["own", "shared", "none"])
    return {**_clipped(trial, task), **network(trial, task, memory_size=size, critic_memory=critic)}


def _clipped(trial: BaseTrial, task: Task) -> Values:
    steps = rollout(trial, task)
    return {
        **rate(trial),
        **discount(trial),
        **steps,
        **minibatches(trial, task, steps["n_steps"]),
        **traces(trial),
        "clip_range": uniform(trial, "clip_range", 0.05, 0.4),
        "vf_coef": uniform(trial, "vf_coef", 0.1, 1.0),
        **entropy(trial),
        **clipped_gradients(trial),
    }


def a2c(trial: BaseTrial, task: Task) -> Values:
    """Advantage actor-critic."""
    return {
        **rate(trial),
        **discount(trial),
        **rollout(trial, task, smallest=4 * task.n_envs),
        **traces(trial),
        "vf_coef": uniform(trial, "vf_coef", 0.1, 1.0),
        "normalize_advantage": trial.suggest_categorical("normalize_advantage", [False, True]),
        "use_rms_prop": trial.suggest_categorical("use_rms_prop", [False, True]),
        **entropy(trial),
        **clipped_gradients(trial),
        **gsde(trial, task),
        **network(trial, task),
    }


def actor_critic(trial: BaseTrial, task: Task) -> Values:
    """One-step and n-step actor-critic."""
    return {
        **rate(trial),
        **rate(trial, name="critic_learning_rate"),
        **discount(trial),
        **rollout(trial, task, smallest=2 * task.n_envs),
        **traces(trial),
        **entropy(trial),
        **clipped_gradients(trial),
        **network(trial, task),
    }


def impala(trial: BaseTrial, task: Task) -> Values:
    """Actors and a learner at once."""
    return {**_asynchronous(trial, task), "use_rms_prop": trial.suggest_categorical("use_rms_prop", [False, True])}


def appo(trial: BaseTrial, task: Task) -> Values:
    """The same in clipped steps."""
    return {
        **_asynchronous(trial, task),
        "clip_range": uniform(trial, "clip_range", 0.05, 0.4),
        "target_update_interval": power_of_two(trial, "target_update_interval", 1, 64),
        "uses_per_rollout": trial.suggest_int("uses_per_rollout", 1, 8),
    }


def _asynchronous(trial: BaseTrial, task: Task) -> Values:
    return {
        **rate(trial),
        **discount(trial),
        **rollout(trial, task),
        **traces(trial),
        "vf_coef": log_uniform(trial, "vf_coef", 0.01, 1.0),
        **entropy(trial),
        "max_grad_norm": log_uniform(trial, "max_grad_norm", 0.5, 100.0),
        **gsde(trial, task),
        **network(trial, task),
    }


def reinforce(trial: BaseTrial, task: Task) -> Values:
    """Monte Carlo policy gradients."""
    baseline = trial.suggest_categorical("baseline", [False, True])
    return {
        **rate(trial),
        **(rate(trial, name="critic_learning_rate") if baseline else {}),
        **discount(trial),
        "baseline": baseline,
        "episodes_per_update": task.n_envs * power_of_two(trial, "episodes_per_update", 1, 8),
        "normalize_returns": trial.suggest_categorical("normalize_returns", [False, True]),
        **entropy(trial),
        **clipped_gradients(trial),
        **network(trial, task),
    }


def trpo(trial: BaseTrial, task: Task) -> Values:
    """Trust region policy optimisation."""
    steps = rollout(trial, task)
    batch_size = minibatches(trial, task, steps["n_steps"], most_epochs=1)["batch_size"]
    return {
        **rate(trial),
        **discount(trial),
        **steps,
        "batch_size": batch_size,
        **traces(trial),
        "target_kl": log_uniform(trial, "target_kl", 1e-3, 0.1),
        "cg_max_steps": trial.suggest_int("cg_max_steps", 5, 30),
        "n_critic_updates": trial.suggest_int("n_critic_updates", 5, 30),
        **gsde(trial, task),
        **network(trial, task),
    }


def pqn(trial: BaseTrial, task: Task) -> Values:
    """Q-learning from rollouts, without replay and without target networks."""
    steps = rollout(trial, task)
    return {
        **rate(trial),
        **discount(trial),
        **steps,
        **minibatches(trial, task, steps["n_steps"], most_epochs=8),
        **traces(trial),
        **epsilon(trial),
        **clipped_gradients(trial),
        **network(trial, task),
    }


def deep_sarsa(trial: BaseTrial, task: Task) -> Values:
    """SARSA and expected SARSA with a network."""
    return {
        **rate(trial),
        **discount(trial),
        **rollout(trial, task, smallest=4 * task.n_envs),
        **traces(trial),
        "expected": trial.suggest_categorical("expected", [False, True]),
        **epsilon(trial),
        **clipped_gradients(trial),
        **network(trial, task),
    }


def ars(trial: BaseTrial, task: Task) -> Values:
    """Augmented random search: directions are tried, and the best of them followed."""
    n_delta = power_of_two(trial, "n_delta", 2, 32)
    return {
        **rate(trial, 1e-3, 0.2),
        "delta_std": log_uniform(trial, "delta_std", 0.01, 0.5),
        "n_delta": n_delta,
        "n_top": max(1, round(n_delta * uniform(trial, "top_fraction", 0.1, 1.0))),
    }


# -- tables ------------------------------------------------------------------------------------------------------------


def q_learning(trial: BaseTrial, task: Task) -> Values:
    """One-step and n-step Q-learning, or with traces."""
    return {**_table(trial, task), **_lookahead(trial)}


def sarsa(trial: BaseTrial, task: Task) -> Values:
    """SARSA over n steps or with traces, sampled or expected."""
    return {**_table(trial, task), **_lookahead(trial), "sigma": uniform(trial, "sigma", 0.0, 1.0)}


def expected_sarsa(trial: BaseTrial, task: Task) -> Values:
    """Expected SARSA, tree backup or with traces."""
    return {**_table(trial, task), **_lookahead(trial)}


def double_q_learning(trial: BaseTrial, task: Task) -> Values:
    """Q-learning with two tables."""
    return _table(trial, task)


def monte_carlo_control(trial: BaseTrial, task: Task) -> Values:
    """Averages of returns."""
    return {
        "gamma": _table(trial, task)["gamma"],
        "epsilon": _fading_epsilon(trial),
        "visits": trial.suggest_categorical("visits", ["first", "every"]),
        "exploring_starts": trial.suggest_categorical("exploring_starts", [False, True]),
        "off_policy": trial.suggest_categorical("off_policy", [False, True]),
    }


def dyna_q(trial: BaseTrial, task: Task) -> Values:
    """Q-learning that also plans with what it has seen."""
    return {
        **_table(trial, task),
        "planning_steps": power_of_two(trial, "planning_steps", 1, 64),
        "prioritized": trial.suggest_categorical("prioritized", [False, True]),
    }


def value_iteration(trial: BaseTrial, task: Task) -> Values:
    """Nothing is drawn in planning; but how far rewards reach decides how soon it is done."""
    return discount(trial)


def policy_iteration(trial: BaseTrial, task: Task) -> Values:
    """The same."""
    return discount(trial)


def soft_policy_iteration(trial: BaseTrial, task: Task) -> Values:
    """The worth of entropy is a part of the task: the greedy policy is compared."""
    return {**discount(trial), "temperature": trial.suggest_float("temperature", 1e-3, 1.0, log=True)}


def _table(trial: BaseTrial, task: Task) -> Values:
    averages = trial.suggest_categorical("averages", [False, True])
    return {
        "learning_rate": "1/n" if averages else rate(trial, 0.01, 1.0)["learning_rate"],
        **discount(trial),
        "epsilon": _fading_epsilon(trial),
        "initial_value": float(trial.suggest_categorical("initial_value", [0, 1, 10])),
    }


def _fading_epsilon(trial: BaseTrial) -> float | str:
    value: float | str = rate(trial, 0.01, 1.0, "epsilon")["epsilon"]
    return value


def _lookahead(trial: BaseTrial) -> Values:
    kind = trial.suggest_categorical("lookahead", ["one step", "n steps", "traces"])
    if kind == "n steps":
        return {"n_steps": trial.suggest_int("n_steps", 2, 8), "lambda_": 0.0}
    if kind == "traces":
        kinds = ["accumulating", "replacing", "dutch"]
        lambda_ = uniform(trial, "lambda_", 0.1, 0.99)
        return {"n_steps": 1, "lambda_": lambda_, "traces": trial.suggest_categorical("traces", kinds)}
    return {"n_steps": 1, "lambda_": 0.0}


# -- off-policy, discrete actions --------------------------------------------------------------------------------------


def dqn(trial: BaseTrial, task: Task) -> Values:
    """Deep Q-learning, double or dueling if that helps."""
    return {**_q_learning(trial, task), **_double_dueling(trial), **epsilon(trial), **network(trial, task)}


def c51(trial: BaseTrial, task: Task) -> Values:
    """Categorical DQN; the support of its returns stays that of the tuned file, for it depends on the rewards."""
    return {**dqn(trial, task), "n_atoms": one_of(trial, "n_atoms", [21, 51, 101])}


def qrdqn(trial: BaseTrial, task: Task) -> Values:
    """DQN with quantiles."""
    n_quantiles = one_of(trial, "n_quantiles", [10, 25, 50, 100, 200])
    return {**_q_learning(trial, task), **epsilon(trial), **network(trial, task, n_quantiles=n_quantiles)}


def iqn(trial: BaseTrial, task: Task) -> Values:
    """DQN with quantiles drawn anew each time."""
    return {
        **_q_learning(trial, task),
        **epsilon(trial),
        **network(trial, task),
        "n_levels": power_of_two(trial, "n_levels", 8, 64),
        "n_target_levels": power_of_two(trial, "n_target_levels", 8, 64),
    }


def rainbow(trial: BaseTrial, task: Task) -> Values:
    """Six improvements of DQN at once; noise in the network explores."""
    return {
        **_q_learning(trial, task),
        **network(trial, task),
        "n_atoms": one_of(trial, "n_atoms", [21, 51, 101]),
        "sigma0": uniform(trial, "sigma0", 0.1, 1.0),
    }


def _q_learning(trial: BaseTrial, task: Task) -> Values:
    interval = one_of(trial, "target_update_interval", [10, 100, 500, 1_000, 5_000, 10_000], task.n_timesteps / 10)
    multi_step = {} if task.goals else {"n_steps": trial.suggest_int("n_steps", 1, 5)}
    return {
        **rate(trial),
        **discount(trial),
        **replay(trial, task),
        **updates(trial, task),
        **multi_step,
        "target_update_interval": interval,
    }


def _double_dueling(trial: BaseTrial) -> Values:
    return {name: trial.suggest_categorical(name, [False, True]) for name in ("double", "dueling")}


def discrete_sac(trial: BaseTrial, task: Task) -> Values:
    """Soft actor-critic for discrete actions."""
    return {**sac(trial, task), "target_entropy": log_uniform(trial, "target_entropy", 0.01, 0.9)}


# -- off-policy, continuous actions ------------------------------------------------------------------------------------


def sac(trial: BaseTrial, task: Task) -> Values:
    """Soft actor-critic."""
    return {**_from_replay(trial, task), **soft_target(trial), **network(trial, task, widest=512)}


def tqc(trial: BaseTrial, task: Task) -> Values:
    """Soft actor-critic with quantiles, the highest of which are left out."""
    n_quantiles = one_of(trial, "n_quantiles", [10, 25, 50])
    return {
        **_from_replay(trial, task),
        **soft_target(trial),
        "top_quantiles_to_drop_per_net": trial.suggest_int("top_quantiles_to_drop_per_net", 0, 9),
        **network(trial, task, widest=512, n_quantiles=n_quantiles),
    }


def crossq(trial: BaseTrial, task: Task) -> Values:
    """Soft actor-critic with batch normalisation, without target networks; its critics stay as wide as they are."""
    return {**_from_replay(trial, task), "policy_delay": trial.suggest_int("policy_delay", 1, 4)}


def redq(trial: BaseTrial, task: Task) -> Values:
    """Soft actor-critic with many critics and many updates."""
    return {
        **_many_updates(trial, task),
        "n_critics": one_of(trial, "n_critics", [2, 5, 10]),
        "subset": trial.suggest_int("subset", 1, 2),
        **network(trial, task, widest=512),
    }


def droq(trial: BaseTrial, task: Task) -> Values:
    """Many updates with dropout instead of many critics."""
    return {
        **_many_updates(trial, task),
        "dropout_rate": log_uniform(trial, "dropout_rate", 1e-3, 0.1),
        **network(trial, task, widest=512),
    }


def simba(trial: BaseTrial, task: Task) -> Values:
    """Soft actor-critic with residual networks, whose sizes stay those of the tuned file."""
    return {
        **_from_replay(trial, task),
        **soft_target(trial),
        "weight_decay": log_uniform(trial, "weight_decay", 1e-4, 0.1),
    }


def ddpg(trial: BaseTrial, task: Task) -> Values:
    """Deep deterministic policy gradients."""
    return {
        **_from_replay(trial, task),
        **soft_target(trial),
        **action_noise(trial),
        **network(trial, task, widest=512),
    }


def td3(trial: BaseTrial, task: Task) -> Values:
    """Twin delayed deterministic policy gradients."""
    return {
        **ddpg(trial, task),
        **_smoothed(trial),
        "policy_delay": trial.suggest_int("policy_delay", 1, 4),
    }


def sd3(trial: BaseTrial, task: Task) -> Values:
    """Softmax deterministic policy gradients."""
    return {
        **ddpg(trial, task),
        **_smoothed(trial),
        "beta": log_uniform(trial, "beta", 1e-3, 1.0),
        "n_noise_samples": one_of(trial, "n_noise_samples", [10, 50, 100]),
    }


def fast_td3(trial: BaseTrial, task: Task) -> Values:
    """TD3 for many environments; the support of its returns stays that of the tuned file."""
    return {
        **rate(trial),
        **discount(trial),
        **replay(trial, task, smallest_batch=256, largest_batch=4096),
        "gradient_steps": one_of(trial, "gradient_steps", [1, 2, 4, 8]),
        **soft_target(trial, high=0.2),
        **_smoothed(trial),
        "noise_max": uniform(trial, "noise_max", 0.1, 1.0),
        "weight_decay": log_uniform(trial, "weight_decay", 1e-4, 0.2),
        **network(trial, task, widest=512),
    }


def _from_replay(trial: BaseTrial, task: Task) -> Values:
    return {
        **rate(trial),
        **discount(trial),
        **replay(trial, task),
        **updates(trial, task, most=64),
    }


def _many_updates(trial: BaseTrial, task: Task) -> Values:
    n_updates = one_of(trial, "gradient_steps", [1, 5, 10, 20])
    return {
        **rate(trial),
        **discount(trial),
        **replay(trial, task),
        **soft_target(trial),
        "gradient_steps": n_updates,
        "policy_delay": n_updates,  # the actor learns once an environment step
    }


def _smoothed(trial: BaseTrial) -> Values:
    return {"target_policy_noise": log_uniform(trial, "target_policy_noise", 1e-3, 0.4)}


# -- from datasets -----------------------------------------------------------------------------------------------------


def bc(trial: BaseTrial, task: Task) -> Values:
    """Behaviour cloning."""
    return {
        **rate(trial),
        **_recorded_rows(trial),
        "l2_coef": log_uniform(trial, "l2_coef", 1e-8, 1e-2),
        **network(trial, task, widest=512),
    }


def td3_bc(trial: BaseTrial, task: Task) -> Values:
    """TD3 that clones."""
    return {**_from_data(trial, task), **soft_target(trial), "alpha": log_uniform(trial, "alpha", 0.1, 10.0)}


def iql(trial: BaseTrial, task: Task) -> Values:
    """Values of recorded actions alone."""
    return {
        **_from_data(trial, task),
        **soft_target(trial),
        "expectile": uniform(trial, "expectile", 0.5, 0.95),
        "beta": log_uniform(trial, "beta", 0.3, 30.0),
    }


def awac(trial: BaseTrial, task: Task) -> Values:
    """Imitation of what was better than expected."""
    return {
        **_from_data(trial, task),
        **soft_target(trial),
        "temperature": log_uniform(trial, "temperature", 0.03, 10.0),
    }


def cql(trial: BaseTrial, task: Task) -> Values:
    """Soft actor-critic with pessimistic critics."""
    return {
        **_from_data(trial, task),
        **soft_target(trial),
        "actor_learning_rate": log_uniform(trial, "actor_learning_rate", 1e-5, 1e-3),
        "conservative_weight": log_uniform(trial, "conservative_weight", 0.1, 20.0),
    }


def rebrac(trial: BaseTrial, task: Task) -> Values:
    """TD3 that clones in actor and critic."""
    return {
        **_from_data(trial, task),
        **soft_target(trial),
        "actor_bc_coef": log_uniform(trial, "actor_bc_coef", 1e-3, 1.0),
        "critic_bc_coef": log_uniform(trial, "critic_bc_coef", 1e-3, 1.0),
    }


def edac(trial: BaseTrial, task: Task) -> Values:
    """Soft actor-critic with an ensemble that is to disagree."""
    return {
        **_from_data(trial, task),
        **soft_target(trial),
        "n_critics": one_of(trial, "n_critics", [5, 10, 20, 50]),
        "eta": log_uniform(trial, "eta", 0.1, 10.0),
    }


def discrete_cql(trial: BaseTrial, task: Task) -> Values:
    """Q-learning with pessimistic values."""
    return {
        **_from_data(trial, task),
        "conservative_weight": log_uniform(trial, "conservative_weight", 0.1, 20.0),
        "target_update_interval": one_of(trial, "target_update_interval", [100, 500, 1_000, 5_000]),
    }


def bcq(trial: BaseTrial, task: Task) -> Values:
    """Q-learning among the actions that the data might have chosen."""
    return {
        **_from_data(trial, task),
        "threshold": uniform(trial, "threshold", 0.0, 0.7),
        "tau": log_uniform(trial, "tau", 0.001, 0.02),
    }


def decision_transformer(trial: BaseTrial, task: Task) -> Values:
    """A sequence model that is asked for a return."""
    sizes = {
        "width": power_of_two(trial, "width", 32, 256),
        "n_layers": trial.suggest_int("n_layers", 1, 4),
        "dropout": uniform(trial, "dropout", 0.0, 0.3),
    }
    return {
        **rate(trial),
        **_recorded_rows(trial),
        "context_length": one_of(trial, "context_length", [5, 10, 20, 50]),
        "policy_kwargs": sizes,
    }


def _from_data(trial: BaseTrial, task: Task) -> Values:
    return {**rate(trial), **discount(trial), **_recorded_rows(trial), **network(trial, task, widest=512)}


def _recorded_rows(trial: BaseTrial) -> Values:
    return {"batch_size": power_of_two(trial, "batch_size", 64, 1024)}


#: Name on the command line -> its space.
SPACES: dict[str, Space] = {
    space.__name__: space
    for space in (
        *(a2c, actor_critic, appo, ars, deep_sarsa, impala, maskable_ppo, ppo, pqn, recurrent_ppo, reinforce, trpo),
        *(c51, discrete_sac, dqn, iqn, qrdqn, rainbow),
        *(double_q_learning, dyna_q, expected_sarsa, monte_carlo_control, q_learning, sarsa),
        *(policy_iteration, soft_policy_iteration, value_iteration),
        *(crossq, ddpg, droq, fast_td3, redq, sac, sd3, simba, td3, tqc),
        *(awac, bc, bcq, cql, decision_transformer, discrete_cql, edac, iql, rebrac, td3_bc),
    )
}
