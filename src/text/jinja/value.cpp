// Names, truth and nesting of values.
// The rules are Python's, since templates are written for it.
#include "src/text/jinja/value.h"

#include "ggml/base/cat.h"
#include "src/text/jinja/operators.h"

namespace nibble::jinja {

bool Value::as_integer(int64_t& out) const {
    if (const int64_t* i = std::get_if<int64_t>(&data_)) {
        out = *i;
    } else if (const bool* b = std::get_if<bool>(&data_)) {
        out = *b ? 1 : 0;
    } else {
        return false;
    }
    return true;
}

bool Value::as_number(double& out) const {
    int64_t i = 0;
    if (const double* d = real()) {
        out = *d;
    } else if (as_integer(i)) {
        out = static_cast<double>(i);
    } else {
        return false;
    }
    return true;
}

TextRef Value::take_text() {
    TextRef* t = std::get_if<TextRef>(&data_);
    return t ? std::move(*t) : TextRef{};
}

const Value* Dict::find(std::string_view key) const {
    for (const auto& [k, v] : entries) {
        if (const Text* t = k.text(); t && t->view() == key) return &v;
    }
    return nullptr;
}

const Value* Dict::find(const Value& key) const {
    if (const Text* t = key.text()) return find(t->view());
    for (const auto& [k, v] : entries) {
        if (!k.text() && equal(k, key)) return &v;
    }
    return nullptr;
}

std::string_view type_name(const Value& v) {
    switch (v.kind()) {
        case Kind::undefined:
            return "undefined";
        case Kind::none:
            return "None";
        case Kind::boolean:
            return "bool";
        case Kind::integer:
            return "int";
        case Kind::real:
            return "float";
        case Kind::text:
            return "str";
        case Kind::list:
            break;
        case Kind::dict:
            return "dict";
        case Kind::object:
            switch (v.object()->type) {
                case Object::Type::name_space:
                    return "namespace";
                case Object::Type::macro:
                    return "macro";
                case Object::Type::loop:
                    return "loop";
                case Object::Type::bound_method:
                    return "method";
                case Object::Type::function:
                    return "function";
                case Object::Type::cycler:
                    return "cycler";
                case Object::Type::joiner:
                    return "joiner";
            }
    }
    switch (v.list()->flavor) {
        case List::Flavor::list:
            return "list";
        case List::Flavor::tuple:
            return "tuple";
        case List::Flavor::view:
            return "dict view";
        case List::Flavor::generator:
            break;
    }
    return "generator";
}

std::string describe(const Undefined& u) {
    if (!u.name)
        return u.owner.empty() ? "the value is undefined"
                               : cat("this element of the ", u.owner, " is undefined");
    if (u.owner.empty()) return cat("'", *u.name, "' is undefined");
    return cat(u.owner, " has no attribute '", *u.name, "'");
}

bool truthy(const Value& v) {
    switch (v.kind()) {
        case Kind::undefined:
        case Kind::none:
            return false;
        case Kind::boolean:
            return std::get<bool>(v.data());
        case Kind::integer:
            return std::get<int64_t>(v.data()) != 0;
        case Kind::real:
            return std::get<double>(v.data()) != 0;
        case Kind::text:
            return !v.text()->empty();
        case Kind::list:
            return v.list()->flavor == List::Flavor::generator || !v.list()->items.empty();
        case Kind::dict:
            return !v.dict()->entries.empty();
        case Kind::object:
            return true;
    }
    return true;
}

bool is_hashable(const Value& v) {
    if (const List* l = v.list()) {
        if (l->flavor != List::Flavor::tuple) return false;
        for (const Value& item : l->items) {
            if (!is_hashable(item)) return false;
        }
        return true;
    }
    return !v.dict();
}

Extent extent(const Value& v) {
    if (const List* l = v.list()) return l->extent;
    if (const Dict* d = v.dict()) return d->extent;
    if (const Object* o = v.object()) return o->extent;
    // A long string costs as much to compare as many short values.
    if (const Text* t = v.text()) return {0, static_cast<uint32_t>(1 + t->size() / 64)};
    return {};
}

void mark_held(const Value& v) {
    if (List* l = v.list()) l->held = true;
    if (Dict* d = v.dict()) d->held = true;
}

Value no_value() { return None{}; }

Value make_text(std::string bytes, bool untrusted) { return make_text(Text(std::move(bytes), untrusted)); }
// Created mutable, so that `extend` in the evaluator may append in place while it is the only owner.
Value make_text(Text text) { return TextRef(std::make_shared<Text>(std::move(text))); }

}  // namespace nibble::jinja
