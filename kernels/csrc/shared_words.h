// Words of the mailbox as atomics: the GPU writes or reads them while the pool runs.
#pragma once

#include <atomic>

namespace freetoken {

template <class Word>
std::atomic<Word>& shared_word(Word& word) {
    static_assert(sizeof(std::atomic<Word>) == sizeof(Word), "same memory");
    static_assert(std::atomic<Word>::is_always_lock_free, "no lock that the GPU does not know");
    return reinterpret_cast<std::atomic<Word>&>(word);
}

}  // namespace freetoken
