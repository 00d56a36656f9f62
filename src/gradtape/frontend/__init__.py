"""The front end for code: from Python functions to procedures."""
