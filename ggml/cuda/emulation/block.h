// The threads of an emulated block: fibers that run in turn until they wait for their warp or their block.
// The order in which they run changes from wait to wait, so that a missing barrier may show; built with
// ThreadSanitizer, races do, between threads, neighbouring blocks, and launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "ggml/cuda/dims.h"

namespace nibble::cuda::emulation {

// Where the running fiber is: one per host thread that emulates.
struct Place {
    Dims dims;
    int64_t x = 0;
    int y = 0, z = 0;
    int thread = 0;
    std::byte* shared = nullptr;
};
extern constinit thread_local Place place;

// What a lane hands to its warp.
struct Slot {
    alignas(8) std::byte bytes[48];
};

// Waits for the warp and returns what its 32 lanes handed over; valid until the lane's next exchange. Brings
// no order into what they write elsewhere.
const Slot* exchange(const Slot& mine);
void wait_for_previous();
void wait_for_warp();
void wait_for_block();

int atomic_add(int* p, int v);
int atomic_add_release(int* p, int v);
int atomic_add_acquire_release(int* p, int v);
void fence();

// Copies of 16 bytes (zeros from a null pointer) in groups; done when fewer than `under_way` newer groups
// are.
void queue_copy(void* shared, const void* global);
void commit_copies();
void finish_copies(int under_way);

// Barriers in shared memory, by shared_address(), and copies in one piece, made when they are waited for.
void begin_barrier(uint32_t at, int arrivals);
void publish_barriers();
void arrive(uint32_t at, int bytes);
// `constant`: no launch writes it, so it may be asked for while the launch waits.
void queue_bulk(uint32_t to, const void* global, int bytes, uint32_t at, bool constant);
void wait_for_turn(uint32_t at, uint32_t turn);

// For products of warpgroups: what copies brought is there for them after a barrier before which every thread
// has called this since it waited for its own.
void publish_shared();
bool shared_is_published();

// Ends the program: the kernel does what no GPU would allow.
[[noreturn]] void fail(const char* what);

// Runs a kernel for every block of the launch, one after the other. For the watch over races the host goes on
// as if that had not happened yet, until wait_for_launches(); with `overlaps` the launch begins as if the one
// before had not, until wait_for_previous().
void run_grid(const Dims& dims, std::shared_ptr<const std::function<void()>> kernel, bool overlaps);
void wait_for_launches();

}  // namespace nibble::cuda::emulation
