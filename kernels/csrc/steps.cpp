#include "steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

namespace freetoken {
namespace {

std::unique_ptr<float[]> floats(ptrdiff_t count) {
    return std::unique_ptr<float[]>(new float[static_cast<size_t>(count)]);
}

// The largest of scores [count] to ids and weights [top_k]; chosen scores are overwritten. NaN is
// chosen like any other, so that it reaches the output.
void choose(float* scores, int count, int top_k, int32_t* ids, float* weights) {
    for (int k = 0; k < top_k; k++) {
        int best = -1;
        for (int i = 0; i < count; i++)
            if (scores[i] != -1.0f && (best < 0 || scores[i] > scores[best])) best = i;
        ids[k] = best;
        weights[k] = scores[best];
        scores[best] = -1.0f;  // no softmax is negative
    }
}

}  // namespace

AttentionStep::AttentionStep(const AttentionShape& shape, const Linear& qkv, const Linear& output,
                             Tier tier)
    : shape_(shape), qkv_(qkv), output_(output), tier_(dense_tier(tier)) {}

void AttentionStep::run(float* hidden, const AttentionPlaces& places) const {
    const AttentionShape& s = shape_;
    const int tokens = places.tokens, head_dim = s.head_dim, width = qkv_.width();
    const int group = s.num_heads / s.num_kv_heads;
    const ptrdiff_t query_floats = static_cast<ptrdiff_t>(s.num_heads) * head_dim;
    const int64_t longest = *std::max_element(places.lengths, places.lengths + tokens);
    const ptrdiff_t token_floats = static_cast<ptrdiff_t>(s.num_kv_heads) * head_dim;
    const ptrdiff_t block_floats = places.page_tokens * token_floats;
    const auto normed = floats(tokens * static_cast<ptrdiff_t>(width));
    const auto qkv = floats(tokens * static_cast<ptrdiff_t>(qkv_.rows()));
    const auto attended = floats(tokens * query_floats);
    const auto scores = floats(group * longest);
    for (int t = 0; t < tokens; t++) {
        const ptrdiff_t row = static_cast<ptrdiff_t>(t) * width;
        tier_.norm(hidden + row, s.norm, s.eps, width, normed.get() + row);
    }
    qkv_.run(normed.get(), tokens, qkv.get());
    for (int t = 0; t < tokens; t++) {
        float* const heads = qkv.get() + static_cast<ptrdiff_t>(t) * qkv_.rows();
        const ptrdiff_t angle = static_cast<ptrdiff_t>(t) * head_dim;
        for (int h = 0; h < s.num_heads + s.num_kv_heads; h++)
            tier_.norm_rotary(heads + h * head_dim, s.head_norms + h * head_dim, s.eps,
                              places.cos + angle, places.sin + angle, head_dim);
        store(heads + query_floats, places.slots[t], places);
        const float* layer = places.pool + 2 * s.layer_id * block_floats;
        PagedHead kv{layer, layer + block_floats, places.tables + t * places.table_width,
                     2 * s.num_layers * block_floats, token_floats, places.page_tokens, head_dim};
        for (int h = 0; h < s.num_kv_heads; h++, kv.keys += head_dim, kv.values += head_dim) {
            const ptrdiff_t first = static_cast<ptrdiff_t>(h) * group * head_dim;
            tier_.attend(kv, heads + first, group, static_cast<int>(places.lengths[t]),
                         1.0f / std::sqrt(static_cast<float>(head_dim)), scores.get(),
                         attended.get() + t * query_floats + first);
        }
    }
    output_.run(attended.get(), tokens, normed.get());
    for (ptrdiff_t i = 0; i < tokens * static_cast<ptrdiff_t>(width); i++) hidden[i] += normed[i];
}

void AttentionStep::store(const float* keys_values, int64_t slot,
                          const AttentionPlaces& places) const {
    const ptrdiff_t token_floats = static_cast<ptrdiff_t>(shape_.num_kv_heads) * shape_.head_dim;
    const int64_t page = slot / places.page_tokens, offset = slot % places.page_tokens;
    const int64_t block = page * 2 * shape_.num_layers + 2 * shape_.layer_id;
    for (int part = 0; part < 2; part++, keys_values += token_floats) {
        const int64_t row = (block + part) * places.page_tokens + offset;
        std::memcpy(places.pool + row * token_floats, keys_values,
                    static_cast<size_t>(token_floats) * sizeof *keys_values);
    }
}

void merge_routes(const float* rows, const float* weights, int tokens, int top_k, int hidden,
                  float* out) {
    for (int t = 0; t < tokens; t++, out += hidden) {
        for (int k = 0; k < top_k; k++, rows += hidden) {
            const float weight = *weights++;
            if (k == 0)
                for (int i = 0; i < hidden; i++) out[i] = rows[i] * weight;
            else
                for (int i = 0; i < hidden; i++) out[i] += rows[i] * weight;
        }
    }
}

RouterStep::RouterStep(const RouterShape& shape, const Linear& gate, Tier tier)
    : shape_(shape), gate_(gate), tier_(dense_tier(tier)) {}

void RouterStep::run(const float* hidden, int tokens, float* x, int32_t* ids,
                     float* weights) const {
    const int width = gate_.width(), experts = gate_.rows(), top_k = shape_.top_k;
    for (int t = 0; t < tokens; t++) {
        const ptrdiff_t row = static_cast<ptrdiff_t>(t) * width;
        tier_.norm(hidden + row, shape_.norm, shape_.eps, width, x + row);
    }
    const auto scores = floats(static_cast<ptrdiff_t>(tokens) * experts);
    gate_.run(x, tokens, scores.get());
    for (int t = 0; t < tokens; t++, ids += top_k, weights += top_k) {
        float* const row = scores.get() + static_cast<ptrdiff_t>(t) * experts;
        tier_.softmax(row, experts);
        choose(row, experts, top_k, ids, weights);
        float sum = weights[0];
        for (int k = 1; k < top_k; k++) sum += weights[k];
        for (int k = 0; k < top_k; k++) {
            if (shape_.normalise) weights[k] /= sum;
            weights[k] *= shape_.scale;
        }
    }
}

}  // namespace freetoken
