// Products with weights as they are stored, for few tokens, in the canonical order (canonical.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dense.h"
#include "isa.h"

namespace freetoken {

// One weight [rows, width]; its outputs follow those of the weights before it.
struct LinearPart {
    Stored stored;
    const uint8_t* values;
    const float* scales;  // [ceil(rows / group), ceil(width / group)], null without scales
    int rows;
    int group;
};

// Weights that take the same input. Reads them where they lie and keeps no copy; has no scratch of
// its own, so threads may share it.
class Linear {
   public:
    Linear(std::vector<LinearPart> parts, int width, Tier tier);

    int rows() const { return rows_; }
    int width() const { return width_; }

    // x [tokens][width] -> out [tokens][rows]; a token's bits do not depend on the others.
    void run(const float* x, int tokens, float* out) const;

    // Every value as float32 [rows][width]: code times scale, rounded once.
    void expand(float* out) const;

   private:
    void run_few(const float* x, int tokens, float* out) const;

    std::vector<LinearPart> parts_;
    int width_;
    int rows_;
    const DenseTier& tier_;
};

}  // namespace freetoken
