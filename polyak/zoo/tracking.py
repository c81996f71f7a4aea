"""``--track``: a run's settings and metrics in Weights & Biases or MLflow, beside all other outputs of the logger."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyak.logging.logger import Excluded, KVWriter, filter_excluded_keys
from polyak.zoo.errors import ZooError
from polyak.zoo.output import note


@dataclass(frozen=True)
class Tracked:
    """The description of a run for a tracking service.

    Fields: ``project`` of W&B, or experiment of MLflow; ``name`` of the run; ``entity`` (a team of W&B's), ``group``
    and ``tags`` may be empty; ``settings`` are plain values, nested ones too.
    """

    project: str
    name: str
    entity: str
    group: str
    tags: Sequence[str]
    settings: Mapping[str, Any]


class _Tracker(KVWriter):
    """A sink that sends the logged numbers; a service that fails ends the tracking, not the training.

    Images, films, texts and arrays are left out. Values are plotted over environment steps.
    """

    format: str

    def __init__(self) -> None:
        self._is_open = True

    def write(self, key_values: dict[str, Any], key_excluded: Excluded, step: int = 0) -> None:
        numbers = _numbers(filter_excluded_keys(key_values, key_excluded, self.format))
        if not self._is_open or not numbers:
            return
        try:
            self._send(numbers, step)
        except Exception as error:  # whatever the service's client raises
            self._is_open = False
            note(f"--track: {self.format} fails, so the rest of this run is not tracked ({error}). Training continues.")

    def close(self, exit_code: int = 0) -> None:
        """End the run where it is tracked; `exit_code` other than 0 marks it as failed."""
        raise NotImplementedError

    def _send(self, numbers: dict[str, float], step: int) -> None:
        raise NotImplementedError


class WandbOutputFormat(_Tracker):
    """Sends metrics to Weights & Biases; `run` is the result of ``wandb.init``."""

    format = "wandb"

    def __init__(self, run: Any) -> None:
        super().__init__()
        self._run = run

    def _send(self, numbers: dict[str, float], step: int) -> None:
        self._run.log(numbers, step=step)

    def close(self, exit_code: int = 0) -> None:
        self._run.finish(exit_code=exit_code)


class MlflowOutputFormat(_Tracker):
    """Sends metrics to MLflow's run `run_id` through `client`, an ``MlflowClient``."""

    format = "mlflow"

    def __init__(self, client: Any, run_id: str) -> None:
        super().__init__()
        self._client, self._run_id = client, run_id

    def _send(self, numbers: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric
        from mlflow.utils.time import get_current_time_millis

        now = get_current_time_millis()
        self._client.log_batch(self._run_id, [Metric(key, value, now, step) for key, value in numbers.items()])

    def close(self, exit_code: int = 0) -> None:
        self._client.set_terminated(self._run_id, "FAILED" if exit_code else "FINISHED")


def start_tracking(tracker: str, run: Tracked) -> _Tracker:
    """Begin a run with the service called `tracker` and return the sink for its metrics.

    The service's own variables decide its destination: ``WANDB_MODE``, ``WANDB_API_KEY``, ``MLFLOW_TRACKING_URI``, ...
    Raises ZooError with the service's message if it cannot begin.
    """
    try:
        return _start_wandb(run) if tracker == "wandb" else _start_mlflow(run)
    except Exception as error:
        raise ZooError(f"--track: {tracker} cannot begin a run: {' '.join(str(error).split())}") from error


def _start_wandb(run: Tracked) -> WandbOutputFormat:
    import wandb

    began = wandb.init(
        project=run.project,
        entity=run.entity or None,
        group=run.group or None,
        name=run.name,
        tags=list(run.tags),
        config=dict(run.settings),
    )
    return WandbOutputFormat(began)


def _start_mlflow(run: Tracked) -> MlflowOutputFormat:
    from mlflow import MlflowClient
    from mlflow.entities import Param

    client = MlflowClient()
    found = client.get_experiment_by_name(run.project)
    experiment = found.experiment_id if found is not None else client.create_experiment(run.project)
    tags = dict.fromkeys(run.tags, "true") | ({"group": run.group} if run.group else {})
    began = client.create_run(experiment, run_name=run.name, tags=tags)
    parameters = [Param(key, str(value)) for key, value in flat(run.settings).items()]
    for start in range(0, len(parameters), 100):  # as many as one request may hold
        client.log_batch(began.info.run_id, params=parameters[start : start + 100])
    return MlflowOutputFormat(client, began.info.run_id)


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested settings in one level: ``{"a": {"b": 1}}`` -> ``{"a.b": 1}``."""
    result: dict[str, Any] = {}
    for key, value in settings.items():
        result |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return result


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among logged values."""
    kinds = (bool, int, float, np.integer, np.floating, np.bool_)
    numbers = {key: float(value) for key, value in values.items() if isinstance(value, kinds)}
    return {key: value for key, value in numbers.items() if math.isfinite(value)}
