"""A damped, driven pendulum by Runge-Kutta steps; a function of where it ends."""

import numpy as np

from wordings.plain import scan

H = 0.01


def slope(angle, speed, damping, gravity, drive):
    return speed, drive - damping * speed - gravity * np.sin(angle)


def advance(angle, speed, *constants):
    a1, s1 = slope(angle, speed, *constants)
    a2, s2 = slope(angle + 0.5 * H * a1, speed + 0.5 * H * s1, *constants)
    a3, s3 = slope(angle + 0.5 * H * a2, speed + 0.5 * H * s2, *constants)
    a4, s4 = slope(angle + H * a3, speed + H * s3, *constants)
    return angle + H / 6 * (a1 + 2 * a2 + 2 * a3 + a4), speed + H / 6 * (s1 + 2 * s2 + 2 * s3 + s4)


def pendulum_scan(angle, speed, damping, gravity, drive, *, steps):
    def step(state, _):
        return advance(*state, damping, gravity, drive), None

    (angle, speed), _ = scan(step, (angle, speed), None, length=steps)
    return angle**2 + 0.1 * speed**2


def pendulum_loop(angle, speed, damping, gravity, drive, *, steps):
    for _ in range(steps):
        angle, speed = advance(angle, speed, damping, gravity, drive)
    return angle**2 + 0.1 * speed**2
