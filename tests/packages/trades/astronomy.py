"""Astronomy and spaceflight."""

from __future__ import annotations

from tests.packages.table import package

PACKAGES = [
    package(
        "astropy 8.0.2",
        """
        import astropy.units as u
        from astropy.coordinates import SkyCoord
        from astropy.coordinates import angular_separation
        from astropy.cosmology import FlatLambdaCDM
        from astropy.modeling import models
        from astropy.modeling.physical_models import BlackBody
        from astropy.stats import biweight_location, sigma_clip
        from astropy.timeseries import LombScargle
        x = np.linspace(-3, 3, 31)
        t = np.sort(np.random.default_rng(0).uniform(0, 10, 40))
        """,
        (
            "models.Gaussian1D(amplitude=2.0, mean=0.3, stddev=0.8).evaluate(x, p[0], p[1], p[2])",
            [2.0, 0.3, 0.8],
        ),
        ("models.Sersic1D.evaluate(np.abs(x) + 0.1, p[0], p[1], p[2])", [1.0, 5.0, 4.0]),
        ("FlatLambdaCDM(H0=70, Om0=0.3).luminosity_distance(p).value", [0.5, 1.0, 2.0]),
        ("angular_separation(p[0], p[1], p[2], p[3])", [0.1, 0.2, 0.4, -0.3]),
        ("biweight_location(p)", "rng.normal(size=20)"),
        ("(p * u.km).to(u.pc).value", [1e13, 2e13]),
        ("LombScargle(t, p).power(np.array([0.3, 0.5, 1.0]))", "rng.normal(size=40)"),
    ),
    package(
        "galpy 1.12.1",
        """
        from galpy.potential import HernquistPotential, LogarithmicHaloPotential, MiyamotoNagaiPotential, MWPotential2014
        from galpy.potential import evaluatePotentials, evaluateRforces, vcirc
        from galpy.util import coords
        """,
        ("MiyamotoNagaiPotential(a=0.5, b=0.0375, normalize=1.0)(p[0], p[1])", [1.0, 0.1]),
        ("evaluateRforces(MWPotential2014, p[0], p[1])", [1.0, 0.1]),
        ("vcirc(MWPotential2014, p[0])", [1.2]),
        ("coords.lb_to_radec(p[0], p[1], degree=True)", [120.0, 30.0]),
        ("HernquistPotential(amp=p[0], a=p[1]).Rforce(1.0, 0.2)", [1.0, 0.8]),
    ),
    package(
        "sgp4 2.27",
        """
        from sgp4 import ext
        from sgp4.model import WGS72, Satrec
        from sgp4.propagation import gstime
        line1 = '1 25544U 98067A   19343.69339541  .00001764  00000-0  38792-4 0  9991'
        line2 = '2 25544  51.6439 211.2001 0007417  17.6667  85.6398 15.50103472202482'
        satellite = Satrec.twoline2rv(line1, line2, WGS72)
        """,
        ("satellite.sgp4(2458827.0, p[0])[1]", [0.362605]),
        ("ext.rv2coe(p[:3], p[3:], 398600.8)[:6]", [7000.0, 100.0, 1300.0, 0.5, 7.2, 1.1]),
        ("ext.newtonnu(p[0], p[1])", [0.1, 0.7]),
        ("ext.jday(2019, 12, 9, 12, 0, p[0])", [7.3]),
        ("gstime(p[0])", [2458827.362605]),
    ),
    package(
        "skyfield 1.55",
        """
        from skyfield import functions, nutationlib
        from skyfield.api import load
        from skyfield.keplerlib import propagate
        from skyfield.precessionlib import compute_precession
        ts = load.timescale(builtin=True)
        """,
        ("functions.angle_between(p[:3], p[3:])", [1.0, 0.2, 0.3, 0.1, 0.9, -0.4]),
        ("functions.to_spherical(p)", [1.0, 0.2, 0.3]),
        ("functions.rot_z(p[0]) @ functions.rot_x(p[1])", [0.4, 0.7]),
        ("compute_precession(p[0])", [2458827.5]),
        ("nutationlib.mean_obliquity(p[0])", [2458827.5]),
    ),
    package(
        "pyastronomy 0.25.0",
        """
        from PyAstronomy import pyasl
        from PyAstronomy.modelSuite.XTran.forTrans.mandelAgolNL import MandelAgolNLLC
        wave = np.linspace(5000, 5010, 20)
        """,
        ("pyasl.MarkleyKESolver().getE(p[0], p[1])", [1.2, 0.3]),
        ("pyasl.KeplerEllipse(p[0], p[1], e=p[2], Omega=30.0, i=60.0, w=20.0).xyzPos(0.3)", [1.0, 1.2, 0.3]),
        ("pyasl.planck(p[0], wave * 1e-10)", [5777.0]),
        ("pyasl.airtovac2(p)", [5000.0, 6000.0]),
        ("pyasl.broadGaussFast(wave, p, 0.5)", "1 - 0.3 * rng.uniform(size=20)"),
    ),
    package(
        "radvel 1.6.7",
        """
        import radvel
        from radvel.kepler import rv_drive
        from radvel.orbit import timeperi_to_timetrans, timetrans_to_timeperi, true_anomaly
        t = np.linspace(0, 20, 15)
        """,
        ("rv_drive(t, p, use_c_kepler_solver=False)", [9.6, 1.3, 0.2, 0.4, 12.0]),
        ("timetrans_to_timeperi(p[0], p[1], p[2], p[3])", [1.3, 9.6, 0.2, 0.4]),
        ("true_anomaly(t, p[0], p[1], p[2])", [1.3, 9.6, 0.2]),
        ("radvel.utils.Msini(p[0], p[1], p[2], p[3])", [12.0, 9.6, 1.1, 0.2]),
        ("radvel.utils.semi_amplitude(p[0], p[1], p[2], p[3], Msini_units='jupiter')", [1.0, 9.6, 1.1, 0.2]),
    ),
    package(
        "colossus 1.4.0",
        """
        from colossus.cosmology import cosmology
        from colossus.halo import concentration, profile_nfw
        from colossus.lss import bias, peaks
        cosmo = cosmology.setCosmology('planck18', persistence='')
        """,
        ("cosmo.Ez(p)", [0.0, 0.5, 2.0]),
        ("cosmo.luminosityDistance(p)", [0.5, 1.0, 2.0]),
        ("profile_nfw.NFWProfile(rhos=p[0], rs=p[1]).density(np.array([10.0, 100.0]))", [1e6, 20.0]),
        ("profile_nfw.NFWProfile.mu(p)", [0.5, 5.0]),
        ("bias.modelTinker10(p, 0.0, '200c')", [1.0, 2.5]),
    ),
    package(
        "sncosmo 2.13.0",
        """
        import sncosmo
        phase = np.linspace(-20, 50, 15)
        wave = np.linspace(3000, 8000, 21)
        surface = np.exp(-(phase[:, None] / 15) ** 2) * (1 + 0.3 * np.sin(wave / 700))
        source = sncosmo.TimeSeriesSource(phase, wave, surface)
        points = np.array([4000.0, 5000.0, 6000.0])
        """,
        ("source.flux(p, points)", [-3.3, 5.0, 11.0]),
        ("sncosmo.CCM89Dust().propagate(points, p)", [1.0, 1.0, 0.8]),
        (
            """
            model = sncosmo.Model(source=source)
            model.set(z=p[0], t0=p[1], amplitude=p[2])
            return model.flux(3.0, points)
            """,
            [0.1, 0.7, 1e-3],
        ),
        ("sncosmo.Bandpass(points, p)(np.array([4500.0, 5500.0]))", [0.5, 0.9, 0.4]),
        ("sncosmo.Bandpass(points, p).wave_eff", [0.5, 0.9, 0.4]),
    ),
    package(
        "hmf 3.5.2",
        """
        from hmf.cosmology.growth_factor import GenMFGrowth
        from hmf.density_field import filters
        from hmf.density_field.transfer_models import BBKS, EH_NoBAO
        from hmf.mass_function import fitting_functions as ff
        from astropy.cosmology import Planck18
        k = np.logspace(-3, 1, 200)
        power = k / (1 + (k / 0.02) ** 2) ** 1.5
        """,
        ("BBKS(Planck18).lnt(p)", [-3.0, -1.0, 0.5]),
        ("EH_NoBAO(Planck18).lnt(p)", [-3.0, -1.0, 0.5]),
        ("filters.TopHat(k, power).sigma(p)", [2.0, 8.0]),
        ("filters.Gaussian(k, power).k_space(p)", [0.1, 0.5]),
        ("filters.TopHat(k, power).dlnss_dlnr(p)", [2.0, 8.0]),
    ),
    package(
        "lenstronomy 1.14.2",
        """
        from lenstronomy.LensModel.lens_model import LensModel
        from lenstronomy.LightModel.light_model import LightModel
        x, y = np.array([0.6, 1.3, -0.8]), np.array([0.3, -0.7, 1.1])
        """,
        (
            "LensModel(['SIE']).ray_shooting(x, y, [dict(theta_E=p[0], e1=p[1], e2=p[2], center_x=0.0, center_y=0.0)])",
            [1.2, 0.1, -0.05],
        ),
        (
            "LensModel(['SIS', 'SHEAR']).potential(x, y, [dict(theta_E=p[0]), dict(gamma1=p[1], gamma2=p[2])])",
            [1.2, 0.05, -0.03],
        ),
        ("LensModel(['NFW']).alpha(x, y, [dict(Rs=p[0], alpha_Rs=p[1])])", [1.5, 0.8]),
        (
            "LightModel(['SERSIC']).surface_brightness(x, y, [dict(amp=p[0], R_sersic=p[1], n_sersic=p[2])])",
            [10.0, 0.7, 2.5],
        ),
        (
            "LensModel(['EPL']).magnification(x, y, [dict(theta_E=p[0], gamma=p[1], e1=p[2], e2=0.05)])",
            [1.2, 1.9, 0.1],
        ),
    ),
]
