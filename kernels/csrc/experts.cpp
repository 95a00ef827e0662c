#include "experts.h"

#include <new>

namespace freetoken {
namespace {

constexpr size_t kAlign = 64;
constexpr int kRows = 16;
constexpr size_t kUnitAlign = 16;

}  // namespace

Shape make_shape(Encoding encoding, int hidden, int intermediate, int group, bool round_to_bf16) {
    Shape s{};
    s.encoding = encoding;
    s.round_to_bf16 = round_to_bf16;
    s.hidden = hidden;
    s.units = intermediate / kRows;
    s.group = group;
    s.padded = (hidden + kBlockColumns - 1) / kBlockColumns * kBlockColumns;
    s.row_bytes = static_cast<size_t>(hidden) * (encoding == Encoding::bf16 ? 2 : 1);
    s.values_bytes = 3 * kRows * s.row_bytes;
    s.scale_bytes = group ? 12 * static_cast<size_t>((hidden + group - 1) / group) : 0;
    s.unit_bytes = (s.values_bytes + s.scale_bytes + kUnitAlign - 1) / kUnitAlign * kUnitAlign;
    return s;
}

Scratch::Scratch(const Shape& s) : work{} {
    const size_t row = static_cast<size_t>(s.padded), rows = kMaxTokens * row;
    const size_t floats = 5 * rows + row, copies = kMaxTokens * row * 2;
    memory_ = ::operator new(floats * sizeof(float) + copies + s.scale_bytes,
                             std::align_val_t{kAlign});
    float* at = static_cast<float*>(memory_);
    work.x = at;
    work.scaled = at + rows;
    work.partial = at + 3 * rows;
    work.y = at + 4 * rows;
    work.factors = at + 5 * rows;
    work.rows = reinterpret_cast<uint8_t*>(at + floats);
    work.scales = work.rows + copies;
    work.prefetch = kUsualPrefetch;
}

Scratch::~Scratch() { ::operator delete(memory_, std::align_val_t{kAlign}); }

const ExpertTier& expert_tier(Tier tier) {
#if defined(FREETOKEN_X86)
    if (tier == Tier::avx512) return expert_tier_avx512();
    if (tier == Tier::avx2) return expert_tier_avx2();
#endif
    (void)tier;
    return expert_tier_scalar();
}

Experts::Experts(Encoding encoding, int hidden, int intermediate, int group, bool round_to_bf16,
                 Tier tier)
    : shape_(make_shape(encoding, hidden, intermediate, group, round_to_bf16)),
      tier_(expert_tier(tier)),
      scratch_(shape_),
      work_(scratch_.work) {}

void Experts::run(const Route* routes, size_t count, const float* x, float* out) {
    for (size_t first = 0; first < count;) {
        const uint8_t* record = routes[first].record;
        size_t end = first + 1;
        while (end < count && end - first < kMaxTokens && routes[end].record == record) end++;
        const uint8_t* next = end < count ? routes[end].record : record;
        run_record(routes + first, static_cast<int>(end - first), next, x, out);
        first = end;
    }
}

void Experts::run_record(const Route* routes, int count, const uint8_t* next, const float* x,
                         float* out) {
    for (int t = 0; t < count; t++)
        tier_.spread(shape_, x + routes[t].from * shape_.hidden, work_, t);
    const int last = shape_.units - 1;
    const uint8_t* unit = routes->record + last * shape_.unit_bytes;
    for (int u = last; u >= 0; u--, unit -= shape_.unit_bytes) {
        const uint8_t* after = u ? unit - shape_.unit_bytes : next + last * shape_.unit_bytes;
        tier_.unit(shape_, unit, after, count, u == last, work_);
    }
    for (int t = 0; t < count; t++)
        tier_.collect(shape_, work_, t, out + routes[t].to * shape_.hidden);
}

}  // namespace freetoken
