#include "look_ahead.h"

#include <algorithm>

#include "cpu_thread.h"
#include "pool.h"
#include "shared_words.h"

namespace freetoken {
namespace {

constexpr int64_t kLine = 64;          // bytes that memory gives at once
constexpr int64_t kLookBytes = 2048;   // a call that comes is seen within so many bytes

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

LookAhead::LookAhead(const PoolConfig& config, int threads)
    : config_(config),
      most_(static_cast<int>(std::min<int64_t>(
          Fetched::kMostUnits, config.look_ahead_bytes / threads /
                                   static_cast<int64_t>(config.shape.unit_bytes)))),
      taken_(static_cast<uint64_t>(number()) << 32) {}

uint32_t LookAhead::number() const {
    return shared_word(config_.mail->ahead).load(std::memory_order_acquire);
}

// Unit number `place` of the guess, or none. Whatever the guess says, it lies within the records.
const uint8_t* LookAhead::unit(int64_t place) const {
    Mail& mail = *config_.mail;
    const Shape& shape = config_.shape;
    const uint32_t told = shared_word(mail.ahead_jobs).load(std::memory_order_relaxed);
    const uint32_t jobs = std::min(told, static_cast<uint32_t>(kMailAhead));
    for (uint32_t i = 0; i < jobs; i++) {
        // The GPU may be writing the next guess over it.
        const uint64_t word = shared_word(mail.ahead_job[i]).load(std::memory_order_relaxed);
        const int64_t record = static_cast<uint32_t>(word), first = static_cast<int64_t>(word >> 32);
        if (record >= config_.num_records || first >= shape.units) continue;
        if (place < shape.units - first)
            return config_.records + record * config_.record_bytes +
                   (shape.units - 1 - place) * static_cast<int64_t>(shape.unit_bytes);
        place -= shape.units - first;
    }
    return nullptr;
}

// Claims the guess's next unit; none if there is none, or another guess has come.
const uint8_t* LookAhead::take(uint32_t guess) {
    uint64_t word = taken_.load(std::memory_order_relaxed);
    for (;;) {
        if (number() != guess) return nullptr;  // else an old guess could be begun again
        const bool begun = static_cast<uint32_t>(word >> 32) == guess;
        const uint64_t mine = begun ? word : static_cast<uint64_t>(guess) << 32;
        const uint8_t* found = unit(static_cast<uint32_t>(mine));
        if (!found) return nullptr;
        if (taken_.compare_exchange_weak(word, mine + 1, std::memory_order_relaxed)) return found;
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
