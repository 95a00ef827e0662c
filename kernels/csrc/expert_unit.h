// The functions of one tier, over simd.h. Included once by each experts_<tier>.cpp.
//
// Loops reorder work only where the canonical order leaves it free: rows, columns, tokens,
// accumulators. Weights are read about in the order they lie in, with prefetch.
#pragma once

#include "canonical.h"
#include "experts.h"
#include "formats.h"
#include "simd.h"

namespace freetoken {
namespace {

constexpr int kRowsAtOnce = 8;        // rows of down in one pass over the columns

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

// --- the inputs of gate and up -------------------------------------------------------------------

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
    int from, to;          // columns
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
    for (int at = pass.from; at < pass.to; at += Format::kValues) {
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

// Gate and up of rows [first, first + count), and their activations; rows behind them are fetched
// from `next` on.
template <class Format>
FREETOKEN_INLINE void activations(const Shape& s, const uint8_t* unit, const uint8_t* next,
                                  int first, int count, int tokens, Workspace& w,
                                  float (*a)[kUnitRows]) {
    const float* inputs[2] = {w.x, w.x};
    if (s.group) {
        apply_scales<Format>(s, unit + s.values_bytes, tokens, w);
        inputs[0] = w.scaled;
        inputs[1] = w.scaled + kMaxTokens * s.padded;
    }
    alignas(kCacheLineBytes) float sums[2][kMaxTokens][kUnitRows];
    if (count < kUnitRows) memset(sums, 0, sizeof sums);  // whole vectors are activated
    const uint8_t* end = unit + 2 * (first + count) * s.row_bytes;
    for (int r = 2 * first; r < 2 * (first + count); r++) {
        const uint8_t* at = unit + r * s.row_bytes;
        const uint8_t* ahead = at + s.ahead_bytes;
        if (ahead >= end) ahead = next + (ahead - end);
        const Rows row = whole_rows<Format>(s, at, 1, w);
        const RowShape shape{s.hidden, s.padded, static_cast<size_t>(ahead - row.first)};
        by_tokens<Format::kTokens>(tokens, 0, [&](int t, auto tokens_at_once) {
            dot<Format, decltype(tokens_at_once)::value, kLines>(
                shape, row.first, inputs[r % 2] + t * s.padded, &sums[r % 2][t][r / 2], kUnitRows);
        });
    }
    for (int t = 0; t < tokens; t++) activate(s, sums[0][t], sums[1][t], a[t]);
}

// Columns [from, to) of down: partial sums from activations a [tokens][kUnitRows], added to y or
// the start of it.
template <class Format>
FREETOKEN_INLINE void down(const Shape& s, const uint8_t* unit, const uint8_t* next, const float* a,
                           int tokens, int from, int to, bool start, float* y, Workspace& w) {
    const uint8_t* first = unit + 2 * kUnitRows * s.row_bytes;
    const uint8_t* second = first + kRowsAtOnce * s.row_bytes;
    Pass pass{};
    pass.scales = s.group ? w.down_scales : nullptr;
    pass.start = start;
    pass.from = from;
    pass.to = to;
    const auto at_tokens = [&](int t, int row) {
        pass.a = a + t * kUnitRows + row;
        pass.partial = w.partial + static_cast<ptrdiff_t>(t) * s.padded;
        pass.y = y + static_cast<ptrdiff_t>(t) * s.padded;
    };
    pass.rows = whole_rows<Format>(s, first, kRowsAtOnce, w);
    pass.ahead = second;
    by_tokens<Format::kTokens>(tokens, 0, [&](int t, auto count) {
        at_tokens(t, 0);
        columns<Format, decltype(count)::value, true, false>(s, pass);
    });
    pass.rows = whole_rows<Format>(s, second, kRowsAtOnce, w);
    pass.ahead = next;
    by_tokens<Format::kTokens>(tokens, 0, [&](int t, auto count) {
        at_tokens(t, kRowsAtOnce);
        columns<Format, decltype(count)::value, false, true>(s, pass);
    });
}

template <class Format>
void unit_of(const Shape& s, const uint8_t* unit, const uint8_t* next, int tokens, bool start,
             Workspace& w) {
    alignas(kCacheLineBytes) float a[kMaxTokens][kUnitRows];
    activations<Format>(s, unit, unit + 2 * kUnitRows * s.row_bytes, 0, kUnitRows, tokens, w, a);
    down<Format>(s, unit, next, a[0], tokens, 0, s.hidden, start, w.y, w);
}

template <class Format>
void rows_of(const Shape& s, const uint8_t* unit, const uint8_t* next, int first, int count,
             int tokens, float* out, Workspace& w) {
    alignas(kCacheLineBytes) float a[kMaxTokens][kUnitRows];
    activations<Format>(s, unit, next, first, count, tokens, w, a);
    for (int t = 0; t < tokens; t++)
        for (int r = first; r < first + count; r++) out[t * kUnitRows + r] = a[t][r];
}

template <class Format>
void columns_of(const Shape& s, const uint8_t* unit, const float* a, int tokens, int block,
                float* y, Workspace& w) {
    const int from = block * kBlockColumns, end = from + kBlockColumns;
    const int to = end < s.hidden ? end : s.hidden;
    if (s.group) {
        w.has_scales = false;  // those of down are another unit's from here on
        Vector factor[Format::kVectors];
        for (int at = from; at < to; at += Format::kValues) {
            part_scales<Format>(s, unit + s.values_bytes + s.scale_bytes / 3 * 2, at, factor);
            for (int k = 0; k < Format::kVectors; k++)
                store(w.down_scales + at + k * kWidth, factor[k]);
        }
    }
    down<Format>(s, unit, unit, a, tokens, from, to, true, y, w);
}

void unit(const Shape& s, const uint8_t* unit, const uint8_t* next, int tokens, bool start,
          Workspace& w) {
    if (s.encoding == Encoding::bf16)
        unit_of<Bf16>(s, unit, next, tokens, start, w);
    else
        unit_of<Fp8>(s, unit, next, tokens, start, w);
}

void unit_rows(const Shape& s, const uint8_t* unit, const uint8_t* next, int first, int count,
               int tokens, float* a, Workspace& w) {
    if (s.encoding == Encoding::bf16)
        rows_of<Bf16>(s, unit, next, first, count, tokens, a, w);
    else
        rows_of<Fp8>(s, unit, next, first, count, tokens, a, w);
}

void unit_columns(const Shape& s, const uint8_t* unit, const float* a, int tokens, int block,
                  float* y, Workspace& w) {
    if (s.encoding == Encoding::bf16)
        columns_of<Bf16>(s, unit, a, tokens, block, y, w);
    else
        columns_of<Fp8>(s, unit, a, tokens, block, y, w);
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

template <class Format>
void sum_as(const Shape& s, const float* partial, int count, size_t stride, int block,
            float* out) {
    constexpr int kParts = kBlockColumns / Format::kValues;
    constexpr int kVectors = kParts * Format::kVectors;
    const int first = block * kBlockColumns;
    Vector total[kVectors];
    partial += first;
    for (int k = 0; k < kVectors; k++) total[k] = load(partial + k * kWidth);
    for (int i = 1; i < count; i++) {
        partial += stride;
        FREETOKEN_UNROLL
        for (int k = 0; k < kVectors; k++) total[k] = add(total[k], load(partial + k * kWidth));
    }
    float block_sums[kBlockColumns];
    FREETOKEN_UNROLL
    for (int i = 0; i < kParts; i++)
        Format::collect(total + i * Format::kVectors, block_sums + i * Format::kValues);
    const int left = s.hidden - first;
    const int columns = left < kBlockColumns ? left : kBlockColumns;
    memcpy(out + first, block_sums, static_cast<size_t>(columns) * sizeof *out);
}

void spread(const Shape& s, const float* x, Workspace& w, int token) {
    float* out = w.x + static_cast<ptrdiff_t>(token) * s.padded;
    s.encoding == Encoding::bf16 ? spread_as<Bf16>(s.hidden, x, out)
                                 : spread_as<Fp8>(s.hidden, x, out);
    w.has_scales = false;
}

void collect(const Shape& s, const Workspace& w, int token, float* out) {
    const float* y = w.y + static_cast<ptrdiff_t>(token) * s.padded;
    s.encoding == Encoding::bf16 ? collect_as<Bf16>(s, y, out) : collect_as<Fp8>(s, y, out);
}

void sum(const Shape& s, const float* partial, int count, size_t stride, int block, float* out) {
    s.encoding == Encoding::bf16 ? sum_as<Bf16>(s, partial, count, stride, block, out)
                                 : sum_as<Fp8>(s, partial, count, stride, block, out);
}

constexpr ExpertTier kTier{spread, unit, unit_rows, unit_columns, collect, sum};

}  // namespace
}  // namespace freetoken
