// Fields: reading GGUF metadata and config.json, writing GGUF metadata.
// The first failure sticks, so that a list of fields reads as a plain list.
#include "src/model/hyper.h"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "ggml/file/tensor_file.h"

namespace nibble {

Fields Fields::reading(const TensorFile& file, std::string prefix) {
    Fields f;
    f.source_ = file.kind() == TensorFile::Kind::hf ? Source::hf : Source::gguf;
    f.file_ = &file;
    f.prefix_ = std::move(prefix);
    f.where_ = f.from_hf() ? (file.path() / "config.json").string() : file.path().string();
    return f;
}

Fields Fields::writing(Metadata& out, std::string prefix) {
    Fields f;
    f.source_ = Source::write;
    f.out_ = &out;
    f.prefix_ = std::move(prefix);
    return f;
}

void Fields::fail(Error error) {
    if (error_.what.empty()) error_ = std::move(error);
}

Result<void> Fields::result() const {
    if (!error_.what.empty()) return error_;
    return {};
}

std::string Fields::key(std::string_view gguf) const {
    const bool whole = gguf.starts_with("tokenizer.") || gguf.starts_with("xielu.");
    return whole ? std::string(gguf) : cat(prefix_, ".", gguf);
}

namespace {

// What a dotted path leads to from here, unless it is null.
const nlohmann::json* follow(const nlohmann::json* at, std::string_view path) {
    while (at && !path.empty()) {
        const size_t dot = path.find('.');
        const std::string key(path.substr(0, dot));
        const auto it = at->is_object() ? at->find(key) : at->end();
        at = at->is_object() && it != at->end() && !it->is_null() ? &*it : nullptr;
        path = dot == std::string_view::npos ? std::string_view{} : path.substr(dot + 1);
    }
    return at;
}

}  // namespace

// The first alternative of the path that is present and not null. Models of text and images keep what
// concerns the text in `text_config`.
const nlohmann::json* Fields::json(std::string_view path) const {
    const nlohmann::json *root = &file_->config(), *inner = follow(root, "text_config");
    for (std::string_view rest = path; !rest.empty();) {
        const size_t bar = rest.find('|');
        const std::string_view one = rest.substr(0, bar);
        if (const nlohmann::json* at = inner ? follow(inner, one) : nullptr) return at;
        if (const nlohmann::json* at = follow(root, one)) return at;
        rest = bar == std::string_view::npos ? std::string_view{} : rest.substr(bar + 1);
    }
    for (const auto& [name, value] : assumed_)
        if (path.substr(0, path.find('|')) == name) return value.get();
    return nullptr;
}

template <class T>
void Fields::assume(std::string_view hf, T value) {
    assumed_.emplace_back(hf, std::make_shared<const nlohmann::json>(value));
}
template void Fields::assume(std::string_view, uint32_t);
template void Fields::assume(std::string_view, float);
template void Fields::assume(std::string_view, bool);

bool Fields::states(std::string_view gguf, std::string_view hf) const {
    if (source_ == Source::write) return false;
    if (source_ == Source::hf) return !hf.empty() && json(hf);
    return !gguf.empty() && file_->metadata().contains(key(gguf));
}

namespace {

// A JSON value as a T, or nothing when it is of another kind or out of range.
template <class T>
std::optional<T> from_json(const nlohmann::json& j) {
    if constexpr (std::same_as<T, uint32_t>) {
        if (j.is_number_unsigned() && j.get<uint64_t>() <= std::numeric_limits<uint32_t>::max())
            return static_cast<uint32_t>(j.get<uint64_t>());
    } else if constexpr (std::same_as<T, float>) {
        if (j.is_number()) return j.get<float>();
    } else if constexpr (std::same_as<T, bool>) {
        if (j.is_boolean()) return j.get<bool>();
    } else {
        if (j.is_string()) return j.get<std::string>();
    }
    return {};
}

}  // namespace

// Stored: the type that Metadata keeps and returns for a T.
template <class Stored, class T>
void Fields::exchange(std::string_view gguf, std::string_view hf, T& value, bool required) {
    if (source_ == Source::write) {
        if (!gguf.empty()) out_->set(key(gguf), value);
        return;
    }
    if (source_ == Source::hf) {
        const nlohmann::json* j = hf.empty() ? nullptr : json(hf);
        if (!j) {
            if (required && !hf.empty())
                fail({ErrorCode::corrupt, where_, cat("field '", hf, "' is missing"), "the model needs it"});
            return;
        }
        if (const auto v = from_json<T>(*j))
            value = *v;
        else
            fail({ErrorCode::corrupt, where_,
                  cat("field '", hf, "' has the unusable value ", j->dump().substr(0, 60)), ""});
        return;
    }
    if (gguf.empty()) return;
    if (!required && !file_->metadata().contains(key(gguf))) return;
    auto v = file_->metadata().require<Stored>(key(gguf));
    if (v)
        value = T(*v);
    else
        fail(v.error());
}

void Fields::field(std::string_view gguf, std::string_view hf, uint32_t& value, bool required) {
    exchange<uint32_t>(gguf, hf, value, required);
}
void Fields::field(std::string_view gguf, std::string_view hf, float& value, bool required) {
    exchange<float>(gguf, hf, value, required);
    if (!std::isfinite(value))
        fail({ErrorCode::corrupt, where_, cat("field '", gguf, "' is not a finite number"), ""});
}
void Fields::field(std::string_view gguf, std::string_view hf, bool& value, bool required) {
    exchange<bool>(gguf, hf, value, required);
}
void Fields::field(std::string_view gguf, std::string_view hf, std::string& value, bool required) {
    exchange<std::string_view>(gguf, hf, value, required);
}

bool Fields::is_number(std::string_view gguf) const {
    return source_ == Source::gguf && file_->metadata().get<uint32_t>(key(gguf));
}

void Fields::numbers(std::string_view gguf, std::string_view hf, std::vector<float>& value) {
    if (source_ == Source::write) {
        if (!gguf.empty()) out_->set(key(gguf), MetaArray(value));
        return;
    }
    if (!states(gguf, hf)) return;
    value.clear();
    if (source_ == Source::gguf) {
        auto v = file_->metadata().require<std::vector<float>>(key(gguf));
        if (!v) return fail(v.error());
        value = std::move(*v);
    } else {
        const nlohmann::json& j = *json(hf);
        for (const auto& x : j)
            if (x.is_number()) value.push_back(x.get<float>());
        if (!j.is_array() || value.size() != j.size())
            fail({ErrorCode::corrupt, where_, cat("field '", hf, "' is no list of numbers"), ""});
    }
}

void Fields::counts(std::string_view gguf, std::string_view hf, std::vector<uint32_t>& value) {
    if (source_ == Source::write) {
        if (!gguf.empty()) out_->set(key(gguf), MetaArray(std::vector<int32_t>(value.begin(), value.end())));
        return;
    }
    if (!states(gguf, hf)) return;
    value.clear();
    if (source_ == Source::gguf) {
        auto v = file_->metadata().require<std::vector<int32_t>>(key(gguf));
        if (!v) return fail(v.error());
        for (const int32_t x : *v) value.push_back(static_cast<uint32_t>(std::max(x, 0)));
        return;
    }
    const nlohmann::json& j = *json(hf);
    for (const auto& x : j)
        if (const auto n = from_json<uint32_t>(x)) value.push_back(*n);
    if (!j.is_array() || value.size() != j.size())
        fail({ErrorCode::corrupt, where_, cat("field '", hf, "' is no list of whole numbers"), ""});
}

void Fields::same(std::string_view gguf, std::string_view hf, uint32_t& value) {
    const nlohmann::json* const j = source_ == Source::hf ? json(hf) : nullptr;
    if (!j || !j->is_array()) return optional(gguf, hf, value);
    std::vector<uint32_t> list;
    counts("", hf, list);
    if (list.empty()) return;
    value = list.front();
    if (std::ranges::find_if(list, [&](uint32_t n) { return n != value; }) != list.end())
        fail({ErrorCode::unsupported, where_, cat("field '", hf, "' differs from layer to layer"), ""});
}

namespace {

// Of names with '|' between them.
bool is_one_of(std::string_view name, std::string_view names) {
    return cat("|", names, "|").find(cat("|", name, "|")) != std::string::npos;
}

}  // namespace

void Fields::flags(std::string_view gguf, std::string_view hf, std::string_view on, std::string_view off,
                   std::vector<bool>& value) {
    if (source_ == Source::write) {
        if (!gguf.empty() && !value.empty()) out_->set(key(gguf), MetaArray(value));
        return;
    }
    if (!states(gguf, hf)) return;
    value.clear();
    if (source_ == Source::gguf) {
        auto v = file_->metadata().require<std::vector<int32_t>>(key(gguf));
        if (!v) return fail(v.error());
        for (const int32_t x : *v) value.push_back(x != 0);
        return;
    }
    const nlohmann::json& j = *json(hf);
    if (!j.is_array()) return fail({ErrorCode::corrupt, where_, cat("field '", hf, "' is no list"), ""});
    for (const auto& x : j) {
        if (x.is_boolean() || x.is_number_integer())
            value.push_back(x.is_boolean() ? x.get<bool>() : x.get<int64_t>() != 0);
        else if (x.is_string() &&
                 (is_one_of(x.get<std::string>(), on) || is_one_of(x.get<std::string>(), off)))
            value.push_back(is_one_of(x.get<std::string>(), on));
        else
            return fail({ErrorCode::unsupported, where_,
                         cat("field '", hf, "' asks for ", x.dump().substr(0, 60)),
                         cat("this architecture is implemented for ", on, " and ", off)});
    }
}

void Fields::expect(std::string_view hf, std::initializer_list<std::string_view> allowed) {
    if (source_ != Source::hf) return;
    const nlohmann::json* j = json(hf);
    if (!j) return;
    const std::string text = j->is_string() ? j->get<std::string>() : j->dump();
    std::string list;
    for (const std::string_view a : allowed) {
        if (text == a) return;
        list += cat(list.empty() ? "" : ", ", a);
    }
    fail({ErrorCode::unsupported, where_, cat("field '", hf, "' asks for ", text.substr(0, 60)),
          cat("this architecture is implemented for ", list)});
}

}  // namespace nibble
