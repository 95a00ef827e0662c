#include "look_ahead.h"

#include <algorithm>

#include "cpu_thread.h"
#include "pool.h"
#include "shared_words.h"

namespace freetoken {
namespace {

constexpr int64_t kLine = 64;         // bytes that memory gives at once
constexpr int64_t kLookBytes = 2048;  // a call that comes is seen within so many bytes
constexpr int kNumberBit = 48;        // of a guess's words

}  // namespace

void Fetched::begin(uint32_t newest) {
    const uint32_t last = guess;
    units = static_cast<int>(
        std::remove_if(unit, unit + units, [&](const Unit& u) { return u.guess != last; }) - unit);
    guess = newest;
    of_guess = 0;
    is_open = is_over = false;
}

void Fetched::add(const uint8_t* first) {
    unit[units++] = {first, guess};
    of_guess++;
    is_open = true;
    bytes = 0;
}

LookAhead::LookAhead(const PoolConfig& config)
    : config_(config),
      most_(static_cast<int>(std::min<int64_t>(
          Fetched::kMostUnits,
          config.look_ahead_bytes / static_cast<int64_t>(config.shape.unit_bytes)))),
      taken_(static_cast<uint64_t>(number()) << 32) {}

uint32_t LookAhead::number() const {
    return static_cast<uint32_t>(shared_word(config_.mail->ahead[0]).load() >> kNumberBit);
}

// Unit number `place` of the guess, or none. Whatever the guess says, it lies within the records.
const uint8_t* LookAhead::unit(uint32_t guess, int64_t place) const {
    const Shape& shape = config_.shape;
    for (uint64_t& from : config_.mail->ahead) {
        const uint64_t word = shared_word(from).load(std::memory_order_relaxed);
        if (word >> kNumberBit != guess) break;
        const int64_t record = static_cast<uint32_t>(word);
        const int64_t missing = shape.units - static_cast<int64_t>(word >> 32 & 0xffff);
        if (record >= config_.num_records || missing <= 0) continue;
        if (place < missing)
            return config_.records + record * config_.record_bytes +
                   (shape.units - 1 - place) * static_cast<int64_t>(shape.unit_bytes);
        place -= missing;
    }
    return nullptr;
}

// Claims the guess's next unit; none if there is none, or another guess has come.
const uint8_t* LookAhead::take(uint32_t guess) {
    uint64_t word = taken_.load(std::memory_order_acquire);
    for (;;) {
        if (number() != guess) return nullptr;  // else an old guess could be begun again
        const bool begun = static_cast<uint32_t>(word >> 32) == guess;
        const uint64_t mine = begun ? word : static_cast<uint64_t>(guess) << 32;
        const uint8_t* found = unit(guess, static_cast<uint32_t>(mine));
        if (!found) return nullptr;
        if (taken_.compare_exchange_weak(word, mine + 1, std::memory_order_acq_rel,
                                         std::memory_order_acquire))
            return found;
    }
}

// Fetches the rest of the open unit; false if a call has come.
bool LookAhead::fetch_unit(uint32_t seen, Fetched& mine) {
    const std::atomic<uint32_t>& call = shared_word(config_.mail->call);
    const uint8_t* unit = mine.unit[mine.units - 1].first;
    const int64_t all = static_cast<int64_t>(config_.shape.unit_bytes), begin = mine.bytes;
    bool called = false;
    while (mine.bytes < all && !called) {
        const int64_t end = std::min(mine.bytes + kLookBytes, all);
        for (int64_t at = mine.bytes; at < end; at += kLine) prefetch_second(unit + at);
        mine.bytes = end;
        called = call.load(std::memory_order_relaxed) != seen;
    }
    mine.is_open = mine.bytes < all;
    bytes_.fetch_add(static_cast<uint64_t>(mine.bytes - begin), std::memory_order_relaxed);
    return !called;
}

void LookAhead::fetch(uint32_t seen, Fetched& mine) {
    const uint32_t guess = number();
    if (guess != mine.guess) mine.begin(guess);
    while (!mine.is_over) {
        if (!mine.is_open) {
            const uint8_t* next = mine.of_guess < most_ ? take(guess) : nullptr;
            mine.is_over = !next;
            if (!next) return;
            mine.add(next);
        }
        if (!fetch_unit(seen, mine)) return;
    }
}

}  // namespace freetoken
