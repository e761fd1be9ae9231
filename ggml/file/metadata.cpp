// Conversions behind the metadata getters, and the text form for people.
// A conversion either keeps the value or yields nothing; none truncates.
#include "ggml/file/metadata.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "ggml/base/cat.h"
#include "ggml/file/quote.h"

namespace nibble {
namespace {

template <class T>
constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

// A scalar To from a scalar From, or nothing when the value does not fit.
template <class To, class From>
std::optional<To> convert_number(From v) {
    if constexpr (std::is_same_v<To, bool>) {
        if constexpr (std::is_same_v<From, bool>) return v;
        if constexpr (std::is_integral_v<From>)
            if (v == From{0} || v == From{1}) return v == From{1};
    } else if constexpr (std::is_integral_v<To>) {
        if constexpr (is_number<From> && std::is_integral_v<From>)
            if (std::in_range<To>(v)) return static_cast<To>(v);
    } else if constexpr (is_number<From>) {
        const auto d = static_cast<double>(v);
        if (!std::isfinite(d) || std::abs(d) <= std::numeric_limits<To>::max()) return static_cast<To>(v);
    }
    return {};
}

template <class... F>
struct Overloaded : F... {
    using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // clang 14 does not deduce it by itself

// A vector of To from an array; flags count as the integers 0 and 1 (sliding-window patterns come as both).
template <class To>
std::optional<std::vector<To>> convert_array(const MetaArray& array) {
    using Out = std::optional<std::vector<To>>;
    const auto numbers = []<class From>(const std::vector<From>& items) -> Out {
        std::vector<To> out;
        out.reserve(items.size());
        for (const auto item : items) {
            using Source = std::conditional_t<std::is_same_v<From, bool>, int, From>;
            const auto v = convert_number<To>(static_cast<Source>(item));
            if (!v) return {};
            out.push_back(*v);
        }
        return out;
    };
    return std::visit(Overloaded{numbers, [](const StringList&) -> Out { return {}; },
                                 [](const std::vector<MetaArray>&) -> Out { return {}; }},
                      array.items);
}

template <class T>
constexpr std::string_view expected_name() {
    if constexpr (std::is_same_v<T, bool>) return "true or false";
    if constexpr (std::is_same_v<T, uint32_t>) return "an integer from 0 to 2^32 - 1";
    if constexpr (std::is_same_v<T, int32_t>) return "an integer of 32 bits";
    if constexpr (std::is_same_v<T, uint64_t>) return "an integer from 0";
    if constexpr (std::is_same_v<T, int64_t>) return "an integer";
    if constexpr (std::is_same_v<T, float>) return "a number";
    if constexpr (std::is_same_v<T, std::string_view>) return "a string";
    if constexpr (std::is_same_v<T, Metadata::Strings>) return "an array of strings";
    if constexpr (std::is_same_v<T, std::vector<float>>) return "an array of numbers";
    return "an array of integers";
}

template <class T>
std::optional<T> convert(const MetaValue& value) {
    if constexpr (std::is_same_v<T, std::string_view>) {
        if (const auto* s = std::get_if<std::string>(&value)) return *s;
    } else if constexpr (std::is_same_v<T, Metadata::Strings>) {
        if (const auto* a = std::get_if<MetaArray>(&value))
            if (const auto* list = std::get_if<StringList>(&a->items)) return list->views();
    } else if constexpr (std::is_arithmetic_v<T>) {
        return std::visit(
            []<class From>(const From& v) -> std::optional<T> {
                if constexpr (std::is_arithmetic_v<From>) return convert_number<T>(v);
                return {};
            },
            value);
    } else {
        if (const auto* a = std::get_if<MetaArray>(&value)) return convert_array<typename T::value_type>(*a);
    }
    return {};
}

std::string describe_array(const MetaArray& array, size_t max_items, size_t max_chars);

template <class T>
std::string describe_item(const T& v, size_t max_items, size_t max_chars) {
    if constexpr (std::is_same_v<T, MetaArray>) {
        return describe_array(v, max_items, max_chars);
    } else if constexpr (std::is_arithmetic_v<T>) {
        return cat(v);
    } else {
        return quote(v, max_chars);
    }
}

std::string describe_array(const MetaArray& array, size_t max_items, size_t max_chars) {
    std::string out = cat(name(array.type()), "[", array.size(), "] [");
    const auto list = [&](const auto& items) {
        size_t n = 0;
        for (const auto& item : items) {
            if (n > 0) out += ", ";
            if (n++ == max_items) {
                out += "…";
                break;
            }
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(items)>, std::vector<bool>>) {
                out += item ? "true" : "false";
            } else {
                out += describe_item(item, max_items, max_chars);
            }
        }
    };
    std::visit(Overloaded{[&](const StringList& s) { list(s.views()); }, [&](const auto& v) { list(v); }},
               array.items);
    return out += ']';
}

}  // namespace

std::string_view name(MetaType type) {
    constexpr std::array<std::string_view, meta_type_count> names = {
        "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
    const auto i = static_cast<size_t>(type);
    return i < names.size() ? names[i] : "unknown";
}

StringList::StringList(std::span<const std::string> strings) {
    size_t total = 0;
    for (const std::string& s : strings) total += s.size();
    auto block = std::make_shared<std::string>();
    block->reserve(total);  // no growth below, so that the views stay valid
    views_.reserve(strings.size());
    for (const std::string& s : strings) {
        views_.emplace_back(block->data() + block->size(), s.size());
        *block += s;
    }
    owner_ = std::move(block);
}

MetaArray::MetaArray(const MetaArray& other) = default;
MetaArray::MetaArray(MetaArray&& other) noexcept = default;
MetaArray& MetaArray::operator=(const MetaArray& other) = default;
MetaArray& MetaArray::operator=(MetaArray&& other) noexcept = default;
MetaArray::~MetaArray() = default;

size_t MetaArray::size() const {
    return std::visit([](const auto& v) { return v.size(); }, items);
}

bool MetaArray::operator==(const MetaArray& other) const { return items == other.items; }

std::string describe(const MetaValue& value, size_t max_items, size_t max_chars) {
    return std::visit([&](const auto& v) { return describe_item(v, max_items, max_chars); }, value);
}

const MetaValue* Metadata::find(std::string_view key) const {
    const auto it = index_.find(key);
    return it == index_.end() ? nullptr : &entries_[it->second].value;
}

bool Metadata::insert(std::string key, MetaValue value) {
    if (!index_.emplace(key, entries_.size()).second) return false;
    entries_.push_back({std::move(key), std::move(value)});
    return true;
}

void Metadata::set(std::string_view key, MetaValue value) {
    const auto it = index_.find(key);
    if (it == index_.end()) {
        insert(std::string(key), std::move(value));
    } else {
        entries_[it->second].value = std::move(value);
    }
}

bool Metadata::erase(std::string_view key) {
    const auto it = index_.find(key);
    if (it == index_.end()) return false;
    const size_t at = it->second;
    index_.erase(it);
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
    for (auto& [k, i] : index_)
        if (i > at) --i;
    return true;
}

template <class T>
std::optional<T> Metadata::get(std::string_view key) const {
    const MetaValue* value = find(key);
    return value ? convert<T>(*value) : std::nullopt;
}

template <class T>
Result<T> Metadata::require(std::string_view key) const {
    const MetaValue* value = find(key);
    if (!value)
        return Error{ErrorCode::not_found, where_, cat("metadata key ", quote(key), " is missing"),
                     "the file is incomplete or was written for another program"};
    if (auto v = convert<T>(*value)) return *std::move(v);
    return Error{ErrorCode::corrupt, where_,
                 cat("metadata key ", quote(key), " must be ", expected_name<T>(), ", not ",
                     type_of(*value) == MetaType::array ? "" : cat(name(type_of(*value)), " "),
                     describe(*value, 2, 24)),
                 "the file is damaged or was written wrongly"};
}

template std::optional<uint32_t> Metadata::get<uint32_t>(std::string_view) const;
template std::optional<int32_t> Metadata::get<int32_t>(std::string_view) const;
template std::optional<uint64_t> Metadata::get<uint64_t>(std::string_view) const;
template std::optional<int64_t> Metadata::get<int64_t>(std::string_view) const;
template std::optional<float> Metadata::get<float>(std::string_view) const;
template std::optional<bool> Metadata::get<bool>(std::string_view) const;
template std::optional<std::string_view> Metadata::get<std::string_view>(std::string_view) const;
template std::optional<Metadata::Strings> Metadata::get<Metadata::Strings>(std::string_view) const;
template std::optional<std::vector<int32_t>> Metadata::get<std::vector<int32_t>>(std::string_view) const;
template std::optional<std::vector<int64_t>> Metadata::get<std::vector<int64_t>>(std::string_view) const;
template std::optional<std::vector<float>> Metadata::get<std::vector<float>>(std::string_view) const;
template Result<uint32_t> Metadata::require<uint32_t>(std::string_view) const;
template Result<int32_t> Metadata::require<int32_t>(std::string_view) const;
template Result<uint64_t> Metadata::require<uint64_t>(std::string_view) const;
template Result<int64_t> Metadata::require<int64_t>(std::string_view) const;
template Result<float> Metadata::require<float>(std::string_view) const;
template Result<bool> Metadata::require<bool>(std::string_view) const;
template Result<std::string_view> Metadata::require<std::string_view>(std::string_view) const;
template Result<Metadata::Strings> Metadata::require<Metadata::Strings>(std::string_view) const;
template Result<std::vector<int32_t>> Metadata::require<std::vector<int32_t>>(std::string_view) const;
template Result<std::vector<int64_t>> Metadata::require<std::vector<int64_t>>(std::string_view) const;
template Result<std::vector<float>> Metadata::require<std::vector<float>>(std::string_view) const;

}  // namespace nibble
