"""Methods that RLlib calls of a program's subclass and that nothing here would call: why, and what to do instead.

Each is refused where the subclass is given, before anything is trained: see
:func:`polyak.compat.sb3_face.overrides.refuse`. ``not_called.json`` has them by the kind of class, under the sentence
that says why. ``dqn_module`` comes on top of ``module``, for what DQN trains; ``learner`` is polyak's own, and
``torch_learner`` one under RLlib's contract.
"""

import json
from pathlib import Path

OF: dict[str, dict[str, str]] = {
    kind: {name: why for why, names in reasons.items() for name in names.split()}
    for kind, reasons in json.loads(Path(__file__).with_suffix(".json").read_text()).items()
}
"""Kind of class -> method -> why nothing calls it."""
