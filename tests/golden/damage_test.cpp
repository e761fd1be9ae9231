// Golden models whose hyperparameters and tensors are damaged at random, with a fixed seed: each is refused
// with a reason, or it runs; and none asks for more memory than there is said to be.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <random>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/fuzz_rounds.h"
#include "tests/golden/checkpoints.h"
#include "tests/golden/single_sequence.h"
#include "tests/small_machine.h"

using namespace nibble;
namespace fs = std::filesystem;

namespace {

constexpr size_t memory = size_t{64} << 20;

struct StrictMachine : SmallMachine {
    StrictMachine() : SmallMachine(memory) {}
    Result<Buffer> allocate(size_t bytes, std::string_view purpose) override {
        CHECK(bytes <= memory);
        return real->allocate(std::min(bytes, memory), purpose);
    }
};

class Damage {
  public:
    explicit Damage(uint64_t seed) : random_(seed) {}

    size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(random_() % n); }
    template <class T>
    const T& one_of(const std::vector<T>& list) {
        return list[below(list.size())];
    }

    int64_t near(int64_t v) {
        constexpr int64_t nasty[] = {0,         1,         2,          -1,        7,         64,      1 << 16,
                                     INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, 1 << 24, 3};
        switch (below(6)) {
            case 0:
                return v < INT64_MAX ? v + 1 : 0;
            case 1:
                return v > INT64_MIN ? v - 1 : 0;
            case 2:
                return v > INT64_MAX / 2 || v < 0 ? 0 : v * 2;
            case 3:
                return v / 2;
            default:
                return nasty[below(std::size(nasty))];
        }
    }
    double near(double v) {
        constexpr double inf = std::numeric_limits<double>::infinity();
        const double nasty[] = {0, -1, 1, inf, -inf, std::nan(""), 1e-38, 1e38, 1e300, v * 2, v / 2, -v};
        return nasty[below(std::size(nasty))];
    }

    void change(MetaValue& value) {
        std::visit([this](auto& v) { change_value(v); }, value);
    }
    void change(nlohmann::json& j) {
        if (j.is_number_integer())
            j = near(j.get<int64_t>());
        else if (j.is_number())
            j = near(j.get<double>());
        else if (j.is_boolean())
            j = !j.get<bool>();
        else if (j.is_array() && !j.empty() && below(4) == 0)
            j.erase(below(j.size()));
        else if (j.is_structured() && !j.empty() && below(16) != 0)
            change(*std::next(j.begin(), static_cast<std::ptrdiff_t>(below(j.size()))));
        else
            j = std::vector<nlohmann::json>{nullptr, "x", 5, 0.5, -3, nlohmann::json::array({1})}[below(6)];
    }

    // One of the keys that begin so.
    void change(Metadata& m, std::string_view prefix = "") {
        std::vector<std::string> keys;
        for (const Metadata::Entry& e : m.entries())
            if (e.key.starts_with(prefix) && e.key != "general.architecture") keys.push_back(e.key);
        const std::string key = one_of(keys);
        if (below(12) == 0) return (void)m.erase(key);
        MetaValue value = *m.find(key);
        change(value);
        m.set(key, std::move(value));
    }

    void change(std::vector<TensorInfo>& tensors) {
        const size_t i = below(tensors.size());
        TensorInfo& t = tensors[i];
        const std::span<const std::byte> before = t.data;
        switch (below(6)) {
            case 0:
                return (void)tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
            case 1:
                return (void)(t.name += below(2) ? ".x" : "s");
            case 2:
                std::swap(t.ne[below(4)], t.ne[below(4)]);
                break;
            case 3: {
                int64_t& n = t.ne[below(static_cast<size_t>(t.n_dims) + 1) % 4];
                n = std::max<int64_t>(0, near(n));
                break;
            }
            case 4:
                t.type = all_types()[below(all_types().size())].type;
                break;
            default:
                break;
        }
        while (t.n_dims < 4 && t.ne[static_cast<size_t>(t.n_dims)] != 1) ++t.n_dims;
        const auto bytes = tensor_bytes(t.type, t.ne);
        if (!bytes || *bytes > memory)
            return (void)tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
        auto& data = memory_.emplace_back(*bytes);
        const bool new_numbers = below(3) == 0;
        for (size_t b = 0; b < data.size(); ++b)
            data[b] =
                before.empty() || new_numbers ? static_cast<std::byte>(random_()) : before[b % before.size()];
        t.data = data;
    }

  private:
    template <class T>
    void change_value(T& v) {
        if constexpr (std::is_same_v<T, bool>)
            v = !v;
        else if constexpr (std::is_integral_v<T>)
            v = static_cast<T>(near(static_cast<int64_t>(v)));
        else if constexpr (std::is_floating_point_v<T>)
            v = static_cast<T>(near(static_cast<double>(v)));
        else if constexpr (std::is_same_v<T, std::string>)
            v = "x";
        else
            std::visit([this](auto& items) { this->change_items(items); }, v.items);
    }
    template <class T>
    void change_items(std::vector<T>& items) {
        const size_t at = below(items.size());
        if (items.empty() || below(4) == 0)
            items.emplace_back();
        else if (below(3) == 0)
            items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
        else if constexpr (std::is_same_v<T, bool>)
            items[at] = !items[at];
        else if constexpr (std::is_arithmetic_v<T>)
            change_value(items[at]);
    }
    void change_items(StringList& items) {
        std::vector<std::string> list(items.views().begin(), items.views().end());
        for (size_t n = 1 + below(3); n > 0 && !list.empty(); --n) {
            const size_t at = below(list.size());
            switch (below(6)) {
                case 0:
                    list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
                    break;
                case 1:
                    list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), one_of(list));
                    break;
                case 2:
                    list[at] = one_of(list);
                    break;
                case 3:
                    list.resize(at);
                    break;
                default:
                    list[at] = one_of(std::vector<std::string>{"", " ", "x", "<0xZZ>", "<0x41>", "\xff\xfe",
                                                               "a b c", "\xE2\x96\x81",
                                                               std::string(3000, 'y'), "(((", "[", "(a*)*b"});
            }
        }
        items = StringList(list);
    }

    std::mt19937_64 random_;
    std::vector<std::vector<std::byte>> memory_;
};

// A checkpoint as a GGUF file; its metadata without the vocabulary.
struct Whole {
    TensorFile file;
    Metadata metadata;
    Vocab vocab;
};

// Those that were asked for.
class Wholes {
  public:
    const Whole& of(const fs::path& folder) {
        const auto known = wholes_.find(folder);
        return known != wholes_.end() ? known->second : wholes_.emplace(folder, made(folder)).first->second;
    }
    const fs::path& dir() const { return scratch_.dir; }

  private:
    Whole made(const fs::path& folder) const {
        auto file = TensorFile::open(converted(folder, "f16", scratch_));
        REQUIRE(file);
        auto vocab = read_vocab(*file);
        REQUIRE(vocab);
        Metadata metadata(file->path().string());
        for (const Metadata::Entry& e : file->metadata().entries())
            if (!e.key.starts_with("tokenizer.")) metadata.set(e.key, e.value);
        return {std::move(*file), std::move(metadata), std::move(*vocab)};
    }

    Scratch scratch_;
    std::map<fs::path, Whole> wholes_;
};

// The folder with another config.json.
fs::path with_config(const fs::path& folder, const nlohmann::json& config, const fs::path& to) {
    fs::remove_all(to);
    fs::create_directories(to);
    for (const auto& e : fs::directory_iterator(folder))
        if (e.path().filename() != "config.json") fs::create_symlink(e.path(), to / e.path().filename());
    std::ofstream(to / "config.json") << config;
    return to;
}

// Whether it became a file of 4 bits.
bool convert_damaged(TensorFile file, const Vocab& vocab, const fs::path& to) {
    const auto converts = [&]() -> Result<void> {
        const auto model = NIBBLE_TRY(open_model(std::move(file)));
        const ConvertPlan plan =
            NIBBLE_TRY(plan_conversion(*model, {NIBBLE_TRY(find_recipe("int4")), true, {}}));
        ThreadPool pool(1);
        NIBBLE_TRY(convert(*model, vocab, plan, to, pool));
        return {};
    };
    const auto r = converts();
    CHECK(r.ok() == fs::exists(to));
    if (!r) CHECK_FALSE(r.error().what.empty());
    fs::remove(to);
    return r.ok();
}

// Whether it ran.
bool run_damaged(TensorFile file, RunnerConfig config, const std::shared_ptr<Backend>& backend) {
    auto s = SingleSequence::load(std::move(file), config, backend);
    if (!s) {
        CHECK_FALSE(s.error().what.empty());
        return false;
    }
    const ModelSpec& spec = s->runner().spec();
    const auto token = [&](int32_t i) { return i % std::max(1, spec.n_vocab); };
    const int32_t fits = std::min(s->runner().config().ctx, 7);
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < fits; ++i) tokens.push_back(token(17 * i));
    const auto first = std::span(tokens).first(static_cast<size_t>(fits + 1) / 2);
    CHECK(s->feed(first));
    for (const int32_t t : std::span(tokens).subspan(first.size())) CHECK(s->feed(std::span(&t, 1)));
    return true;
}

}  // namespace

TEST_CASE("damaged models are refused or run") {
    const FuzzRounds rounds(400);
    const auto all = golden_checkpoints();
    const std::shared_ptr<Backend> backend = std::make_shared<StrictMachine>();
    Wholes wholes;
    size_t ran = 0, became = 0;
    for (uint64_t round = rounds.first; round < rounds.end; ++round) {
        CAPTURE(round);
        Damage damage(round);
        const fs::path& folder = damage.one_of(all);
        const Whole& whole = wholes.of(folder);
        const auto damaged = [&]() -> Result<TensorFile> {
            if (damage.below(3) == 0) {
                nlohmann::json config = TensorFile::open(folder)->config();
                for (size_t i = 1 + damage.below(2); i > 0; --i) damage.change(config);
                return TensorFile::open(with_config(folder, config, wholes.dir() / "folder"));
            }
            Metadata metadata = whole.metadata;
            const auto list = whole.file.tensors();
            std::vector<TensorInfo> tensors(list.begin(), list.end());
            for (size_t i = damage.below(3); i > 0; --i) damage.change(tensors);
            for (size_t i = damage.below(3); i > 0; --i) damage.change(metadata);
            return TensorFile::in_memory(std::move(metadata), std::move(tensors), nullptr, false);
        };
        auto file = damaged();
        if (!file) continue;
        if (damage.below(4) == 0) {
            became += convert_damaged(std::move(*file), whole.vocab, wholes.dir() / "made.gguf");
            continue;
        }
        RunnerConfig config;
        config.ctx = damage.below(4) == 0 ? 0 : 40;
        config.predict = true;
        config.k_type = damage.one_of(std::vector{Type::f16, Type::bf16, Type::q8_0, Type::q4_0});
        config.v_type = damage.one_of(std::vector{Type::f16, Type::bf16, Type::q8_0, Type::q4_0});
        ran += run_damaged(std::move(*file), config, backend);
    }
    CHECK(became > rounds.n() / 100);
    CHECK(ran > rounds.n() / 20);
    CHECK(ran < rounds.n() / 2);
}

TEST_CASE("damaged vocabularies are refused or tell tokens apart") {
    const FuzzRounds rounds(400);
    auto some = golden_checkpoints();
    some.resize(std::min<size_t>(some.size(), 12));
    Wholes wholes;
    constexpr std::string_view text =
        "The king's 12 geese\n\n  said: \xC3\xA9\xE2\x96\x81<s></s><|im_end|>\xff!";
    size_t read = 0;
    for (uint64_t round = rounds.first; round < rounds.end; ++round) {
        CAPTURE(round);
        Damage damage(round);
        Metadata metadata = wholes.of(damage.one_of(some)).file.metadata();
        for (size_t i = 1 + damage.below(2); i > 0; --i) damage.change(metadata, "tokenizer.");
        const auto file = TensorFile::in_memory(std::move(metadata), {}, nullptr, false);
        REQUIRE(file);
        const auto tokenizer = read_tokenizer(*file);
        if (!tokenizer) {
            CHECK_FALSE(tokenizer.error().what.empty());
            continue;
        }
        ++read;
        for (const bool special : {false, true}) {
            const std::vector<Token> tokens = tokenizer->encode(text, {special, true});
            for (const Token t : tokens) CHECK((t >= 0 && static_cast<size_t>(t) < tokenizer->n_vocab()));
            CHECK(tokenizer->decode(tokens).size() < 64 * 3000);
        }
    }
    CHECK(read > rounds.n() / 20);
    CHECK(read < rounds.n());
}
