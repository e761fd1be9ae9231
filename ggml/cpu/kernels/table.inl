// The table of this instruction set: a constant, so that nothing of it runs before it is chosen.
// Included last, when every kernel of the namespace is known.
constexpr KernelTable make_table(std::string_view name, std::string_view needs,
                                 bool (*available)(const Features&)) {
    KernelTable t{};
    t.name = name;
    t.needs = needs;
    t.available = available;
    t.decode = decode_row;
    t.encode = encode_row;
    t.operand = operand_of;
    t.tile_rows = static_cast<int>(stream_rows);
    t.quantize = quantize_row;
    t.lanes = lanes;
    t.packed_group_bytes = packed_group_bytes;
    t.pack_group = pack_group;
    t.matmul_shape = {panel_columns, block_rows};
    t.matmul_scratch = matmul_scratch;
    t.matmul = matmul_block;
    t.norm = norm_row;
    t.glu = glu_row;
    t.activate = activate_row;
    t.add = add_row;
    t.scale = scale_row;
    t.rope = rope_row;
    t.attention_scratch_bytes = attention_scratch;
    t.attention_tile_tokens = tile_tokens;
    t.attention = attention_block;
    t.attention_merge = attention_merge_block;
    t.causal_conv = causal_conv_block;
    t.delta_rule = delta_rule_block;
    t.ssm_scan = ssm_scan_block;
    return t;
}
