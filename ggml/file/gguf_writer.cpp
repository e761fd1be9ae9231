// Serialization of the GGUF header and the state machine around the tensor stream.
// The header is built in memory (it is metadata-sized); tensor bytes go straight to the file.
#include "ggml/file/gguf_writer.h"

#include <bit>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "ggml/base/cat.h"
#include "ggml/base/checked.h"
#include "ggml/file/gguf_layout.h"
#include "ggml/file/quote.h"

namespace nibble {
namespace {

constexpr size_t max_name_bytes = 63;
constexpr size_t max_key_bytes = 65535;

template <class T>
requires std::is_arithmetic_v<T>
void put(std::string& out, T v) {
    static_assert(std::endian::native == std::endian::little);
    out.append(reinterpret_cast<const char*>(&v), sizeof v);
}

void put(std::string& out, std::string_view s) {
    put(out, uint64_t{s.size()});
    out += s;
}

void put(std::string& out, const MetaArray& array);

struct PutItems {
    std::string& out;
    void operator()(const StringList& list) const {
        for (const std::string_view s : list.views()) put(out, s);
    }
    void operator()(const std::vector<bool>& flags) const {
        for (const bool b : flags) put(out, b);
    }
    template <class T>
    void operator()(const std::vector<T>& items) const {
        for (const T& item : items) put(out, item);
    }
};

void put(std::string& out, const MetaArray& array) {
    put(out, static_cast<uint32_t>(array.type()));
    put(out, uint64_t{array.size()});
    std::visit(PutItems{out}, array.items);
}

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

}  // namespace

Result<GgufWriter> GgufWriter::create(const std::filesystem::path& destination) {
    return GgufWriter(NIBBLE_TRY(AtomicFile::create(destination)), destination.string());
}

Error GgufWriter::misuse(std::string what) const {
    return {ErrorCode::invalid_argument, where_, std::move(what), ""};
}

Result<void> GgufWriter::declare(std::string_view name, Type type, std::span<const int64_t> ne) {
    if (state_ != State::declaring) return misuse(cat("tensor ", quote(name), " was declared after begin()"));
    if (name.empty() || name.size() > max_name_bytes)
        return misuse(cat("tensor name ", quote(name), " has ", name.size(), " bytes, 1 to ", max_name_bytes,
                          " are possible"));
    if (ne.empty() || ne.size() > 4)
        return misuse(cat("tensor ", quote(name), " has ", ne.size(), " dimensions, 1 to 4 are possible"));
    Declared t;
    t.info.name = std::string(name);
    t.info.type = type;
    t.info.n_dims = static_cast<int>(ne.size());
    std::copy(ne.begin(), ne.end(), t.info.ne.begin());
    const auto bytes = tensor_bytes(type, t.info.ne);
    if (!bytes)
        return misuse(cat("tensor ", quote(name), " has dimensions ", shape_text(t.info),
                          ", impossible for type ", info(type).name));
    t.bytes = *bytes;
    t.offset = 0;
    tensors_.push_back(std::move(t));
    return {};
}

// Sets the alignment and every tensor's offset; the last place where names are checked.
Result<void> GgufWriter::place_tensors() {
    alignment_ = NIBBLE_TRY(metadata_.get_or<uint32_t>(gguf::alignment_key, gguf::default_alignment));
    if (!std::has_single_bit(alignment_))
        return misuse(cat("alignment ", alignment_, " is not a power of two"));
    if (alignment_ == gguf::default_alignment)
        metadata_.erase(gguf::alignment_key);
    else
        metadata_.set(gguf::alignment_key,
                      static_cast<uint32_t>(alignment_));  // the type that readers expect

    std::unordered_set<std::string_view> names;
    uint64_t offset = 0;
    bool blocks = false;
    for (Declared& t : tensors_) {
        if (!names.insert(t.info.name).second)
            return misuse(cat("tensor ", quote(t.info.name), " was declared twice"));
        t.offset = offset;
        if (!checked_add(offset, t.bytes, offset) || offset > uint64_t{INT64_MAX} - alignment_)
            return misuse(cat("the tensors up to ", quote(t.info.name), " do not fit a file"));
        offset = round_up(offset, alignment_);
        blocks = blocks || info(t.info.type).block_len > 1;
    }
    if (blocks && !metadata_.contains(gguf::quantization_version_key))
        metadata_.set(gguf::quantization_version_key, gguf::quantization_version);
    for (const auto& [key, value] : metadata_.entries())
        if (key.empty() || key.size() > max_key_bytes)
            return misuse(cat("metadata key ", quote(key), " has ", key.size(), " bytes, 1 to ",
                              max_key_bytes, " are possible"));
    return {};
}

std::string GgufWriter::header() const {
    std::string out = "GGUF";
    put(out, gguf::current_version);
    put(out, uint64_t{tensors_.size()});
    put(out, uint64_t{metadata_.size()});
    for (const auto& [key, value] : metadata_.entries()) {
        put(out, std::string_view(key));
        put(out, static_cast<uint32_t>(type_of(value)));
        std::visit([&](const auto& v) { put(out, v); }, value);
    }
    for (const Declared& t : tensors_) {
        put(out, std::string_view(t.info.name));
        put(out, static_cast<uint32_t>(t.info.n_dims));
        for (int d = 0; d < t.info.n_dims; ++d) put(out, t.info.ne[static_cast<size_t>(d)]);
        put(out, static_cast<uint32_t>(t.info.type));
        put(out, t.offset);
    }
    if (!tensors_.empty()) out.resize(round_up<size_t>(out.size(), alignment_), '\0');
    return out;
}

Result<void> GgufWriter::begin() {
    if (state_ != State::declaring) return misuse("begin() was called twice");
    NIBBLE_TRY(place_tensors());
    NIBBLE_TRY(file_.write(bytes_of(header())));
    state_ = State::writing;
    return next_tensor();
}

Result<void> GgufWriter::pad(uint64_t to) {
    const std::string zeros(round_up(file_.size(), to) - file_.size(), '\0');
    return file_.write(bytes_of(zeros));
}

Result<void> GgufWriter::next_tensor() {
    while (current_ < tensors_.size() && written_ == tensors_[current_].bytes) {
        NIBBLE_TRY(pad(alignment_));
        ++current_;
        written_ = 0;
    }
    return {};
}

Result<void> GgufWriter::write(std::string_view name, std::span<const std::byte> chunk) {
    if (state_ != State::writing)
        return misuse(cat("tensor ", quote(name), " was written outside begin() and finish()"));
    if (chunk.empty()) return {};  // what the caller of an empty tensor has to say
    if (current_ == tensors_.size())
        return misuse(cat("tensor ", quote(name), " was written after the last one was complete"));
    const Declared& t = tensors_[current_];
    if (t.info.name != name)
        return misuse(cat("tensor ", quote(name), " was written where ", quote(t.info.name), " is due"));
    if (chunk.size() > t.bytes - written_)
        return misuse(cat("tensor ", quote(name), " got ", chunk.size() - (t.bytes - written_),
                          " bytes more than its ", t.bytes));
    NIBBLE_TRY(file_.write(chunk));
    written_ += chunk.size();
    return next_tensor();
}

Result<void> GgufWriter::finish() {
    if (state_ != State::writing) return misuse("finish() was called without begin() or twice");
    if (current_ < tensors_.size())
        return misuse(cat("tensor ", quote(tensors_[current_].info.name), " is incomplete: ", written_,
                          " of ", tensors_[current_].bytes, " bytes"));
    NIBBLE_TRY(file_.commit());
    state_ = State::finished;
    return {};
}

}  // namespace nibble
