// The dense functions of one tier, over simd.h. Included once by each dense_<tier>.cpp.
#pragma once

#include "canonical.h"
#include "dense.h"
#include "formats.h"
#include "simd.h"

namespace freetoken {
namespace {

constexpr size_t kDenseAheadBytes = 4096, kDenseNearBytes = 512;

// --- rows of weights -----------------------------------------------------------------------------

template <class Format>
void dots_of(const DenseRows& rows) {
    const RowShape shape{rows.width, rows.padded, kDenseAheadBytes, kDenseNearBytes};
    const size_t row_bytes = static_cast<size_t>(rows.width) * Format::kBytes;
    const bool whole = rows.width % Format::kValues == 0;
    if (!whole) memset(rows.copy, 0, static_cast<size_t>(rows.padded) * Format::kBytes);
    for (int r = 0; r < rows.count; r++) {
        const uint8_t* row = rows.values + r * row_bytes;
        if (!whole) row = static_cast<uint8_t*>(memcpy(rows.copy, row, row_bytes));
        by_tokens<Format::kTokens>(rows.tokens, 0, [&](int t, auto count) {
            dot<Format, decltype(count)::value, kDenseLines>(shape, row, rows.x + t * rows.padded,
                                                AsTheyLie{}, rows.out + t * rows.stride + r,
                                                rows.stride);
        });
    }
}

void dots(const DenseRows& rows) {
    if (rows.stored == Stored::fp8_block)
        dots_of<Fp8>(rows);
    else if (rows.stored == Stored::bf16)
        dots_of<Bf16>(rows);
    else
        dots_of<Float32>(rows);
}

void spread(Stored stored, int width, const float* x, float* out) {
    stored == Stored::fp8_block ? spread_as<Fp8>(width, x, out) : spread_as<Bf16>(width, x, out);
}

template <class Format>
void expand_as(int width, const uint8_t* row, const float* scales, int group, float* out) {
    constexpr int kValues = Format::kValues;
    for (int at = 0; at < width; at += kValues) {
        const int count = width - at < kValues ? width - at : kValues;
        uint8_t part[kValues * Format::kBytes] = {};
        memcpy(part, row + at * Format::kBytes, static_cast<size_t>(count) * Format::kBytes);
        Vector v[Format::kVectors];
        Format::template unpack<false>(part, v);
        float values[kValues];
        Format::collect(v, values);
        if (scales)
            for (int i = 0; i < count; i++) values[i] *= scales[(at + i) / group] * kFp8Scale;
        memcpy(out + at, values, static_cast<size_t>(count) * sizeof *out);
    }
}

void expand(Stored stored, int width, const uint8_t* row, const float* scales, int group,
            float* out) {
    if (stored == Stored::fp8_block)
        expand_as<Fp8>(width, row, scales, group, out);
    else if (stored == Stored::bf16)
        expand_as<Bf16>(width, row, scales, group, out);
    else
        memcpy(out, row, static_cast<size_t>(width) * sizeof *out);
}

// --- pieces of 16 values -------------------------------------------------------------------------

constexpr int kPiece = kPieceValues, kPieceVectors = kPiece / kWidth;

// Up to 16 values; what is missing of them reads `filler`.
FREETOKEN_INLINE void load_piece(const float* p, int count, float filler, Vector* out) {
    float padded[kPiece];
    if (!FREETOKEN_LIKELY(count >= kPiece)) {
        for (int i = 0; i < kPiece; i++) padded[i] = i < count ? p[i] : filler;
        p = padded;
    }
    FREETOKEN_UNROLL
    for (int k = 0; k < kPieceVectors; k++) out[k] = load(p + k * kWidth);
}

FREETOKEN_INLINE void store_piece(float* p, int count, const Vector* in) {
    float padded[kPiece];
    float* to = count >= kPiece ? p : padded;
    FREETOKEN_UNROLL
    for (int k = 0; k < kPieceVectors; k++) store(to + k * kWidth, in[k]);
    if (count < kPiece) memcpy(p, padded, static_cast<size_t>(count) * sizeof *p);
}

FREETOKEN_INLINE float sum_piece(const Vector* acc) {
    return sum_lanes(kPieceVectors == 1 ? acc[0] : add(acc[0], acc[kPieceVectors - 1]));
}

// out = function(one vector of each input), piece by piece.
template <class Function>
FREETOKEN_INLINE void map(const float* a, const float* b, int count, float* out,
                          Function function) {
    for (int at = 0; at < count; at += kPiece) {
        Vector first[kPieceVectors], second[kPieceVectors];
        load_piece(a + at, count - at, 0.0f, first);
        load_piece(b + at, count - at, 0.0f, second);
        FREETOKEN_UNROLL
        for (int k = 0; k < kPieceVectors; k++) first[k] = function(first[k], second[k]);
        store_piece(out + at, count - at, first);
    }
}

// The short dot of canonical.h.
FREETOKEN_INLINE float short_dot(const float* a, const float* b, int count) {
    Vector acc[kPieceVectors];
    for (int k = 0; k < kPieceVectors; k++) acc[k] = zero();
    for (int at = 0; at < count; at += kPiece) {
        Vector first[kPieceVectors], second[kPieceVectors];
        load_piece(a + at, count - at, kNothing, first);
        load_piece(b + at, count - at, 0.0f, second);
        FREETOKEN_UNROLL
        for (int k = 0; k < kPieceVectors; k++) acc[k] = fma(first[k], second[k], acc[k]);
    }
    return sum_piece(acc);
}

// --- norm, rotation, softmax ---------------------------------------------------------------------

void norm(const float* x, const float* weight, float eps, int width, float* out) {
    const float mean = short_dot(x, x, width) / static_cast<float>(width);
    const Vector factor = fill(1.0f / sqrtf(mean + eps));
    map(x, weight, width, out, [&](Vector v, Vector w) { return mul(mul(v, factor), w); });
}

void norm_rotary(float* x, const float* weight, float eps, const float* cos, const float* sin,
                 int width) {
    norm(x, weight, eps, width, x);
    const int half = width / 2;
    for (int at = 0; at < half; at += kPiece) {
        const int count = half - at;
        Vector value[2][kPieceVectors], out[2][kPieceVectors];
        for (int i = 0; i < 2; i++) load_piece(x + i * half + at, count, 0.0f, value[i]);
        for (int i = 0; i < 2; i++) {
            Vector c[kPieceVectors], s[kPieceVectors];
            load_piece(cos + i * half + at, count, 0.0f, c);
            load_piece(sin + i * half + at, count, 0.0f, s);
            for (int k = 0; k < kPieceVectors; k++)
                out[i][k] = fma(value[1 - i][k], s[k], mul(value[i][k], c[k]));
        }
        for (int i = 0; i < 2; i++) store_piece(x + i * half + at, count, out[i]);
    }
}

void softmax(float* values, int count) {
    Vector most[kPieceVectors];
    for (int k = 0; k < kPieceVectors; k++) most[k] = fill(-INFINITY);
    for (int at = 0; at < count; at += kPiece) {
        Vector v[kPieceVectors];
        load_piece(values + at, count - at, -INFINITY, v);
        for (int k = 0; k < kPieceVectors; k++) most[k] = maximum(v[k], most[k]);
    }
    float lanes[kPiece], highest = -INFINITY;
    for (int k = 0; k < kPieceVectors; k++) store(lanes + k * kWidth, most[k]);
    for (const float lane : lanes) highest = lane > highest ? lane : highest;
    Vector acc[kPieceVectors];
    for (int k = 0; k < kPieceVectors; k++) acc[k] = zero();
    for (int at = 0; at < count; at += kPiece) {
        Vector v[kPieceVectors];
        load_piece(values + at, count - at, 0.0f, v);
        for (int k = 0; k < kPieceVectors; k++) {
            const Vector below = sub(v[k], fill(highest));
            v[k] = keep_nan(exponential(below), below);
        }
        store_piece(values + at, count - at, v);
        load_piece(values + at, count - at, kNothing, v);
        for (int k = 0; k < kPieceVectors; k++) acc[k] = add(acc[k], v[k]);
    }
    const Vector total = fill(sum_piece(acc));
    map(values, values, count, values, [&](Vector v, Vector) { return div(v, total); });
}

// --- attention -----------------------------------------------------------------------------------

FREETOKEN_INLINE ptrdiff_t place_of(const PagedHead& kv, int position) {
    return static_cast<ptrdiff_t>(kv.pages[position / kv.page_tokens]) * kv.page_floats +
           position % kv.page_tokens * kv.token_floats;
}

// One piece of the outputs of `Heads` heads: the sum of weight times value over all tokens.
template <int Heads>
FREETOKEN_INLINE void weigh(const PagedHead& kv, const float* weights, int length, int at,
                            float* out) {
    const int count = kv.head_dim - at;
    Vector acc[Heads][kPieceVectors];
    for (int h = 0; h < Heads; h++)
        for (int k = 0; k < kPieceVectors; k++) acc[h][k] = zero();
    for (int first = 0; first < length; first += kv.page_tokens) {
        const float* values = kv.values + place_of(kv, first) + at;
        const int tokens = length - first < kv.page_tokens ? length - first : kv.page_tokens;
        for (int c = 0; c < tokens; c++, values += kv.token_floats) {
            Vector v[kPieceVectors];
            load_piece(values, count, 0.0f, v);
            FREETOKEN_UNROLL
            for (int h = 0; h < Heads; h++) {
                const Vector weight = fill(weights[h * length + first + c]);
                FREETOKEN_UNROLL
                for (int k = 0; k < kPieceVectors; k++) acc[h][k] = fma(weight, v[k], acc[h][k]);
            }
        }
    }
    for (int h = 0; h < Heads; h++) store_piece(out + h * kv.head_dim + at, count, acc[h]);
}

void attend(const PagedHead& kv, const float* queries, int heads, int length, float scale,
            float* scores, float* out) {
    for (int first = 0; first < length; first += kv.page_tokens) {
        const float* keys = kv.keys + place_of(kv, first);
        const int tokens = length - first < kv.page_tokens ? length - first : kv.page_tokens;
        for (int c = 0; c < tokens; c++, keys += kv.token_floats)
            for (int h = 0; h < heads; h++)
                scores[h * length + first + c] =
                    short_dot(queries + h * kv.head_dim, keys, kv.head_dim) * scale;
    }
    for (int h = 0; h < heads; h++) softmax(scores + h * length, length);
    for (int at = 0; at < kv.head_dim; at += kPiece)
        by_tokens<4>(heads, 0, [&](int h, auto count) {
            weigh<decltype(count)::value>(kv, scores + h * length, length, at,
                                          out + h * kv.head_dim);
        });
}

constexpr DenseTier kDenseTier{spread, dots, expand, norm, norm_rotary, attend, softmax};

}  // namespace
}  // namespace freetoken
