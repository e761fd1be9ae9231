// How the inputs of experts get ready for a product: each row of x is one, or has one for each of its
// experts.

// Block x: an input.
template <class To>
__global__ void prepare_inputs_kernel(View x, int32_t cols, int32_t per_row, To to) {
    wait_for_previous();
    const int64_t c = block_x();
    const float* const row = x.row(c / per_row) + c % per_row * cols;
    prepare_column(PlainRow{row, cols}, cols, to, c, reinterpret_cast<float*>(shared_memory()));
}

template <class To>
void prepare_inputs(const Exec& e, const MoeProduct& a, const To& to) {
    const Dims dims{a.x.rows * a.per_row, 1, 1, 256, 8 * sizeof(float)};
    launch(prepare_inputs_kernel<To>, dims, *e.stream, a.x, a.cols, a.per_row, to);
}
