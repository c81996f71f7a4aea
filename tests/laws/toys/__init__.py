"""Algorithms of kinds that the library does not have: one file each, and one row here.

They show that the parts are open: conformance tests them like those of the registry, by what they can do.
"""

TOYS = {"toy_recurrent": "tests.laws.toys.recurrent:RecurrentA2C", "toy_table": "tests.laws.toys.table:QTable"}
"""As the package's registry."""
