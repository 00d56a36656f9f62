"""Rotations, robots, meshes and finite elements."""

from __future__ import annotations

from tests.packages.table import package

PACKAGES = [
    package(
        "transforms3d 0.4.2",
        """
        from transforms3d import affines, axangles, euler, quaternions
        """,
        ("euler.euler2mat(p[0], p[1], p[2], 'syxz')", [0.3, 0.5, 0.7]),
        ("quaternions.quat2mat(p)", [0.9, 0.1, 0.3, -0.2]),
        ("axangles.axangle2mat([1.0, p[0], 0.5], p[1])", [0.4, 0.6]),
        ("quaternions.qmult(p[:4], p[4:])", [0.9, 0.1, 0.3, -0.2, 0.7, -0.1, 0.5, 0.2]),
        (
            "affines.compose(p[:3], euler.euler2mat(p[3], 0.1, 0.2), np.array([1.0, 2.0, p[4]]))",
            [1.0, 2.0, 3.0, 0.4, 1.5],
        ),
    ),
    package(
        "pyquaternion 0.9.9",
        """
        from pyquaternion import Quaternion
        q = Quaternion(axis=[1.0, 0.0, 0.0], angle=0.4)
        """,
        ("q.rotate(p)", [1.0, 2.0, 3.0]),
        ("Quaternion(p).rotation_matrix", [0.9, 0.1, 0.3, -0.2]),
        ("(Quaternion(p[0], p[1], p[2], p[3]) * q).elements", [0.9, 0.1, 0.3, -0.2]),
        ("Quaternion(axis=p[:3], angle=p[3]).elements", [0.9, 0.1, 0.3, 0.7]),
        ("Quaternion.slerp(q, Quaternion(axis=[0.0, 1.0, 0.0], angle=p[0]), p[1]).elements", [0.9, 0.3]),
    ),
    package(
        "pytransform3d 3.17.0",
        """
        from pytransform3d import batch_rotations as pb
        from pytransform3d import rotations as pr
        from pytransform3d import transformations as pt
        """,
        ("pr.matrix_from_euler(p, 0, 1, 2, True)", [0.3, 0.5, 0.7]),
        ("pr.matrix_from_quaternion(p / np.linalg.norm(p))", [0.9, 0.1, 0.3, -0.2]),
        ("pr.matrix_from_compact_axis_angle(p)", [0.3, 0.5, 0.7]),
        (
            "pt.transform(pt.transform_from(np.eye(3), p[:3]), pt.vector_to_point(p[3:]))",
            [0.3, 0.5, 0.7, 1.0, 2.0, 3.0],
        ),
        ("pb.matrices_from_compact_axis_angles(p.reshape(2, 3))", [0.3, 0.5, 0.7, 1.0, 0.2, -0.4]),
    ),
    package(
        "spatialmath-python 1.1.18",
        """
        from spatialmath import SE3, SO3, UnitQuaternion, base
        """,
        ("base.rotx(p[0]) @ base.roty(p[1])", [0.3, 0.5]),
        ("base.rpy2r(p[0], p[1], p[2])", [0.3, 0.5, 0.7]),
        ("SE3.Rx(p[0]).A @ SE3.Trans(p[1], 2.0, 3.0).A", [0.3, 0.5]),
        ("base.qqmul(p[:4], p[4:])", [0.9, 0.1, 0.3, -0.2, 0.7, -0.1, 0.5, 0.2]),
        ("base.trexp(p)", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
    ),
    package(
        "ahrs 0.4.0",
        """
        from ahrs.common import DCM, Quaternion
        from ahrs.common.orientation import acc2q, q_conj, q_prod, q_rot
        from ahrs.filters import Madgwick, Tilt
        """,
        ("q_prod(p[:4], p[4:])", [0.9, 0.1, 0.3, -0.2, 0.7, -0.1, 0.5, 0.2]),
        ("acc2q(p)", [0.3, 0.5, 9.7]),
        (
            "Madgwick().updateIMU(np.array([1.0, 0.0, 0.0, 0.0]), gyr=p[:3], acc=p[3:])",
            [0.1, 0.2, 0.3, 0.3, 0.5, 9.7],
        ),
        ("Tilt().estimate(acc=p)", [0.3, 0.5, 9.7]),
        ("np.asarray(DCM(x=p[0], y=p[1], z=p[2]))", [0.1, 0.2, 0.3]),
    ),
    package(
        "trimesh 5.2.0",
        """
        import trimesh
        from trimesh import transformations as tf
        box = trimesh.creation.box()
        """,
        ("tf.rotation_matrix(p[0], [p[1], 0.0, 1.0])", [0.4, 0.6]),
        ("tf.quaternion_matrix(p)", [0.9, 0.1, 0.3, -0.2]),
        ("trimesh.triangles.area(p.reshape(1, 3, 3))", "rng.normal(size=9)"),
        ("trimesh.triangles.mass_properties(box.triangles * p[0], density=p[1])['inertia']", [1.2, 0.8]),
        (
            "trimesh.transform_points(box.vertices, p.reshape(4, 4))",
            "np.eye(4).ravel() + 0.1 * rng.normal(size=16)",
        ),
    ),
    package(
        "scikit-fem 12.0.2",
        """
        import skfem
        from skfem import Basis, BilinearForm, ElementTriP1, LinearForm, MeshTri, condense, solve
        from skfem.helpers import dot, grad
        from skfem.models.poisson import laplace, unit_load
        mesh = MeshTri().refined(2)
        basis = Basis(mesh, ElementTriP1())
        A, b = laplace.assemble(basis), unit_load.assemble(basis)
        """,
        ("skfem.Functional(lambda w: w['u'] ** 2).assemble(basis, u=p)", "rng.normal(size=25)"),
        ("basis.interpolate(p).grad", "rng.normal(size=25)"),
        (
            "LinearForm(lambda v, w: w['u'] * v).assemble(basis, u=basis.interpolate(p))",
            "rng.normal(size=25)",
        ),
        (
            "BilinearForm(lambda u, v, w: p[0] * dot(grad(u), grad(v)) + p[1] * u * v).assemble(basis) @ np.ones(25)",
            [1.5, 0.5],
        ),
        ("solve(*condense(A, p[0] * b, D=mesh.boundary_nodes()))", [1.5]),
    ),
    package(
        "meshio 5.3.5",
        """
        import meshio
        points = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
        """,
        ("meshio.Mesh(p.reshape(3, 2), [('triangle', [[0, 1, 2]])]).points", [0.0, 0.1, 1.0, 0.2, 0.3, 1.0]),
        (
            "meshio.Mesh(points, [('triangle', [[0, 1, 2]])], point_data={'T': p}).point_data['T']",
            [0.3, -1.2, 0.5],
        ),
        (
            "meshio.Mesh(points, [('triangle', [[0, 1, 2]])], cell_data={'a': [p]}).get_cell_data('a', 'triangle')",
            [0.4],
        ),
        (
            "meshio.Mesh(p.reshape(3, 2), {'triangle': np.array([[0, 1, 2]])}).points[1:]",
            [0.0, 0.1, 1.0, 0.2, 0.3, 1.0],
        ),
        ("meshio.Mesh(p.reshape(2, 3), [('line', [[0, 1]])]).copy().points", [0.0, 0.1, 1.0, 0.2, 0.3, 1.0]),
    ),
    package(
        "geomdl 5.4.0",
        """
        from geomdl import BSpline, NURBS, linalg, operations, utilities
        def curve(points, degree=3):
            made = BSpline.Curve()
            made.degree = degree
            made.ctrlpts = points
            made.knotvector = utilities.generate_knot_vector(degree, len(points))
            return made
        """,
        ("curve([list(row) for row in p.reshape(5, 2)]).evaluate_single(0.3)", "rng.normal(size=10)"),
        (
            "curve([[0.0, 0.0], [p[0], p[1]], [2.0, p[2]], [3.0, 0.0]]).derivatives(u=0.4, order=2)",
            [1.0, 2.0, -1.0],
        ),
        (
            "operations.length_curve(curve([[0.0, 0.0], [p[0], p[1]], [2.0, p[2]], [3.0, 0.0]]))",
            [1.0, 2.0, -1.0],
        ),
        ("linalg.vector_normalize(linalg.vector_cross(p[:3], p[3:]))", [1.0, 2.0, 3.0, 0.5, -1.0, 0.3]),
        (
            """
            made = NURBS.Curve()
            made.degree = 2
            made.ctrlpts = [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
            made.weights = [1.0, p[0], 1.0]
            made.knotvector = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
            return made.evaluate_single(0.4)
            """,
            [0.7],
        ),
    ),
    package(
        "scikit-spatial 10.0.0",
        """
        from skspatial.objects import Line, Plane, Point, Points, Sphere, Triangle, Vector
        """,
        ("Line(p[:3], p[3:]).project_point([1.0, 2.0, 0.5])", [0.0, 0.1, 0.2, 1.0, 1.0, 0.3]),
        ("Plane([0, 0, 1], p[:3]).distance_point(p[3:])", [0.1, 0.2, 1.0, 0.5, 0.4, 3.0]),
        ("Vector(p[:3]).angle_between(p[3:])", [1.0, 0.2, 0.1, 0.3, 1.0, 0.5]),
        (
            "Plane.best_fit(Points(p.reshape(4, 3))).normal",
            [0.0, 0.0, 0.1, 1.0, 0.1, 0.0, 0.0, 1.1, -0.1, 1.2, 1.0, 0.05],
        ),
        ("Triangle(p[:3], p[3:6], p[6:]).area()", [0.0, 0.0, 0.1, 1.0, 0.1, 0.0, 0.0, 1.1, -0.1]),
    ),
    package(
        "pyrr 0.10.3",
        """
        from pyrr import Matrix44, Quaternion, Vector3, geometric_tests, matrix33, matrix44, quaternion, vector, vector3
        """,
        ("matrix44.create_look_at(p[:3], p[3:6], p[6:])", [4.0, 3.0, 3.0, 0.1, 0.0, 0.2, 0.0, 1.0, 0.1]),
        ("matrix33.create_from_quaternion(quaternion.create_from_eulers(p))", [0.1, 0.2, 0.3]),
        (
            "quaternion.slerp(vector.normalise(p[:4]), vector.normalise(p[4:]), 0.3)",
            [0.1, 0.2, 0.3, 0.9, 0.3, 0.1, 0.2, 0.8],
        ),
        ("vector3.generate_normals(p[:3], p[3:6], p[6:])", [0.0, 0.1, 0.0, 1.0, 0.0, 0.2, 0.0, 1.0, 0.1]),
        ("np.asarray(Matrix44.from_translation(p) * Vector3([1.0, 2.0, 3.0]))", [0.5, -1.0, 2.0]),
    ),
    package(
        "rowan 1.3.2",
        """
        import rowan
        """,
        ("rowan.rotate(rowan.normalize(p[:4]), p[4:])", [0.9, 0.1, 0.2, 0.3, 1.0, 2.0, 3.0]),
        ("rowan.to_matrix(rowan.from_euler(p[0], p[1], p[2]))", [0.1, 0.2, 0.3]),
        ("rowan.log(rowan.exp(p))", [0.1, 0.2, 0.3, 0.4]),
        (
            "rowan.interpolate.slerp(rowan.normalize(p[:4]), rowan.normalize(p[4:]), 0.4)",
            [0.9, 0.1, 0.2, 0.3, 0.8, 0.3, -0.1, 0.2],
        ),
        ("rowan.to_euler(rowan.normalize(p))", [0.9, 0.1, 0.2, 0.3]),
    ),
    package(
        "vector 1.9.0",
        """
        import vector
        """,
        ("vector.obj(px=p[0], py=p[1], pz=p[2], E=p[3]).mass", [1.0, 2.0, 0.5, 5.0]),
        ("vector.obj(pt=p[0], eta=p[1], phi=p[2], mass=0.1).to_xyzt().E", [20.0, 0.5, 1.2]),
        ("vector.array({'x': p[:3], 'y': p[3:]}).rotateZ(0.3).x", [1.0, 2.0, 3.0, 0.4, 0.5, 0.6]),
        (
            """
            a = vector.obj(px=p[0], py=p[1], pz=p[2], E=p[3])
            b = vector.obj(px=0.2, py=-0.5, pz=0.4, E=2.0)
            return (a + b).mass, a.deltaR(b)
            """,
            [1.0, 2.0, 0.5, 5.0],
        ),
        ("vector.obj(x=p[0], y=p[1], z=p[2], t=4.0).boostX(beta=p[3]).t", [1.0, 2.0, 0.5, 0.3]),
    ),
]
