// The doctest entry point shared by every test program.
// Each folder under tests/ links it and adds its own cases.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
