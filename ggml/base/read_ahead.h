// Asks the system for mapped bytes before they are used, so that a disk reads while what it read is worked
// on. Faults alone let it read as far ahead as the system does for any file, which often is 128 KiB.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace nibble {

class ReadAhead {
  public:
    // Spans of mapped files in the order of their use; they have to stay mapped. What is in memory already
    // costs about twenty microseconds a megabyte, of a thread of its own.
    // Asked for are so many bytes behind the end of the spans in use.
    explicit ReadAhead(std::vector<std::span<const std::byte>> spans, size_t distance = size_t{128} << 20);
    ~ReadAhead();
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    // The first n spans are used or have been.
    void reach(size_t n);

  private:
    void run();
    bool wait_for(size_t offset);  // until it may be asked for; false at the end

    std::vector<std::span<const std::byte>> spans_;
    std::vector<size_t> ends_;  // of each span, bytes of it and of those before
    std::mutex mutex_;
    std::condition_variable changed_;
    const size_t distance_;
    size_t limit_;
    bool stopped_ = false;
    std::thread thread_;
};

}  // namespace nibble
