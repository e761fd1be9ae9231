// StackSwitch: leaves one stack for another, and back. By hand where it is short, for a kernel under
// emulation switches millions of times and ucontext asks the system each time; ucontext elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace nibble::cuda::emulation {

#if defined(__x86_64__)

// Saves what a call must preserve on this stack, and continues where `to` was saved.
extern "C" void nibble_switch_stack(void** from, void* to);

class StackSwitch {
  public:
    // Begins with entry() on a stack of its own, which must not return.
    void begin(std::byte* stack, size_t bytes, void (*entry)()) {
        const auto top = (reinterpret_cast<uintptr_t>(stack) + bytes) / 16 * 16;
        auto* const words = reinterpret_cast<uintptr_t*>(top);
        words[-1] = 0;                                   // where entry() would return to
        words[-2] = reinterpret_cast<uintptr_t>(entry);  // popped by the first switch, after six registers
        for (int i = 3; i <= 8; ++i) words[-i] = 0;
        saved_ = words - 8;
    }
    static void change(StackSwitch& from, StackSwitch& to) { nibble_switch_stack(&from.saved_, to.saved_); }

  private:
    void* saved_ = nullptr;
};

#else

class StackSwitch {
  public:
    void begin(std::byte* stack, size_t bytes, void (*entry)()) {
        ::getcontext(&context_);
        context_.uc_stack.ss_sp = stack;
        context_.uc_stack.ss_size = bytes;
        context_.uc_link = nullptr;
        ::makecontext(&context_, entry, 0);
    }
    static void change(StackSwitch& from, StackSwitch& to) { ::swapcontext(&from.context_, &to.context_); }

  private:
    ucontext_t context_{};
};

#endif

}  // namespace nibble::cuda::emulation
