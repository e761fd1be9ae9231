// A read-only memory mapping of a whole file, and a file that appears only when it is complete.
// Both own what they open; both are movable and not copyable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "ggml/base/result.h"

namespace nibble {

class MappedFile {
  public:
    // Maps the file; an empty file gives an empty span. Directories and special files are refused.
    static Result<MappedFile> open(const std::filesystem::path& path);

    MappedFile() = default;
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    std::span<const std::byte> bytes() const { return {data_, size_}; }

  private:
    const std::byte* data_ = nullptr;
    size_t size_ = 0;
};

// Says that these mapped bytes are not needed for a while: the process's resident memory shrinks, the
// contents stay and are read again when touched. For walking once through a file larger than memory.
void release_pages(std::span<const std::byte> mapped);

// Asks the system to read these mapped bytes into memory. Of one call Linux reads no more than it reads ahead
// by itself, often 128 KiB; blocks while the disk's queue is full.
void ask_for_pages(std::span<const std::byte> mapped);

// Reads a whole (small) file: configuration, tokenizer.json, a prompt. `limit` bounds the allocation.
Result<std::string> read_text_file(const std::filesystem::path& path, size_t limit = size_t{1} << 30);

// Output that appears under its name by commit(), whole or not at all. Append-only.
// Until then it has no name, or on file systems without such files one that ends in ".tmp", in the same
// folder. A writer that is destroyed without commit() leaves nothing behind.
class AtomicFile {
  public:
    // usual: who may read the file that is replaced, else whom the user's mask allows. owner: mode 0600.
    enum class Readers : uint8_t { usual, owner };
    // Follows links. A folder, device or pipe as destination is refused.
    static Result<AtomicFile> create(const std::filesystem::path& destination,
                                     Readers readers = Readers::usual);

    AtomicFile(AtomicFile&& other) noexcept;
    AtomicFile& operator=(AtomicFile&&) = delete;
    ~AtomicFile();

    Result<void> write(std::span<const std::byte> bytes);  // a full disk is an Error with the path
    uint64_t size() const { return size_; }
    Result<void> commit();  // sync, rename, sync the folder; the file must not be written to afterwards

  private:
    AtomicFile() = default;
    Result<void> name_it();
    int fd_ = -1;
    uint64_t size_ = 0;
    std::filesystem::path destination_, temporary_;  // temporary_ is empty while there is no name
};

}  // namespace nibble
