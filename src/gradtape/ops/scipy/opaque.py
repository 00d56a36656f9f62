"""Functions of SciPy that compute with numbers: in compiled code, or by iterations that depend on numbers."""

from __future__ import annotations

from typing import Final

from gradtape.kinds.registry import OPAQUE

_IMPLICIT = "its steps solve equations only approximately, and so would their derivatives"

OPAQUE["scipy.integrate"] = (
    {
        **dict.fromkeys(
            [
                "quad",
                "dblquad",
                "tplquad",
                "nquad",
                "quad_vec",
                "qmc_quad",
                "tanhsinh",
                "nsum",
                "odeint",
                "solve_ivp",
                "solve_bvp",
            ],
            "",
        ),
        **dict.fromkeys(
            ["ode.integrate", "complex_ode.integrate"],
            "",
        ),
        **dict.fromkeys(["BDF.__init__", "Radau.__init__"], _IMPLICIT),
        "LSODA.__init__": "it is compiled code, which needs concrete numbers",
    },
    False,
)
OPAQUE["scipy.optimize"] = (
    {
        **dict.fromkeys(["rosen", "rosen_der", "rosen_hess", "show_options"], "supported"),
        "approx_fprime": "it computes differences of numbers; gt.grad and gt.jacobian compute derivatives",
        "check_grad": "it compares numbers; gt.check_grads compares derivatives",
        "bracket": "its points are those of a search, and solve no equations",
        "line_search": "its step is the first that is good enough, and solves no equation",
    },
    True,
)
OPAQUE["scipy.optimize._bracket"] = ({"_bracket_root": "", "_bracket_minimum": ""}, False)
OPAQUE["scipy.optimize._chandrupatla"] = ({"_chandrupatla": "", "_chandrupatla_minimize": ""}, False)
OPAQUE["scipy.sparse.linalg"] = (dict.fromkeys(["aslinearoperator", "use_solver"], "supported"), True)
OPAQUE["scipy.interpolate"] = (
    {
        "AAA.__init__": "it chooses its points by the numbers, and has singular vectors of matrices that are nearly singular"
    },
    False,
)
RANK_STATISTICS: Final = (
    "anderson_ksamp",
    "cramervonmises_2samp",
    "kendalltau",
    "logrank",
    "mannwhitneyu",
    "ranksums",
    "somersd",
    "weightedtau",
    "wilcoxon",
)
"""Functions of `scipy.stats` whose results depend on the order of the numbers only: constants, in compiled code or by branches."""
OPAQUE["scipy.stats"] = (
    {
        **dict.fromkeys([*RANK_STATISTICS, "multiscale_graphcorr"], ""),
        "dunnett": "its p values are random",
    },
    False,
)
