"""The base of configs whose algorithms learn from recorded data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from typing_extensions import Self

from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.config.fixed import fixed
from polyak.experience import Dataset
from polyak.hyperparameters.declaration import Count, Only, require
from polyak.schedules import PiecewiseSchedule

TUNES_RAY_DATA = frozenset(
    ["concurrency", "num_cpus", "num_gpus", "zero_copy_batch", "prefetch_batches", "override_num_blocks", "parallelism"]
    + ["ray_remote_args", "memory", "batch_size", "local_shuffle_buffer_size", "local_shuffle_seed", "drop_last"]
)
"""Options of Ray Data that change only its speed."""
METHODS = ("read_parquet", "read_json", "read_csv", "read_numpy")
"""Reading functions of Ray Data whose files are supported."""
Reading = Annotated[
    dict[str, Any],
    Only(
        f"a dict of options that change how fast Ray Data reads, {', '.join(sorted(TUNES_RAY_DATA))}: files are read "
        "here without it",
        lambda options: options.keys() <= TUNES_RAY_DATA,
    ),
]
"""Files are read here without Ray Data, whatever options make it quick."""
WHOLE = "'auto' or 200: nothing is collected, and dataset_num_iters_per_learner says how long an iteration is"


@dataclass(init=False, repr=False, eq=False)
@fixed
class RecordedSettings:
    """Recorded data."""

    group: ClassVar[str] = "offline_data"
    input_: Any = "sampler"
    """The data to learn from: a path, several, or a pattern such as ``"data/*.json"``, of files and folders that
    :meth:`polyak.experience.Dataset.load` reads (RLlib's episodes, columns and sample batches, polyak's, Minari, D4RL,
    d3rlpy, CSV), or a :class:`~polyak.experience.Dataset`."""
    input_read_method: Annotated[str, Only(" or ".join(map(repr, METHODS)), METHODS.__contains__)] = METHODS[0]
    """Ray Data's reading function; here files are recognised by content."""
    input_read_method_kwargs: Reading = field(default_factory=dict)
    """Not used: options of Ray Data's speed."""
    input_read_schema: dict[str, str] = field(default_factory=dict)
    """RLlib's name of a column -> its name in the files."""
    input_read_episodes: bool = False
    """Files must hold RLlib's episodes; ``False``: whatever they hold."""
    input_read_sample_batches: bool = False
    """Files must hold RLlib's sample batches; ``False``: whatever they hold."""
    map_batches_kwargs: Reading = field(default_factory=dict)
    """Not used: options of Ray Data's speed."""
    iter_batches_kwargs: Reading = field(default_factory=dict)
    """Not used: options of Ray Data's speed."""
    ignore_final_observation: bool = False
    """The last observation of an episode is not read, which only behaviour cloning can do without."""
    dataset_num_iters_per_learner: Count | None = None
    """Gradient steps of one training step; ``None``: as many as go once through the data."""
    actions_in_input_normalized: bool = False
    """Whether continuous actions are recorded in [-1, 1], scaled to the range of the environment's; ``False``: in its
    units. By default data of RLlib's runners are read as they record them, in [-1, 1]."""
    postprocess_inputs: bool = False
    """Sum rewards up to the end of each episode, where the algorithm reads such returns."""


@dataclass(init=False, repr=False, eq=False)
@fixed
class OfflineConfig(RecordedSettings, AlgorithmConfig):
    """Learns a policy from recorded data. Schedules count the rows that were learned from.

    Without an environment, the spaces are those of ``environment(observation_space=..., action_space=...)``, or else
    those of the data.
    """

    rollout_fragment_length: Annotated[Any, Only(WHOLE, lambda n: n in ("auto", 200))] = "auto"
    """Nothing is collected."""
    train_batch_size_per_learner: Count | None = None
    """Rows of one gradient step, for each learner; ``None`` takes ``train_batch_size``."""
    minibatch_size: Count | None = None
    """The whole batch, or as many rows."""

    collects: ClassVar[bool] = False
    built: ClassVar[str] = "polyak.compat.rllib_face.offline:OfflineAlgorithm"

    def schedule(self, name: str) -> Any:
        found = super().schedule(name)
        if not isinstance(found, PiecewiseSchedule):
            return found
        return PiecewiseSchedule(tuple((step / self.total_train_batch_size, y) for step, y in found.points))

    def gradient_steps(self, rows: int) -> int:
        """Gradient steps of one training step, on so many rows of data."""
        return self.dataset_num_iters_per_learner or -(-rows // self.total_train_batch_size)

    @property
    def moves(self) -> bool:
        """Whether a setting changes while it learns."""
        return any(
            isinstance(self.get(name), list | tuple) for name in ("lr", "actor_lr", "critic_lr", "alpha_lr", "value_lr")
        )

    def _of_data(self) -> dict[str, Any]:
        """Keyword arguments of all that learn from recorded data."""
        batch = self.total_train_batch_size
        fix = f"a gradient step is made of the whole batch (train_batch_size_per_learner={batch}). Leave it out."
        require(self.minibatch_size in (None, batch), "minibatch_size", self.minibatch_size, fix)
        learners = {"n_learners": self.num_learners} if self.num_learners > 1 else {}
        return {**self._translated(), **learners, "batch_size": batch, "normalize_observations": False}

    def evaluation_settings(self) -> Self:
        other = super().evaluation_settings()
        other.__dict__["input_"] = "sampler"  # evaluators need no data
        return other

    def validate(self) -> None:
        super().validate()
        if self.in_evaluation:
            return
        given = self.input_
        fix = "say what was recorded: offline_data(input_=...) takes a path, several, or a polyak.experience.Dataset."
        require(given != "sampler", "input_", given, fix)
        paths = list(given) if isinstance(given, list | tuple) else [given]
        fix = "give a path of a file or folder, a list of them, or a polyak.experience.Dataset."
        are_paths = bool(paths) and all(isinstance(path, str) or hasattr(path, "__fspath__") for path in paths)
        require(isinstance(given, Dataset) or are_paths, "input_", given, fix)
        remote = [path for path in paths if isinstance(path, str) and "://" in path and not path.startswith("file://")]
        require(not remote, "input_", given, "copy the files to this machine, and name them.")
        both = self.input_read_episodes and self.input_read_sample_batches
        fix = "input_read_episodes=True says otherwise. Set one of them."
        require(not both, "input_read_sample_batches", True, fix)
        in_what = self.evaluation_settings().env
        fix = "there is nothing to evaluate in: say environment(env), or evaluation_config={'env': ...}."
        require(self.evaluation_interval is None or in_what is not None, "evaluation_interval", 1, fix)


def own_names(schema: Mapping[str, str]) -> dict[str, str]:
    """Returns ``input_read_schema`` in the form of :meth:`polyak.experience.Dataset.load`.

    Raises:
        HyperparameterError: RLlib has no such column.
    """
    found = {}
    for name, column in schema.items():
        fix = f"columns are named by {', '.join(COLUMNS)}."
        require(name in COLUMNS, f"input_read_schema[{name!r}]", column, fix)
        found[COLUMNS[name]] = column
    return found


COLUMNS = {
    "obs": "observations",
    "actions": "actions",
    "rewards": "rewards",
    "new_obs": "next_observations",
    "terminateds": "terminations",
    "truncateds": "truncations",
    "dones": "dones",
    "eps_id": "episodes",
    "t": "steps",
}
"""RLlib's names of columns -> those of :meth:`polyak.experience.Dataset.load`."""
