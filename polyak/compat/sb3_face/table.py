"""The public names of Stable-Baselines3 2.9 and sb3-contrib 2.9, and where polyak has them: ``names.json``.

It is written as that of :mod:`polyak.compat.rllib_face.table`, for each of the two packages, of which the list of names
is the peers' public API as their ``inspect`` shows it. Its ``needs`` has libraries without which a module cannot be
imported, and the error then; its ``reexports`` what :mod:`polyak.compat.sb3_face.reexports` answers.
"""

import json
from pathlib import Path
from typing import Any

from polyak.compat.importer import placed

NAMES: dict[str, Any] = json.loads(Path(__file__).with_name("names.json").read_text())
SB3 = placed("polyak.compat.sb3_face", NAMES["stable_baselines3"])
CONTRIB = placed("polyak.compat.sb3_face", NAMES["sb3_contrib"])
NEEDS: dict[str, dict[str, str]] = NAMES["needs"]
