"""Vectorised environments of other libraries: Gymnasium's, ALE's, EnvPool's."""
