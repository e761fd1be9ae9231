// nibble models: what -m NAME can mean: aliases of the configuration, model folders, the bundled model.
// Reads headers only.
#include <cstdio>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "ggml/file/quote.h"
#include "ggml/file/tensor_file.h"
#include "tools/json_text.h"
#include "tools/options.h"
#include "tools/settings.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

struct ModelsCommand {
    bool json = false, names = false;
    Result<int> operator()() const;
};

struct Row {
    std::string architecture, type;
    uint64_t bytes = 0, parameters = 0;
};

// The type that most bytes have stands for the model.
Result<Row> look(const std::filesystem::path& path) {
    const TensorFile file = NIBBLE_TRY(TensorFile::open(path));
    Row row;
    row.bytes = file.file_bytes();
    if (const auto arch = file.metadata().str("general.architecture"))
        row.architecture = *arch;
    else if (file.config().is_object() && file.config().contains("model_type") &&
             file.config()["model_type"].is_string())
        row.architecture = file.config()["model_type"].get<std::string>();
    std::map<std::string, uint64_t> bytes;
    for (const TensorInfo& t : file.tensors()) {
        bytes[std::string(t.type_name())] += t.data.size();
        row.parameters += static_cast<uint64_t>(t.elements());
    }
    for (const auto& [type, n] : bytes)
        if (row.type.empty() || n > bytes[row.type]) row.type = type;
    return row;
}

std::string short_count(double n, const char* unit) {
    char text[32];
    const bool giga = n >= 1e9;
    std::snprintf(text, sizeof text, "%.1f %s%s", n / (giga ? 1e9 : 1e6), giga ? "G" : "M", unit);
    return text;
}

Result<int> ModelsCommand::operator()() const {
    const Settings settings = NIBBLE_TRY(read_settings());
    const std::vector<NamedModel> models = named_models(settings);
    Json list = Json::array();
    size_t width = 4;
    for (const NamedModel& m : models) width = std::max(width, m.name.size());
    const int name_width = static_cast<int>(width);
    if (!json && !names)
        std::printf("%-*s  %-10s %10s %10s  %-7s %s\n", name_width, "name", "arch", "parameters", "size",
                    "type", "path");
    for (const NamedModel& m : models) {
        if (names) {
            std::printf("%s\n", m.name.c_str());
            continue;
        }
        const Result<Row> row = look(m.path);
        if (json) {
            Json j = {{"name", m.name}, {"path", m.path.string()}};
            if (row)
                j.update({{"architecture", row->architecture},
                          {"parameters", row->parameters},
                          {"bytes", row->bytes},
                          {"type", row->type}});
            else
                j["error"] = row.error().message();
            list.push_back(std::move(j));
        } else if (row) {
            std::printf("%-*s  %-10s %10s %10s  %-7s %s\n", name_width, printable(m.name).c_str(),
                        printable(row->architecture).c_str(),
                        short_count(static_cast<double>(row->parameters), "").c_str(),
                        short_count(static_cast<double>(row->bytes), "B").c_str(), row->type.c_str(),
                        printable(m.path.string(), max_message).c_str());
        } else {
            std::printf("%-*s  not usable: %s\n", name_width, printable(m.name).c_str(),
                        printable(row.error().message(), max_message).c_str());
        }
    }
    if (json)
        std::printf("%s\n", json_text(list, 2).c_str());
    else if (!names)
        for (const auto& folder : settings.folders) {
            std::error_code failed;
            const std::filesystem::directory_iterator opened(folder, failed);
            std::fprintf(stderr, "folder %s%s\n", printable(folder.string(), max_message).c_str(),
                         failed ? cat("  not readable: ", failed.message()).c_str() : "");
        }
    return exit_ok;
}

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<ModelsCommand>();
    const auto json =
        flags.on("--json", c->json, "a JSON list: name, path, architecture, parameters, bytes, type");
    flags.on("--names", c->names, "the names alone, one a line").excludes(json);
    flags.examples("  nibble models\n  NIBBLE_MODEL_FOLDERS=/data/models nibble models --json");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command models_command;
const Command models_command{"models", "List the models that have a name here", setup};

}  // namespace nibble
