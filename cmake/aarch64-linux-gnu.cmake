# Cross-compiles for 64-bit Arm Linux with Debian's g++-aarch64-linux-gnu; tests run under qemu-user.
# cmake -S . -B build-arm -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake
# Libraries of the target architecture: dpkg --add-architecture arm64, libpcre2-dev:arm64 libedit-dev:arm64 libstdc++6:arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max)
