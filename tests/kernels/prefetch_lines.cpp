// What the kernels fetch into the second cache while they go through units one after the other, for
// each setting. Prints it as "encoding groups: lines that were fetched once / lines".
#include <cstdint>
#include <cstdio>
#include <map>
#include <vector>

namespace {

std::map<uintptr_t, int> fetched;  // by line

}  // namespace

#define FREETOKEN_FETCHED(p) fetched[reinterpret_cast<uintptr_t>(p) / 64]++
#include "experts_scalar.cpp"

namespace {

using namespace freetoken;

constexpr int kUnits = 6, kHidden = 512;

void play(const char* name, Encoding encoding, uint32_t groups) {
    const Shape shape = make_shape(encoding, kHidden, kUnits * 16, 0, false);
    std::vector<uint8_t> memory(kUnits * shape.unit_bytes + 64, 0x38);
    const uint8_t* first = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    Scratch scratch(shape);
    const std::vector<float> x(kHidden, 1.0f);
    const ExpertTier& tier = expert_tier_scalar();
    tier.spread(shape, x.data(), scratch.work, 0);
    scratch.work.prefetch = {groups, 512};
    fetched.clear();
    for (int u = kUnits - 1; u > 0; u--) {  // from the last one on, as experts are computed
        const uint8_t* unit = first + u * shape.unit_bytes;
        tier.unit(shape, unit, unit - shape.unit_bytes, 1, u == kUnits - 1, scratch.work);
    }
    // The first unit's first rows come from nobody, of the last one only those ahead are asked for.
    const size_t ahead = groups * kAheadRows * shape.row_bytes;
    int lines = 0, once = 0;
    for (int u = 0; u < kUnits; u++) {
        const size_t from = u == kUnits - 1 ? ahead : 0, to = u ? shape.unit_bytes : ahead;
        for (size_t at = from; at < to; at += 64, lines++) {
            const auto found = fetched.find(
                reinterpret_cast<uintptr_t>(first + u * shape.unit_bytes + at) / 64);
            once += found != fetched.end() && found->second == 1;
        }
    }
    std::printf("%s %u: %d / %d of %d\n", name, groups, once, lines,
                static_cast<int>(fetched.size()));
}

}  // namespace

int main() {
    for (uint32_t groups = 1; groups <= kMostGroups; groups++) {
        play("bf16", Encoding::bf16, groups);
        play("fp8", Encoding::fp8_block, groups);
    }
}
