// The canonical order of an expert's arithmetic: what makes an output independent of where an
// expert was computed. Every decode kernel on every device follows it bit for bit; the plain torch
// form is kernels/reference/canonical.py. All values are fp32, rounded to nearest even, nothing is
// flushed to zero; "fma" rounds once; NaN is NaN, whatever its bits. Elements past H take no part.
//
//  weight  bf16: the value w. fp8_block: q = code / 256, exact (as a half, whose exponent bias is 8
//          higher); the codes 0x7f and 0xff are NaN. A block's scale enters as s = 256 * scale.
//  input   x[i], or with scales x'[i] = x[i] * s[i / G], one rounding: the 16 rows of a unit share
//          their scales, so x' is made once for all gate rows of a block, and once for all up rows.
//  dot     256 accumulators from +0; accumulator i % 256 takes element i by fma(w, x, acc), i
//          rising. Then a tree in which neighbours add: with accumulator number 32 z + 2 l + p,
//          first over p; then z: t[z] + t[z + 4], + 2, + 1; then l: t[l] + t[l + 8], + 4, + 2, + 1.
//  act     a = g / (1 + exp(-g)) * u, IEEE division, then the product; one rounding to the dtype
//          of activations (none for fp32).
//          exp(t): t into [-87, 88]; n = round(t * LOG2E);
//          r = fma(-n, LN2_LOW, fma(-n, LN2_HIGH, t));
//          Horner by fma over EXP_POLYNOMIAL, highest first; times 2^n.
//  unit    p[h] = chain fma(a[r], w[r][h], acc) over the unit's rows r = 0..15, from +0; with
//          scales p[h] * s[h / G], one rounding.
//  expert  y[h] = ((p of the last unit + p of the one before) + ..) + p of unit 0. Whoever owns the
//          high units starts and another may continue, so an expert splits at any unit.
//
// Outside the experts, for one token of a sequence:
//
//  linear  as dot, with 64 accumulators (z in 0..1). With scales, x' = x[i] * s[i / G] is made once
//          for each row of blocks.
//  short   16 accumulators from +0; accumulator i % 16 takes element i by fma(a, b, acc), i rising;
//          then the tree of l.
//  norm    n[i] = (x[i] * r) * w[i] with r = 1 / sqrt(short(x, x) / H + eps).
//  rotate  fma(n[i +- D / 2], sin[i], n[i] * cos[i]), sines signed.
//  softmax e[c] = exp(v[c] - max); e[c] / short(e, 1).
//  attend  scores short(q, k[c]) * scale, softmax, then out[d] = chain fma(w[c], v[c][d], acc) over
//          c rising, from +0.
//  merge   ((w[0] * y[0] + w[1] * y[1]) + ..), product and sum rounded apart.
#pragma once

namespace freetoken {
namespace {

constexpr int kLineValues = 32;  // values that lie side by side in the tree's two lowest steps
constexpr int kLines = 8;        // lines of 256 accumulators
constexpr int kDenseLines = 2;   // lines of 64 accumulators
constexpr int kUnitRows = 16;
constexpr int kPieceValues = 16;  // accumulators of a short dot
constexpr float kFp8Scale = 256.0f;  // 2^(15 - 7): exponent biases of a half and of e4m3

constexpr float kLog2e = 1.44269504f;
constexpr float kLn2High = 0.693145752f;
constexpr float kLn2Low = 1.42860677e-6f;
constexpr float kExpLow = -87.0f;
constexpr float kExpHigh = 88.0f;
constexpr float kExpPolynomial[7] = {1.0f,          1.0f,          0.5f,          0.166666672f,
                                     0.0416664853f, 0.00833340455f, 0.00139304355f};

}  // namespace
}  // namespace freetoken
