// The functions of one tier, over simd.h. Included once by each experts_<tier>.cpp.
//
// Loops reorder work only where the canonical order leaves it free: rows, columns, tokens, accumulators.
// Weights are read about in the order they lie in, with prefetch.
#pragma once

#include "canonical.h"
#include "experts.h"
#include "simd.h"

namespace freetoken {
namespace {

constexpr int kPrefetchBytes = 4096;  // for rows of gate and up
constexpr int kCacheLineBytes = 64;
constexpr int kStepParts = kLines * kLineParts;  // parts of 256 values
constexpr int kPairs = kWidth == 16 ? 8 : 4;     // pairs of accumulators that stay in registers
constexpr int kRowsAtOnce = 8;                   // rows of down in one pass over the columns

struct Pair {
    Vector even, odd;
};

struct Bf16 {
    static constexpr int kBytes = 2;
    struct Seen {};  // NaN go through the arithmetic
    static FREETOKEN_INLINE Pair unpack(const uint8_t* p, Seen&) {
        Pair pair;
        unpack_bf16(p, pair.even, pair.odd);
        return pair;
    }
    static FREETOKEN_INLINE bool any_nan(const Seen&) { return false; }
    static FREETOKEN_INLINE bool is_nan(const uint8_t*) { return false; }
};

struct Fp8 {
    static constexpr int kBytes = 1;
    struct Seen {
        Codes codes = no_codes();
    };
    static FREETOKEN_INLINE Pair unpack(const uint8_t* p, Seen& seen) {
        Pair pair;
        unpack_fp8(p, pair.even, pair.odd, seen.codes);
        return pair;
    }
    static FREETOKEN_INLINE bool any_nan(const Seen& seen) { return has_nan_code(seen.codes); }
    static FREETOKEN_INLINE bool is_nan(const uint8_t* p) { return (*p & 0x7f) == 0x7f; }
};

template <int Number>
struct Count {
    static constexpr int value = Number;
};

// Calls `function(first token, Count)` for 8, 4, 2 or 1 tokens at a time.
template <class Function>
FREETOKEN_INLINE void by_tokens(int tokens, Function function) {
    int first = 0;
    if constexpr (kPairs >= 8)
        for (; tokens - first >= 8; first += 8) function(first, Count<8>{});
    for (; tokens - first >= 4; first += 4) function(first, Count<4>{});
    for (; tokens - first >= 2; first += 2) function(first, Count<2>{});
    for (; tokens - first >= 1; first += 1) function(first, Count<1>{});
}

// Where value `i` of a row lies when the row is split.
FREETOKEN_INLINE int split_place(int i) {
    return i / kPartValues * kPartValues + i % 2 * kWidth + i % kPartValues / 2;
}

// The ends of `Rows` rows, if H is no multiple of a line: one line of each, padded with zeros.
template <class Format, int Rows>
struct Tails {
    static constexpr int kBytes = kLineValues * Format::kBytes;
    alignas(kCacheLineBytes) uint8_t line[Rows][kBytes];

    FREETOKEN_INLINE Tails(const Shape& s, const uint8_t* rows) {
        const size_t used = static_cast<size_t>(s.hidden % kLineValues) * Format::kBytes;
        if (!used) return;
        for (int r = 0; r < Rows; r++) {
            memset(line[r], 0, kBytes);
            memcpy(line[r], rows + (r + 1) * s.row_bytes - used, used);
        }
    }
};

// --- the dots of gate and up ---------------------------------------------------------------------

// One row against `Tokens` inputs x [Tokens][padded]; sum t goes to sums[t * kUnitRows].
template <class Format, int Tokens>
FREETOKEN_INLINE void dot(const Shape& s, const uint8_t* row, const uint8_t* tail, const float* x,
                          float* sums) {
    constexpr int kAtOnce = kPairs / Tokens, kBytes = kPartValues * Format::kBytes;
    const int lines = s.hidden / kLineValues, steps = lines / kLines;
    const int whole = lines % kLines * kLineParts;
    const int used = s.hidden % kLineValues ? whole + kLineParts : whole;
    typename Format::Seen seen;
    Vector total[Tokens][kStepParts];
    FREETOKEN_UNROLL
    for (int first = 0; first < kStepParts; first += kAtOnce) {
        Pair acc[Tokens][kAtOnce];
        FREETOKEN_UNROLL
        for (int t = 0; t < Tokens; t++) {
            FREETOKEN_UNROLL
            for (int i = 0; i < kAtOnce; i++) acc[t][i] = {zero(), zero()};
        }
        const uint8_t* p = row + first * kBytes;
        const float* v = x + first * kPartValues;
        const auto take = [&](int i, const uint8_t* weights) FREETOKEN_INLINE_LAMBDA {
            const Pair w = Format::unpack(weights, seen);
            FREETOKEN_UNROLL
            for (int t = 0; t < Tokens; t++) {
                const float* at = v + static_cast<ptrdiff_t>(t) * s.padded + i * kPartValues;
                acc[t][i].even = fma(w.even, load(at), acc[t][i].even);
                acc[t][i].odd = fma(w.odd, load(at + kWidth), acc[t][i].odd);
            }
        };
        for (int step = 0; step < steps; step++) {
            FREETOKEN_UNROLL
            for (int i = 0; i < kAtOnce; i++) {
                if (i * kBytes % kCacheLineBytes == 0) prefetch(p + i * kBytes + kPrefetchBytes);
                take(i, p + i * kBytes);
            }
            p += kStepParts * kBytes;
            v += kStepParts * kPartValues;
        }
        FREETOKEN_UNROLL
        for (int i = 0; i < kAtOnce; i++) {
            if (first + i < whole) {
                if (i * kBytes % kCacheLineBytes == 0) prefetch(p + i * kBytes + kPrefetchBytes);
                take(i, p + i * kBytes);
            } else if (first + i < used) {
                take(i, tail + (first + i - whole) * kBytes);
            }
        }
        FREETOKEN_UNROLL
        for (int t = 0; t < Tokens; t++) {
            FREETOKEN_UNROLL
            for (int i = 0; i < kAtOnce; i++)
                total[t][first + i] = add(acc[t][i].even, acc[t][i].odd);
        }
    }
    const bool poisoned = Format::any_nan(seen);
    FREETOKEN_UNROLL
    for (int t = 0; t < Tokens; t++) {
        FREETOKEN_UNROLL
        for (int half = kStepParts / 2; half >= kLineParts; half /= 2) {
            FREETOKEN_UNROLL
            for (int i = 0; i < half; i++) total[t][i] = add(total[t][i], total[t][i + half]);
        }
        sums[t * kUnitRows] = poisoned ? NAN : tree(total[t]);
    }
}

// Multiplies x by the scales of gate and up and lays out those of down, unless the last unit's were
// the same.
inline void apply_scales(const Shape& s, const uint8_t* scales, int tokens, Workspace& w) {
    if (w.has_scales && memcmp(w.scales, scales, s.scale_bytes) == 0) return;
    memcpy(w.scales, scales, s.scale_bytes);
    w.has_scales = true;
    const int groups = static_cast<int>(s.scale_bytes / 12);
    constexpr int kRun = 8;  // even or odd values of 16 neighbours, which one block holds
    for (int first = 0; first < s.hidden; first += kUnitRows) {
        float factor[3];
        for (int part = 0; part < 3; part++) {
            memcpy(&factor[part], w.scales + 4 * (part * groups + first / s.group), 4);
            factor[part] *= kFp8Scale;
        }
        for (int parity = 0; parity < 2; parity++) {
            const int at = split_place(first + parity);
            for (int i = 0; i < kRun; i++) w.down_scales[at + i] = factor[2];
            for (int t = 0; t < tokens; t++) {
                const float* x = w.x + t * s.padded + at;
                float* gate = w.scaled + t * s.padded + at;
                float* up = gate + kMaxTokens * s.padded;
                for (int i = 0; i < kRun; i++) gate[i] = x[i] * factor[0];
                for (int i = 0; i < kRun; i++) up[i] = x[i] * factor[1];
            }
        }
    }
    for (int i = s.hidden; i < s.padded; i++)
        for (int t = 0; t < 2 * kMaxTokens; t++) w.scaled[t * s.padded + split_place(i)] = -0.0f;
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

// Makes NaN of the columns in which one of the rows has a NaN code; rare, so plain.
template <class Format>
void poison(const uint8_t* rows, size_t row_bytes, float* part) {
    for (int i = 0; i < kPartValues; i++)
        for (int r = 0; r < kRowsAtOnce; r++)
            if (Format::is_nan(rows + r * row_bytes + i)) part[split_place(i)] = NAN;
}

// What one pass over the columns of some rows does for its tokens.
struct Pass {
    const uint8_t* rows;
    const float* a;        // [tokens][16], from the first of the rows on
    ptrdiff_t ahead;       // from a byte to the one to be fetched meanwhile
    float* partial;        // [tokens][padded]
    const float* scales;   // [padded], or none
    float* y;              // [tokens][padded]
    bool start;            // y holds nothing yet
};

// One part of the columns; the first pass over a unit begins chains, the last ends them.
template <class Format, int Tokens, bool Begin, bool End>
FREETOKEN_INLINE void column_part(const Shape& s, const Pass& pass, const uint8_t* weights,
                                  size_t row_bytes, int at) {
    typename Format::Seen seen;
    Pair acc[Tokens];
    FREETOKEN_UNROLL
    for (int t = 0; t < Tokens; t++) {
        const float* before = pass.partial + static_cast<ptrdiff_t>(t) * s.padded + at;
        acc[t] = Begin ? Pair{zero(), zero()} : Pair{load(before), load(before + kWidth)};
    }
    FREETOKEN_UNROLL
    for (int r = 0; r < kRowsAtOnce; r++) {
        const Pair w = Format::unpack(weights + r * row_bytes, seen);
        FREETOKEN_UNROLL
        for (int t = 0; t < Tokens; t++) {
            const Vector a = fill(pass.a[t * kUnitRows + r]);
            acc[t].even = fma(a, w.even, acc[t].even);
            acc[t].odd = fma(a, w.odd, acc[t].odd);
        }
    }
    float* target = (End ? pass.y : pass.partial) + at;
    FREETOKEN_UNROLL
    for (int t = 0; t < Tokens; t++) {
        float* place = target + static_cast<ptrdiff_t>(t) * s.padded;
        if (End && pass.scales) {
            acc[t].even = mul(acc[t].even, load(pass.scales + at));
            acc[t].odd = mul(acc[t].odd, load(pass.scales + at + kWidth));
        }
        if (End && !pass.start) {
            acc[t].even = add(load(place), acc[t].even);
            acc[t].odd = add(load(place + kWidth), acc[t].odd);
        }
        store(place, acc[t].even);
        store(place + kWidth, acc[t].odd);
    }
    if (Format::any_nan(seen))
        for (int t = 0; t < Tokens; t++)
            poison<Format>(weights, row_bytes, target + static_cast<ptrdiff_t>(t) * s.padded);
}

template <class Format, int Tokens, bool Begin, bool End>
FREETOKEN_INLINE void columns(const Shape& s, const Pass& pass) {
    constexpr int kBytes = kPartValues * Format::kBytes;
    const int whole = s.hidden / kLineValues * kLineValues;
    const uint8_t* p = pass.rows;
    for (int at = 0; at < whole; at += kPartValues, p += kBytes) {
        if (at * Format::kBytes % kCacheLineBytes == 0) {
            FREETOKEN_UNROLL
            for (int r = 0; r < kRowsAtOnce; r++) prefetch(p + r * s.row_bytes + pass.ahead);
        }
        column_part<Format, Tokens, Begin, End>(s, pass, p, s.row_bytes, at);
    }
    if (whole == s.hidden) return;
    const Tails<Format, kRowsAtOnce> tails(s, pass.rows);
    for (int i = 0; i < kLineParts; i++)
        column_part<Format, Tokens, Begin, End>(s, pass, tails.line[0] + i * kBytes, tails.kBytes,
                                                whole + i * kPartValues);
}

// --- the tier's functions ------------------------------------------------------------------------

template <class Format>
void unit_of(const Shape& s, const uint8_t* unit, const uint8_t* next, int tokens, bool start,
             Workspace& w) {
    const float* inputs[2] = {w.x, w.x};
    if (s.group) {
        apply_scales(s, unit + s.values_bytes, tokens, w);
        inputs[0] = w.scaled;
        inputs[1] = w.scaled + kMaxTokens * s.padded;
    }
    alignas(kCacheLineBytes) float sums[2][kMaxTokens][kUnitRows];
    const uint8_t* row = unit;
    for (int r = 0; r < kUnitRows; r++) {
        for (int half = 0; half < 2; half++, row += s.row_bytes) {
            const Tails<Format, 1> tails(s, row);
            by_tokens(tokens, [&](int t, auto count) {
                dot<Format, decltype(count)::value>(s, row, tails.line[0], inputs[half] + t * s.padded,
                                         &sums[half][t][r]);
            });
        }
    }
    alignas(kCacheLineBytes) float a[kMaxTokens][kUnitRows];
    for (int t = 0; t < tokens; t++) activate(s, sums[0][t], sums[1][t], a[t]);
    by_tokens(tokens, [&](int t, auto count) {
        constexpr int kTokens = decltype(count)::value;
        const ptrdiff_t offset = static_cast<ptrdiff_t>(t) * s.padded;
        const uint8_t* second = row + kRowsAtOnce * s.row_bytes;
        Pass pass{row,           a[t],           second - row,      w.partial + offset,
                  s.group ? w.down_scales : nullptr, w.y + offset, start};
        columns<Format, kTokens, true, false>(s, pass);
        pass.rows = second;
        pass.a = a[t] + kRowsAtOnce;
        pass.ahead = next - second;
        columns<Format, kTokens, false, true>(s, pass);
    });
}

void unit(const Shape& s, const uint8_t* unit, const uint8_t* next, int tokens, bool start,
          Workspace& w) {
    if (s.encoding == Encoding::bf16)
        unit_of<Bf16>(s, unit, next, tokens, start, w);
    else
        unit_of<Fp8>(s, unit, next, tokens, start, w);
}

void spread(const Shape& s, const float* x, Workspace& w, int token) {
    float* out = w.x + static_cast<ptrdiff_t>(token) * s.padded;
    for (int at = 0; at < s.padded; at += kPartValues) {
        float part[kPartValues];
        const float* from = x + at;
        if (at + kPartValues > s.hidden) {  // -0 adds nothing to any sum, not even a sign
            for (int i = 0; i < kPartValues; i++) part[i] = at + i < s.hidden ? from[i] : -0.0f;
            from = part;
        }
        Pair pair;
        split(load(from), load(from + kWidth), pair.even, pair.odd);
        store(out + at, pair.even);
        store(out + at + kWidth, pair.odd);
    }
    w.has_scales = false;
}

void collect(const Shape& s, const Workspace& w, int token, float* out) {
    const float* y = w.y + static_cast<ptrdiff_t>(token) * s.padded;
    for (int at = 0; at < s.hidden; at += kPartValues) {
        float part[kPartValues];
        const bool whole = at + kPartValues <= s.hidden;
        float* to = whole ? out + at : part;
        Vector low, high;
        interleave(load(y + at), load(y + at + kWidth), low, high);
        store(to, low);
        store(to + kWidth, high);
        if (!whole) memcpy(out + at, part, static_cast<size_t>(s.hidden - at) * sizeof *out);
    }
}

constexpr ExpertTier kTier{spread, unit, collect};

}  // namespace
}  // namespace freetoken
