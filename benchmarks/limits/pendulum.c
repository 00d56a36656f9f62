/* A damped, driven pendulum by Runge-Kutta steps: angle^2 + 0.1 speed^2 at the end, and its gradient in angle, speed,
 * damping, gravity and drive.
 *
 * A step waits for its sines. The first and the second angle of a step need none of its sines, and the third and the
 * fourth only those, so that two are computed at once, and their cosines with them. There are five directions and ten
 * numbers to carry: going forward along with the state costs less than to store and to go back, as all of it happens
 * while the next sines are awaited. */
#include "vector.h"

static const double H = 0.01;

typedef double two __attribute__((vector_size(16)));
typedef int64_t two_whole __attribute__((vector_size(16)));
typedef double four __attribute__((vector_size(32)));
enum { DIRECTIONS = 8 };
typedef double directions __attribute__((vector_size(8 * DIRECTIONS)));

/* The angles less the nearest multiples of pi, and the signs that their sines and cosines get. Right for angles below
 * a million. Most angles of a pendulum are small: the branch is foreseen, and nothing waits for a reduction. */
ALWAYS two reduce(two angle, two_whole *signs)
{
    *signs = (two_whole){0, 0};
    if (__builtin_expect(fabs(angle[0]) <= M_PI_2 && fabs(angle[1]) <= M_PI_2, 1))
        return angle;
    two shifted = angle * M_1_PI + 0x1.8p52;
    HOLD(shifted);
    *signs = (two_whole)shifted << 63;
    two multiples = shifted - 0x1.8p52;
    HOLD(multiples);
    two r = angle - multiples * 0x1.921fb54442d18p+1;
    HOLD(r);
    return r - multiples * 0x1.1a62633145c07p-53;
}

ALWAYS two sines(two angle)
{
    two_whole signs;
    two r = reduce(angle, &signs), u = r * r, u2 = u * u;
    two low = (-0.16666666666666666 + 0.0083333333333333158 * u) +
              (-0.00019841269841254956 + 2.7557319219158431e-6 * u) * u2;
    two high = (-2.5052107616384595e-8 + 1.6058977272815506e-10 * u) +
               (-7.6439690310527690e-13 + 2.7314289861226159e-15 * u) * u2;
    return (two)((two_whole)(r + r * u * (low + high * (u2 * u2))) ^ signs);
}

ALWAYS four both(double sine, double cosine)
{
    return (four){sine, sine, cosine, cosine};
}

/* Two sines, and then the two cosines. */
ALWAYS four sines_and_cosines(two angle)
{
    two_whole signs;
    two reduced = reduce(angle, &signs);
    four r = {reduced[0], reduced[1], reduced[0], reduced[1]}, u = r * r, u2 = u * u;
    four first = {reduced[0], reduced[1], 1.0, 1.0};
    const four k[] = {
        both(-0.16666666666666666, -0.49999999999999999),
        both(0.0083333333333333158, 0.041666666666666335),
        both(-0.00019841269841254956, -0.0013888888888860676),
        both(2.7557319219158431e-6, 2.4801587292437113e-5),
        both(-2.5052107616384595e-8, -2.755731776616188e-7),
        both(1.6058977272815506e-10, 2.0876630792310254e-9),
        both(-7.6439690310527690e-13, -1.1464687487845909e-11),
        both(2.7314289861226159e-15, 4.6276460895436345e-14),
    };
    four low = (k[0] + k[1] * u) + (k[2] + k[3] * u) * u2, high = (k[4] + k[5] * u) + (k[6] + k[7] * u) * u2;
    four result = first + first * u * (low + high * (u2 * u2));
    typedef int64_t four_whole __attribute__((vector_size(32)));
    return (four)((four_whole)result ^ (four_whole){signs[0], signs[1], signs[0], signs[1]});
}

double pendulum_value(int64_t steps, const double *start)
{
    double th = start[0], om = start[1], b = start[2], g = start[3], a = start[4];
    for (int64_t t = 0; t < steps; t++) {
        double v1 = om, th2 = th + 0.5 * H * v1;
        two early = sines((two){th, th2});
        double s1 = a - b * v1 - g * early[0], v2 = om + 0.5 * H * s1;
        double s2 = a - b * v2 - g * early[1], v3 = om + 0.5 * H * s2;
        two late = sines((two){th + 0.5 * H * v2, th + H * v3});
        double s3 = a - b * v3 - g * late[0], v4 = om + H * s3;
        double s4 = a - b * v4 - g * late[1];
        th += H / 6.0 * (v1 + 2.0 * v2 + 2.0 * v3 + v4);
        om += H / 6.0 * (s1 + 2.0 * s2 + 2.0 * s3 + s4);
    }
    return th * th + 0.1 * om * om;
}

double pendulum_gradient(int64_t steps, const double *start, double *gradient)
{
    double th = start[0], om = start[1], b = start[2], g = start[3], a = start[4];
    directions dth = {1.0}, dom = {0.0, 1.0};
    const directions db = {0.0, 0.0, 1.0}, dg = {0.0, 0.0, 0.0, 1.0}, da = {0.0, 0.0, 0.0, 0.0, 1.0};
    for (int64_t t = 0; t < steps; t++) {
        double v1 = om, th2 = th + 0.5 * H * v1;
        four early = sines_and_cosines((two){th, th2});
        double s1 = a - b * v1 - g * early[0], v2 = om + 0.5 * H * s1;
        double s2 = a - b * v2 - g * early[1], v3 = om + 0.5 * H * s2;
        double th3 = th + 0.5 * H * v2, th4 = th + H * v3;
        four late = sines_and_cosines((two){th3, th4});
        double s3 = a - b * v3 - g * late[0], v4 = om + H * s3;
        double s4 = a - b * v4 - g * late[1];

        directions dv1 = dom, ds1 = da - v1 * db - early[0] * dg - b * dv1 - g * early[2] * dth;
        directions dv2 = dom + 0.5 * H * ds1, dth2 = dth + 0.5 * H * dv1;
        directions ds2 = da - v2 * db - early[1] * dg - b * dv2 - g * early[3] * dth2;
        directions dv3 = dom + 0.5 * H * ds2, dth3 = dth + 0.5 * H * dv2;
        directions ds3 = da - v3 * db - late[0] * dg - b * dv3 - g * late[2] * dth3;
        directions dv4 = dom + H * ds3, dth4 = dth + H * dv3;
        directions ds4 = da - v4 * db - late[1] * dg - b * dv4 - g * late[3] * dth4;

        th += H / 6.0 * (v1 + 2.0 * v2 + 2.0 * v3 + v4);
        om += H / 6.0 * (s1 + 2.0 * s2 + 2.0 * s3 + s4);
        dth += H / 6.0 * (dv1 + 2.0 * dv2 + 2.0 * dv3 + dv4);
        dom += H / 6.0 * (ds1 + 2.0 * ds2 + 2.0 * ds3 + ds4);
    }
    for (int i = 0; i < 5; i++)
        gradient[i] = 2.0 * th * dth[i] + 0.2 * om * dom[i];
    return th * th + 0.1 * om * om;
}
