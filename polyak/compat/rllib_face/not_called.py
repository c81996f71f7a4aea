"""Methods of a program's subclass that RLlib calls and nothing here would call, with the reason and the alternative.

Each is refused when the subclass is given, before training: see :func:`polyak.compat.sb3_face.overrides.refuse`.
``not_called.json`` has them by the kind of class, under the sentence with the reason. ``dqn_module`` extends
``module``, for DQN; ``learner`` is polyak's own, and ``torch_learner`` one with RLlib's API.
"""

import json
from pathlib import Path

OF: dict[str, dict[str, str]] = {
    kind: {name: why for why, names in reasons.items() for name in names.split()}
    for kind, reasons in json.loads(Path(__file__).with_suffix(".json").read_text()).items()
}
"""Kind of class -> method -> why nothing calls it."""
