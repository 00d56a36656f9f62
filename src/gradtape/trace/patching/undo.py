"""The states of random number generators, which are set back where a trace is given up."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from gradtape.trace.random.observation import own_calls


def state_of(generator: Any) -> Any:
    """Return the state of a random number generator."""
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, random.Random):
        return generator.getstate()
    with own_calls():
        return generator.get_state(legacy=False)


def restore(generator: Any, state: Any) -> None:
    """Set a random number generator back to a state."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        with own_calls():
            generator.set_state(state)
