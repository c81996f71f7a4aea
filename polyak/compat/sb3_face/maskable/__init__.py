"""sb3-contrib's parts for action masks besides ``MaskablePPO``: distributions, policies, buffers, evaluation."""
