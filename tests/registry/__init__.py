"""Properties that every op of the registry has."""
