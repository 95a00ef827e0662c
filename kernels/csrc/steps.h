// Halves of a layer's decode step, each in one call; kernels/reference/steps.py is the plain form.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dense.h"
#include "linear.h"

namespace freetoken {

struct AttentionShape {
    int layer_id;
    int num_layers;
    int num_heads;
    int num_kv_heads;
    int head_dim;
    float eps;
    const float* norm;        // [hidden]
    const float* head_norms;  // [num_heads + num_kv_heads][head_dim]
};

// One token of each of some sequences.
struct AttentionPlaces {
    int tokens;
    const float* cos;        // [tokens][head_dim]
    const float* sin;        // the same, the first half negated
    float* pool;             // page -> layer -> keys, values -> tokens -> heads -> head_dim
    int page_tokens;
    const int64_t* slots;    // [tokens]: page * page_tokens + offset of the new token
    const int64_t* tables;   // [tokens][table_width]: pages in order
    ptrdiff_t table_width;
    const int64_t* lengths;  // [tokens]: of the sequences, the new token included
};

// hidden += output(attend(rotate(norm(qkv(norm(hidden)))))). Keeps no scratch; the products belong
// to the caller.
class AttentionStep {
   public:
    AttentionStep(const AttentionShape& shape, const Linear& qkv, const Linear& output, Tier tier);

    // hidden [tokens][hidden], in place; a token's bits do not depend on the others.
    void run(float* hidden, const AttentionPlaces& places) const;

   private:
    void store(const float* keys_values, int64_t slot, const AttentionPlaces& places) const;

    AttentionShape shape_;
    const Linear& qkv_;
    const Linear& output_;
    const DenseTier& tier_;
};

// The sum of each token's weighted rows in router order: rows [tokens][top_k][hidden] and weights
// [tokens][top_k] -> out [tokens][hidden]. One product and one sum at a time.
void merge_routes(const float* rows, const float* weights, int tokens, int top_k, int hidden,
                  float* out);

struct RouterShape {
    const float* norm;  // [hidden]
    float eps;
    int top_k;
    bool normalise;  // divide the weights by their sum
    float scale;     // multiplies them afterwards
};

// Norm, logits, softmax over all experts, the top_k largest; of equal ones the lower number first.
class RouterStep {
   public:
    RouterStep(const RouterShape& shape, const Linear& gate, Tier tier);

    // hidden [tokens][hidden] -> x of the same shape, ids and weights [tokens][top_k].
    void run(const float* hidden, int tokens, float* x, int32_t* ids, float* weights) const;

   private:
    RouterShape shape_;
    const Linear& gate_;
    const DenseTier& tier_;
};

}  // namespace freetoken
