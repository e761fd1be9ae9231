// Which instructions share their launches with a product: a norm or a gated unit before it, a unit behind it.
// Whether they can depends on what lies where in memory, for the blocks of a launch are in no order.

bool has_tiles_only(const OpArgs& matmul) {
    const auto n = static_cast<size_t>(matmul.params->as<MatmulParams>().n_weights);
    return std::ranges::none_of(matmul.in.subspan(2, n),
                                [](const Tensor& w) { return w.layout == Layout::rows; });
}

RowNorm norm_of(const BoundInstr& norm) {
    const OpArgs a = norm.args();
    return {true, a.params->as<NormParams>().eps, a.in[1], norm.instr->read_until == 1 ? Tensor{} : a.out[0]};
}

// Whether the norm can be the beginning of the product: what it reads must still be there while the product
// is written, for the blocks of a launch are in no order.
bool can_begin_with(const BoundInstr& norm, const BoundInstr& matmul) {
    const OpArgs n = norm.args(), m = matmul.args();
    if (!is_row_norm(n) || n.out[0].data != m.in[0].data) return false;
    if (n.out[0].cols != m.in[0].cols || n.out[0].rows != m.in[0].rows) return false;
    if (!has_tiles_only(m)) return false;
    return !overlap(n.in[0], m.out[0]) && !overlap(n.in[0], n.out[0]) && !overlap(n.in[0], matmul.scratch);
}

// Memory for the activations of a product that ends in a unit. Nobody asks for the product's own results, so
// where these would lie; its scratch may already be the unit's results. None: there is not enough.
std::span<std::byte> gated_memory(const Exec& e, const OpArgs& m, const Tensor& unit,
                                  std::span<std::byte> scratch) {
    const Tensor& x = m.in[0];
    const size_t bytes = warpgroups_apply(e, x.rows)      ? warpgroup_scratch(x.rows, x.cols)
                         : few_applies(e, x.rows, x.cols) ? few_prepared_bytes(x.cols)
                                                          : 0;
    for (const std::span<std::byte> memory : {memory_of(m.out[0]), scratch})
        if (memory.size() >= bytes && !overlap(unit, memory.first(bytes))) return memory;
    return {};
}

// Of one row or a few, or of so many that warpgroups multiply them.
bool is_gated_pair(const Exec& e, const BoundInstr& matmul, const BoundInstr& glu) {
    const OpArgs m = matmul.args(), g = glu.args();
    const Tensor& x = m.in[0];
    const bool warpgroups = warpgroups_apply(e, x.rows) && fits_unit(g.params->as<GluParams>());
    return (warpgroups || few_applies(e, x.rows, x.cols) || converts_itself(e, x, m.in[2].type)) &&
           m.params->as<MatmulParams>().n_weights == 2 && !m.in[1] && m.in[2].type == m.in[3].type &&
           m.in[2].rows == m.in[3].rows && m.in[2].layout == Layout::packed &&
           m.in[3].layout == Layout::packed && matmul.instr->read_until == 1 &&
           g.in[0].data == m.out[0].data && g.in[0].cols == m.out[0].cols && !g.in[1] &&
           !gated_memory(e, m, g.out[0], matmul.scratch).empty();
}

// The product whose two weights end in a unit, as a launch.
MatmulArgs gated_args(const OpArgs& m, const Tensor& x, std::span<std::byte> memory, const RowNorm& norm) {
    MatmulArgs args = args_of(m, {x, memory, norm});
    args.table = table_of(m.in[2].type);
    args.segments = 2;
    for (size_t i = 0; i < 2; ++i) args.segment[i] = segment_of(m, i, 0);
    return args;
}
UnitArgs unit_of(const OpArgs& g) { return {true, g.params->as<GluParams>(), g.out[0]}; }

void multiply_gated(const Exec& e, const BoundInstr& matmul, const BoundInstr& glu, const Tensor& x,
                    const RowNorm& norm) {
    const OpArgs m = matmul.args(), g = glu.args();
    const std::span<std::byte> memory = gated_memory(e, m, g.out[0], matmul.scratch);
    const UnitArgs ends_in = unit_of(g);
    const MatmulArgs args = gated_args(m, x, memory, norm);
    if (warpgroups_apply(e, x.rows)) {
        prepare_warpgroup(e, args, memory);
        return multiply_warpgroup(e, args, m.in[2].type, memory, ends_in);
    }
    const Type types[2] = {m.in[2].type, m.in[3].type};
    if (x.rows > 1) {
        if (multiply_few(e, args, types, memory, ends_in)) return;
        multiply(e, m, matmul.scratch, {x, matmul.scratch, norm});
        return run_glu(e, g, {});
    }
    if (multiply_gemv(e, args, types, ends_in)) return;
    visit_tile_format(m.in[2].type, [&]<TileFormat f>() {
        const size_t shared =
            table_bytes(f) + 4 * BlockProduct<f, 1, 1>::shared_bytes + arranged_bytes<1>(1, x.cols);
        const int64_t blocks = std::min<int64_t>(args.segment[0].blocks, e.card->multiprocessors);
        launch(gated_kernel<format_code(f)>, Dims{blocks, 1, 1, 512, shared}, *e.stream, args, ends_in.params,
               View(ends_in.out));
    });
}

// Memory for the activations of a product that begins with a unit; none: it cannot. What the unit reads is
// there until they are made, so its scratch may be just that; the unit's results are not asked for. A row
// alone converts itself where it can, and whether it can is for each type of weight to say.
std::span<std::byte> memory_behind(const Exec& e, const BoundInstr& glu, const BoundInstr& matmul) {
    const OpArgs g = glu.args(), m = matmul.args();
    const Tensor& x = m.in[0];
    if (glu.instr->read_until != 1 || !fits_unit(g.params->as<GluParams>()) || g.out[0].data != x.data ||
        g.out[0].cols != x.cols || !has_tiles_only(m) || x.rows == 1 || few_applies(e, x.rows, x.cols))
        return {};
    size_t bytes =
        warpgroups_apply(e, x.rows) ? warpgroup_scratch(x.rows, x.cols) : arranged_bytes<8>(x.rows, x.cols);
    if (batch_applies(e, x.rows)) bytes = std::max(bytes, batch_prepared_bytes(x.rows, x.cols));
    for (const std::span<std::byte> memory : {matmul.scratch, memory_of(g.out[0])})
        if (memory.size() >= bytes && !overlap(g.in[0], memory.first(bytes))) return memory;
    return {};
}

// A product, and the norm before it and the unit behind it that share its launch.
struct JoinedProduct {
    size_t instrs = 0;  // 0: there is none
    const BoundInstr *matmul = nullptr, *unit = nullptr;
    Tensor x;
    RowNorm norm = no_norm;
};
JoinedProduct product_at(const Exec& e, std::span<const BoundInstr> instrs) {
    JoinedProduct p;
    const size_t at = is_at(instrs, 0, norm_op) ? 1 : 0;
    if (!is_at(instrs, at, matmul_op) || instrs[at].in[0].rows == 0) return p;
    const BoundInstr& matmul = instrs[at];
    if (at == 1 && !can_begin_with(instrs[0], matmul)) return p;
    p.matmul = &matmul;
    p.x = at == 1 ? instrs[0].in[0] : matmul.in[0];
    if (at == 1) p.norm = norm_of(instrs[0]);
    p.instrs = at + 1;
    if (!is_at(instrs, at + 1, glu_op) || !is_gated_pair(e, matmul, instrs[at + 1]) ||
        overlap(p.x, instrs[at + 1].out[0]))
        return p;
    p.unit = &instrs[at + 1];
    ++p.instrs;
    return p;
}

size_t join_first(const Exec& e, std::span<const BoundInstr> instrs) {
    if (is_at(instrs, 0, glu_op) && is_at(instrs, 1, matmul_op) && instrs[1].in[0].rows > 0) {
        if (instrs[0].in[1]) return 0;
        const BoundInstr& matmul = instrs[1];
        const std::span<std::byte> memory = memory_behind(e, instrs[0], matmul);
        if (memory.empty()) return 0;
        const OpArgs g = instrs[0].args();
        const RowUnit unit{true, g.params->as<GluParams>(), g.in[0]};
        multiply(e, matmul.args(), matmul.scratch, {matmul.in[0], memory, no_norm, unit});
        return 2;
    }
    for (const auto run : {run_joined_take_rows, run_joined_norm, run_joined_attention, run_joined_store,
                           run_joined_router, run_joined_experts, run_joined_moe_sum})
        if (const size_t n = run(e, instrs)) return n;
    const JoinedProduct p = product_at(e, instrs);
    if (p.instrs < 2) return 0;
    if (p.unit)
        multiply_gated(e, *p.matmul, *p.unit, p.x, p.norm);
    else
        multiply(e, p.matmul->args(), p.matmul->scratch, {p.x, p.matmul->scratch, p.norm});
    return p.instrs;
}
