"""Functions that are translated instead of run: by the front end, to procedures, which are nodes of the recording."""
