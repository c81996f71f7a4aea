"""Names of RLlib 2.60, some of earlier versions among them, and where polyak has them: ``names.json``.

Its ``served`` has modules below ``ray.rllib`` (``tune`` stands for ``ray.tune``) and their names: those of this
package, or, after ``file:``, of one of its files; ``Other=attribute`` is ``attribute`` of ours. Its ``refused`` has
sentences, why a name is not here and what to do instead, and for each the modules with such names.
"""

import json
from pathlib import Path
from typing import Any

from polyak.compat.importer import placed

_FACE = "polyak.compat.rllib_face"
_NAMES: dict[str, Any] = json.loads(Path(__file__).with_name("names.json").read_text())

REFUSED: dict[str, dict[str, str]] = {}
"""Module path below ``ray.rllib`` -> name -> why it is not here, and what to do instead."""
for _why, _modules in _NAMES["refused"].items():
    for _path, _names in _modules.items():
        REFUSED.setdefault(_path, {}).update(dict.fromkeys(_names.split(), _why))

RLLIB = placed(_FACE, _NAMES["served"])
"""Module path below ``ray.rllib``; ``tune`` stands for ``ray.tune``."""
for _path in [*RLLIB, *REFUSED]:
    for _end in range(_path.count(".") + 1):  # the module, and the packages that it is in
        RLLIB.setdefault(".".join(_path.split(".")[: _end + 1]), ())

TUNE: dict[str, tuple[str, ...]] = {
    path.removeprefix("tune").removeprefix("."): lines for path, lines in RLLIB.items() if path.startswith("tune")
}
"""Module path below ``ray.tune``, of which there is no more than this."""

RAY = ("polyak.compat.rllib_face.ray_names: __version__ init shutdown is_initialized",)
"""Names of ``ray`` itself, where it is not installed."""

PREPARES = {"": f"{_FACE}.tuning:prepare"}
"""Module path below ``ray.tune`` -> what is called when the installed one has been run."""
