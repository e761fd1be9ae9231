# nibble: `make run` streams a story from the bundled model, `make test` runs the tests.
# Both install what the build needs first (once), then configure and build as Release.
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=

.PHONY: run test build configure deps clean format

# Ninja is looked for after `deps`, which may just have installed it.
# Configured once; afterwards the build itself notices changed lists of files. Flags given later are applied.
configure: deps
	@if [ ! -f $(BUILD)/CMakeCache.txt ] || [ -n "$(CMAKE_FLAGS)" ]; then \
	  cmake -S . -B $(BUILD) $$(command -v ninja >/dev/null && echo -G Ninja) $(CMAKE_FLAGS) > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }; fi

build: configure
	@cmake --build $(BUILD) -j $(JOBS)

# Without the tests, which take longer to compile than the program.
run: configure
	@cmake --build $(BUILD) -j $(JOBS) --target nibble
	@$(BUILD)/tools/nibble run --special -n 300 --temp 0.7 \
	  -p "$$(printf '<|im_start|>user\nTell me a story about a fox and a king.<|im_end|>\n<|im_start|>assistant\n ')"

test: build
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

deps:
	@tools/install-deps.sh

format:
	@git ls-files '*.h' '*.cpp' '*.inl' '*.cu' '*.cuh' | xargs clang-format -i

clean:
	@rm -rf $(BUILD) $(BUILD).log
