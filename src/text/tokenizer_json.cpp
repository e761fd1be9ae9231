// A handler of nlohmann's SAX parser that builds the document and takes the two long lists aside. Its parser
// with a callback would do in fewer lines, but walks a whole list for every object in it.
#include "src/text/tokenizer_json.h"

#include "ggml/base/cat.h"
#include "src/text/bounded_json.h"

namespace nibble {
namespace {

using Json = nlohmann::json;

// What a value is, by the names of the objects around it.
enum class Part { other, ids, merges };

class Builder final : public Json::json_sax_t {
  public:
    explicit Builder(TokenizerJson& out) : out_(out) {}

    bool null() override { return value(nullptr); }
    bool boolean(bool v) override { return value(v); }
    bool number_integer(int64_t v) override { return value(v); }
    bool number_float(double v, const std::string&) override { return value(v); }
    bool binary(Json::binary_t&) override { return false; }  // no JSON text holds any

    bool number_unsigned(uint64_t v) override {
        if (!in(Part::ids)) return value(v);
        out_.ids.emplace_back(std::move(key_), v);
        return true;
    }

    bool string(std::string& v) override {
        if (!in(Part::merges) || depth_ > list_depth + 1) return value(std::move(v));
        if (depth_ == list_depth || n_parts_ == 0)
            out_.merges.push_back(std::move(v));
        else
            out_.merges.back().append(" ").append(v);
        if (depth_ > list_depth) ++n_parts_;
        return true;
    }

    bool key(std::string& name) override {
        if (depth_ == 1) {
            in_model_ = name == "model";
            part_ = Part::other;
            if (in_model_) out_.ids.clear(), out_.merges.clear();  // of two of one name the last one counts
        } else if (depth_ == 2 && in_model_) {
            part_ = name == "vocab" ? Part::ids : name == "merges" ? Part::merges : Part::other;
            if (part_ == Part::ids) out_.ids.clear();
            if (part_ == Part::merges) out_.merges.clear();
        }
        key_ = std::move(name);
        return true;
    }

    bool start_object(size_t) override { return start(Json::object()); }
    bool end_object() override { return end(); }
    bool start_array(size_t) override {
        if (!in(Part::merges) || depth_ > list_depth) return start(Json::array());
        return enter();
    }
    bool end_array() override {
        if (in(Part::merges) && depth_ == list_depth + 1 && n_parts_ != 2) tell_merge();
        return end();
    }

    // Json's own exceptions, for parse_bounded().
    bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
        if (const auto* syntax = dynamic_cast<const Json::parse_error*>(&e)) throw *syntax;
        if (const auto* range = dynamic_cast<const Json::out_of_range*>(&e)) throw *range;
        return false;
    }

  private:
    static constexpr int list_depth = 3;  // objects and lists around a member of model.merges or model.vocab

    bool in(Part part) const { return part_ == part && depth_ >= list_depth; }

    // A value of the document, or one that does not belong into a list.
    bool value(Json v) {
        if (in(Part::ids)) {
            tell(cat("token '", key_, "' has the impossible id ", v.dump()));
        } else if (in(Part::merges)) {
            tell_merge();
        } else {
            put(std::move(v));
        }
        return true;
    }

    Json& put(Json v) {
        if (open_.empty()) return out_.root = std::move(v);
        if (open_.back()->is_array()) {
            open_.back()->push_back(std::move(v));
            return open_.back()->back();
        }
        return (*open_.back())[key_] = std::move(v);
    }

    bool start(Json v) {
        if (in(Part::ids) || in(Part::merges))
            value(std::move(v));
        else
            open_.push_back(&put(std::move(v)));
        return enter();
    }
    bool enter() {
        n_parts_ = 0;
        ++depth_;
        return true;
    }
    bool end() {
        --depth_;
        if (static_cast<size_t>(depth_) < open_.size()) open_.pop_back();
        return true;
    }

    void tell_merge() { tell("model.merges holds something that is no pair"); }
    void tell(std::string what) {
        if (out_.wrong.empty()) out_.wrong = std::move(what);
    }

    TokenizerJson& out_;
    std::vector<Json*> open_;  // what is being read of the document, the outermost first
    int depth_ = 0;            // objects and lists around what is read next, those of the lists too
    bool in_model_ = false;
    Part part_ = Part::other;
    std::string key_;
    int n_parts_ = 0;  // of the pair at hand, or of what is there in its place
};

}  // namespace

Result<TokenizerJson> parse_tokenizer_json(std::string_view text, const std::string& where, int levels) {
    return parse_bounded(text, where, levels, ErrorCode::corrupt, [](std::string_view all) {
        TokenizerJson out;
        Builder builder(out);
        Json::sax_parse(all, &builder);
        return out;
    });
}

}  // namespace nibble
