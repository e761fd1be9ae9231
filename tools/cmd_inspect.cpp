// nibble inspect: what is in a model file: metadata, tensors, sizes, cache cost.
// Reads headers only; weights stay on disk.
#include <cstdio>
#include <map>

#include <nlohmann/json.hpp>

#include "ggml/file/quote.h"
#include "src/engine/model_runner.h"
#include "src/model/vocab_file.h"
#include "tools/options.h"
#include "tools/system_report.h"
#include "tools/template_option.h"

namespace nibble {
namespace {

struct InspectCommand {
    ModelOption model;
    bool tensors = true, metadata = true, system = false, json = false, measure = false, chat = false;
    Result<int> operator()() const;
};

std::string mib(double bytes) {
    char text[32];
    std::snprintf(text, sizeof text, bytes < (1 << 20) ? "%.1f KiB" : "%.1f MiB",
                  bytes / (bytes < (1 << 20) ? 1 << 10 : 1 << 20));
    return text;
}

void print_metadata(const TensorFile& file) {
    std::printf("metadata\n");
    for (const Metadata::Entry& e : file.metadata().entries())
        std::printf("  %-44s %s\n", printable(e.key).c_str(), describe(e.value).c_str());
    for (const auto& [key, value] : file.config().items())
        std::printf("  %-44s %s\n", printable(key).c_str(), value.dump().substr(0, 96).c_str());
}

void print_tensors(const TensorFile& file) {
    std::printf("tensors\n");
    for (const TensorInfo& t : file.tensors())
        std::printf("  %-44s %-8s %s\n", printable(t.name).c_str(), std::string(t.type_name()).c_str(),
                    shape_text(t).c_str());
}

void print_sizes(const TensorFile& file) {
    struct Sum {
        uint64_t tensors = 0, bytes = 0, elements = 0;
    };
    std::map<std::string, Sum> by_type;
    Sum all;
    for (const TensorInfo& t : file.tensors())
        for (Sum* s : {&by_type[std::string(t.type_name())], &all}) {
            ++s->tensors;
            s->bytes += t.data.size();
            s->elements += static_cast<uint64_t>(t.elements());
        }
    std::printf("parameters %.3f M in %llu tensors, %s", static_cast<double>(all.elements) / 1e6,
                static_cast<unsigned long long>(all.tensors), mib(static_cast<double>(all.bytes)).c_str());
    if (all.elements)
        std::printf(", %.2f bits per weight",
                    8.0 * static_cast<double>(all.bytes) / static_cast<double>(all.elements));
    std::printf("\n");
    for (const auto& [type, s] : by_type)
        std::printf("  %-8s %4llu tensors  %s\n", type.c_str(), static_cast<unsigned long long>(s.tensors),
                    mib(static_cast<double>(s.bytes)).c_str());
}

// Of the first layer that has one.
template <class Mixer>
const Mixer* first_mixer(const ModelSpec& s) {
    for (const LayerSpec& l : s.layers)
        if (const auto* mixer = std::get_if<Mixer>(&l.mixer)) return mixer;
    return nullptr;
}

void print_model(const OpenedModel& m) {
    const ModelSpec& s = m.spec;
    std::printf("architecture %s: %zu layers, width %d, vocabulary %d, context %d\n", s.arch.c_str(),
                s.layers.size(), s.n_embd, s.n_vocab, s.n_ctx_train);
    if (const auto* a = first_mixer<AttentionSpec>(s))
        std::printf("attention %d heads, %d kv heads of %d\n", a->n_heads, a->n_kv_heads, a->head_dim);
    if (const auto* a = first_mixer<LatentAttentionSpec>(s))
        std::printf("attention %d heads of %d, keys and values as a latent of %d and %d that rotate\n",
                    a->n_heads, a->head_dim(), a->latent_dim, a->rope_dim);
    const auto layers = kv_layers(s);
    const auto carrying = std::ranges::count_if(layers, [](const KvLayer& l) { return l.is_state(); });
    if (const auto* d = first_mixer<DeltaNetSpec>(s))
        std::printf("linear attention in %td of %zu layers: %d key heads of %d, %d value heads of %d\n",
                    carrying, s.layers.size(), d->n_k_heads, d->k_dim, d->n_v_heads, d->v_dim);
    if (const auto* m = first_mixer<Mamba2Spec>(s))
        std::printf("state space in %td of %zu layers: %d heads of %d, keys of %d\n", carrying,
                    s.layers.size(), m->n_heads, m->v_dim, m->k_dim);
    if (const auto* c = first_mixer<ShortConvSpec>(s))
        std::printf("short convolution over %d tokens in %td of %zu layers\n", c->n_taps, carrying,
                    s.layers.size());
    if (carrying > 0)
        std::printf("state %s per text, whatever its length\n",
                    mib(static_cast<double>(state_bytes(s))).c_str());
    if (s.predictor) std::printf("a layer behind these guesses tokens further ahead\n");
    if (s.n_backbone > 0) {
        std::printf(
            s.block_guess
                ? "guesses blocks of tokens for a model of width %d (--draft-model), whose layers it reads\n"
                : "guesses for a model of width %d (--draft-model), to whose keys and values it attends\n",
            s.n_backbone);
        return;
    }
    for (const Type t : {Type::f16, Type::q8_0})
        if (const auto bytes = kv_bytes_per_token(s, t, t))
            std::printf("kv cache %zu bytes per token as %s (%s for %d tokens)\n", *bytes,
                        std::string(info(t).name).c_str(),
                        mib(static_cast<double>(*bytes) * s.n_ctx_train).c_str(), s.n_ctx_train);
}

// The template on stdout, so that it can be piped; where it is from, on stderr.
Result<int> print_template(const TensorFile& file) {
    const Vocab vocab = NIBBLE_TRY(read_vocab(file));
    if (vocab.chat_template) {
        const bool folder = file.kind() == TensorFile::Kind::hf;
        const auto jinja = NIBBLE_TRY(file.text("chat_template.jinja"));
        std::fprintf(stderr, "nibble: from %s of %s\n",
                     !folder                    ? "tokenizer.chat_template"
                     : jinja && !jinja->empty() ? "chat_template.jinja"
                                                : "tokenizer_config.json",
                     file.path().c_str());
        std::printf("%s%s", vocab.chat_template->c_str(), vocab.chat_template->ends_with('\n') ? "" : "\n");
        return exit_ok;
    }
    const Tokenizer tokenizer = NIBBLE_TRY(make_tokenizer(vocab, file.path()));
    const std::string name = fallback_template(tokenizer);
    std::fprintf(stderr, "nibble: %s carries no chat template; a chat would use '%s'\n", file.path().c_str(),
                 name.c_str());
    std::printf("%s", NIBBLE_TRY(template_text(name)).c_str());
    return exit_ok;
}

Result<int> InspectCommand::operator()() const {
    if (system) return report_system(json, measure);
    TensorFile file = NIBBLE_TRY(TensorFile::open(NIBBLE_TRY(model.path())));
    if (chat) return print_template(file);
    std::printf("%s\n", file.path().c_str());
    if (metadata) print_metadata(file);
    if (tensors) print_tensors(file);
    print_sizes(file);
    const std::string_view kind = file.metadata().str("general.type").value_or("model");
    if (file.tensors().empty() || kind != "model") return exit_ok;  // a vocabulary, or what calibrate writes
    const auto model = NIBBLE_TRY(open_model(std::move(file)));
    print_model(*model);
    for (const std::string& note : model->notes) std::printf("%s\n", printable(note, max_message).c_str());
    return exit_ok;
}

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<InspectCommand>();
    const Flag given = c->model.add_subject(flags), model = *flags.find("--model");
    const auto metadata = flags.on("--metadata,!--no-metadata", c->metadata, "list the metadata [on]");
    const auto tensors = flags.on("--tensors,!--no-tensors", c->tensors, "list the tensors [on]");
    const auto chat = flags.on("--template", c->chat, "the chat template instead, and where it is from");
    const auto system = flags.on("--system", c->system, "this machine instead: processor, kernels, memory");
    for (const Flag o : {metadata, tensors}) chat.excludes(o);
    for (const Flag o : {given, model, metadata, tensors, chat}) system.excludes(o);
    flags.on("--json", c->json, "with --system: as JSON").needs(system);
    flags.on("--measure", c->measure, "with --system: measure the read bandwidth of memory").needs(system);
    flags.examples("  nibble inspect model.gguf\n  nibble inspect --no-tensors --no-metadata checkpoint/");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command inspect_command;
const Command inspect_command{"inspect", "Show what is in a model file", setup};

}  // namespace nibble
