"""Acts by a file of ``model.export("policy.onnx")``, with numpy and onnxruntime alone; run, it prints what is in it."""

import json
import sys

import numpy as np
import onnxruntime


class ExportedPolicy:
    """Acts for B environments at once; ``policy.state = {}`` begins new episodes."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.about = json.loads(self.session.get_modelmeta().custom_metadata_map["polyak"])
        self.state, self.random = {}, np.random.default_rng(0)

    def __call__(self, observations, action_masks=True):
        """[B, ...], or a dict of them by key -> [B, ...], or a dict of them by the names of an action's parts."""
        feed, rows = {}, 0
        for port in self.about["inputs"]:  # the observations come first
            value = self.state.get(port["name"], port.get("initial", action_masks))
            if port["role"] == "observation":
                value = observations[port["key"]] if "key" in port else observations
                rows = len(value)
            elif port["role"] == "noise":
                value = getattr(self.random, port["draw"])((rows, *port["shape"][1:]))
            feed[port["name"]] = np.broadcast_to(np.asarray(value, port["dtype"]), (rows, *port["shape"][1:]))
        names = [port["name"] for port in self.about["outputs"]]
        results = dict(zip(names, self.session.run(names, feed), strict=True))
        self.state = {port["name"]: results[port["becomes"]] for port in self.about["inputs"] if "becomes" in port}
        actions = {name: array for name, array in results.items() if name.startswith("action")}
        return actions.get("action", actions)


if __name__ == "__main__":
    print(json.dumps(ExportedPolicy(sys.argv[1]).about, indent=2))
