// Rows of experts from their records, in the canonical order (canonical.h), on one thread.
//
// A tier is a table of functions, each compiled for one instruction set. A unit is the piece of
// work: it needs nothing but its own bytes and the tokens' inputs, and gives partial sums that are
// added from the last unit to the first. So units can be shared out among threads or devices.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "isa.h"

namespace freetoken {

enum class Encoding { bf16, fp8_block };

constexpr int kMaxTokens = 8;  // tokens that share one reading of a unit

// Sizes of a units16 record, and how it is computed. Plain numbers: what is inline here would be
// compiled for every tier and merged by the linker.
struct Shape {
    Encoding encoding;
    bool round_to_bf16;  // round the activation between the products
    int hidden;
    int units;
    int group;           // side of a scale block, 0 = no scales
    int padded;          // hidden, rounded up to 64
    size_t row_bytes;
    size_t values_bytes;  // of a unit, before its scales
    size_t scale_bytes;
    size_t unit_bytes;
};

constexpr int kAheadRows = 8;  // as many as down reads at once

// How far ahead memory is asked for; no bit depends on it. Plain numbers, like Shape.
struct Prefetch {
    uint32_t groups;      // a line comes into the second cache so many kAheadRows rows ahead, and
    uint32_t near_bytes;  // into the first one, of gate and up, so far ahead within its row
};
constexpr Prefetch kUsualPrefetch{1, 512};
constexpr uint32_t kMostGroups = 3;  // ends within the next unit, and in small second caches
constexpr uint32_t kMostNearBytes = 4096;

constexpr int kBlockColumns = 64;  // `padded` is whole blocks, and a block whole parts of every tier

Shape make_shape(Encoding encoding, int hidden, int intermediate, int group, bool round_to_bf16);

// Scratch of one thread; floats, 64-byte aligned. "Split" is a tier's own order of a row's values.
struct Workspace {
    float* x;            // [tokens][padded], split; values past `hidden` are -0
    float* scaled;       // [2][tokens][padded]: x times the scales of gate, of up
    float* factors;      // [padded], laid out: scales of gate and up, one a part, or those of down
    float* partial;      // [tokens][padded], split: a unit's sums while they are made
    float* y;            // [tokens][padded], split: the expert's rows
    uint8_t* rows;       // [8][padded] weights: copies of rows that are no whole number of vectors
    uint8_t* scales;     // the scales that `scaled` and `factors` were made from
    bool has_scales;     // false after a change of x
    Prefetch prefetch;
};

// A workspace and its memory.
class Scratch {
   public:
    explicit Scratch(const Shape& shape);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    Workspace work;

   private:
    void* memory_;
};

struct ExpertTier {
    // Puts one token's x [hidden] into its place of the workspace.
    void (*spread)(const Shape&, const float* x, Workspace&, int token);
    // Adds one unit's partial sums to y, or starts y with them. `next` is what will be read
    // afterwards.
    void (*unit)(const Shape&, const uint8_t* unit, const uint8_t* next, int tokens, bool start,
                 Workspace&);
    // A unit in two halves, for threads that share it. First the activations of `count` of its rows
    // from `first` on, to their places in a [tokens][kUnitRows]; `next` as above. Then, when all are
    // there, the partial sums of one block of columns, to their place in y [tokens][padded].
    void (*unit_rows)(const Shape&, const uint8_t* unit, const uint8_t* next, int first, int count,
                      int tokens, float* a, Workspace&);
    void (*unit_columns)(const Shape&, const uint8_t* unit, const float* a, int tokens, int block,
                         float* y, Workspace&);
    // Writes one token's y as out [hidden].
    void (*collect)(const Shape&, const Workspace&, int token, float* out);
    // Adds `count` rows of partial sums, split, `stride` floats apart, the first one first, and
    // writes one block of their columns to its place in out [hidden].
    void (*sum)(const Shape&, const float* partial, int count, size_t stride, int block,
                float* out);
};

const ExpertTier& expert_tier_scalar();
const ExpertTier& expert_tier_avx2();
const ExpertTier& expert_tier_avx512();

// The functions of a tier; the caller has checked that the CPU can run it.
const ExpertTier& expert_tier(Tier tier);

// One route: row `from` of x [*, hidden] goes through a record, its result to row `to` of out.
struct Route {
    const uint8_t* record;
    int64_t from;
    int64_t to;
};

// An expert layout with scratch of its own: one object per thread.
class Experts {
   public:
    Experts(Encoding encoding, int hidden, int intermediate, int group, bool round_to_bf16,
            Tier tier);
    Experts(const Experts&) = delete;
    Experts& operator=(const Experts&) = delete;

    // Computes routes; neighbours that name the same record read it once, up to kMaxTokens at a
    // time. A row's bits depend on its record and input only.
    void run(const Route* routes, size_t count, const float* x, float* out);

   private:
    void run_record(const Route* routes, int count, const uint8_t* next, const float* x,
                    float* out);

    Shape shape_;
    const ExpertTier& tier_;
    Scratch scratch_;
    Workspace& work_;
};

}  // namespace freetoken
