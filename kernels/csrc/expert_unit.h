// The functions of one tier, over simd.h. Included once by each experts_<tier>.cpp.
//
// Loops reorder work only where the canonical order leaves it free: rows, columns, tokens,
// accumulators. Weights are read about in the order they lie in, with prefetch.
#pragma once

#include "canonical.h"
#include "experts.h"
#include "simd.h"

namespace freetoken {
namespace {

constexpr int kPrefetchBytes = 4096;  // ahead of a row of gate and up
constexpr int kCacheLineBytes = 64;
constexpr bool kWide = kWidth == 16;
constexpr int kRowsAtOnce = 8;        // rows of down in one pass over the columns

// A format says how a part of a row, kValues neighbours, becomes kVectors vectors: value i becomes
// lane i / kVectors of vector i % kVectors. kSums accumulators and kTokens tokens at a time leave
// registers for the rest. `look` gathers whether some parts are plain, that is, unpack by the short
// way.
struct Bf16 {
    static constexpr int kBytes = 2, kVectors = 2, kValues = kVectors * kWidth;
    static constexpr int kSums = kWide ? 16 : 8, kTokens = kWide ? 8 : 4;
    using Look = bool;
    static FREETOKEN_INLINE Look nothing_seen() { return true; }
    static FREETOKEN_INLINE Look look(Look seen, const uint8_t*) { return seen; }
    static FREETOKEN_INLINE bool is_plain(Look) { return true; }
    template <bool Plain>
    static FREETOKEN_INLINE void unpack(const uint8_t* p, Vector* out) {
        unpack_bf16(p, out);
    }
    static FREETOKEN_INLINE void spread(const float* x, Vector* out) {
        split(load(x), load(x + kWidth), out[0], out[1]);
    }
    static FREETOKEN_INLINE void collect(const Vector* in, float* out) {
        Vector part[2];
        interleave(in[0], in[1], part[0], part[1]);
        for (int i = 0; i < 2; i++) store(out + i * kWidth, part[i]);
    }
};

struct Fp8 {
    static constexpr int kBytes = 1, kVectors = 4, kValues = kVectors * kWidth;
    static constexpr int kSums = kWide ? 16 : 4, kTokens = kWide ? 4 : 2;
    using Look = Order;
    static FREETOKEN_INLINE Look nothing_seen() { return highest_order(); }
    static FREETOKEN_INLINE Look look(Look seen, const uint8_t* p) { return lower_order(seen, p); }
    static FREETOKEN_INLINE bool is_plain(Look seen) { return all_normal(seen); }
    template <bool Plain>
    static FREETOKEN_INLINE void unpack(const uint8_t* p, Vector* out) {
        unpack_fp8(p, out);
        if constexpr (!Plain) mend_fp8(out);
    }
    static FREETOKEN_INLINE void spread(const float* x, Vector* out) {
        Vector half[4];  // even, odd, even, odd
        split(load(x), load(x + kWidth), half[0], half[1]);
        split(load(x + 2 * kWidth), load(x + 3 * kWidth), half[2], half[3]);
        split(half[0], half[2], out[0], out[2]);
        split(half[1], half[3], out[1], out[3]);
    }
    static FREETOKEN_INLINE void collect(const Vector* in, float* out) {
        Vector half[4], part[4];
        interleave(in[0], in[2], half[0], half[2]);
        interleave(in[1], in[3], half[1], half[3]);
        interleave(half[0], half[1], part[0], part[1]);
        interleave(half[2], half[3], part[2], part[3]);
        for (int i = 0; i < 4; i++) store(out + i * kWidth, part[i]);
    }
};

// Stands for x past H: times a weight of 0 it adds nothing to any sum, not even a sign to a zero.
constexpr float kNothing = -0.0f;

template <int Number>
struct Count {
    static constexpr int value = Number;
};

// Calls `function(first token, Count)` for `Most`, then half of that at a time, down to 1.
template <int Most, class Function>
FREETOKEN_INLINE void by_tokens(int tokens, int first, Function function) {
    for (; tokens - first >= Most; first += Most) function(first, Count<Most>{});
    if constexpr (Most > 1) by_tokens<Most / 2>(tokens, first, function);
}

// Where value `i` of a row lies when the row is split.
template <class Format>
FREETOKEN_INLINE int split_place(int i) {
    const int within = i % Format::kValues;
    return i - within + within % Format::kVectors * kWidth + within / Format::kVectors;
}

// Rows that can be read in whole parts.
struct Rows {
    const uint8_t* first;
    size_t stride;
};

// Rows as they lie, or copies padded with zeros if H is no whole number of parts.
template <class Format>
FREETOKEN_INLINE Rows whole_rows(const Shape& s, const uint8_t* rows, int count, Workspace& w) {
    if (s.hidden % Format::kValues == 0) return {rows, s.row_bytes};
    const size_t stride = static_cast<size_t>(s.padded) * Format::kBytes;
    for (int r = 0; r < count; r++) {
        memcpy(w.rows + r * stride, rows + r * s.row_bytes, s.row_bytes);
        memset(w.rows + r * stride + s.row_bytes, 0, stride - s.row_bytes);
    }
    return {w.rows, stride};
}

// --- the dots of gate and up ---------------------------------------------------------------------

// One row against `Tokens` inputs x [Tokens][padded]; sum t goes to sums[t * kUnitRows].
template <class Format, int Tokens>
FREETOKEN_INLINE void dot(const Shape& s, const uint8_t* row, const float* x, float* sums) {
    constexpr int kVectors = Format::kVectors, kBytes = Format::kValues * Format::kBytes;
    constexpr int kParts = kLines * kLineValues / Format::kValues;
    constexpr int kFit = Format::kSums / kVectors / Tokens, kAtOnce = kFit < 1 ? 1 : kFit;
    const int parts = (s.hidden + Format::kValues - 1) / Format::kValues;
    Vector total[Tokens][kParts][kVectors / 2];
    FREETOKEN_UNROLL
    for (int first = 0; first < kParts; first += kAtOnce) {
        Vector acc[Tokens][kAtOnce][kVectors];
        FREETOKEN_UNROLL
        for (int t = 0; t < Tokens; t++)
            FREETOKEN_UNROLL
            for (int i = 0; i < kAtOnce; i++)
                FREETOKEN_UNROLL
                for (int k = 0; k < kVectors; k++) acc[t][i][k] = zero();
        const uint8_t* p = row + first * kBytes;
        const float* v = x + first * Format::kValues;
        const auto take = [&](int i, auto plain) FREETOKEN_INLINE_LAMBDA {
            if (i * kBytes % kCacheLineBytes == 0) prefetch(p + i * kBytes + kPrefetchBytes);
            Vector w[kVectors];
            Format::template unpack<decltype(plain)::value != 0>(p + i * kBytes, w);
            FREETOKEN_UNROLL
            for (int t = 0; t < Tokens; t++) {
                const float* at = v + static_cast<ptrdiff_t>(t) * s.padded + i * Format::kValues;
                FREETOKEN_UNROLL
                for (int k = 0; k < kVectors; k++)
                    acc[t][i][k] = fma(w[k], load(at + k * kWidth), acc[t][i][k]);
            }
        };
        const auto take_all = [&](int count) FREETOKEN_INLINE_LAMBDA {
            auto seen = Format::nothing_seen();
            FREETOKEN_UNROLL
            for (int i = 0; i < kAtOnce; i++)
                if (i < count) seen = Format::look(seen, p + i * kBytes);
            if (FREETOKEN_LIKELY(Format::is_plain(seen))) {
                FREETOKEN_UNROLL
                for (int i = 0; i < kAtOnce; i++)
                    if (i < count) take(i, Count<1>{});
            } else {
                FREETOKEN_UNROLL
                for (int i = 0; i < kAtOnce; i++)
                    if (i < count) take(i, Count<0>{});
            }
        };
        int left = parts - first;
        for (; left >= kAtOnce; left -= kParts) {
            take_all(kAtOnce);
            p += kParts * kBytes;
            v += kParts * Format::kValues;
        }
        if (kAtOnce > 1 && left > 0) take_all(left);
        FREETOKEN_UNROLL
        for (int t = 0; t < Tokens; t++)
            FREETOKEN_UNROLL
            for (int i = 0; i < kAtOnce; i++)
                FREETOKEN_UNROLL
                for (int k = 0; k < kVectors; k += 2)
                    total[t][first + i][k / 2] = add(acc[t][i][k], acc[t][i][k + 1]);
    }
    FREETOKEN_UNROLL
    for (int t = 0; t < Tokens; t++) {
        FREETOKEN_UNROLL
        for (int half = kParts / 2; half > 0; half /= 2)
            FREETOKEN_UNROLL
            for (int i = 0; i < half; i++)
                FREETOKEN_UNROLL
                for (int k = 0; k < kVectors / 2; k++)
                    total[t][i][k] = add(total[t][i][k], total[t][i + half][k]);
        float sum = sum_lanes(total[t][0][0]);
        if constexpr (kVectors == 4) sum += sum_lanes(total[t][0][1]);
        sums[t * kUnitRows] = sum;
    }
}

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
    if (s.group % Format::kValues == 0) {
        for (int k = 0; k < Format::kVectors; k++) out[k] = fill(of_value(0));
        return;
    }
    float values[Format::kValues];
    for (int i = 0; i < Format::kValues; i++)
        values[i % Format::kVectors * kWidth + i / Format::kVectors] = of_value(i);
    for (int k = 0; k < Format::kVectors; k++) out[k] = load(values + k * kWidth);
}

// Multiplies x by the scales of gate and up and lays out those of down, unless the last unit's were
// the same.
template <class Format>
void apply_scales(const Shape& s, const uint8_t* scales, int tokens, Workspace& w) {
    if (w.has_scales && memcmp(w.scales, scales, s.scale_bytes) == 0) return;
    memcpy(w.scales, scales, s.scale_bytes);
    w.has_scales = true;
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
        for (int k = 0; k < Format::kVectors; k++)
            store(w.down_scales + at + k * kWidth, factor[k]);
    }
    const int end = (s.hidden + Format::kValues - 1) / Format::kValues * Format::kValues;
    for (int i = s.hidden; i < end; i++)
        for (int t = 0; t < 2 * kMaxTokens; t++)
            w.scaled[t * padded + split_place<Format>(i)] = kNothing;
}

// --- the activation ------------------------------------------------------------------------------

FREETOKEN_INLINE Vector exponential(Vector t) {
    t = clamp(t, kExpLow, kExpHigh);
    const Vector n = nearest(mul(t, fill(kLog2e)));
    const Vector r = fnma(n, fill(kLn2Low), fnma(n, fill(kLn2High), t));
    Vector p = fill(kExpPolynomial[6]);
    for (int i = 5; i >= 0; i--) p = fma(p, r, fill(kExpPolynomial[i]));
    return mul(p, power_of_two(n));
}

FREETOKEN_INLINE void activate(const Shape& s, const float* gate, const float* up, float* out) {
    for (int i = 0; i < kUnitRows; i += kWidth) {
        const Vector g = load(gate + i);
        const Vector silu = div(g, add(fill(1.0f), exponential(sub(zero(), g))));
        const Vector a = mul(silu, load(up + i));
        store(out + i, s.round_to_bf16 ? round_to_bf16(a) : a);
    }
}

// --- the columns of down -------------------------------------------------------------------------

// What one pass over the columns of some rows does for its tokens.
struct Pass {
    Rows rows;             // kRowsAtOnce
    const uint8_t* ahead;  // what will be read next: as many bytes are fetched
    const float* a;        // [tokens][16], from the first of the rows on
    float* partial;        // [tokens][padded]
    const float* scales;   // [padded], or none
    float* y;              // [tokens][padded]
    bool start;            // y holds nothing yet
};

// One part of the columns; the first pass over a unit begins chains, the last ends them.
template <class Format, int Tokens, bool Begin, bool End, bool Plain>
FREETOKEN_INLINE void column_part(const Shape& s, const Pass& pass, int at) {
    constexpr int kVectors = Format::kVectors;
    const uint8_t* weights = pass.rows.first + at * Format::kBytes;
    Vector acc[Tokens][kVectors];
    FREETOKEN_UNROLL
    for (int t = 0; t < Tokens; t++) {
        const float* before = pass.partial + static_cast<ptrdiff_t>(t) * s.padded + at;
        FREETOKEN_UNROLL
        for (int k = 0; k < kVectors; k++) acc[t][k] = Begin ? zero() : load(before + k * kWidth);
    }
    FREETOKEN_UNROLL
    for (int r = 0; r < kRowsAtOnce; r++) {
        Vector w[kVectors];
        Format::template unpack<Plain>(weights + r * pass.rows.stride, w);
        FREETOKEN_UNROLL
        for (int t = 0; t < Tokens; t++) {
            const Vector a = fill(pass.a[t * kUnitRows + r]);
            FREETOKEN_UNROLL
            for (int k = 0; k < kVectors; k++) acc[t][k] = fma(a, w[k], acc[t][k]);
        }
    }
    float* target = (End ? pass.y : pass.partial) + at;
    FREETOKEN_UNROLL
    for (int t = 0; t < Tokens; t++, target += s.padded) {
        FREETOKEN_UNROLL
        for (int k = 0; k < kVectors; k++) {
            float* place = target + k * kWidth;
            if (End && pass.scales) acc[t][k] = mul(acc[t][k], load(pass.scales + at + k * kWidth));
            if (End && !pass.start) acc[t][k] = add(load(place), acc[t][k]);
            store(place, acc[t][k]);
        }
    }
}

// The same for any codes; rare, so it is kept out of the registers and the code of the loop.
template <class Format, int Tokens, bool Begin, bool End>
FREETOKEN_APART void any_column_part(const Shape& s, const Pass& pass, int at) {
    column_part<Format, Tokens, Begin, End, false>(s, pass, at);
}

template <class Format, int Tokens, bool Begin, bool End>
FREETOKEN_INLINE void columns(const Shape& s, const Pass& pass) {
    for (int at = 0; at < s.hidden; at += Format::kValues) {
        const int bytes = at * Format::kBytes;
        if (bytes % kCacheLineBytes == 0) {
            FREETOKEN_UNROLL
            for (int r = 0; r < kRowsAtOnce; r++) prefetch(pass.ahead + r * s.row_bytes + bytes);
        }
        auto seen = Format::nothing_seen();
        FREETOKEN_UNROLL
        for (int r = 0; r < kRowsAtOnce; r++)
            seen = Format::look(seen, pass.rows.first + r * pass.rows.stride + bytes);
        if (FREETOKEN_LIKELY(Format::is_plain(seen)))
            column_part<Format, Tokens, Begin, End, true>(s, pass, at);
        else
            any_column_part<Format, Tokens, Begin, End>(s, pass, at);
    }
}

// --- the tier's functions ------------------------------------------------------------------------

template <class Format>
void unit_of(const Shape& s, const uint8_t* unit, const uint8_t* next, int tokens, bool start,
             Workspace& w) {
    constexpr int kMost = Format::kTokens;
    const float* inputs[2] = {w.x, w.x};
    if (s.group) {
        apply_scales<Format>(s, unit + s.values_bytes, tokens, w);
        inputs[0] = w.scaled;
        inputs[1] = w.scaled + kMaxTokens * s.padded;
    }
    alignas(kCacheLineBytes) float sums[2][kMaxTokens][kUnitRows];
    for (int r = 0; r < 2 * kUnitRows; r++) {
        const Rows row = whole_rows<Format>(s, unit + r * s.row_bytes, 1, w);
        by_tokens<kMost>(tokens, 0, [&](int t, auto count) {
            dot<Format, decltype(count)::value>(s, row.first, inputs[r % 2] + t * s.padded,
                                                &sums[r % 2][t][r / 2]);
        });
    }
    alignas(kCacheLineBytes) float a[kMaxTokens][kUnitRows];
    for (int t = 0; t < tokens; t++) activate(s, sums[0][t], sums[1][t], a[t]);
    const uint8_t* first = unit + 2 * kUnitRows * s.row_bytes;
    const uint8_t* second = first + kRowsAtOnce * s.row_bytes;
    Pass pass{};
    pass.scales = s.group ? w.down_scales : nullptr;
    pass.start = start;
    const auto at_tokens = [&](int t, int row) {
        pass.a = a[t] + row;
        pass.partial = w.partial + static_cast<ptrdiff_t>(t) * s.padded;
        pass.y = w.y + static_cast<ptrdiff_t>(t) * s.padded;
    };
    pass.rows = whole_rows<Format>(s, first, kRowsAtOnce, w);
    pass.ahead = second;
    by_tokens<kMost>(tokens, 0, [&](int t, auto count) {
        at_tokens(t, 0);
        columns<Format, decltype(count)::value, true, false>(s, pass);
    });
    pass.rows = whole_rows<Format>(s, second, kRowsAtOnce, w);
    pass.ahead = next;
    by_tokens<kMost>(tokens, 0, [&](int t, auto count) {
        at_tokens(t, kRowsAtOnce);
        columns<Format, decltype(count)::value, false, true>(s, pass);
    });
}

void unit(const Shape& s, const uint8_t* unit, const uint8_t* next, int tokens, bool start,
          Workspace& w) {
    if (s.encoding == Encoding::bf16)
        unit_of<Bf16>(s, unit, next, tokens, start, w);
    else
        unit_of<Fp8>(s, unit, next, tokens, start, w);
}

template <class Format>
void spread_as(const Shape& s, const float* x, float* out) {
    constexpr int kValues = Format::kValues;
    for (int at = 0; at < s.hidden; at += kValues) {
        float part[kValues];
        const float* from = x + at;
        if (at + kValues > s.hidden) {
            for (int i = 0; i < kValues; i++) part[i] = at + i < s.hidden ? from[i] : kNothing;
            from = part;
        }
        Vector v[Format::kVectors];
        Format::spread(from, v);
        for (int k = 0; k < Format::kVectors; k++) store(out + at + k * kWidth, v[k]);
    }
}

template <class Format>
void collect_as(const Shape& s, const float* y, float* out) {
    constexpr int kValues = Format::kValues;
    for (int at = 0; at < s.hidden; at += kValues) {
        Vector v[Format::kVectors];
        for (int k = 0; k < Format::kVectors; k++) v[k] = load(y + at + k * kWidth);
        if (at + kValues <= s.hidden) {
            Format::collect(v, out + at);
        } else {
            float part[kValues];
            Format::collect(v, part);
            memcpy(out + at, part, static_cast<size_t>(s.hidden - at) * sizeof *out);
        }
    }
}

void spread(const Shape& s, const float* x, Workspace& w, int token) {
    float* out = w.x + static_cast<ptrdiff_t>(token) * s.padded;
    s.encoding == Encoding::bf16 ? spread_as<Bf16>(s, x, out) : spread_as<Fp8>(s, x, out);
    w.has_scales = false;
}

void collect(const Shape& s, const Workspace& w, int token, float* out) {
    const float* y = w.y + static_cast<ptrdiff_t>(token) * s.padded;
    s.encoding == Encoding::bf16 ? collect_as<Bf16>(s, y, out) : collect_as<Fp8>(s, y, out);
}

constexpr ExpertTier kTier{spread, unit, collect};

}  // namespace
}  // namespace freetoken
