// nibble_switch_stack(): what a call preserves goes onto one stack and comes from the other.
// Threads wait at the same place and return alike, as processors foretell: so it ends by returning.
#include "ggml/cuda/emulation/stack_switch.h"

#if defined(__x86_64__)
asm(R"(
.text
.globl nibble_switch_stack
.type nibble_switch_stack, @function
nibble_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size nibble_switch_stack, . - nibble_switch_stack
)");
#endif
