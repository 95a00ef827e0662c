#include "linear.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace freetoken {
namespace {

constexpr float kFp8Scale = 256.0f;  // codes are read as code / 256 (canonical.h)
constexpr ptrdiff_t kPadding = 64;   // values: the widest part of a tier

size_t stored_bytes(Stored stored) {
    return stored == Stored::float32 ? 4 : stored == Stored::bf16 ? 2 : 1;
}

ptrdiff_t blocks(int count, int group) { return (count + group - 1) / group; }

}  // namespace

Linear::Linear(std::vector<LinearPart> parts, int width, Tier tier)
    : parts_(std::move(parts)), width_(width), rows_(0), tier_(dense_tier(tier)) {
    for (const LinearPart& part : parts_) rows_ += part.rows;
}

void Linear::run(const float* x, int tokens, float* out) const {
    for (int first = 0; first < tokens; first += kDenseTokens) {
        const int count = std::min(kDenseTokens, tokens - first);
        run_few(x + static_cast<ptrdiff_t>(first) * width_, count,
                out + static_cast<ptrdiff_t>(first) * rows_);
    }
}

void Linear::run_few(const float* x, int tokens, float* out) const {
    const ptrdiff_t padded = (width_ + kPadding - 1) / kPadding * kPadding;
    // The inputs of all tokens as rows are read, one token's scaled input, and a copy of a row.
    const std::unique_ptr<float[]> memory(new float[(tokens + 2) * padded]);
    float* const spread = memory.get();
    float* const scaled = spread + tokens * padded;
    uint8_t* const copy = reinterpret_cast<uint8_t*>(scaled + padded);
    for (const LinearPart& part : parts_) {
        const size_t row_bytes = stored_bytes(part.stored) * static_cast<size_t>(width_);
        const int step = part.scales ? part.group : part.rows;
        for (int first = 0; first < part.rows; first += step) {
            const float* scales = part.scales;
            if (scales) scales += first / part.group * blocks(width_, part.group);
            for (int t = 0; t < tokens; t++) {
                const float* from = x + static_cast<ptrdiff_t>(t) * width_;
                if (scales) {
                    for (int i = 0; i < width_; i += part.group) {
                        const float scale = scales[i / part.group] * kFp8Scale;
                        const int end = std::min(width_, i + part.group);
                        for (int j = i; j < end; j++) scaled[j] = from[j] * scale;
                    }
                    from = scaled;
                }
                tier_.spread(part.stored, width_, from, spread + t * padded);
            }
            const int count = std::min(step, part.rows - first);
            tier_.dots({part.stored, width_, part.values + first * row_bytes, count, spread, padded,
                        tokens, copy, out + first, rows_});
        }
        out += part.rows;
    }
}

void Linear::expand(float* out) const {
    for (const LinearPart& part : parts_) {
        const size_t row_bytes = stored_bytes(part.stored) * static_cast<size_t>(width_);
        for (int row = 0; row < part.rows; row++, out += width_) {
            const float* scales = part.scales;
            if (scales) scales += row / part.group * blocks(width_, part.group);
            tier_.expand(part.stored, width_, part.values + row * row_bytes, scales, part.group,
                         out);
        }
    }
}

const DenseTier& dense_tier(Tier tier) {
#if defined(FREETOKEN_X86)
    if (tier == Tier::avx512) return dense_tier_avx512();
    if (tier == Tier::avx2) return dense_tier_avx2();
#endif
    (void)tier;
    return dense_tier_scalar();
}

}  // namespace freetoken
