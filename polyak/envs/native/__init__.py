"""Vectors of environments that others have made: Gymnasium's, ALE's, EnvPool's."""
