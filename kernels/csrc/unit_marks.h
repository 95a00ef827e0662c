// Who computes a unit of the call in hand: one thread as a whole, or several by parts. What they
// compute is ordered by the pool's gate, not by the marks. A pool must not see a call's number twice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace freetoken {

// By place in the list. Nothing is reset: a mark carries its call's number.
class UnitMarks {
   public:
    explicit UnitMarks(size_t places)
        : marks_(std::make_unique<std::atomic<uint64_t>[]>(places)) {}

    // Begins a unit, or a part of one; false if another thread has it as a whole, or, for a whole
    // one, if it was begun at all.
    bool begin(uint32_t call, int place, bool by_parts) {
        std::atomic<uint64_t>& mark = at(place);
        uint64_t word = mark.load(std::memory_order_relaxed);
        while (word >> 1 != of(call))
            if (mark.compare_exchange_weak(word, of(call) << 1 | by_parts,
                                           std::memory_order_relaxed))
                return true;
        return by_parts && word & 1;
    }
    bool is_by_parts(uint32_t call, int place) const {
        return at(place).load(std::memory_order_relaxed) == (of(call) << 1 | 1);
    }

   private:
    static uint64_t of(uint32_t call) { return uint64_t{call} + 1; }  // 0 is no call
    std::atomic<uint64_t>& at(int place) const { return marks_[static_cast<size_t>(place)]; }

    std::unique_ptr<std::atomic<uint64_t>[]> marks_;
};

}  // namespace freetoken
