#include "trial.h"

#include <string.h>

#include <new>
#include <stdexcept>
#include <thread>

#include "cpu_thread.h"
#include "shared_words.h"

namespace freetoken {
namespace {

constexpr std::align_val_t kAlign{64};
constexpr int kLooksPerYield = 64;

}  // namespace

void Trial::Freed::operator()(uint8_t* memory) const { ::operator delete[](memory, kAlign); }

Trial::Memory Trial::zeros(size_t bytes) {
    void* memory = ::operator new[](bytes, kAlign);
    return Memory(static_cast<uint8_t*>(memset(memory, 0, bytes)));
}

Trial::Trial(PoolConfig config)
    : mail_(zeros(kMailBytes + static_cast<size_t>(config.shape.hidden) * sizeof(float))),
      reply_(zeros(kReplyBytes +
                   static_cast<size_t>(config.shape.hidden) * kMailSums * sizeof(float))) {
    config.mail = reinterpret_cast<Mail*>(mail_.get());
    config.reply = reinterpret_cast<Reply*>(reply_.get());
    pool_ = std::make_unique<Pool>(config);
}

int64_t Trial::run(const std::vector<int32_t>& records, const Prefetch& prefetch,
                   int64_t patience_ns) {
    if (records.size() > static_cast<size_t>(kMailJobs))
        throw std::invalid_argument("more records than a call may name");
    Mail& mail = *reinterpret_cast<Mail*>(mail_.get());
    Reply& reply = *reinterpret_cast<Reply*>(reply_.get());
    for (size_t k = 0; k < records.size(); k++)
        mail.job[k] = {records[k], 0, 1, static_cast<uint8_t>(k)};
    mail.jobs = static_cast<uint32_t>(records.size());
    mail.rows = 1;
    mail.limit = UINT32_MAX;
    pool_->set_prefetch(prefetch);
    const uint32_t call = mail.call + 1;
    const int64_t begin = nanoseconds();
    shared_word(mail.call).store(call, std::memory_order_release);
    pool_->wake();
    for (int look = 1; shared_word(reply.done).load(std::memory_order_acquire) != call; look++) {
        if (look % kLooksPerYield) {
            pause();
            continue;
        }
        if (nanoseconds() - begin > patience_ns) {
            pool_->close();
            return 0;
        }
        std::this_thread::yield();
    }
    if (reply.error) throw std::invalid_argument("the pool has refused the call");
    return reply.nanoseconds;
}

}  // namespace freetoken
