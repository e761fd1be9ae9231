// What ThreadSanitizer is told of an emulated kernel, so that it finds the races a card would have.
// Nothing where the tests are built without it. Only block.cpp includes this, which is itself not watched.
#pragma once

#ifdef NIBBLE_WATCH_RACES
#include <sanitizer/tsan_interface.h>
extern "C" {
void __tsan_read16(void*);
void __tsan_write16(void*);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace nibble::cuda::emulation {

#ifdef NIBBLE_WATCH_RACES

constexpr bool watching_races = true;

// One thread of the card. What two of them do is in no order but through release() and acquire().
class Strand {
  public:
    Strand() : handle_(__tsan_create_fiber(0)) {}
    ~Strand() { __tsan_destroy_fiber(handle_); }
    Strand(const Strand&) = delete;
    Strand& operator=(const Strand&) = delete;
    // What follows is done by this strand; called right before its stack is switched to.
    void enter() { enter(handle_); }
    static void enter(void* handle) { __tsan_switch_to_fiber(handle, __tsan_switch_to_fiber_no_sync); }
    static void* current() { return __tsan_get_current_fiber(); }

  private:
    void* handle_;
};

inline void release(void* at) { __tsan_release(at); }
inline void acquire(void* at) { __tsan_acquire(at); }
inline void note_read16(const void* p) { __tsan_read16(const_cast<void*>(p)); }
inline void note_write16(void* p) { __tsan_write16(p); }

// Writes that are no part of the kernel.
struct Unwatched {
    Unwatched() { AnnotateIgnoreWritesBegin(__FILE__, __LINE__); }
    ~Unwatched() { AnnotateIgnoreWritesEnd(__FILE__, __LINE__); }
};

#else

constexpr bool watching_races = false;

struct Strand {
    void enter() {}
    static void enter(void*) {}
    static void* current() { return nullptr; }
};

inline void release(void*) {}
inline void acquire(void*) {}
inline void note_read16(const void*) {}
inline void note_write16(void*) {}
struct Unwatched {
    Unwatched() {}
};

#endif

}  // namespace nibble::cuda::emulation
