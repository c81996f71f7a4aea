"""Suggestions for unknown names."""

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 3
_LONGEST_NAME = 200
"""Longer names are not compared: the time of a comparison is quadratic in their length."""

SYNONYMS = {
    "conservative_weight": "alpha min_q_weight cql_alpha cql_weight",
    "total_timesteps": "timesteps n_timesteps num_timesteps steps total_steps n_steps num_steps max_steps",
    "callback": "callbacks cb",
    "gamma": "discount discount_factor",
    "gae_lambda": "lam lambda lambda_ gae td_lambda",
    "ent_coef": "entropy entropy_coef entropy_coeff entropy_coefficient entropy_cost beta alpha temperature",
    "learning_rate": "lr step_size alpha",
    "vf_coef": "value_coef vf_loss_coeff value_loss_coef critic_coef",
    "clip_range": "clip clip_param clip_coef clip_eps eps_clip epsilon_clip",
    "max_grad_norm": "grad_clip gradient_clip clip_grad max_norm",
    "batch_size": "minibatch_size train_batch_size mini_batch_size bs",
    "n_epochs": "epochs update_epochs num_epochs num_sgd_iter",
    "n_steps": "num_steps rollout_length rollout_steps horizon unroll_length",
    "buffer_size": "memory_size replay_size capacity replay_buffer_size memory",
    "learning_starts": "start_steps warmup_steps random_steps start_timesteps",
    "train_freq": "update_every update_freq train_frequency",
    "gradient_steps": "updates_per_step utd utd_ratio n_updates",
    "tau": "polyak polyak_factor soft_update target_update_rate",
    "target_update_interval": "target_network_frequency target_update_freq",
    "exploration_final_eps": "epsilon final_epsilon epsilon_end eps_end min_epsilon",
    "exploration_initial_eps": "initial_epsilon epsilon_start eps_start",
    "epsilon": "eps exploration_rate",
    "policy_kwargs": "net_arch hidden_sizes hidden layers activation_fn hidden_layers network_kwargs",
    "action_noise": "noise exploration_noise",
    "tensorboard_log": "log_dir logdir tensorboard tb_log",
    "seed": "random_seed random_state rng",
    "env": "environment env_id env_name envs",
    "n_envs": "num_envs n_environments",
    "n_eval_episodes": "n_episodes num_episodes episodes",
    "observations": "obs states",
    "deterministic": "greedy explore",
}
"""Name of an argument here -> its names in other libraries."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns `` Did you mean 'x', 'y' or 'z'?`` for the at most three ``known`` names closest to ``name``, in any
    case.

    Empty if none is close. A match in :data:`SYNONYMS` is unambiguous: it is the only suggestion.
    """
    if len(name) > _LONGEST_NAME:
        return ""
    by_lower_case = {option.lower(): option for option in known}
    means = [here for here, others in SYNONYMS.items() if here in by_lower_case and name.lower() in others.split()]
    close = means or get_close_matches(name.lower(), by_lower_case, _MOST)
    *others, last = [repr(by_lower_case[match]) for match in close[:_MOST]] or [""]
    return f" Did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""
