"""A reservoir whose outlet is estimated by Hamiltonian Monte Carlo: a NumPy loop inside a model of NumPyro or PyMC.

    pip install gradtape numpyro
    python examples/reservoir.py numpyro
    pip install gradtape pymc
    python examples/reservoir.py pymc

``--own`` samples with the loop written for the library, by `jax.lax.scan` or `pytensor.scan`. The printed time is the processor
time of the process, including compilation.
"""

import argparse
import importlib
import sys
import time
from typing import Any

import numpy as np

import gradtape as gt

HOURS, NOISE = 200, 0.05


def levels(inflow: Any, start: Any, outlet: Any) -> Any:
    """Return the water level, hour by hour, which falls by Torricelli's law."""
    level, result = start, np.zeros(inflow.shape)
    for hour in range(inflow.shape[0]):
        level = level + inflow[hour] - outlet * np.sqrt(np.maximum(level, 1e-6))
        result[hour] = level
    return result


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    inflow = random.gamma(2.0, 0.3, HOURS)
    return inflow, levels(inflow, 1.0, 0.6) + NOISE * random.normal(size=HOURS)


def by_numpyro(own: bool, draws: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    numpyro.enable_x64()

    def scanned(inflow: Any, start: Any, outlet: Any) -> Any:
        def step(level: Any, water: Any) -> tuple[Any, Any]:
            level = level + water - outlet * jnp.sqrt(jnp.maximum(level, 1e-6))
            return level, level

        return jax.lax.scan(step, start, inflow)[1]

    inflow, measured = data()
    function = scanned if own else gt.jax(levels)

    def model() -> None:
        start = numpyro.sample("start", dist.HalfNormal(2.0))
        outlet = numpyro.sample("outlet", dist.HalfNormal(1.0))
        numpyro.sample("level", dist.Normal(function(inflow, start, outlet), NOISE), obs=measured)

    kernel = numpyro.infer.NUTS(model, init_strategy=numpyro.infer.init_to_median())
    sampler = numpyro.infer.MCMC(kernel, num_warmup=draws, num_samples=draws, progress_bar=False)
    sampler.run(jax.random.key(1))
    return {name: np.asarray(found) for name, found in sampler.get_samples().items()}


def by_pymc(own: bool, draws: int) -> dict[str, Any]:
    import pymc as pm
    import pytensor
    import pytensor.tensor as pt

    def scanned(inflow: Any, start: Any, outlet: Any) -> Any:
        def step(water: Any, level: Any, outlet: Any) -> Any:
            return level + water - outlet * pt.sqrt(pt.maximum(level, 1e-6))

        return pytensor.scan(
            step, sequences=[pt.as_tensor(inflow)], outputs_info=[start], non_sequences=[outlet]
        )[0]

    inflow, measured = data()
    function = scanned if own else gt.pytensor(levels)
    with pm.Model():
        start, outlet = pm.HalfNormal("start", 2.0), pm.HalfNormal("outlet", 1.0)
        pm.Normal("level", function(inflow, start, outlet), NOISE, observed=measured)
        found = pm.sample(draws, tune=draws, chains=1, random_seed=1, progressbar=False)
    return {name: found.posterior[name].to_numpy().ravel() for name in ("start", "outlet")}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", choices=["numpyro", "pymc"])
    parser.add_argument("--draws", type=int, default=500, help="after as many steps of tuning")
    parser.add_argument("--own", action="store_true", help="with a loop of the library's")
    options = parser.parse_args()
    try:
        importlib.import_module(options.library)
    except ImportError:
        sys.exit(f"This example needs a package: pip install {options.library}")
    sample = by_numpyro if options.library == "numpyro" else by_pymc
    before = time.process_time()
    found = sample(options.own, options.draws)
    seconds = time.process_time() - before
    means = [f"{name} {np.mean(found[name]):.3f} ± {np.std(found[name]):.3f}" for name in sorted(found)]
    print(f"{', '.join(means)}; {seconds:.1f} s of a processor")


if __name__ == "__main__":
    main()
