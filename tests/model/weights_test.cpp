// Placing weights: a tensor that is packed for two uses is packed once, and what is packed is its content,
// wherever it lay.
#include "src/model/weights.h"

#include <cstring>

#include <doctest/doctest.h>

#include "ggml/ops/reference_backend.h"

using namespace nibble;

namespace {

// Memory of its own: packs matrices by copying them, for multiplying and, if asked to, for looking up.
class PackingBackend : public ReferenceBackend {
  public:
    explicit PackingBackend(bool lookup) : lookup_(lookup) {}
    size_t packed_bytes(const Tensor& t, WeightUse use) const override {
        const bool packs = use == WeightUse::matmul || (lookup_ && use == WeightUse::lookup);
        return packs ? static_cast<size_t>(t.rows * t.stride) : 0;
    }
    Result<PlacedWeight> place(const Tensor& host, WeightUse use) override {
        const bool packs = packed_bytes(host, use) > 0;
        packed += packs;
        const auto bytes = static_cast<size_t>(host.rows * host.stride);
        PlacedWeight placed{host, NIBBLE_TRY(allocate(bytes, "a test"))};
        std::memcpy(placed.storage.data.get(), host.data, bytes);
        placed.tensor.data = placed.storage.data.get();
        if (packs) placed.tensor.layout = Layout::packed;
        return placed;
    }
    int packed = 0;

  private:
    bool lookup_;
};

TensorInfo matrix(const std::string& name, const std::vector<float>& values, int64_t cols) {
    TensorInfo t;
    t.name = name;
    t.ne = {cols, static_cast<int64_t>(values.size()) / cols, 1, 1};
    t.n_dims = 2;
    t.data = std::as_bytes(std::span(values));
    return t;
}

}  // namespace

TEST_CASE("a tied embedding is packed once, if looking up wants it packed at all") {
    const std::vector<float> values(4 * 32, 1.0f);
    const TensorInfo info = matrix("token_embd.weight", values, 32);
    const TensorMap tensors{{info.name, TensorSource{&info}}};
    for (const bool lookup : {false, true}) {
        PackingBackend backend(lookup);
        Backend* const list[] = {&backend};
        WeightStore store(tensors, Placement{}, list);
        REQUIRE(store.get(info.name, WeightUse::lookup));
        REQUIRE(store.get(info.name, WeightUse::matmul));
        REQUIRE(store.place(false));
        CHECK(backend.packed == 1);
        const auto looked_up = store.get(info.name, WeightUse::lookup),
                   multiplied = store.get(info.name, WeightUse::matmul);
        CHECK(multiplied->layout == Layout::packed);
        CHECK((looked_up->data == multiplied->data) == lookup);
    }
}

TEST_CASE("matrices that are rearranged one after the other keep what is their own") {
    std::vector<std::vector<float>> values;
    std::vector<TensorInfo> infos;
    for (int i = 0; i < 6; ++i) values.emplace_back(64 * 32, static_cast<float>(i + 1));
    TensorMap tensors;
    for (size_t i = 0; i < values.size(); ++i)
        infos.push_back(matrix("blk.0.w" + std::to_string(i), values[i], 32));
    for (const TensorInfo& t : infos) tensors[t.name] = TensorSource{&t, Storage::transposed};
    PackingBackend backend(false);
    Backend* const list[] = {&backend};
    WeightStore store(tensors, Placement{}, list);
    for (const TensorInfo& t : infos) REQUIRE(store.get(t.name, WeightUse::matmul));
    REQUIRE(store.place(false));
    for (size_t i = 0; i < infos.size(); ++i) {
        const auto t = store.get(infos[i].name, WeightUse::matmul);
        CHECK(*t->row<float>(0) == values[i][0]);
    }
}

TEST_CASE("of what is rearranged nothing stays but what was not packed") {
    std::vector<std::vector<float>> values;
    std::vector<TensorInfo> infos;
    for (int i = 0; i < 8; ++i) values.emplace_back(2 * 64 * 32, static_cast<float>(i));
    for (size_t i = 0; i < values.size(); ++i) {
        infos.push_back(matrix("blk." + std::to_string(i) + ".gate", values[i], 32));
        infos.back().ne = {32, 8, 16, 1};
        infos.back().n_dims = 3;
    }
    TensorMap tensors;
    for (const TensorInfo& t : infos) {
        tensors[t.name] = TensorSource{&t, Storage::gate_half};
        tensors[t.name + ".up"] = TensorSource{&t, Storage::up_half};
    }
    PackingBackend packing(false);
    ReferenceBackend plain;
    for (Backend* backend : {static_cast<Backend*>(&packing), static_cast<Backend*>(&plain)}) {
        Backend* const list[] = {backend};
        WeightStore store(tensors, Placement{}, list);
        for (const auto& [name, source] : tensors) REQUIRE(store.get(name, WeightUse::matmul));
        const size_t staying = backend == &plain ? 8 * 2 * 64 * 32 * sizeof(float) : 0;
        CHECK(store.rearranged_bytes() == 0);
        CHECK(store.rearranged_bytes_to_be() == staying);
        REQUIRE(store.place(false));
        CHECK(store.rearranged_bytes() == staying);
    }
}

TEST_CASE("a row that no file holds is placed like those of the file") {
    const TensorMap tensors;
    PackingBackend backend(false);
    Backend* const list[] = {&backend};
    WeightStore store(tensors, Placement{}, list);
    Tensor before;
    {
        const std::vector<float> values{1, 0.5f, 0.25f};
        before = store.constant("inv_freq.0", values);
        CHECK(before.data != reinterpret_cast<const std::byte*>(values.data()));
    }
    REQUIRE(store.place(false));
    const Tensor t = store.constant("inv_freq.0", {});
    CHECK(t.data != before.data);  // in the backend's memory
    CHECK((t.rows == 1 && t.cols == 3));
    CHECK(t.row<float>(0)[2] == 0.25f);
    CHECK(!store.unused({}));
}
