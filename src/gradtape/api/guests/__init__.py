"""Functions of NumPy as operations of other frameworks: `gt.torch`, `gt.jax`, `gt.casadi`."""
