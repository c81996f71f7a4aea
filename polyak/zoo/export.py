"""``polyak export``: a trained agent as one file that runs without polyak."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from polyak.zoo.agent import AgentOptions, ModelOptions, SavedAgent
from polyak.zoo.errors import ZooError, usage_errors
from polyak.zoo.options import option
from polyak.zoo.output import writable_file


@dataclass
class ExportOptions(ModelOptions):
    """Write a trained agent's policy to one file, .onnx or .pt2: observations in, actions out."""

    PANELS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Options": (
            *("algo", "env", "pretrained", "folder", "exp_id", "load_best", "load_checkpoint", "load_last_checkpoint"),
            "output",
        ),
        "Arguments": ("model",),
        "What it writes": ("masks", "channels_last", "stochastic"),
        "Environment": ("env_kwargs", "gym_packages"),
        "Files": ("trust", "custom_objects"),
    }

    model: str = option("", help="A model file; without one, the options name a run.")
    output: str = option("policy.onnx", "--output", "-o", help="The file: .onnx, or .pt2 of torch.export.")
    masks: bool | None = option(
        None, "--masks/--no-masks", help="Action masks as an input; by default where the agent may need them."
    )
    channels_last: bool | None = option(
        None, "--channels-last/--channels-first", help="Order of images; by default that of the environment."
    )
    stochastic: bool = option(False, "--stochastic/", help="Sampled actions, with the random numbers as inputs.")


def export(options: ExportOptions) -> dict[str, Any]:
    """Write the file that `options` specify, print its inputs and outputs, and return its description.

    Raises ZooError when the run or the model does not exist, or cannot be exported.
    """
    writable_file("--output", options.output)
    named = {item.name: getattr(options, item.name) for item in fields(ModelOptions)}
    agent = None if options.model else SavedAgent(AgentOptions(**named, device="cpu"))
    from polyak.nn.export.files import check_path

    with usage_errors("--output"):
        target = check_path(options.output)
    if agent is None:
        return _write(options, _load(options), Path(options.model), target)
    with agent.loaded(path := agent.path) as (model, _):
        return _write(options, model, path, target)


def _load(options: ExportOptions) -> Any:
    from polyak.algorithms import load

    with usage_errors(f"Cannot load {options.model}"):
        return load(options.model, device="cpu", trust=options.trust)


def _write(options: ExportOptions, model: Any, path: Path, target: Path) -> dict[str, Any]:
    try:
        description: dict[str, Any] = model.export(
            target, masks=options.masks, channels_last=options.channels_last, stochastic=options.stochastic
        )
    except ValueError as error:
        raise ZooError(f"Cannot export {path}: {error}") from error
    print(f"Wrote {target} ({target.stat().st_size:,} bytes) from {path}")
    for title in ("inputs", "outputs"):
        for port in description[title]:
            print(f"  {title[:-1]:<6} {port['name']}: {port['dtype']} {port['shape']}")
    return description
