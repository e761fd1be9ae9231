// ModelRunner: pages of the cache in host memory and back, and the model's fingerprint. For saved sessions.
// A page is a run of rows in every tensor of its group; in host memory keys are rows whatever their layout
// here.
#include "ggml/program/key_tiles.h"
#include "src/engine/model_runner.h"

namespace nibble {
namespace {

struct Fnv {
    uint64_t hash = 0xcbf29ce484222325;
    void add(std::span<const std::byte> bytes) {
        for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
    }
    void add(std::string_view text) {
        add(std::as_bytes(std::span(text)));
        add(std::as_bytes(std::span("", 1)));
    }
};

}  // namespace

std::vector<ModelRunner::PagePart> ModelRunner::page_parts(int32_t group, int32_t page) const {
    std::vector<PagePart> parts;
    const auto layers = kv_layers(spec());
    for (size_t i = 0; i < layers.size(); ++i) {
        if (layers[i].group != group) continue;
        for (const Tensor* t : {&kv_.k[i], &kv_.v[i]}) {
            if (!*t) continue;
            const auto bytes = static_cast<size_t>(t->stride) *
                               static_cast<size_t>(layers[i].n_kv_heads * config_.page_size);
            parts.push_back({backends_[static_cast<size_t>(config_.placement.layers[i])], t,
                             t->data + bytes * static_cast<size_t>(page), bytes});
        }
    }
    return parts;
}

size_t ModelRunner::page_bytes(int32_t group) const {
    size_t bytes = 0;
    for (const PagePart& p : page_parts(group, 0)) bytes += p.bytes;
    return bytes;
}

Result<void> ModelRunner::read_page(int32_t group, int32_t page, std::span<std::byte> bytes) const {
    for (const PagePart& p : page_parts(group, page)) {
        NIBBLE_TRY(p.backend->download(bytes.first(p.bytes), p.data));
        if (p.cache->layout == Layout::key_tiles) rows_from_key_tiles(*p.cache, bytes.first(p.bytes));
        bytes = bytes.subspan(p.bytes);
    }
    return {};
}

Result<void> ModelRunner::write_page(int32_t group, int32_t page, std::span<const std::byte> bytes) {
    for (const PagePart& p : page_parts(group, page)) {
        std::vector<std::byte> tiles;
        std::span<const std::byte> part = bytes.first(p.bytes);
        if (p.cache->layout == Layout::key_tiles) {
            tiles.assign(part.begin(), part.end());
            key_tiles_from_rows(*p.cache, tiles);
            part = tiles;
        }
        NIBBLE_TRY(p.backend->upload(p.data, part));
        bytes = bytes.subspan(p.bytes);
    }
    return {};
}

uint64_t ModelRunner::fingerprint() const {
    constexpr size_t n_samples = 4, sample_bytes = 64;
    Fnv fnv;
    const TensorFile& file = model_->file;
    for (const Metadata::Entry& e : file.metadata().entries()) fnv.add(e.key), fnv.add(describe(e.value));
    for (const TensorInfo& t : file.tensors()) {
        fnv.add(t.name);
        fnv.add(t.type_name());
        fnv.add(shape_text(t));
        const size_t n = t.data.size(), length = std::min(n, sample_bytes);
        for (size_t i = 0; i < n_samples; ++i)
            fnv.add(t.data.subspan((n - length) / (n_samples - 1) * i, length));
    }
    return fnv.hash;
}

}  // namespace nibble
