"""Says what the function that is named says, wherever in this folder it is, as JSON in its last line."""

import json
import sys
from importlib import import_module
from pathlib import Path

name = sys.argv[1]
[file] = [path for path in Path(__file__).parent.glob("*.py") if f"\ndef {name}():" in path.read_text()]
equal = getattr(import_module(file.stem), name)()
print(json.dumps({"equal": equal, "called": import_module("games").CALLS}, default=lambda value: value.item()))
