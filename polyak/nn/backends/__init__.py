"""How the graph of a policy is run while it acts: as it stands, or as calls of numpy into arrays that are kept."""
