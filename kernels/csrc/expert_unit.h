// The functions of one tier, over simd.h. Included once by each experts_<tier>.cpp.
//
// Loops reorder work only where the canonical order leaves it free: rows, columns, tokens,
// accumulators. Weights are read about in the order they lie in, with prefetch.
#pragma once

#include "canonical.h"
#include "expert_scales.h"
#include "experts.h"
#include "formats.h"
#include "simd.h"

namespace freetoken {
namespace {

constexpr int kFewTokens = 2;  // above it, scaled inputs fill the first cache: gate, then up
constexpr int kRowsAtOnce = kAheadRows;  // rows of down in one pass over the columns

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
    const uint8_t* scales;  // of down, one a part, or none
    const float* factors;  // [padded], split: the same where parts have several, or none
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
    const Vector factor = fill(End && pass.scales ? scale_at(s, pass.scales, at) : 1.0f);
    FREETOKEN_UNROLL
    for (int t = 0; t < Tokens; t++, target += s.padded) {
        FREETOKEN_UNROLL
        for (int k = 0; k < kVectors; k++) {
            float* place = target + k * kWidth;
            if (End && pass.scales) acc[t][k] = mul(acc[t][k], factor);
            if (End && pass.factors)
                acc[t][k] = mul(acc[t][k], load(pass.factors + at + k * kWidth));
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
            for (int r = 0; r < kRowsAtOnce; r++)
                prefetch_far(pass.ahead + r * s.row_bytes + bytes);
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

// The dots of one row, of gate or of up, with some tokens' inputs.
template <class Format, int Tokens>
FREETOKEN_INLINE void row_dots(const Shape& s, const RowShape& shape, const uint8_t* row, int half,
                               int token, bool scaling, Workspace& w, float* sums) {
    float* raw = w.x + static_cast<ptrdiff_t>(token) * s.padded;
    float* x = raw;
    if (s.group) x = w.scaled + static_cast<ptrdiff_t>(half * kMaxTokens + token) * s.padded;
    if constexpr (Format::kHasScales) {
        if (scaling) {
            const Scaling input{raw, w.factors + half * (s.hidden / Format::kValues)};
            dot<Format, Tokens, kLines>(shape, row, x, input, sums, kUnitRows);
            return;
        }
    }
    const float* as_it_lies = x;
    dot<Format, Tokens, kLines>(shape, row, as_it_lies, AsTheyLie{}, sums, kUnitRows);
}

// What is fetched while rows of gate and up are read: what lies `bytes` behind them, and in place of
// what lies behind `end` what follows `next`.
struct Ahead {
    size_t bytes;
    const uint8_t* end;
    const uint8_t* next;
};

// Gate and up of rows [first, first + count), and their activations.
template <class Format>
FREETOKEN_INLINE void activations(const Shape& s, const uint8_t* unit, const Ahead& behind,
                                  int first, int count, int tokens, Workspace& w,
                                  float (*a)[kUnitRows]) {
    bool scaling = s.group && take_scales(s, unit + s.values_bytes, w);
    if (scaling && one_scale_a_part<Format>(s)) {
        lay_out_factors<Format>(s, w);
    } else if (scaling) {
        apply_scales<Format>(s, tokens, w);
        scaling = false;
    }
    alignas(kCacheLineBytes) float sums[2][kMaxTokens][kUnitRows];
    if (count < kUnitRows) memset(sums, 0, sizeof sums);  // whole vectors are activated
    const auto take_row = [&](int r, int t, auto tokens_at_once) {
        const uint8_t* at = unit + r * s.row_bytes;
        const uint8_t* ahead = at + behind.bytes;
        if (ahead >= behind.end) ahead = behind.next + (ahead - behind.end);
        const Rows row = whole_rows<Format>(s, at, 1, w);
        const RowShape shape{s.hidden, s.padded, static_cast<size_t>(ahead - row.first),
                             w.prefetch.near_bytes};
        const bool scales = scaling && r < 2 * first + 2;  // the inputs of the rows after it
        row_dots<Format, decltype(tokens_at_once)::value>(s, shape, row.first, r % 2, t, scales, w,
                                                          &sums[r % 2][t][r / 2]);
    };
    const int last = 2 * (first + count);
    if (s.group && tokens > kFewTokens) {
        for (int half = 0; half < 2; half++)
            by_tokens<Format::kTokens>(tokens, 0, [&](int t, auto tokens_at_once) {
                for (int r = 2 * first + half; r < last; r += 2) take_row(r, t, tokens_at_once);
            });
    } else {
        for (int r = 2 * first; r < last; r++)
            by_tokens<Format::kTokens>(tokens, 0, [&](int t, auto tokens_at_once) {
                take_row(r, t, tokens_at_once);
            });
    }
    for (int t = 0; t < tokens; t++) activate(s, sums[0][t], sums[1][t], a[t]);
}

// Columns [from, to) of down: partial sums from activations a [tokens][kUnitRows], added to y or
// the start of it. Meanwhile as many columns of the rows at `ahead` are fetched, for each half of
// down.
template <class Format>
FREETOKEN_INLINE void down(const Shape& s, const uint8_t* unit, const uint8_t* const (&ahead)[2],
                           const float* a, int tokens, int from, int to, bool start, float* y,
                           Workspace& w) {
    const uint8_t* first = unit + 2 * kUnitRows * s.row_bytes;
    const uint8_t* second = first + kRowsAtOnce * s.row_bytes;
    Pass pass{};
    const uint8_t* scales = unit + s.values_bytes + s.scale_bytes / 3 * 2;
    const bool one_scale = one_scale_a_part<Format>(s);
    pass.scales = s.group && one_scale ? scales : nullptr;
    pass.factors = s.group && !one_scale ? w.factors : nullptr;
    pass.start = start;
    pass.from = from;
    pass.to = to;
    const auto at_tokens = [&](int t, int row) {
        pass.a = a + t * kUnitRows + row;
        pass.partial = w.partial + static_cast<ptrdiff_t>(t) * s.padded;
        pass.y = y + static_cast<ptrdiff_t>(t) * s.padded;
    };
    pass.rows = whole_rows<Format>(s, first, kRowsAtOnce, w);
    pass.ahead = ahead[0];
    by_tokens<Format::kTokens>(tokens, 0, [&](int t, auto count) {
        at_tokens(t, 0);
        columns<Format, decltype(count)::value, true, false>(s, pass);
    });
    pass.rows = whole_rows<Format>(s, second, kRowsAtOnce, w);
    pass.ahead = ahead[1];
    by_tokens<Format::kTokens>(tokens, 0, [&](int t, auto count) {
        at_tokens(t, kRowsAtOnce);
        columns<Format, decltype(count)::value, false, true>(s, pass);
    });
}

template <class Format>
void unit_of(const Shape& s, const uint8_t* unit, const uint8_t* next, int tokens, bool start,
             Workspace& w) {
    alignas(kCacheLineBytes) float a[kMaxTokens][kUnitRows];
    const size_t groups = w.prefetch.groups, group_bytes = kAheadRows * s.row_bytes;
    const Ahead behind{groups * group_bytes, unit + s.values_bytes, next};
    activations<Format>(s, unit, behind, 0, kUnitRows, tokens, w, a);
    const uint8_t* last = unit + s.values_bytes - group_bytes;
    const uint8_t* const after = next + (groups - 1) * group_bytes;
    const uint8_t* const ahead[2] = {groups == 1 ? last : after - group_bytes, after};
    for (size_t i = 0; i < s.scale_bytes; i += kCacheLineBytes)
        prefetch_far(next + s.values_bytes + i);
    down<Format>(s, unit, ahead, a[0], tokens, 0, s.hidden, start, w.y, w);
}

template <class Format>
void rows_of(const Shape& s, const uint8_t* unit, const uint8_t* next, int first, int count,
             int tokens, float* out, Workspace& w) {
    alignas(kCacheLineBytes) float a[kMaxTokens][kUnitRows];
    const uint8_t* end = unit + 2 * (first + count) * s.row_bytes;
    const Ahead behind{kAheadRows * s.row_bytes, end, next};  // `next` may be as short as this
    activations<Format>(s, unit, behind, first, count, tokens, w, a);
    for (int t = 0; t < tokens; t++)
        for (int r = first; r < first + count; r++) out[t * kUnitRows + r] = a[t][r];
}

template <class Format>
void columns_of(const Shape& s, const uint8_t* unit, const float* a, int tokens, int block,
                float* y, Workspace& w) {
    const int from = block * kBlockColumns, end = from + kBlockColumns;
    const int to = end < s.hidden ? end : s.hidden;
    if (s.group && !one_scale_a_part<Format>(s)) {
        w.has_scales = false;  // those of down are another unit's from here on
        Vector factor[Format::kVectors];
        for (int at = from; at < to; at += Format::kValues) {
            part_scales<Format>(s, unit + s.values_bytes + s.scale_bytes / 3 * 2, at, factor);
            for (int k = 0; k < Format::kVectors; k++)
                store(w.factors + at + k * kWidth, factor[k]);
        }
    }
    const uint8_t* second = unit + s.values_bytes - kAheadRows * s.row_bytes;
    const uint8_t* const ahead[2] = {second, second};  // nothing is known to follow
    down<Format>(s, unit, ahead, a, tokens, from, to, true, y, w);
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
