"""Engineering."""

from __future__ import annotations

from tests.packages.table import package

PACKAGES = [
    package(
        "filterpy 2.0.0",
        """
        from filterpy import kalman
        from filterpy.common import Q_discrete_white_noise
        from filterpy.kalman import KalmanFilter, MerweScaledSigmaPoints, UnscentedKalmanFilter
        z = np.array([0.9, 2.1, 2.9, 4.2])
        """,
        (
            """
            kf = KalmanFilter(dim_x=2, dim_z=1)
            kf.x = np.array([0.0, 1.0])
            kf.F = np.array([[1.0, 1.0], [0.0, 1.0]])
            kf.H = np.array([[1.0, 0.0]])
            kf.R = kf.R * p[0]
            kf.Q = Q_discrete_white_noise(dim=2, dt=0.1, var=p[1])
            for each in z:
                kf.predict()
                kf.update(each)
            return kf.x
            """,
            [5.0, 0.13],
        ),
        (
            "kalman.update(np.array([1.0, 0.5]), np.eye(2) * p[0], 1.2, np.array([[p[1]]]), np.array([[1.0, 0.0]]))",
            [2.0, 0.5],
        ),
        (
            "kalman.predict(p[:2], np.eye(2) * p[2], np.array([[1.0, 0.1], [0.0, 1.0]]), 0.01 * np.eye(2))",
            [1.0, 0.5, 2.0],
        ),
        ("Q_discrete_white_noise(dim=2, dt=p[0], var=p[1])", [0.1, 0.13]),
        (
            """
            points = MerweScaledSigmaPoints(2, alpha=0.1, beta=2.0, kappa=1.0)
            ukf = UnscentedKalmanFilter(2, 1, 0.1, hx=lambda x: x[:1], fx=lambda x, dt: np.array([x[0] + dt * x[1], x[1]]), points=points)
            ukf.P = ukf.P * p[0]
            ukf.R = ukf.R * p[1]
            for each in z:
                ukf.predict()
                ukf.update(each)
            return ukf.x
            """,
            [0.8, 0.3],
        ),
    ),
    package(
        "control 0.10.2",
        """
        import control as ct
        t = np.linspace(0, 5, 51)
        omega = np.array([0.1, 1.0, 10.0])
        """,
        ("ct.step_response(ct.tf([1.0], [1.0, p[0], p[1]]), t).outputs", [0.6, 2.0]),
        (
            "ct.ss(np.array([[0.0, 1.0], [-p[0], -p[1]]]), [[0.0], [1.0]], [[1.0, 0.0]], [[0.0]])(1j)",
            [2.0, 0.6],
        ),
        ("ct.frequency_response(ct.tf([p[0]], [1.0, p[1], 1.0]), omega).magnitude", [2.0, 0.6]),
        (
            "ct.lqr(np.array([[0.0, 1.0], [p[0], -0.1]]), np.array([[0.0], [1.0]]), np.eye(2), np.array([[p[1]]]))[0]",
            [1.5, 0.5],
        ),
        ("ct.lyap(np.array([[-1.0, p[0]], [0.0, -2.0]]), np.eye(2) * p[1])", [0.5, 1.2]),
    ),
    package(
        "fluids 1.3.1",
        """
        import fluids
        """,
        ("fluids.Reynolds(V=p[0], D=p[1], rho=1.1613, mu=p[2])", [2.5, 0.25, 1.9e-5]),
        ("fluids.friction_factor(Re=p[0], eD=p[1])", [1e5, 1e-4]),
        ("fluids.K_from_f(fd=p[0], L=p[1], D=0.3)", [0.018, 100.0]),
        ("fluids.isothermal_gas(rho=11.3, fd=p[0], P1=p[1], P2=9e5, L=1000.0, D=0.5)", [0.00185, 1e6]),
        (
            "fluids.control_valve.size_control_valve_l(rho=965.4, Psat=70.1e3, Pc=22120e3, mu=3.1472e-4, P1=p[0], P2=220e3, Q=p[1])",
            [680e3, 0.1],
        ),
    ),
    package(
        "psychrolib 2.5.0",
        """
        import psychrolib
        psychrolib.SetUnitSystem(psychrolib.SI)
        """,
        ("psychrolib.GetTDewPointFromRelHum(p[0], p[1])", [25.0, 0.8]),
        ("psychrolib.GetHumRatioFromRelHum(p[0], p[1], 101325.0)", [25.0, 0.6]),
        ("psychrolib.GetTWetBulbFromRelHum(p[0], p[1], 101325.0)", [25.0, 0.6]),
        ("psychrolib.GetMoistAirEnthalpy(p[0], p[1])", [25.0, 0.01]),
        ("psychrolib.GetSatVapPres(p[0])", [25.0]),
    ),
    package(
        "pythermalcomfort 4.8.1",
        "from pythermalcomfort import models",
        ("models.heat_index_rothfusz(tdb=p[0], rh=p[1], round_output=False).hi", [31.0, 60.0]),
        ("models.at(tdb=p[0], rh=p[1], v=p[2], round_output=False).at", [25.0, 30.0, 0.5]),
        ("models.wbgt(twb=p[0], tg=p[1], round_output=False).wbgt", [25.0, 32.0]),
        ("models.humidex(tdb=p[0], rh=p[1], round_output=False).humidex", [25.0, 50.0]),
        ("models.net(tdb=p[0], rh=p[1], v=p[2], round_output=False).net", [37.0, 60.0, 0.5]),
    ),
    package(
        "impedance 1.7.1",
        """
        from impedance.models.circuits import elements
        from impedance.models.circuits.circuits import CustomCircuit
        f = [1000.0, 5.0, 0.01]
        """,
        ("elements.CPE([p[0], p[1]], f)", [0.02, 0.8]),
        ("elements.p([elements.R([p[0]], f), elements.C([p[1]], f)])", [0.1, 0.5]),
        ("elements.Wo([p[0], p[1]], f)", [0.05, 100.0]),
        ("elements.W([p[0]], f)", [0.05]),
        ("elements.G([p[0], p[1]], f)", [0.2, 3.0]),
    ),
    package(
        "windpowerlib 0.2.2",
        """
        import pandas as pd
        from windpowerlib import density, power_output, temperature, wind_speed
        speeds = np.array([0.0, 4.0, 8.0, 12.0, 25.0])
        powers = np.array([0.0, 4e5, 1.6e6, 3e6, 3e6])
        """,
        ("wind_speed.logarithmic_profile(p[:3], 10.0, 100.0, p[3])", [5.0, 7.0, 6.1, 0.15]),
        ("wind_speed.hellman(pd.Series(p), 10.0, 100.0, roughness_length=0.15)", [5.0, 7.0, 6.1]),
        (
            "density.barometric(p[0], 0.0, 100.0, temperature.linear_gradient(p[1], 2.0, 100.0))",
            [101125.0, 267.0],
        ),
        ("power_output.power_curve(p, speeds, powers)", [5.0, 7.0, 9.3]),
        (
            "power_output.power_coefficient_curve(p[:3], speeds, 0.4 * powers / 3e6, 100.0, p[3])",
            [5.0, 7.0, 9.3, 1.2],
        ),
    ),
    package(
        "anastruct 1.7.0",
        """
        from anastruct import SystemElements

        def frame(p):
            system = SystemElements(EI=p[0], EA=p[1])
            system.add_element(location=[[0, 0], [3, 4]])
            system.add_element(location=[[3, 4], [8, 4]])
            system.add_support_hinged(node_id=1)
            system.add_support_fixed(node_id=3)
            system.q_load(element_id=2, q=p[2])
            system.point_load(2, Fx=p[3])
            system.solve()
            return system
        """,
        ("[node['uy'] for node in frame(p).get_node_displacements()]", [5000.0, 15000.0, -10.0, 3.0]),
        ("[node['Tz'] for node in frame(p).get_node_results_system()]", [5000.0, 15000.0, -10.0, 3.0]),
        ("frame(p).get_element_results(element_id=2)['Mmin']", [5000.0, 15000.0, -10.0, 3.0]),
        ("frame(p).get_element_result_range('shear')", [5000.0, 15000.0, -10.0, 3.0]),
        (
            """
            truss = SystemElements(EA=p[0])
            truss.add_truss_element(location=[[0.0, 0.0], [2.0, 0.0]])
            truss.add_truss_element(location=[[0.0, 0.0], [1.0, p[1]]])
            truss.add_truss_element(location=[[1.0, p[1]], [2.0, 0.0]])
            truss.add_support_hinged(node_id=1)
            truss.add_support_roll(node_id=2)
            truss.point_load(node_id=3, Fy=-5.0)
            truss.solve()
            return truss.get_element_result_range('axial')
            """,
            [1000.0, 1.5],
        ),
    ),
    package(
        "simdkalman 1.0.4",
        """
        import simdkalman
        from simdkalman.primitives import predict, update
        trend = np.array([[1.0, 1.0], [0.0, 1.0]])

        def kf(q, r):
            return simdkalman.KalmanFilter(trend, np.diag([0.1, 0.01]) * q, np.array([[1.0, 0.0]]), r)
        """,
        ("kf(1.0, 2.0).smooth(p.reshape(2, 6)).states.mean", "rng.normal(size=12)"),
        ("kf(p[0], p[1]).smooth(np.array([[1.0, 2.1, 2.9, 4.2]])).observations.mean", [0.5, 1.5]),
        ("kf(1.0, 2.0).predict(p.reshape(1, 6), 3).observations.mean", "rng.normal(size=6)"),
        ("predict(p[:2, None], p[2] * np.eye(2), trend, 0.1 * np.eye(2))", [1.0, 0.5, 2.0]),
        (
            "update(p[:2, None], p[2] * np.eye(2), np.array([[1.0, 0.0]]), np.array([[0.5]]), np.array([[1.3]]))",
            [1.0, 0.5, 2.0],
        ),
    ),
    package(
        "AllanTools 2024.6",
        """
        import allantools
        """,
        ("allantools.adev(p, rate=1.0, data_type='freq', taus=[1, 2, 4])[1]", "rng.normal(size=40)"),
        ("allantools.oadev(p, rate=2.0, data_type='phase', taus=[1, 2, 4])[1]", "rng.normal(size=40)"),
        ("allantools.mdev(p, rate=1.0, data_type='phase', taus=[1, 2, 4])[1]", "rng.normal(size=40)"),
        ("allantools.hdev(p, rate=1.0, data_type='phase', taus=[1, 2, 4])[1]", "rng.normal(size=40)"),
        ("allantools.totdev(p, rate=1.0, data_type='phase', taus=[1, 2])[1]", "rng.normal(size=20)"),
    ),
    package(
        "NavPy 1.0",
        """
        import navpy
        """,
        ("navpy.lla2ecef(p[0], p[1], p[2])", [45.0, -93.0, 250.0]),
        ("navpy.lla2ned(p[0], p[1], p[2], 44.9, -93.1, 240.0)", [45.0, -93.0, 250.0]),
        ("navpy.angle2quat(p[0], p[1], p[2])", [0.1, -0.2, 0.3]),
        ("navpy.angle2dcm(p[0], p[1], p[2])", [0.1, -0.2, 0.3]),
        ("navpy.ecef2lla(p)", [-236405.0, -4510882.0, 4487525.0]),
    ),
]
