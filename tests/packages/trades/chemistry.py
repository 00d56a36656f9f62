"""Chemistry, thermodynamics and heat."""

from __future__ import annotations

from tests.packages.table import package

PACKAGES = [
    package(
        "iapws 1.5.5",
        """
        from iapws import iapws97
        from iapws._iapws import _Dielectric, _Sublimation_Pressure, _Tension, _Viscosity
        """,
        ("iapws97._Region1(p[0], p[1])['h']", [300.0, 3.0]),
        ("iapws97._PSat_T(p[0])", [353.15]),
        ("_Viscosity(p[0], p[1])", [998.0, 298.15]),
        ("_Tension(p[0])", [300.0]),
        ("_Sublimation_Pressure(p[0])", [230.0]),
    ),
    package(
        "pyxsteam 0.4.10",
        """
        from pyXSteam.XSteam import XSteam
        steam = XSteam(XSteam.UNIT_SYSTEM_MKS)
        """,
        ("steam.tsat_p(p[0])", [1.0]),
        ("steam.h_pt(p[0], p[1])", [1.0, 20.0]),
        ("steam.hV_p(p[0])", [1.5]),
        ("steam.s_pt(p[0], p[1])", [1.0, 120.0]),
        ("steam.rho_ph(p[0], p[1])", [1.0, 1000.0]),
    ),
    package(
        "ht 1.2.0",
        """
        import ht
        """,
        ("ht.LMTD(p[0], p[1], p[2], p[3])", [100.0, 60.0, 30.0, 40.2]),
        ("ht.Nu_conv_internal(Re=p[0], Pr=p[1], eD=p[2])", [1e5, 0.7, 1e-4]),
        ("ht.effectiveness_from_NTU(NTU=p[0], Cr=p[1], subtype='counterflow')", [5.0, 0.7]),
        ("ht.Nu_cylinder_Churchill_Bernstein(p[0], p[1])", [6071.0, 0.7]),
        (
            """
            liquid = dict(rhol=957.854, rhog=0.595593, mul=2.79e-4, Cpl=4217.0, Hvap=2.257e6, sigma=0.0589)
            return ht.Rohsenow(**liquid, kl=p[1], Te=p[0], Csf=0.011, n=1.26)
            """,
            [4.9, 0.68],
        ),
    ),
    package(
        "chemicals 1.5.2",
        """
        import chemicals
        from chemicals import heat_capacity, vapor_pressure, viscosity, volume
        """,
        ("chemicals.Antoine(p[0], A=p[1], B=p[2], C=-53.67)", [327.0, 10.1, 1474.0]),
        ("vapor_pressure.Wagner(p[0], 190.53, 4596420.0, p[1], 1.26, -0.84, -1.12)", [150.0, -6.004]),
        (
            "chemicals.Rachford_Rice_solution(zs=[0.5, 0.3, 0.2], Ks=[p[0], p[1], p[2]])[0]",
            [1.685, 0.742, 0.532],
        ),
        (
            "chemicals.flash_inner_loop(zs=[p[0], p[1], 1 - p[0] - p[1]], Ks=[1.685, 0.742, 0.532])[0]",
            [0.5, 0.3],
        ),
        ("heat_capacity.Shomate(p[0], -203.6060, 1523.290, -3196.413, 2474.455, 3.855326)", [300.0]),
    ),
    package(
        "thermo 0.6.1",
        """
        from thermo import PR, SRK, NRTL, UNIQUAC
        from thermo.regular_solution import RegularSolution
        from thermo.wilson import Wilson_gammas
        """,
        ("SRK(Tc=507.6, Pc=3025000.0, omega=p[0], T=p[1], P=p[2]).V_l", [0.2975, 299.0, 1e6]),
        ("PR(Tc=507.6, Pc=3025000.0, omega=0.2975, T=p[0], P=p[1]).phi_l", [299.0, 1e6]),
        ("Wilson_gammas(xs=[p[0], 1 - p[0]], params=[[1.0, p[1]], [p[2], 1.0]])", [0.252, 0.154, 0.888]),
        (
            "NRTL(T=p[0], xs=[p[1], 1 - p[1]], tau_bs=[[0.0, 1060.0], [-9.2, 0.0]], alpha_cs=[[0.0, 0.28], [0.28, 0.0]]).GE()",
            [343.15, 0.252],
        ),
        (
            "RegularSolution(T=p[0], xs=[p[1], 1 - p[1]], Vs=[89e-6, 109e-6], SPs=[18818.0, 18245.0]).gammas()",
            [353.0, 0.5],
        ),
    ),
    package(
        "chempy 0.10.2",
        """
        from chempy.electrolytes import A, B, limiting_log_gamma
        from chempy.henry import Henry_H_at_T
        from chempy.kinetics.integrated import binary_rev, pseudo_irrev
        from chempy.kinetics.arrhenius import arrhenius_equation
        from chempy.kinetics.eyring import eyring_equation
        from chempy.properties.water_density_tanaka_2001 import water_density
        from chempy.properties.water_viscosity_korson_1969 import water_viscosity
        t = np.linspace(0.1, 5, 20)
        """,
        ("arrhenius_equation(p[0], p[1], p[2])", [1e11, 4e4, 298.15]),
        ("eyring_equation(p[0], p[1], p[2])", [4e4, -1.3, 298.15]),
        ("water_density(p[0])", [293.15]),
        ("pseudo_irrev(t, p[0], p[1], p[2], p[3])", [0.7, 0.1, 5.0, 1.2]),
        ("limiting_log_gamma(p[0], 2, A(80.1, p[1], 998.2071))", [0.01, 293.15]),
    ),
    package(
        "ase 3.29.0",
        """
        from ase import Atoms
        from ase.calculators.emt import EMT
        from ase.calculators.lj import LennardJones
        from ase.calculators.morse import MorsePotential
        from ase.eos import birchmurnaghan, murnaghan
        from ase.geometry import cellpar_to_cell, get_distances
        """,
        ("murnaghan(np.linspace(35.0, 45.0, 7), p[0], p[1], p[2], p[3])", [-3.5, 0.6, 4.5, 40.0]),
        ("birchmurnaghan(np.linspace(35.0, 45.0, 7), p[0], p[1], p[2], p[3])", [-3.5, 0.6, 4.5, 40.0]),
        ("get_distances(p.reshape(3, 3))[1]", [0.0, 0.1, 0.0, 1.1, 0.0, 0.3, 0.2, 1.3, 0.0]),
        (
            """
            atoms = Atoms('Ar3', positions=p.reshape(3, 3))
            atoms.calc = LennardJones()
            return atoms.get_potential_energy()
            """,
            [0.0, 0.1, 0.0, 1.1, 0.0, 0.3, 0.2, 1.3, 0.0],
        ),
        (
            """
            atoms = Atoms('Cu2', positions=[(0.0, 0.0, 0.0), (0.0, 0.0, p[0])])
            atoms.calc = EMT()
            return atoms.get_potential_energy()
            """,
            [2.3],
        ),
    ),
    package(
        "periodictable 2.1.0",
        """
        import periodictable
        from periodictable import cromermann, nsf, xsf
        """,
        ("cromermann.fxrayatq('Si', p)", [0.1, 0.5, 1.2]),
        ("periodictable.Si.xray.f0(p)", [0.1, 0.5, 1.2]),
        ("nsf.neutron_sld('SiO2', density=p[0], wavelength=p[1])", [2.2, 4.75]),
        ("nsf.neutron_energy(p)", [1.0, 4.75]),
        ("xsf.xray_wavelength(p)", [8.0, 12.0]),
    ),
    package(
        "quantities 0.16.4",
        """
        import quantities as pq
        """,
        ("(p[0] * pq.m).rescale('ft').magnitude", [2.5]),
        ("((p * pq.kg) * pq.g_0).simplified.magnitude", [1.5, 2.0]),
        ("pq.Quantity(p, 'J').rescale('eV').magnitude", [1e-19, 2e-19]),
        ("np.sqrt((p * pq.m) ** 2).magnitude", [1.0, 2.5]),
        ("pq.UncertainQuantity(p, pq.m, [0.1, 0.2]).rescale('cm').magnitude", [1.0, 2.5]),
    ),
    package(
        "pyromat 2.2.6",
        """
        import pyromat as pm
        nitrogen, steam = pm.get("ig.N2"), pm.get("mp.H2O")
        """,
        ("nitrogen.h(p[0], 1.0)", [450.0]),
        ("nitrogen.s(p[0], p[1])", [450.0, 2.5]),
        ("nitrogen.cp(p)", [300.0, 450.0, 900.0]),
        ("steam.p(T=p[0], d=p[1])", [600.0, 5.0]),
        ("steam.ps(p[0])", [420.0]),
    ),
    package(
        "radioactivedecay 0.6.1",
        """
        import radioactivedecay as rd
        """,
        (
            "list(rd.Inventory({'H-3': p[0], 'Be-7': p[1]}, 'Bq').decay(100.0, 'd').activities('Bq').values())",
            [10.0, 3.0],
        ),
        ("list(rd.Inventory({'Mo-99': p[0]}, 'Bq').decay(20.0, 'h').activities().values())", [2.0]),
        ("list(rd.Inventory({'Mo-99': 2.0}, 'Bq').decay(p[0], 'h').activities().values())", [20.0]),
        ("list(rd.Inventory({'C-14': 1e6}, 'num').cumulative_decays(p[0], 'y').values())", [10.0]),
        (
            "list((rd.Inventory({'C-14': p[0]}) + rd.Inventory({'H-3': p[1]})).activity_fractions().values())",
            [1.0, 2.0],
        ),
    ),
]
