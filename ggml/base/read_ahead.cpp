// ReadAhead: one thread that gives advice, a piece at a time.
// Advice blocks while the disk's queue is full, which is why no thread with other work gives it.
#include "ggml/base/read_ahead.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "ggml/base/mapped_file.h"

namespace nibble {
namespace {

// See ask_for_pages().
constexpr size_t piece = size_t{128} << 10;

}  // namespace

ReadAhead::ReadAhead(std::vector<std::span<const std::byte>> spans, size_t distance)
    : spans_(std::move(spans)), distance_(distance), limit_(distance) {
    size_t end = 0;
    for (const auto& span : spans_) ends_.push_back(end += span.size());
    if (end == 0) return;
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
        // No more threads: it is advice.
    }
}

ReadAhead::~ReadAhead() {
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
}

void ReadAhead::reach(size_t n) {
    if (n == 0) return;
    {
        const std::lock_guard lock(mutex_);
        limit_ = std::max(limit_, ends_[n - 1] + distance_);
    }
    changed_.notify_one();
}

bool ReadAhead::wait_for(size_t offset) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || offset < limit_; });
    return !stopped_;
}

void ReadAhead::run() {
    size_t offset = 0;
    for (const auto& span : spans_)
        for (size_t at = 0; at < span.size(); at += piece) {
            const size_t bytes = std::min(piece, span.size() - at);
            if (!wait_for(offset)) return;
            ask_for_pages(span.subspan(at, bytes));
            offset += bytes;
        }
}

}  // namespace nibble
