"""Fields, waves and fluids."""

from __future__ import annotations

from tests.packages.table import package

PACKAGES = [
    package(
        "hankel 1.2.2",
        """
        from hankel import HankelTransform, SymmetricFourierTransform
        ht = HankelTransform(nu=0, N=60, h=0.05)
        ft = SymmetricFourierTransform(ndim=3, N=100, h=0.02)
        k = np.array([0.5, 1.0])
        """,
        ("ht.transform(lambda r: np.exp(-p[0] * r**2), k, ret_err=False)", [0.7]),
        ("ht.integrate(lambda r: np.exp(-p[0] * r), ret_err=False)", [0.7]),
        ("ft.transform(lambda r: np.exp(-p[0] * r), k, ret_err=False)", [0.7]),
        ("ht.transform(lambda r: 1 / (r**2 + 1), p, ret_err=False)", [0.5, 1.0]),
        ("ft.transform(lambda r: r * np.exp(-r), p, ret_err=False)", [0.5, 1.0]),
    ),
    package(
        "mcfit 0.0.22",
        """
        import mcfit
        from mcfit import Hankel, P2xi, SphericalBessel, TophatVar
        x = np.logspace(-3, 3, 32, endpoint=False)
        """,
        (
            "Hankel(x, nu=0, lowring=True, backend='numpy')(p, extrap=False)[1]",
            "np.exp(-np.logspace(-3, 3, 32))",
        ),
        ("P2xi(x)(p)[1]", "np.exp(-np.logspace(-3, 3, 32))"),
        ("TophatVar(x, lowring=True)(p, extrap=True)[1]", "1 / (1 + np.logspace(-3, 3, 32) ** 3)"),
        ("SphericalBessel(x)(p)[1]", "np.exp(-np.logspace(-3, 3, 32))"),
        ("Hankel(x)(p[0] * np.exp(-p[1] * x))[1]", [1.0, 0.7]),
    ),
    package(
        "fipy 4.0.3",
        """
        import os
        os.environ['FIPY_SOLVERS'] = 'scipy'
        import fipy
        from fipy import CellVariable, DiffusionTerm, Grid1D, TransientTerm
        mesh = Grid1D(nx=10, dx=0.1)
        """,
        ("CellVariable(mesh=mesh, value=p).faceGrad.value", "rng.normal(size=10)"),
        ("CellVariable(mesh=mesh, value=p).arithmeticFaceValue.value", "rng.normal(size=10)"),
        ("CellVariable(mesh=mesh, value=p).cellVolumeAverage.value", "rng.normal(size=10)"),
        ("fipy.numerix.dot(p[:5], p[5:])", "rng.normal(size=10)"),
        (
            """
            phi = CellVariable(mesh=mesh, value=0.0)
            phi.constrain(1.0, mesh.facesLeft)
            phi.constrain(0.0, mesh.facesRight)
            (TransientTerm() == DiffusionTerm(coeff=p[0])).solve(var=phi, dt=0.1)
            return phi.value
            """,
            [0.4],
        ),
    ),
    package(
        "pypower 5.1.21",
        """
        from pypower.api import case9, ext2int, ppoption, runpf
        from pypower.bustypes import bustypes
        from pypower.dSbus_dV import dSbus_dV
        from pypower.makeSbus import makeSbus
        from pypower.makeYbus import makeYbus
        ppc = ext2int(case9())
        base, bus, gen, branch = ppc['baseMVA'], ppc['bus'], ppc['gen'], ppc['branch']
        Ybus, Yf, Yt = makeYbus(base, bus, branch)
        """,
        (
            "(lambda V: V * np.conj(Ybus @ V))(p[:9] * np.exp(1j * p[9:]))",
            "np.r_[rng.uniform(0.95, 1.05, 9), 0.1 * rng.normal(size=9)]",
        ),
        (
            "dSbus_dV(Ybus, p[:9] * np.exp(1j * p[9:]))[0] @ np.ones(9)",
            "np.r_[rng.uniform(0.95, 1.05, 9), 0.1 * rng.normal(size=9)]",
        ),
        (
            """
            moved = bus.copy() * 1.0
            moved[:, 2] = p
            return makeSbus(base, moved, gen)
            """,
            "rng.uniform(0, 100, size=9)",
        ),
        (
            """
            moved = branch * np.ones_like(branch)
            moved[:, 3] = p
            return makeYbus(base, bus, moved)[0] @ np.ones(9)
            """,
            "rng.uniform(0.05, 0.2, size=9)",
        ),
        (
            """
            case = case9()
            case['bus'][4, 2] = p[0]
            return runpf(case, ppoption(VERBOSE=0, OUT_ALL=0))[0]['bus'][:, 7]
            """,
            [90.0],
        ),
    ),
    package(
        "verde 1.9.0",
        """
        import verde as vd
        grid = (np.array([0.0, 1.0, 2.0, 0.5, 1.5, 2.2]), np.array([0.0, 1.0, 0.3, 1.5, 2.0, 1.1]))
        """,
        ("vd.Trend(degree=1).fit(grid, p).coef_", "rng.normal(size=6)"),
        ("vd.Trend(degree=1).fit(grid, p).predict(grid)", "rng.normal(size=6)"),
        ("vd.Spline(damping=1e-3).fit(grid, p).predict(grid)", "rng.normal(size=6)"),
        ("vd.maxabs(p)", "rng.normal(size=6)"),
        ("vd.variance_to_weights(p)", "rng.uniform(0.5, 1.5, size=6)"),
    ),
    package(
        "tmm 0.2.0",
        "import tmm",
        (
            "tmm.coh_tmm('s', [1.0, 2.2, 3.3 + 0.3j, 1.0], [np.inf, p[0], p[1], np.inf], 0.3, 400.0)['R']",
            [100.0, 300.0],
        ),
        ("tmm.snell(1.0, p[0], p[1])", [1.5, 0.3]),
        ("tmm.unpolarized_RT([1.0, 2.2, 1.0], [np.inf, p[0], np.inf], 0.3, 500.0)['T']", [120.0]),
        ("tmm.interface_r('s', 1.0, p[0], 0.3, p[1])", [1.5, 0.2]),
        ("tmm.R_from_r(p[0] + 1j * p[1])", [0.3, 0.2]),
    ),
    package(
        "aotools 1.0.8",
        "import aotools",
        ("aotools.phaseFromZernikes(p, 16)", [0.3, -0.2, 0.5, 0.1]),
        ("aotools.gaussian2d(12, p[0], amplitude=p[1])", [3.0, 2.0]),
        ("aotools.r0_to_seeing(p[0])", [0.15]),
        ("aotools.slope_variance_from_r0(p[0], 500e-9, p[1])", [0.15, 0.5]),
        ("aotools.phase_covariance(p, 0.15, 25.0)", [0.5, 1.0, 2.0]),
    ),
    package(
        "prysm 0.19.1",
        """
        from prysm import FringeZernike, PSF, otf, refractive, thinfilm, thinlens
        """,
        (
            "refractive.sellmeier(np.array([0.45, 0.55, 0.65]), p[:3], p[3:])",
            [1.04, 0.23, 1.01, 0.006, 0.02, 103.6],
        ),
        ("thinlens.object_to_image_dist(p[0], p[1])", [50.0, 120.0]),
        ("thinfilm.multilayer_stack_rt('p', 0.5, [(p[0], p[1]), (1.52, 10.0)], aoi=p[2])", [1.38, 0.1, 20.0]),
        ("FringeZernike(Z5=p[0], Z9=p[1], samples=32).rms", [0.1, 0.2]),
        ("otf.komogorov(p[:2], p[2])", [0.1, 0.3, 0.15]),
    ),
    package(
        "miepython 3.3.0",
        """
        import miepython
        mu = np.array([-0.5, 0.0, 0.8])
        """,
        ("miepython.efficiencies_mx(1.5 - 0.1j, p)[0]", [0.5, 1.5, 3.0]),
        ("miepython.efficiencies(1.5 - 0.1j, p[0], p[1])[1]", [0.3, 0.6]),
        ("np.abs(miepython.S1_S2(1.5 - 0.1j, p[0], mu)[0])", [1.5]),
        ("miepython.i_unpolarized(1.5 - 0.1j, p[0], mu)", [1.5]),
        ("np.abs(miepython.an_bn(1.4 - 0.02j, p[0], 5)[0])", [2.0]),
    ),
    package(
        "refnx 0.1.67",
        """
        from refnx.analysis import Objective, Parameter
        from refnx.dataset import Data1D
        from refnx.reflect import SLD, ReflectModel, reflectivity, use_reflect_backend
        use_reflect_backend("python")
        q = np.linspace(0.01, 0.2, 12)
        data = Data1D((q, np.exp(-30 * q), 0.05 * np.exp(-30 * q)))
        def structure(p):
            return SLD(0.0)(0, 0) | SLD(p[0], name="film")(p[1], 3.0) | SLD(2.07)(0, 4.0)
        """,
        ("structure(p).reflectivity(q)", [3.47, 120.0]),
        ("structure(p).sld_profile(np.linspace(-5.0, 60.0, 9))[1]", [3.47, 50.0]),
        ("ReflectModel(structure(p), bkg=1e-7, dq=0)(q)", [3.47, 120.0]),
        ("Objective(ReflectModel(structure(p), dq=0), data).logl()", [3.47, 120.0]),
        ("Parameter(p[0], bounds=(0.0, 5.0)).valid(p[0]) + Parameter(p[0]).value", [2.0]),
    ),
    package(
        "pyabel 0.9.1",
        """
        import abel
        """,
        ("abel.hansenlaw.hansenlaw_transform(p.reshape(2, 8), direction='inverse')", "rng.uniform(size=16)"),
        ("abel.dasch.three_point_transform(p.reshape(2, 8))", "rng.uniform(size=16)"),
        ("abel.dasch.two_point_transform(p.reshape(2, 8))", "rng.uniform(size=16)"),
        ("abel.dasch.onion_peeling_transform(p.reshape(2, 8))", "rng.uniform(size=16)"),
        ("abel.direct.direct_transform(p.reshape(2, 8), backend='Python')", "rng.uniform(size=16)"),
    ),
    package(
        "magpylib 6.3.0",
        """
        import magpylib as magpy
        """,
        ("magpy.func.dipole_field('B', observers=p[:3], moments=p[3:])", [0.01, 0.02, 0.03, 1.0, 0.5, 0.2]),
        (
            "magpy.func.cuboid_field('B', observers=p[:3], dimensions=p[3:], polarizations=(0.1, 0.2, 1.0))",
            [0.02, 0.01, 0.03, 0.01, 0.02, 0.01],
        ),
        (
            "magpy.func.circle_field('B', observers=p[:3], diameters=p[3], currents=p[4])",
            [0.01, 0.02, 0.03, 0.05, 10.0],
        ),
        (
            "magpy.func.sphere_field('B', observers=p[:3], diameters=p[3], polarizations=(0.1, 0.2, 1.0))",
            [0.03, 0.02, 0.03, 0.02],
        ),
        (
            "magpy.magnet.Cuboid(polarization=(0.0, 0.0, 1.0), dimension=(0.01, 0.01, 0.02)).getB(p)",
            [0.02, 0.01, 0.03],
        ),
    ),
    package(
        "plasmapy 2025.8.0",
        """
        import astropy.units as u
        from plasmapy import formulary
        """,
        ("formulary.Alfven_speed(p[0] * u.T, p[1] * u.m**-3, 'p+').value", [0.1, 1e18]),
        ("formulary.Debye_length(p[0] * u.K, p[1] * u.m**-3).value", [5e6, 5e15]),
        ("formulary.gyrofrequency(p[0] * u.T, 'e-').value", [0.01]),
        ("formulary.thermal_speed(p[0] * u.eV, 'p+').value", [5.0]),
        ("formulary.plasma_frequency(p[0] * u.m**-3, 'e-').value", [1e19]),
    ),
]
