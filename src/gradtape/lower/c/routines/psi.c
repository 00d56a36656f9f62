/* The digamma function: reflection for negative numbers, recurrence up to 10, then the asymptotic series. */
static double psi(double x)
{
    static const double series[] = {
        1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12, -3617.0 / 8160,
    };
    /* The positive root, in two parts, and the derivatives there: psi(x) is small about it. */
    static const double root = 1.4616321449683622, rest = 9.549995429965697e-17;
    static const double taylor[] = {
        0.9676722454476214, -0.44276316898359214, 0.2584997609556512, -0.16394270544240658, 0.10782405069126239,
    };
    double total = 0.0;
    if (x == 0.0)
        return copysign(INFINITY, -x);
    if (x < 0.0) {
        const double whole = floor(x);
        if (x == whole)
            return NAN;
        total = -3.14159265358979323846 / tan(3.14159265358979323846 * (x - whole));
        x = 1.0 - x;
    }
    if (fabs(x - root) < 1e-3) {
        const double d = (x - root) - rest;
        return total + d * (taylor[0] + d * (taylor[1] + d * (taylor[2] + d * (taylor[3] + d * taylor[4]))));
    }
    while (x < 10.0) {
        total -= 1.0 / x;
        x += 1.0;
    }
    const double square = 1.0 / (x * x);
    double sum = 0.0;
    for (int k = 7; k >= 0; k--)
        sum = (sum + series[k]) * square;
    return total + log(x) - 0.5 / x - sum;
}
