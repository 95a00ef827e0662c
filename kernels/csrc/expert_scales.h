// The scales of a unit, for one tier: what rows of gate and up are multiplied with, and the factors
// of the columns of down.
#pragma once

#include "canonical.h"
#include "experts.h"
#include "formats.h"
#include "simd.h"

namespace freetoken {
namespace {

// The scales of one part of the columns, times kFp8Scale, one a value, split.
template <class Format>
FREETOKEN_INLINE void part_scales(const Shape& s, const uint8_t* scales, int at, Vector* out) {
    const int last = (s.hidden - 1) / s.group;
    const auto of_value = [&](int i) {
        const int block = (at + i) / s.group;
        const size_t place = static_cast<size_t>(block < last ? block : last) * sizeof(float);
        float scale;
        memcpy(&scale, scales + place, sizeof scale);
        return scale * kFp8Scale;
    };
    float values[Format::kValues];
    for (int i = 0; i < Format::kValues; i++)
        values[i % Format::kVectors * kWidth + i / Format::kVectors] = of_value(i);
    for (int k = 0; k < Format::kVectors; k++) out[k] = load(values + k * kWidth);
}

// Whether each part of a row has one scale, and rows are whole parts.
template <class Format>
FREETOKEN_INLINE bool one_scale_a_part(const Shape& s) {
    return s.group % Format::kValues == 0 && s.hidden % Format::kValues == 0;
}

// That scale, times kFp8Scale.
FREETOKEN_INLINE float scale_at(const Shape& s, const uint8_t* scales, int at) {
    float scale;
    memcpy(&scale, scales + static_cast<size_t>(at / s.group) * sizeof scale, sizeof scale);
    return scale * kFp8Scale;
}

// Keeps a unit's scales; false if they are those of the unit before.
inline bool take_scales(const Shape& s, const uint8_t* scales, Workspace& w) {
    if (w.has_scales && memcmp(w.scales, scales, s.scale_bytes) == 0) return false;
    memcpy(w.scales, scales, s.scale_bytes);
    w.has_scales = true;
    return true;
}

// The scales of gate, then of up, one a part.
template <class Format>
void lay_out_factors(const Shape& s, Workspace& w) {
    float* out = w.factors;
    for (int half = 0; half < 2; half++)
        for (int at = 0; at < s.hidden; at += Format::kValues)
            *out++ = scale_at(s, w.scales + half * (s.scale_bytes / 3), at);
}

// Multiplies x by the scales of gate and up and lays out those of down, for any sizes.
template <class Format>
void apply_scales(const Shape& s, int tokens, Workspace& w) {
    const size_t third = s.scale_bytes / 3;
    const ptrdiff_t padded = s.padded;
    Vector factor[Format::kVectors];
    for (int at = 0; at < s.hidden; at += Format::kValues) {
        for (int half = 0; half < 2; half++) {
            part_scales<Format>(s, w.scales + half * third, at, factor);
            for (int t = 0; t < tokens; t++) {
                const float* x = w.x + t * padded + at;
                float* scaled = w.scaled + (half * kMaxTokens + t) * padded + at;
                for (int k = 0; k < Format::kVectors; k++)
                    store(scaled + k * kWidth, mul(load(x + k * kWidth), factor[k]));
            }
        }
        part_scales<Format>(s, w.scales + 2 * third, at, factor);
        for (int k = 0; k < Format::kVectors; k++) store(w.factors + at + k * kWidth, factor[k]);
    }
    const int end = (s.hidden + Format::kValues - 1) / Format::kValues * Format::kValues;
    for (int i = s.hidden; i < end; i++)
        for (int t = 0; t < 2 * kMaxTokens; t++)
            w.scaled[t * padded + split_place<Format>(i)] = kNothing;
}

}  // namespace
}  // namespace freetoken
