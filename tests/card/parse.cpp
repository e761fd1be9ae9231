// From PTX to kernels: registers become slots, names addresses, labels positions, opcodes handlers.
// Throws Fault for what it does not know, with the line.
#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>

#include "ggml/base/cat.h"
#include "ggml/base/checked.h"
#include "ggml/base/split.h"
#include "tests/card/machine.h"
#include "tests/card/ptx_text.h"

namespace nibble::card {
namespace {

// Parts of an opcode that change nothing here: caches, orders of memory, flushed denormals, what is said of
// threads (instructions of the whole warp are found by their names).
constexpr std::string_view without_effect[] = {"uni",     "sync",    "aligned", "nc",  "volatile", "relaxed",
                                               "gpu",     "sys",     "cta",     "cg",  "ca",       "release",
                                               "acquire", "acq_rel", "weak",    "ftz", "v2",       "v4"};

std::string plain_name(const std::vector<std::string>& parts) {
    std::string name = parts[0];
    for (size_t n = 1; n < parts.size(); ++n)
        if (std::ranges::find(without_effect, parts[n]) == std::end(without_effect) &&
            parts[n].find("::") == std::string::npos)
            name += "." + parts[n];
    return name;
}

void nothing(Machine&, const Instruction&, Lanes) {}

// Names of a module: its variables in device memory, and shared memory that a launch sizes.
struct Module {
    std::unordered_map<std::string, uint64_t> variables;
    std::set<std::string> launch_shared;

    void add(std::string_view declaration) {
        const Variable v = variable(declaration);
        std::byte* const p = allocate(v.bytes);
        std::memset(p, 0, v.bytes);
        std::string_view values = v.initial;
        if (values.starts_with('{')) values = values.substr(1, values.rfind('}') - 1);
        std::byte* to = p;
        for (const std::string& text : split_operands(values)) {
            const uint64_t bits = number(text);
            std::memcpy(to, &bits, v.element);
            to += v.element;
        }
        variables[v.name] = reinterpret_cast<uint64_t>(p);
    }
};

class KernelParser {
  public:
    KernelParser(const Module& module, int line) : module_(module), line_(line) {}

    Kernel parse(std::string_view head, std::string_view body) {
        const size_t open = head.find('(');
        const std::string_view before = trimmed(head.substr(0, open));
        kernel_.name = before.substr(before.find_last_of(" \t\n") + 1);
        if (open != std::string_view::npos)
            parameters(head.substr(open + 1, head.find(')', open) - open - 1));
        if (const size_t at = head.find(".maxntid"); at != std::string_view::npos)
            kernel_.most_threads = std::stoi(std::string(trimmed(head.substr(at + 8, 16))));
        line_ += static_cast<int>(std::ranges::count(head, '\n'));
        for (const char* special : special_registers) slots_[special] = kernel_.n_registers++;
        statements(body);
        Instruction end;
        end.run = nothing;
        end.flow = Flow::exit;
        kernel_.code.push_back(end);
        for (const auto& [at, label] : jumps_) {
            if (!labels_.contains(label)) throw Fault(cat("no label ", label));
            kernel_.code[at].target = labels_[label];
        }
        return std::move(kernel_);
    }

  private:
    void parameters(std::string_view list) {
        for (const std::string& text : split_operands(list)) {
            const Variable v = variable(text);
            const size_t at = round_up(kernel_.parameter_bytes, v.align);
            kernel_.parameters.push_back({v.name, at, v.bytes});
            names_[v.name] = at;
            kernel_.parameter_bytes = at + v.bytes;
        }
    }

    void statements(std::string_view body) {
        for (size_t i = 0; i < body.size();) {
            if (body[i] == '\n') ++line_;
            if (std::isspace(static_cast<unsigned char>(body[i])) || body[i] == '{' || body[i] == '}') {
                ++i;
                continue;
            }
            size_t end = i;  // "::" is within an opcode, ":" after a label
            while (body[end] != ';' && (body[end] != ':' || body[end + 1] == ':' || body[end - 1] == ':'))
                ++end;
            const std::string_view text = trimmed(body.substr(i, end - i));
            if (body[end] == ':')
                labels_[std::string(text)] = static_cast<int>(kernel_.code.size());
            else
                statement(text);
            line_ += static_cast<int>(std::ranges::count(body.substr(i, end - i), '\n'));
            i = end + 1;
        }
    }

    void statement(std::string_view s) {
        if (s.starts_with(".reg")) return registers(trimmed(s.substr(4)));
        if (s.starts_with(".pragma") || s.starts_with(".loc ")) return;
        if (s.starts_with(".param")) {  // of a call: a register for each of its up to two values
            const Variable v = variable(s);
            for (const char* offset : {"+0", "+8"}) slots_[v.name + offset] = kernel_.n_registers++;
            return;
        }
        if (s.starts_with(".local") || s.starts_with(".shared")) {
            const Variable v = variable(s);
            size_t& bytes = s.starts_with(".local") ? kernel_.local_bytes : kernel_.static_shared;
            bytes = round_up(bytes, std::max(v.align, size_t{16}));
            names_[v.name] = bytes;
            bytes = round_up(bytes + v.bytes, size_t{16});
            return;
        }
        Instruction i;
        i.line = line_;
        i.text = s;
        std::ranges::replace(i.text, '\n', ' ');
        if (s[0] == '@') {
            const size_t end = s.find_first_of(" \t");
            i.guard_negated = s[1] == '!';
            i.guard = slot(s.substr(1 + i.guard_negated, end - 1 - i.guard_negated));
            s = trimmed(s.substr(end));
        }
        const size_t end = std::min(s.find_first_of(" \t\n{"), s.size());
        decode(i, split(s.substr(0, end), '.'), split_operands(s.substr(end)));
        kernel_.code.push_back(std::move(i));
    }

    // ".b32 %r<23>" or ".f16 low, high"
    void registers(std::string_view s) {
        for (const std::string& text : split_operands(s.substr(s.find_first_of(" \t")))) {
            const size_t many = text.find('<');
            if (many == std::string::npos) {
                slots_[text] = kernel_.n_registers++;
                continue;
            }
            const int n = std::stoi(text.substr(many + 1));
            for (int k = 0; k < n; ++k) slots_[cat(text.substr(0, many), k)] = kernel_.n_registers++;
        }
    }

    [[noreturn]] void unknown(const Instruction& i) const { throw Fault(cat("line ", line_, ": ", i.text)); }

    int slot(std::string_view name) const {
        const auto it = slots_.find(std::string(name));
        if (it == slots_.end()) throw Fault(cat("line ", line_, ": there is no register ", name));
        return it->second;
    }
    bool is_register(std::string_view name) const { return slots_.contains(std::string(name)); }

    uint64_t address(std::string_view name) const {
        const std::string n(name);
        if (const auto it = module_.variables.find(n); it != module_.variables.end()) return it->second;
        if (const auto it = names_.find(n); it != names_.end()) return it->second;
        if (module_.launch_shared.contains(n)) return kernel_.static_shared;
        throw Fault(cat("line ", line_, ": there is no ", name));
    }

    int constant(uint64_t bits) {
        const auto it = constants_.find(bits);
        if (it != constants_.end()) return ~it->second;
        const auto n = static_cast<int>(constants_.size());
        kernel_.constants.insert(kernel_.constants.end(), warp_size, bits);
        constants_[bits] = n;
        return ~n;
    }

    int source(std::string_view s) {
        if (s == "_") return no_slot;
        if (is_register(s)) return slot(s);
        return constant(is_number(s) ? number(s) : address(s));
    }

    // [register + n], [name + n] or [n]; names of a call's values are registers themselves.
    void memory_operand(Instruction& i, size_t at, std::string_view s) {
        s = trimmed(s.substr(1, s.size() - 2));
        const size_t plus = s.find('+');
        const std::string_view base = trimmed(s.substr(0, plus));
        i.add[at] =
            plus == std::string_view::npos ? 0 : static_cast<int64_t>(number(trimmed(s.substr(plus + 1))));
        i.in[at] = is_register(base) ? slot(base) : no_slot;
        if (!is_register(base))
            i.add[at] += static_cast<int64_t>(is_number(base) ? number(base) : address(base));
    }

    // Operands in the order in which they are written, those in braces and "d|p" one by one.
    void operands(Instruction& i, const std::vector<std::string>& list, size_t n_out) {
        size_t out = 0, in = 0;
        for (size_t n = 0; n < list.size(); ++n) {
            const std::string& s = list[n];
            std::vector<std::string> parts{s};
            if (s[0] == '{') parts = split_operands(std::string_view(s).substr(1, s.size() - 2));
            if (n < n_out && s.find('|') != std::string::npos) parts = split(s, '|');
            if (s[0] == '[') {
                memory_operand(i, in++, s);
                continue;
            }
            for (const std::string& part : parts) {
                size_t& at = n < n_out ? out : in;
                if (at >= (n < n_out ? i.out.size() : i.in.size())) unknown(i);
                (n < n_out ? i.out[at] : i.in[at]) = source(part);
                ++at;
            }
        }
        i.elements = static_cast<int>(n_out ? out : in - 1);
    }

    bool call_value(Instruction& i, const std::vector<std::string>& parts,
                    const std::vector<std::string>& o) {
        const bool load = parts[0] == "ld";
        if ((!load && parts[0] != "st") || parts[1] != "param") return false;
        const std::string& place = o[load ? 1 : 0];
        const std::string name = place.substr(1, place.size() - 2);
        if (!is_register(name) || name.find('+') == std::string::npos) return false;
        i.out[0] = slot(load ? o[0] : name);
        i.in[0] = load ? slot(name) : source(o[1]);
        i.run = elementwise_handler("mov.b64");
        return true;
    }

    void decode(Instruction& i, std::vector<std::string> parts, std::vector<std::string> o) {
        const std::string root = parts[0];
        i.run = nothing;
        if (root == "ret" || root == "exit") {
            i.flow = Flow::exit;
            return;
        }
        if (root == "bra") {
            i.flow = Flow::branch;
            jumps_.emplace_back(kernel_.code.size(), o[0]);
            return;
        }
        if (root == "bar") {
            i.flow = parts[1] == "warp" ? Flow::whole_warp : Flow::barrier;
            if (i.flow == Flow::barrier && o != std::vector<std::string>{"0"}) unknown(i);
            if (i.flow == Flow::whole_warp && o != std::vector<std::string>{"-1"}) unknown(i);
            return;
        }
        // Threads run one after the other, so memory is always in order; and launches do not really overlap.
        const bool proxy = root == "fence" && parts[1] == "proxy";
        if (root == "membar" || (root == "fence" && !proxy) || parts.back() == "launch_dependents") return;
        // What is read as constant no launch may write; and copies begin with the weights.
        const bool bulk = root == "cp" && parts[2] == "bulk";
        const auto has = [&](std::string_view part) { return std::ranges::find(parts, part) != parts.end(); };
        // Of copies in one piece those of weights have a hint for the cache.
        i.early = (root == "cp" && (!bulk || has("L2::cache_hint"))) || has("nc");
        if (call_value(i, parts, o)) return;
        if (root == "call") {
            i.run = elementwise_handler("call." + o[1]);
            const auto result = o[0].substr(1, o[0].size() - 2), argument = o[2].substr(1, o[2].size() - 2);
            i.out = {slot(cat(result, "+0")), slot(cat(result, "+8"))};
            i.in[0] = slot(cat(trimmed(argument), "+0"));
            if (!i.run) unknown(i);
            return;
        }
        if (root == "mov" && o[0][0] == '{') parts[0] = "unpack";
        if (root == "mov" && o[1][0] == '{') parts[0] = "pack";
        if ((root == "cp" && parts[2] == "wait_group") || (root == "wgmma" && parts[1] == "wait_group")) {
            i.add[0] = static_cast<int64_t>(number(o[0]));
            o.clear();
        }
        if (root == "wgmma" && parts[1] == "mma_async") {
            for (const std::string& r : split_operands(std::string_view(o[0]).substr(1, o[0].size() - 2)))
                i.sums.push_back(slot(r));
            o.erase(o.begin());
        }
        if (root == "cp" && !bulk &&
            o.size() > 2) {  // copies have one size; how much of it is read may follow
            if (o[2] != "16") unknown(i);
            o.erase(o.begin() + 2);
            i.in[2] = no_slot;
        }
        const bool no_result = (root == "mbarrier" && parts[1] == "init") || root == "st" || root == "red" ||
                               root == "cp" || root == "wgmma" || root == "fence";
        operands(i, o, no_result ? 0 : 1);
        const std::string name = plain_name(parts);
        if (name.ends_with(".pred") && is_number(o.back()))
            i.in[0] = constant(number(o.back()) ? ~uint64_t{0} : 0);
        i.run = elementwise_handler(name);
        if (!i.run) i.run = access_handler(name);
        if (!i.run) i.run = copy_barrier_handler(name);
        if ((!i.run && !proxy) || root == "ldmatrix") i.flow = Flow::whole_warp;
        if (!i.run) i.run = warp_handler(name);
        if (!i.run) i.run = warpgroup_handler(name);
        if (!i.run) unknown(i);
    }

    const Module& module_;
    int line_;
    Kernel kernel_;
    std::unordered_map<std::string, int> slots_, labels_;
    std::unordered_map<std::string, uint64_t> names_;  // addresses of parameters, local and shared memory
    std::unordered_map<uint64_t, int> constants_;
    std::vector<std::pair<size_t, std::string>> jumps_;
};

}  // namespace

std::vector<Kernel> parse_module(std::string_view ptx) {
    const std::string text = without_comments(ptx);
    const std::string_view all = text;
    Module module;
    std::vector<Kernel> kernels;
    int line = 1;
    for (size_t i = 0; i < all.size();) {
        if (std::isspace(static_cast<unsigned char>(all[i]))) {
            line += all[i++] == '\n';
            continue;
        }
        const auto starts = [&](std::string_view s) { return all.substr(i).starts_with(s); };
        size_t end = i;
        if (starts(".version") || starts(".target") || starts(".address_size")) {
            end = all.find('\n', i);
        } else {
            // Up to the semicolon of a declaration or the brace of a body.
            while (end < all.size() && all[end] != ';' && all[end] != '{')
                end = all[end] == '(' ? closing(all, end) : end + 1;
            const std::string_view head = all.substr(i, end - i);
            const bool function = head.find(".func") != std::string_view::npos,
                       entry = head.find(".entry") != std::string_view::npos;
            if (end < all.size() && all[end] == '{' && (function || entry)) {
                const size_t after = closing(all, end);
                if (entry)
                    kernels.push_back(
                        KernelParser(module, line).parse(head, all.substr(end + 1, after - end - 2)));
                end = after;
            } else {
                end = std::min(all.find(';', end), all.size() - 1) + 1;
                const std::string_view declaration = all.substr(i, end - 1 - i);
                if (head.find(".extern") != std::string_view::npos &&
                    head.find(".shared") != std::string_view::npos)
                    module.launch_shared.insert(variable(declaration).name);
                else if (!function && !entry)
                    module.add(declaration);
            }
        }
        line += static_cast<int>(std::ranges::count(all.substr(i, end - i), '\n'));
        i = end;
    }
    return kernels;
}

}  // namespace nibble::card
