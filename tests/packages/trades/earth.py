"""Earth, oceans, weather and sun."""

from __future__ import annotations

from tests.packages.table import package

PACKAGES = [
    package(
        "pvlib 0.16.1",
        """
        from pvlib import atmosphere, clearsky, iam, irradiance, pvsystem, singlediode, temperature
        """,
        ("irradiance.aoi(p[0], p[1], p[2], p[3])", [30.0, 180.0, 40.0, 160.0]),
        ("temperature.sapm_cell(p[0], p[1], p[2], -3.56, -0.075, 3)", [900.0, 20.0, 2.0]),
        (
            "singlediode.bishop88_i_from_v(p[0], p[1], 1e-9, 0.3, p[2], 1.5, method='newton')",
            [20.0, 6.0, 300.0],
        ),
        ("irradiance.get_extra_radiation(p, method='spencer')", [20.0, 140.0, 270.0]),
        ("iam.ashrae(p)", [20.0, 40.0, 70.0]),
        ("atmosphere.get_relative_airmass(p, model='kastenyoung1989')", [20.0, 40.0, 70.0]),
        ("irradiance.haydavies(p[0], 180.0, p[1], p[2], 1360.0, 40.0, 160.0)", [30.0, 150.0, 700.0]),
    ),
    package(
        "seawater 3.3.5",
        """
        import seawater as sw
        """,
        ("sw.dens(p[0], p[1], p[2])", [35.0, 15.0, 1000.0]),
        ("sw.svel(p[0], p[1], p[2])", [35.0, 15.0, 1000.0]),
        ("sw.ptmp(p[0], p[1], p[2], 0.0)", [35.0, 15.0, 1000.0]),
        ("sw.dpth(p[:3], p[3:])", [100.0, 500.0, 2000.0, 20.0, 30.0, 45.0]),
        ("sw.fp(p[0], p[1])", [33.0, 500.0]),
    ),
    package(
        "metpy 1.7.1",
        """
        import metpy.calc as mpcalc
        from metpy.units import units
        """,
        ("mpcalc.saturation_vapor_pressure(p * units.kelvin).magnitude", [280.0, 300.0]),
        ("mpcalc.potential_temperature(p[0] * units.hPa, p[1] * units.kelvin).magnitude", [850.0, 290.0]),
        (
            "mpcalc.dewpoint_from_relative_humidity(p[0] * units.degC, p[1] * units.dimensionless).magnitude",
            [20.0, 0.5],
        ),
        ("mpcalc.wind_speed(p[:2] * units('m/s'), p[2:] * units('m/s')).magnitude", [3.0, 4.0, 1.0, 2.0]),
        ("mpcalc.heat_index(p[0] * units.degF, p[1] * units.dimensionless).magnitude", [92.0, 0.6]),
    ),
    package(
        "pymap3d 3.2.0",
        """
        import pymap3d
        from pymap3d import vincenty
        """,
        ("pymap3d.geodetic2ecef(p[0], p[1], p[2])", [42.0, -82.0, 200.0]),
        ("pymap3d.ecef2geodetic(p[0], p[1], p[2])", [660675.0, -4700949.0, 4245738.0]),
        ("pymap3d.geodetic2aer(p[0], p[1], p[2], 42.0, -82.0, 200.0)", [42.1, -82.1, 1000.0]),
        ("pymap3d.enu2geodetic(p[0], p[1], p[2], 42.0, -82.0, 200.0)", [186.0, 286.0, 939.0]),
        ("vincenty.vdist(p[0], p[1], p[2], p[3])", [10.0, 20.0, 10.1, 20.3]),
    ),
    package(
        "nvector 1.2.0",
        """
        import nvector as nv
        """,
        ("nv.lat_lon2n_E(p[0], p[1])", [0.5, 0.3]),
        ("nv.n_E2lat_lon(nv.unit(p.reshape(3, 1)))", [0.5, 0.3, 0.7]),
        ("nv.n_EB_E2p_EB_E(nv.lat_lon2n_E(p[0], p[1]), p[2])", [0.5, 0.3, -10.0]),
        ("nv.great_circle_distance(nv.lat_lon2n_E(p[0], p[1]), nv.lat_lon2n_E(0.7, 0.2))", [0.5, 0.3]),
        ("nv.zyx2R(p[0], p[1], p[2])", [0.5, 0.3, -0.4]),
    ),
    package(
        "haversine 2.9.0",
        """
        from haversine import Unit, haversine, haversine_vector, inverse_haversine
        """,
        ("haversine((p[0], p[1]), (p[2], p[3]))", [45.7597, 4.8422, 48.8567, 2.3508]),
        ("haversine((p[0], p[1]), (48.8567, 2.3508), unit=Unit.MILES)", [45.7597, 4.8422]),
        ("haversine_vector(p.reshape(2, 2), [(48.8567, 2.3508), (50.0, 5.0)])", [45.7597, 4.8422, 43.0, 1.0]),
        ("inverse_haversine((p[0], p[1]), p[2], 1.2)", [45.7597, 4.8422, 32.0]),
        ("haversine_vector(p.reshape(2, 2), [(48.8567, 2.3508)], comb=True)", [45.7597, 4.8422, 43.0, 1.0]),
    ),
    package(
        "gstools 1.7.0",
        """
        import gstools as gs
        r = np.linspace(0.1, 5, 10)
        x = np.array([0.3, 1.9, 1.1, 3.3, 4.7])
        """,
        ("gs.Gaussian(dim=2, var=1.0, len_scale=2.0).variogram(p)", [0.5, 1.0, 3.0]),
        ("gs.Exponential(dim=1, var=p[0], len_scale=p[1]).covariance(r)", [1.0, 2.0]),
        ("gs.Matern(dim=1, nu=1.5).correlation(p)", [0.5, 1.0, 3.0]),
        (
            "gs.krige.Ordinary(gs.Gaussian(dim=1, var=0.5, len_scale=2.0), x, p)(r)[0]",
            [0.47, 0.56, 0.74, 1.47, 1.74],
        ),
        ("gs.Spherical(dim=3).spectrum(p)", [0.5, 1.0, 3.0]),
    ),
    package(
        "pykrige 1.7.3",
        """
        from pykrige import core, variogram_models
        from pykrige.ok import OrdinaryKriging
        d = np.array([0.5, 1.0, 3.0])
        x = np.array([0.3, 1.9, 1.1, 3.3, 4.7])
        y = np.array([1.2, 0.6, 3.2, 4.4, 3.8])
        """,
        ("variogram_models.spherical_variogram_model(p, d)", [1.0, 2.0, 0.1]),
        ("variogram_models.gaussian_variogram_model([p[0], p[1], p[2]], d)", [1.0, 2.0, 0.1]),
        ("variogram_models.hole_effect_variogram_model(p, d)", [1.0, 2.0, 0.1]),
        ("core.great_circle_distance(p[0], p[1], p[2], p[3])", [10.0, 20.0, 12.0, 23.0]),
        (
            "OrdinaryKriging(x, y, p, variogram_model='linear', variogram_parameters=[0.5, 0.1]).execute('points', d, d)[0].data",
            [0.47, 0.56, 0.74, 1.47, 1.74],
        ),
    ),
    package(
        "ambiance 1.3.1",
        "from ambiance import Atmosphere",
        ("Atmosphere(p).temperature", [1000.0, 8000.0, 15000.0]),
        ("Atmosphere(p).density", [1000.0, 8000.0, 15000.0]),
        ("Atmosphere(p).speed_of_sound", [1000.0, 8000.0]),
        ("Atmosphere(p).pressure", [1000.0, 8000.0, 15000.0]),
        ("Atmosphere(p).dynamic_viscosity", [1000.0, 8000.0]),
    ),
    package(
        "hydroeval 0.1.0",
        """
        import hydroeval as he
        measured = np.array([5.3, 4.2, 5.7, 2.3])
        """,
        ("he.evaluator(he.nse, p, measured)", [4.7, 4.3, 5.5, 2.7]),
        ("he.evaluator(he.kge, p, measured)", [4.7, 4.3, 5.5, 2.7]),
        ("he.rmse(p, measured)", [4.7, 4.3, 5.5, 2.7]),
        ("he.mare(p, measured)", [4.7, 4.3, 5.5, 2.7]),
        ("he.evaluator(he.kgeprime, p, measured)", [4.7, 4.3, 5.5, 2.7]),
    ),
    package(
        "burnman 2.1.0",
        """
        import burnman
        from burnman.eos import debye
        forsterite = burnman.minerals.SLB_2011.forsterite()
        periclase = burnman.minerals.SLB_2011.periclase()
        """,
        (
            """
            forsterite.set_state(p[0], p[1])
            return forsterite.density, forsterite.v_p
            """,
            [25e9, 2000.0],
        ),
        (
            """
            rock = burnman.Composite([forsterite, periclase], [p[0], 1.0 - p[0]])
            rock.set_state(25e9, 2000.0)
            return rock.density
            """,
            [0.7],
        ),
        ("debye.thermal_energy(p[0], p[1], 7.0)", [1200.0, 750.0]),
        (
            "burnman.averaging_schemes.VoigtReussHill().average_bulk_moduli(p[:2], p[2:4], p[4:])",
            [0.3, 0.7, 1.3e11, 1.6e11, 8e10, 1.3e11],
        ),
        ("burnman.eos.murnaghan.volume(p[0], 1e-5, p[1], p[2])", [1e10, 1.6e11, 4.0]),
    ),
    package(
        "pyet 1.5.0",
        """
        import pandas as pd
        import pyet
        days = pd.date_range("2020-06-01", periods=4)
        wind, humidity = pd.Series([2.0, 1.5, 3.0, 2.2], days), pd.Series([60.0, 70.0, 55.0, 65.0], days)
        """,
        ("pyet.calc_e0(p)", [12.0, 18.0, 25.0]),
        ("pyet.calc_psy(p[0], tmean=p[1])", [101.3, 20.0]),
        ("pyet.oudin(pd.Series(p, days), lat=0.82)", [12.0, 18.0, 25.0, 21.0]),
        (
            "pyet.makkink(pd.Series(p[:3], days[:3]), pd.Series(p[3:], days[:3]), elevation=2.0)",
            [12.0, 18.0, 25.0, 20.0, 24.0, 22.0],
        ),
        (
            "pyet.pm_fao56(pd.Series(p, days), wind, rs=20.0 + 0.1 * wind, rh=humidity, elevation=4.0, lat=0.9)",
            [12.0, 18.0, 25.0, 21.0],
        ),
    ),
    package(
        "PyCO2SYS 1.8.3.4",
        """
        import PyCO2SYS as pyco2
        """,
        ("pyco2.equilibria.p1atm.kH2CO3_TOT_LDK00(p[0], p[1])", [283.15, 35.0]),
        ("pyco2.equilibria.p1atm.kHSO4_FREE_D90a(p[0], p[1])", [283.15, 35.0]),
        ("pyco2.solubility.k_aragonite_M83(p[0], p[1], 0.0, 83.1451)", [283.15, 35.0]),
        ("pyco2.salts.ionic_strength_DOE94(p)", [33.0, 35.0]),
        ("pyco2.gas.vpfactor(p[0], p[1])", [283.15, 35.0]),
    ),
    package(
        "choclo 0.3.2",
        """
        import choclo
        """,
        ("choclo.point.gravity_pot(0.0, 0.0, 10.0, p[0], p[1], -50.0, p[2])", [5.0, 3.0, 1e12]),
        ("choclo.point.gravity_nn(0.0, 0.0, 10.0, p[0], p[1], -50.0, p[2])", [5.0, 3.0, 1e14]),
        ("choclo.point.kernel_eu(0.0, 0.0, 10.0, p[0], p[1], p[2], 10.0)", [5.0, 3.0, -50.0]),
        (
            "choclo.prism.gravity_u(0.0, 0.0, 10.0, p[0], 50.0, -40.0, p[1], -100.0, -10.0, 2670.0)",
            [-50.0, 40.0],
        ),
        ("choclo.dipole.magnetic_u(0.0, 0.0, 10.0, p[0], p[1], -50.0, 1e9, p[2], 3e9)", [5.0, 3.0, 2e9]),
    ),
    package(
        "boule 0.6.0",
        """
        import boule
        """,
        ("boule.WGS84.normal_gravity((0.0, p[0], p[1]))", [45.0, 500.0]),
        ("boule.WGS84.geodetic_to_spherical((p[0], p[1], p[2]))", [12.0, 45.0, 500.0]),
        ("boule.WGS84.geocentric_radius(p)", [45.0, 10.0, -70.0]),
        (
            """
            own = boule.Ellipsoid("own", semimajor_axis=p[0], flattening=p[1], geocentric_grav_const=3.9860044e14, angular_velocity=7.29e-5)
            return own.gravity_equator
            """,
            [6378137.0, 0.00335],
        ),
        (
            "boule.Sphere('own', radius=p[0], geocentric_grav_const=p[1], angular_velocity=2.66e-6).normal_gravity((0.0, 45.0, 500.0))",
            [1737151.0, 4.9028e12],
        ),
    ),
    package(
        "utm 0.9.0",
        """
        import utm
        """,
        ("utm.from_latlon(p[0], p[1])[:2]", [51.2, 7.5]),
        ("utm.to_latlon(p[0], p[1], 32, 'U')", [395201.3, 5673135.2]),
        ("utm.from_latlon(p[:2], p[2:])[:2]", [51.2, 49.0, 7.5, 8.4]),
        ("utm.from_latlon(p[0], p[1], force_zone_number=31)[:2]", [51.2, 7.5]),
        ("utm.to_latlon(p[:2], p[2:], 32, northern=True)", [395201.3, 456114.6, 5673135.2, 5427629.2]),
    ),
    package(
        "geographiclib 2.1",
        """
        from geographiclib.geodesic import Geodesic
        earth = Geodesic.WGS84
        """,
        ("earth.Inverse(p[0], p[1], p[2], p[3])['s12']", [-41.3, 174.8, 40.9, -5.5]),
        (
            """
            end = earth.Direct(p[0], p[1], p[2], p[3])
            return end["lat2"], end["lon2"]
            """,
            [40.6, -73.8, 45.0, 1e6],
        ),
        ("earth.InverseLine(p[0], p[1], 35.0, 140.0).Position(p[2])['lat2']", [40.1, 116.6, 1e6]),
        (
            """
            field = earth.Polygon()
            for k in range(3):
                field.AddPoint(p[2 * k], p[2 * k + 1])
            return field.Compute()[1:]
            """,
            [-63.1, -58.0, -72.9, -74.0, -71.9, -102.0],
        ),
        ("Geodesic(p[0], p[1]).Inverse(0.0, 0.0, 10.0, 20.0)['s12']", [6378137.0, 0.00335]),
    ),
    package(
        "thermofeel 2.3.0",
        """
        import thermofeel
        """,
        ("thermofeel.calculate_wbgt_simple(p[:2], p[2:])", [300.0, 295.0, 60.0, 45.0]),
        ("thermofeel.calculate_wind_chill(p[:2], p[2:])", [270.0, 265.0, 5.0, 8.0]),
        ("thermofeel.calculate_heat_index_simplified(p[:2], p[2:])", [305.0, 300.0, 60.0, 45.0]),
        (
            "thermofeel.calculate_apparent_temperature(p[:2], p[2:4], p[4:])",
            [305.0, 300.0, 3.0, 2.0, 60.0, 45.0],
        ),
        ("thermofeel.calculate_humidex(p[:2], p[2:])", [305.0, 300.0, 295.0, 290.0]),
    ),
    package(
        "refet 0.5.0",
        """
        import refet
        place = dict(zw=3, elev=1208.5, lat=39.4575, doy=182, input_units={"lat": "deg"})
        """,
        (
            "refet.Daily(tmin=p[0], tmax=p[1], ea=1.2, rs=p[2], uz=p[3], method='asce', **place).eto()",
            [13.5, 35.0, 28.0, 2.2],
        ),
        (
            "refet.Daily(tmin=p[0], tmax=p[1], ea=p[2], rs=28.0, uz=2.2, method='refet', **place).etr()",
            [13.5, 35.0, 1.2],
        ),
        (
            "refet.Hourly(tmean=p[0], ea=p[1], rs=p[2], uz=p[3], lon=np.deg2rad(-118.77388), time=18, **place).eto()",
            [33.0, 1.2, 2.2, 3.3],
        ),
        (
            """
            days = dict(zw=3, elev=np.full(2, 1208.5), lat=np.full(2, 0.689), doy=np.array([182, 183]))
            return refet.Daily(p[:2], p[2:], ea=np.array([1.2, 1.3]), rs=np.array([28.0, 27.0]), uz=np.array([2.2, 1.9]), **days).eto()
            """,
            [13.5, 12.0, 35.0, 33.0],
        ),
        ("refet.Daily(13.5, p[0], tdew=p[1], rs=28.0, uz=2.2, **place).etsz('etr')", [35.0, 9.0]),
    ),
]
