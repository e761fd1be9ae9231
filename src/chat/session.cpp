// The file of a session: a saved prefix, and as fields the conversation and what the chat knows of it.
// What it says is checked against the engine before anything is taken over.
#include "src/chat/session.h"

#include "src/engine/saved_prefix.h"

namespace nibble {
namespace {

constexpr SavedKind kind{"NIBBLESN", 1, "session", "--session"};

}  // namespace

Result<void> save_session(Chat& chat, const std::filesystem::path& path) {
    const ChatState state = chat.state();
    SavedFields fields;
    fields.text(conversation_text(state.conversation));
    fields.number(state.first);
    fields.number(state.stream);
    fields.text(state.text);
    fields.tokens(state.tokens);
    const CachedPrefix prefix = NIBBLE_TRY(chat.engine().export_prefix(state.tokens));
    return write_saved(kind, chat.engine(), fields, prefix, path);
}

Result<int32_t> load_session(Chat& chat, const std::filesystem::path& path) {
    Engine& engine = chat.engine();
    SavedFile file = NIBBLE_TRY(SavedFile::open(kind, path));
    NIBBLE_TRY(file.check(engine));
    ByteReader& in = file.fields();
    ChatState state;
    state.conversation = NIBBLE_TRY(parse_conversation(NIBBLE_TRY(in.string("conversation")), path.string()));
    state.first = NIBBLE_TRY(in.read<uint64_t>("first"));
    state.stream = NIBBLE_TRY(in.read<uint64_t>("stream"));
    state.text = NIBBLE_TRY(in.string("text"));
    state.tokens = NIBBLE_TRY(file.tokens("tokens", engine));
    const PrefixView prefix = NIBBLE_TRY(file.prefix(engine));
    if (const auto imported = engine.import_prefix(prefix); !imported) {
        Error e = imported.error();
        if (e.where == "session") e.where = path.string();  // the engine knows no files
        return e;
    }
    chat.restore(std::move(state));
    return static_cast<int32_t>(prefix.tokens.size());
}

}  // namespace nibble
