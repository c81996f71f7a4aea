"""A repository of one agent on the Hugging Face Hub: its name, its files, and its errors.

The files are those of RL Baselines3 Zoo::

    README.md                  the model card
    <algo>-<EnvId>.zip         the model
    config.yml  args.yml       settings, and the options of the training run
    env_kwargs.yml             arguments of the environment
    vec_normalize.pkl          statistics of VecNormalize, if there are any
    train_eval_metrics.zip     evaluations.npz and the monitor files
    results.json  replay.mp4   what the agent reaches, and what that looks like
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from polyak.zoo.errors import ZooError
from polyak.zoo.registry import algorithm_name
from polyak.zoo.run_folder import file_name

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CARD = "README.md"
SETTINGS = ("config.yml", "args.yml", "env_kwargs.yml")
NORMALIZER = "vec_normalize.pkl"
METRICS = "train_eval_metrics.zip"
RESULTS = "results.json"
FILM = "replay.mp4"


def repository_name(algo: str, env_id: str) -> str:
    """Return the name of an agent's repository: ``ppo``, ``ALE/Pong-v5`` -> ``ppo-ALE-Pong-v5``."""
    return f"{algorithm_name(algo)}-{file_name(env_id)}"


def repository_id(organization: str, algo: str, env_id: str, name: str = "") -> str:
    """Return ``<organization>/<name>``, with the usual name if none is given."""
    return f"{organization}/{name or repository_name(algo, env_id)}"


def connect() -> HfApi:
    """Return a client of the Hub, or of the server that ``HF_ENDPOINT`` names; ImportError naming the extra."""
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise ImportError("The Hugging Face Hub needs its library: pip install 'polyak[hub]'.") from error
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="polyak")


def agents_of(organization: str) -> list[str]:
    """Return the names of the repositories of `organization` that hold agents by their name: ``ppo-CartPole-v1``."""
    api = connect()
    with hub_errors(api, organization):
        names = [model.id.rpartition("/")[2] for model in api.list_models(author=organization)]
    return sorted(name for name in names if "-" in name)


@contextmanager
def hub_errors(api: HfApi, repo_id: str) -> Iterator[None]:
    """Convert errors of the Hub's library about `repo_id` to a `ZooError` that names the fix."""
    from huggingface_hub import errors

    try:
        yield
    except errors.HFValidationError as error:
        raise ZooError(
            f"{repo_id!r} is no name of a repository: {error} Check --organization and --repo-name."
        ) from error
    except errors.GatedRepoError as error:
        raise ZooError(f"{repo_id} must be asked for: accept its terms on {api.endpoint}/{repo_id}.") from error
    except errors.RepositoryNotFoundError as error:
        raise ZooError(
            f"There is no repository {repo_id} on {api.endpoint}, or it is private. Check --organization and "
            "--repo-name; for a private one, log in with `hf auth login`."
        ) from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        hint = " The token must have the right to write there." if status in (401, 403) else ""
        raise ZooError(f"{api.endpoint} refused {repo_id} (status {status}): {_first_line(error)}{hint}") from error
    except (errors.HTTPError, OSError) as error:
        raise ZooError(
            f"Cannot reach {api.endpoint} for {repo_id}: {_first_line(error)} Check the network, and that "
            "HF_HUB_OFFLINE is not set."
        ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".") + "."
