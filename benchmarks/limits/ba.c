/* Bundle adjustment: the sum of squared, weighted reprojection errors, and its gradient in cameras, points and weights. */
#include <math.h>
#include <stdint.h>

typedef struct {
    double angle, cosine, sine, along, scale, squared, inverse_depth;
    double axis[3], offset[3], cross[3], flat[2], missed[2];
} projection;

static inline void project(const double *camera, const double *point, const double *feature, projection *p)
{
    double turned[3];
    p->angle = sqrt(camera[0] * camera[0] + camera[1] * camera[1] + camera[2] * camera[2]);
    p->cosine = cos(p->angle);
    p->sine = sin(p->angle);
    p->along = 0.0;
    for (int k = 0; k < 3; k++) {
        p->axis[k] = camera[k] / p->angle;
        p->offset[k] = point[k] - camera[3 + k];
        p->along += p->axis[k] * p->offset[k];
    }
    for (int k = 0; k < 3; k++) {
        int i = (k + 1) % 3, j = (k + 2) % 3;
        p->cross[k] = p->axis[i] * p->offset[j] - p->axis[j] * p->offset[i];
        turned[k] = p->offset[k] * p->cosine + p->cross[k] * p->sine + p->axis[k] * p->along * (1.0 - p->cosine);
    }
    p->inverse_depth = 1.0 / turned[2];
    p->flat[0] = turned[0] * p->inverse_depth;
    p->flat[1] = turned[1] * p->inverse_depth;
    p->squared = p->flat[0] * p->flat[0] + p->flat[1] * p->flat[1];
    p->scale = 1.0 + (camera[9] + camera[10] * p->squared) * p->squared;
    for (int k = 0; k < 2; k++)
        p->missed[k] = camera[6] * p->scale * p->flat[k] + camera[7 + k] - feature[k];
}

double ba_value(int64_t n, const double *cameras, const double *points, const double *weights, const double *features)
{
    double total = 0.0;
    for (int64_t i = 0; i < n; i++) {
        projection p;
        project(cameras + 11 * i, points + 3 * i, features + 2 * i, &p);
        for (int k = 0; k < 2; k++)
            total += weights[i] * weights[i] * p.missed[k] * p.missed[k];
    }
    return total;
}

double ba_gradient(int64_t n, const double *restrict cameras, const double *restrict points,
                   const double *restrict weights, const double *restrict features, double *restrict to_cameras,
                   double *restrict to_points, double *restrict to_weights)
{
    double total = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double *camera = cameras + 11 * i;
        double *to_camera = to_cameras + 11 * i, *to_point = to_points + 3 * i;
        double weight = weights[i], to_missed[2], to_flat[2], to_turned[3], to_axis[3];
        projection p;
        project(camera, points + 3 * i, features + 2 * i, &p);

        double error = p.missed[0] * p.missed[0] + p.missed[1] * p.missed[1];
        total += weight * weight * error;
        to_weights[i] = 2.0 * weight * error;

        double to_scale = 0.0;
        to_camera[6] = 0.0;
        for (int k = 0; k < 2; k++) {
            to_missed[k] = 2.0 * weight * weight * p.missed[k];
            to_camera[7 + k] = to_missed[k];
            to_camera[6] += to_missed[k] * p.scale * p.flat[k];
            to_scale += to_missed[k] * camera[6] * p.flat[k];
        }
        to_camera[9] = to_scale * p.squared;
        to_camera[10] = to_scale * p.squared * p.squared;
        double to_squared = to_scale * (camera[9] + 2.0 * camera[10] * p.squared);
        for (int k = 0; k < 2; k++) {
            to_flat[k] = to_missed[k] * camera[6] * p.scale + 2.0 * p.flat[k] * to_squared;
            to_turned[k] = to_flat[k] * p.inverse_depth;
        }
        to_turned[2] = -(to_flat[0] * p.flat[0] + to_flat[1] * p.flat[1]) * p.inverse_depth;

        double to_cosine = 0.0, to_sine = 0.0, to_along = 0.0, to_angle, along_axis = 0.0;
        for (int k = 0; k < 3; k++) {
            to_cosine += to_turned[k] * (p.offset[k] - p.axis[k] * p.along);
            to_sine += to_turned[k] * p.cross[k];
            to_along += to_turned[k] * p.axis[k] * (1.0 - p.cosine);
        }
        for (int k = 0; k < 3; k++) {
            int a = (k + 1) % 3, b = (k + 2) % 3;
            double crossed = p.offset[a] * to_turned[b] - p.offset[b] * to_turned[a];
            double turned_back = to_turned[a] * p.axis[b] - to_turned[b] * p.axis[a];
            to_axis[k] = p.sine * crossed + to_turned[k] * p.along * (1.0 - p.cosine) + to_along * p.offset[k];
            to_point[k] = p.cosine * to_turned[k] + p.sine * turned_back + to_along * p.axis[k];
            to_camera[3 + k] = -to_point[k];
            along_axis += to_axis[k] * p.axis[k];
        }
        to_angle = p.cosine * to_sine - p.sine * to_cosine - along_axis / p.angle;
        for (int k = 0; k < 3; k++)
            to_camera[k] = to_axis[k] / p.angle + to_angle * p.axis[k];
    }
    return total;
}
