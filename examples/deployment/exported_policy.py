"""Acts by a file that ``model.export("policy.onnx")`` wrote, with numpy and onnxruntime alone.

Run it: ``python exported_policy.py policy.onnx`` prints what goes in and out, and what it does about zeros.
"""

import json
import sys

import numpy as np
import onnxruntime


class ExportedPolicy:
    """Actions for B observations at once; ``policy.state = {}`` begins new episodes."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.about = json.loads(self.session.get_modelmeta().custom_metadata_map["polyak"])
        self.state = {}

    def __call__(self, observations, action_masks=True):
        """[B, ...], or a dict of them by key -> [B, ...], or a dict of them by the names of an action's parts."""
        feed = {}
        for port in self.about["inputs"]:
            named = {"observation": observations, "action_masks": action_masks}
            value = named.get(port["role"], self.state.get(port["name"], port.get("initial")))
            value = np.asarray(value[port["key"]] if "key" in port else value, port["dtype"])
            rows = len(value) if port["role"] == "observation" else rows  # the observations come first
            feed[port["name"]] = np.broadcast_to(value, (rows, *port["shape"][1:]))
        results = {port["name"]: array for port, array in zip(self.about["outputs"], self.session.run(None, feed))}
        self.state = {port["name"]: results[port["becomes"]] for port in self.about["inputs"] if "becomes" in port}
        actions = {name: array for name, array in results.items() if name.startswith("action")}
        return actions if "action" not in actions else actions["action"]


if __name__ == "__main__":
    policy = ExportedPolicy(sys.argv[1])
    print(json.dumps({name: policy.about[name] for name in ("algorithm", "inputs", "outputs")}, indent=2))
    seen = {port.get("key"): np.zeros((1, *port["shape"][1:])) for port in policy.about["inputs"] if port["role"] == "observation"}
    print(policy(seen.get(None, seen)))
