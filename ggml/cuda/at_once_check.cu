// Whether a launch's blocks can wait for each other, tried out when the card is opened: drivers differ in
// what they allow of such launches, in graphs and where launches overlap.
#include "ggml/cuda/device.h"
#include "ggml/cuda/exec.h"

namespace nibble::cuda {
namespace {

// Each block counts itself, waits for all others, and counts itself again.
__global__ void at_once_kernel(int* counters) {
    wait_for_previous();
    if (thread_index() != 0) return;
    atomic_add_release(counters, 1);
    wait_for_count(counters, static_cast<int>(grid_x()));
    atomic_add(counters + 1, 1);
}

}  // namespace

void check_at_once(Stream& stream, int multiprocessors, int* counters) {
    launch(at_once_kernel, Dims{multiprocessors, 1, 1, 32, 0, true}, stream, counters);
}

}  // namespace nibble::cuda
