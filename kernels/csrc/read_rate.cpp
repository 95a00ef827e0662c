#include "read_rate.h"

#include <string.h>

#include <atomic>
#include <thread>

#include "cpu_thread.h"

namespace freetoken {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kAheadBytes = 4096;  // the best distance for plain reading where it was measured

// Returns a value that depends on every byte, so that no reading can be left out.
uint64_t read_all(const uint8_t* p, size_t bytes) {
    constexpr size_t kWords = kLineBytes / sizeof(uint64_t);
    uint64_t seen[kWords] = {};
    for (const uint8_t* end = p + bytes; p != end; p += kLineBytes) {
        prefetch_line(p + kAheadBytes);
        uint64_t line[kWords];
        memcpy(line, p, sizeof line);
        for (size_t i = 0; i < kWords; i++) seen[i] ^= line[i];
    }
    uint64_t all = 0;
    for (const uint64_t word : seen) all ^= word;
    return all;
}

}  // namespace

double read_rate(const uint8_t* data, size_t bytes, const std::vector<int>& cpus, bool pin,
                 int passes) {
    const size_t count = cpus.size(), share = bytes / count / kLineBytes * kLineBytes;
    std::atomic<size_t> ready{0};
    std::atomic<uint64_t> seen{0};
    std::atomic<bool> go{false};
    const auto work = [&](size_t i) {
        if (pin) pin_to(cpus[i]);
        ready++;
        while (!go) pause();
        for (int pass = 0; pass < passes; pass++) seen ^= read_all(data + i * share, share);
    };
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; i++) threads.emplace_back(work, i);
    while (ready != count) pause();
    const int64_t begin = nanoseconds();
    go = true;
    for (std::thread& thread : threads) thread.join();
    const double seconds = static_cast<double>(nanoseconds() - begin) * 1e-9;
    return static_cast<double>(share * count) * passes / seconds;
}

}  // namespace freetoken
