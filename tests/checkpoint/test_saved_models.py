"""Files of an earlier generation load, act as they did, and learn on: one for each algorithm.

They are kept as they were written (``make_saved_models.py`` says how): the code that wrote them is gone.
"""

from typing import Any

import numpy as np
import pytest

from polyak.algorithms import get
from tests.checkpoint.make_saved_models import FOLDER, cases
from tests.tolerance import LIKELY, bound

CASES = cases()
FILES = sorted(path.stem for path in FOLDER.glob("*.zip"))
RESUMED = ["ppo_sde_normalized", "sac_dict", "recurrent_ppo", "rainbow", "impala", "td3_bc", "a2c", "gail"]


def load(name: str, **more: Any) -> Any:
    return get(CASES[name][0]).load(FOLDER / name, **more)


def test_each_file_is_of_an_algorithm_that_there_is() -> None:
    """Algorithms that came later have none."""
    assert set(FILES) <= set(CASES)
    assert len(FILES) >= 54


@pytest.mark.parametrize("name", FILES)
def test_it_loads_and_acts_as_it_did(name: str) -> None:
    was = np.load(FOLDER / f"{name}.npz")
    parts = {key.removeprefix("obs/"): was[key] for key in was.files if key.startswith("obs/")}
    actions, _ = load(name).predict(parts or was["obs"], deterministic=True)
    # the widest network has sums of 128 products of order 1; actions are of order 2 at most
    np.testing.assert_allclose(actions, was["actions"], rtol=0, atol=bound(3 * 128 + LIKELY, size=4))


@pytest.mark.parametrize("name", RESUMED)
def test_it_learns_on(name: str) -> None:
    options = CASES[name][1]
    given = {key: options[key] for key in ("env", "demonstrations") if key in options}
    model = load(name, **given, resume=True)
    steps, updates = model.num_timesteps, model._n_updates
    model.learn(70, reset_num_timesteps=False)
    assert model.num_timesteps >= steps + 70
    assert model._n_updates > updates
