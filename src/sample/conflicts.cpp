// Warnings for settings that fight each other.
// Only what the user changed is worth a warning: values that equal the default never are.
#include <algorithm>

#include "ggml/base/cat.h"
#include "src/sample/params.h"

namespace nibble {

namespace {

bool changed(const SamplerParams& params, const Param& p) { return get(params, p) != default_text(p); }

const Link* link_of(const Param& p) {
    const auto it = std::ranges::find(chain_table::links, p.link, &Link::name);
    return it == chain_table::links.end() ? nullptr : &*it;
}

class Findings {
  public:
    explicit Findings(const SamplerParams& params) : params_(params) {}

    // "`key` has no effect: why", if the parameter was changed; each parameter at most once.
    void useless(const Param& p, std::string_view why) {
        if (!changed(params_, p) || std::ranges::find(seen_, &p) != seen_.end()) return;
        seen_.push_back(&p);
        lines.push_back(cat(p.key, " has no effect: ", why));
    }
    void useless(std::string_view key, std::string_view why) { useless(*find_param(key), why); }

    std::vector<std::string> lines;

  private:
    const SamplerParams& params_;
    std::vector<const Param*> seen_;
};

void unreachable_links(const SamplerParams& p, Findings& found) {
    const auto order = chain_order(p.samplers);
    if (!order) return;
    const bool scaled = std::ranges::count(*order, std::string_view("temperature"), &Link::name) > 0;
    for (const Param& row : chain_table::params) {
        const Link* link = link_of(row);
        if (!link) continue;
        if (std::ranges::find(order.value(), link) == order.value().end()) {
            found.useless(row, cat("'", link->name, "' is not in samplers"));
        } else if (scaled && p.temperature == 0 && link->kind != LinkKind::edit) {
            if (row.key != "temperature") found.useless(row, "temperature 0 always takes the best token");
        } else if (p.mirostat == 2 && link->kind == LinkKind::truncate) {
            found.useless(row, "mirostat does the truncation");
        }
    }
    if (p.mirostat == 2 && order->size() > 0 && order->back()->name != "mirostat" &&
        std::ranges::count(*order, std::string_view("mirostat"), &Link::name) > 0)
        found.lines.push_back("mirostat is not last in samplers: it misjudges what later links change");
}

void switched_off(const SamplerParams& p, Findings& found) {
    if (p.repeat_last_n == 0) {
        for (auto key : {"repeat_penalty", "frequency_penalty", "presence_penalty"})
            found.useless(key, "repeat_last_n is 0");
    } else if (p.repeat_penalty == 1 && p.frequency_penalty == 0 && p.presence_penalty == 0) {
        found.useless("repeat_last_n", "all penalties are off");
    }
    if (p.dry_multiplier == 0) {
        for (auto key : {"dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"})
            found.useless(key, "dry_multiplier is 0");
    } else if (p.dry_penalty_last_n == 0) {
        found.useless("dry_multiplier", "dry_penalty_last_n is 0");
    }
    if (p.xtc_probability == 0) {
        found.useless("xtc_threshold", "xtc_probability is 0");
    } else if (p.xtc_threshold > 0.5) {
        found.useless("xtc_probability", "two tokens cannot both reach an xtc_threshold above 0.5");
    }
    if (p.dynatemp_range == 0) found.useless("dynatemp_exponent", "dynatemp_range is 0");
    if (p.mirostat == 0) {
        for (auto key : {"mirostat_tau", "mirostat_eta"}) found.useless(key, "mirostat is 0");
    }
}

}  // namespace

std::vector<std::string> conflicts(const SamplerParams& p) {
    Findings found(p);
    unreachable_links(p, found);
    switched_off(p, found);
    if (p.temperature > 0 && p.mirostat == 0 && p.top_k == 1) {
        for (auto key : {"temperature", "dynatemp_range", "top_p", "min_p", "typical_p", "xtc_probability"})
            found.useless(key, "top_k 1 leaves only the best token");
    }
    if (p.temperature > 0 && p.dynatemp_range > p.temperature)
        found.lines.push_back("dynatemp_range is larger than temperature: the lower end is cut at 0");
    if (p.repeat_penalty < 1)
        found.lines.push_back("repeat_penalty below 1 rewards repetition; values from 1 to 1.2 are usual");
    return found.lines;
}

}  // namespace nibble
