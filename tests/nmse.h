// nmse(): normalised mean squared error, the one measure of distance in the tests.
// sum (a-b)^2 / sum a^2 of the expected values a; the counts cancel, so there is nothing to divide by.
#pragma once

#include <cmath>
#include <limits>
#include <span>

namespace nibble {

// 0 for equal spans (also all zero); infinity when anything but the expected NaN or infinity appears.
inline double nmse(std::span<const float> expected, std::span<const float> actual) {
    if (expected.size() != actual.size()) return std::numeric_limits<double>::infinity();
    double error = 0, norm = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        const double a = expected[i], b = actual[i];
        if (!std::isfinite(a) || !std::isfinite(b)) {
            const bool same = (std::isnan(a) && std::isnan(b)) || a == b;
            if (!same) return std::numeric_limits<double>::infinity();
            continue;
        }
        error += (a - b) * (a - b);
        norm += a * a;
    }
    if (error == 0) return 0;
    return norm > 0 ? error / norm : std::numeric_limits<double>::infinity();
}

}  // namespace nibble
