// The watch over emulated kernels: faults are planted, each beside the kernel done right.
// Only where ThreadSanitizer is: a planted fault ends a process of its own.
#ifdef NIBBLE_WATCH_RACES

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>

#include "ggml/base/cat.h"
#include "ggml/cuda/device.h"

using namespace nibble;
using namespace nibble::cuda;

namespace {

// Each thread reads what a thread of another warp has written.
template <bool right>
void block_barrier_kernel(int* out) {
    wait_for_previous();
    auto* const words = reinterpret_cast<int*>(shared_memory());
    const int i = thread_index();
    words[i] = i;
    if (right) sync_block();
    out[block_x() * block_threads() + i] = words[i ^ 32];
}

// A lane reads what another has written. The shuffle meets the lanes, and orders nothing.
template <bool right>
void warp_barrier_kernel(int* out) {
    wait_for_previous();
    auto* const words = reinterpret_cast<int*>(shared_memory());
    const int i = thread_index();
    words[i] = i;
    if (right)
        sync_warp();
    else
        shuffle(i, 0);
    out[block_x() * block_threads() + i] = words[i ^ 1];
}

// Blocks write the same word.
template <bool right>
void blocks_kernel(int* out) {
    wait_for_previous();
    if (thread_index() == 0) out[right ? block_x() : 0] = 1;
}

// The block that counts last adds up what the others have written.
template <bool right>
void last_block_kernel(int* out) {
    wait_for_previous();
    int* const counter = out + 128;
    const int i = thread_index();
    out[block_x() * 64 + i] = i;
    sync_block();
    auto* const before = reinterpret_cast<int*>(shared_memory());
    if (i == 0) {
        if (right) fence();
        *before = atomic_add(counter, 1);
        if (right) fence();
    }
    sync_block();
    if (*before + 1 == grid_x()) out[256 + i] = out[i] + out[64 + i];
}

// Each thread has 16 bytes copied and reads those of another.
template <bool right>
void copies_kernel(int* out) {
    wait_for_previous();
    const int i = thread_index();
    copy_async16(shared_memory() + 16 * i, out + 4 * i, true);
    copy_commit();
    copy_wait<0>();
    if (right) sync_block();
    out[256 + block_x() * 64 + i] = reinterpret_cast<const int*>(shared_memory())[4 * (i ^ 32)];
}

// A copy begins where another thread may still be reading.
template <bool right>
void reused_stage_kernel(int* out) {
    wait_for_previous();
    const int i = thread_index();
    reinterpret_cast<int*>(shared_memory())[4 * i] = i;
    sync_block();
    out[256 + block_x() * 64 + i] = reinterpret_cast<const int*>(shared_memory())[4 * (i ^ 32)];
    if (right) sync_block();
    copy_async16(shared_memory() + 16 * i, out + 4 * i, true);
    copy_commit();
    copy_wait<0>();
}

// Each thread reads what a block of the launch before has written.
template <bool right>
void launches_kernel(int* out) {
    const int64_t i = block_x() * block_threads() + thread_index();
    if (right) wait_for_previous();
    const int before = out[i ^ 64];
    if (!right) wait_for_previous();
    out[128 + i] = before + 1;
}

// The launch after the next one would not know that the one before this has ended.
template <bool right>
void last_thread_kernel(int*) {
    if (right || thread_index() < 63) wait_for_previous();
}

// Twice, on memory that partly overlaps.
void run(void (*kernel)(int*)) {
    auto stream = Stream::create(0);
    REQUIRE(stream);
    std::vector<int> out(512);
    for (int* at : {out.data(), out.data() + 128}) launch(kernel, Dims{2, 1, 1, 64, 1024}, *stream, at);
    CHECK(stream->synchronize());
}

struct Fault {
    std::string name;
    void (*right)(int*);
    void (*wrong)(int*);
    std::string says = "data race";
};

const Fault faults[] = {
    {"block barrier", block_barrier_kernel<true>, block_barrier_kernel<false>},
    {"warp barrier", warp_barrier_kernel<true>, warp_barrier_kernel<false>},
    {"blocks", blocks_kernel<true>, blocks_kernel<false>},
    {"last block", last_block_kernel<true>, last_block_kernel<false>},
    {"copies", copies_kernel<true>, copies_kernel<false>},
    {"reused stage", reused_stage_kernel<true>, reused_stage_kernel<false>},
    {"launches", launches_kernel<true>, launches_kernel<false>},
    {"last thread", last_thread_kernel<true>, last_thread_kernel<false>, "without wait_for_previous"},
};

struct Ended {
    int code;
    std::string output;
};

// What this program prints and returns when it runs a kernel with a fault.
Ended planted(const std::string& name) {
    const std::string command = cat("NIBBLE_FAULT='", name, "' TSAN_OPTIONS='halt_on_error=1 exitcode=66' '",
                                    std::filesystem::read_symlink("/proc/self/exe").string(),
                                    "' --no-skip --test-case='a planted fault' 2>&1");
    std::FILE* const from = ::popen(command.c_str(), "r");
    REQUIRE(from);
    std::string output;
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, from)) > 0;) output.append(buffer, n);
    const int status = ::pclose(from);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

}  // namespace

TEST_CASE("a planted fault" * doctest::skip()) {
    const char* const name = std::getenv("NIBBLE_FAULT");
    for (const Fault& f : faults)
        if (name && name == f.name) run(f.wrong);
}

TEST_CASE("races of emulated kernels are found, and no others") {
    for (const Fault& f : faults) {
        INFO(f.name);
        run(f.right);
        const Ended ended = planted(f.name);
        CHECK(ended.code == 66);
        CHECK_MESSAGE(ended.output.find(f.says) != std::string::npos, ended.output);
    }
}

#endif
