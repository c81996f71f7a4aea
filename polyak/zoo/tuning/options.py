"""Options of a study, for `polyak tune` and ``polyak train --optimize-hyperparameters``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from polyak.zoo.options import CommandOptions, option
from polyak.zoo.sizes import MOST_ENVS, MOST_PROCESSES, MOST_SEEDS

SAMPLERS = ("tpe", "random", "cmaes", "gp", "auto")
PRUNERS = ("median", "percentile", "hyperband", "halving", "none")
OBJECTIVES = ("median", "mean", "iqm")
METRICS = ("fqe", "negative_log_likelihood", "action_distance", "action_match", "td_error", "soft_opc")


@dataclass
class StudyOptions(CommandOptions):
    """Options of a study that both commands have."""

    n_trials: int = option(500, "--n-trials", help="Trials at the end, earlier ones included.", at_least=1)
    max_total_trials: int = option(-1, "--max-total-trials", help="The same; wins over --n-trials.", at_least=1)
    n_jobs: int = option(1, "--n-jobs", help="Processes that try settings.", at_least=1, at_most=MOST_PROCESSES)
    sampler: str = option("tpe", "--sampler", help="tpe, random, cmaes or gp; auto is tpe.", choices=SAMPLERS)
    pruner: str = option("median", "--pruner", help="median, percentile, hyperband, halving or none.", choices=PRUNERS)
    n_startup_trials: int = option(
        10, "--n-startup-trials", help="Trials at random, and unpruned, before sampler and pruner begin.", at_least=0
    )
    n_evaluations: int = option(
        -1,
        "--n-evaluations",
        help="Evaluations of a training; -1: one in 100,000 steps, but at least 5.",
        at_least=1,
    )
    storage: str = option(
        "",
        "--storage",
        help="Journal file or database URL of the study; by default <logs>/<algo>/study_<name>.journal.",
    )
    study_name: str = option("", "--study-name", help="Name of the study; by default <algo>_<env>.")
    trial_id: int = option(-1, "--trial-id", help="Take the settings of this trial of a study.")
    optimization_log_path: str = option(
        "", "--optimization-log-path", help="Folder for the evaluations and the best model of each trial."
    )
    no_optim_plots: bool = option(False, "--no-optim-plots", help="Draw no plots of the study.")


STUDY = tuple(item.name for item in fields(StudyOptions))


@dataclass
class TrainingOptions(StudyOptions):
    """Options of trainings, of one or of those of a study."""

    algo: str = option("ppo", "--algo", "-a", help="Algorithm (see `polyak list`).")
    env: str = option(
        "",
        "--env",
        "-e",
        help="Environment id, module:id or file.py:NAME; by default CartPole-v1, or that of --dataset.",
    )
    dataset: str = option(
        "",
        "--dataset",
        help="Learn from this file (see `polyak data`) instead of acting; steps are gradient steps, and studies score "
        "by its episodes.",
    )
    n_timesteps: int = option(-1, "--n-timesteps", "-n", help="Steps; -1: as tuned.", at_least=1)
    hyperparams: Sequence[str] = option(
        [], "--hyperparams", "-params", help="key:value ... in place of tuned settings."
    )
    conf_file: str = option(
        "", "--conf-file", "-conf", help="Settings: a YAML file, or a .py file or module with a dict `hyperparams`."
    )
    n_envs: int = option(
        -1, "--n-envs", help="Training environments; as tuned by default (-1).", at_least=1, at_most=MOST_ENVS
    )
    vec_env: str = option(
        "dummy",
        "--vec-env",
        help="dummy (this process) or subproc (worker processes).",
        choices=("dummy", "subproc"),
    )
    env_kwargs: Sequence[str] = option([], "--env-kwargs", help="key:value ... for the environment's constructor.")
    eval_env_kwargs: Sequence[str] = option(
        [], "--eval-env-kwargs", help="key:value ... for evaluation environments, on top of --env-kwargs."
    )
    gym_packages: Sequence[str] = option([], "--gym-packages", help="Packages to import that register environments.")
    eval_episodes: int = option(5, "--eval-episodes", help="Episodes of each evaluation.", at_least=1)
    n_eval_envs: int = option(
        1, "--n-eval-envs", help="Environments that evaluate side by side.", at_least=1, at_most=MOST_ENVS
    )
    device: str = option("auto", "--device", help="auto, cpu, cuda, cuda:1, ...")
    num_threads: int = option(
        -1,
        "--num-threads",
        help="PyTorch threads; -1: one for small networks, PyTorch's choice for others.",
        at_most=MOST_PROCESSES,
    )
    log_folder: str = option("logs", "--log-folder", "-f", help="Where runs and studies are kept.")
    trust: bool = option(
        False, "--trust/", help="Also run code that settings and models name or hold; for files that you trust only."
    )
    verbose: int = option(1, "--verbose", help="0 silent, 1 tables, 2 also details.")


@dataclass
class TuneOptions(TrainingOptions):
    """Look for better settings with many short trainings; write the best as YAML that `polyak train` reads."""

    PANELS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Options": ("algo", "env", "dataset", "n_timesteps", "n_trials", "n_jobs", "log_folder", "verbose"),
        "Settings": ("space", "hyperparams", "conf_file", "trust"),
        "Search": (
            *("sampler", "pruner", "n_startup_trials", "percentile", "prune_confidence", "max_total_trials"),
            *("seed", "seeds", "objective"),
        ),
        "Environments": ("n_envs", "vec_env", "env_kwargs", "gym_packages"),
        "Evaluations": ("n_evaluations", "eval_episodes", "n_eval_envs", "eval_env_kwargs", "folds", "metric"),
        "Study": ("study_name", "storage", "trial_id", "optimization_log_path", "no_optim_plots"),
        "Machine": ("device", "num_threads"),
        "Cluster": ("ray", "address", "working_dir", "num_cpus_per_trial", "num_gpus_per_trial"),
    }

    seed: int = option(
        -1, "--seed", help="Seed of the sampler and of the first training of each trial; -1: from the study's name."
    )
    seeds: int = option(1, "--seeds", help="Trainings of each trial, with other seeds.", at_least=1, at_most=MOST_SEEDS)
    objective: str = option(
        "",
        "--objective",
        help="What the seeds of a trial come to: median, mean or iqm; median, or with --dataset the mean of the folds.",
        choices=OBJECTIVES,
    )
    folds: int = option(5, "--folds", help="Parts of the episodes of --dataset, each held out once.", at_least=2)
    metric: str = option(
        "",
        "--metric",
        help="Score on held-out episodes of --dataset: fqe, negative_log_likelihood, action_match, action_distance, "
        "td_error or soft_opc; fqe, or for BC negative_log_likelihood.",
        choices=METRICS,
    )
    percentile: float = option(25.0, "--percentile", help="Best share of trials that --pruner percentile keeps.")
    prune_confidence: float = option(
        0.8, "--prune-confidence", help="Certainty, 0.5 to 1, that a trial is worse than those it is pruned for."
    )
    space: str = option("", "--space", help="Space of your own: file.py:FUNCTION, from a trial to settings.")
    ray: bool = option(
        False, "--ray/", help="Run trials on Ray, --n-jobs at a time, or by default as many as there is room for."
    )
    address: str = option("", "--address", help="Cluster of Ray to join: auto, HOST:PORT or ray://HOST:PORT.")
    working_dir: str = option("", "--working-dir", help="Folder with your modules, sent to all nodes of the cluster.")
    num_cpus_per_trial: float = option(
        1.0, "--num-cpus-per-trial", help="Processors that each trial reserves.", at_least=0
    )
    num_gpus_per_trial: float = option(0.0, "--num-gpus-per-trial", help="GPUs that each trial reserves.", at_least=0)
