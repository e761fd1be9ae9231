// What the kernels of every instruction set include, and the intrinsics of the architecture.
// Comes before a target region: no inline function of a header may be compiled for an instruction set.
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
// GCC 12 takes the deliberately undefined operands inside its own intrinsics for mistakes.
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "ggml/cpu/isa/shared.h"
#include "ggml/cpu/kernel_table.h"
#include "ggml/cpu/packed.h"
#include "ggml/types/list.h"
