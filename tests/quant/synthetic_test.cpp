// Models with random weights in types that can be computed with and not written.
// That they run is tests/cli/bench_test.cpp's.
#include "src/eval/synthetic.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "ggml/base/thread_pool.h"
#include "src/quant/recipe.h"

using namespace nibble;

TEST_CASE("random weights of types that are only read have the size of others") {
    ModelShape shape = *find_shape("llama-3.2-1b");
    shape.n_layers = 1, shape.n_embd = 512, shape.n_ff = 1024, shape.n_heads = 8, shape.n_kv_heads = 4;
    shape.n_vocab = 300;
    ThreadPool pool(2);
    int only_read = 0;
    for (const TypeInfo& type : all_types()) {
        if (!type.decode) continue;
        INFO(type.name);
        REQUIRE(static_cast<bool>(find_recipe(type.name)) == (type.encode != nullptr));
        if (type.encode) continue;
        ++only_read;
        const auto model = synthetic_model(shape, type.name, Fill::random, 1, pool);
        REQUIRE(model);
        for (const TensorInfo& t : model->tensors()) {
            if (t.n_dims < 2) continue;
            INFO(t.name);
            const bool table = t.name == "token_embd.weight" || t.name == "output.weight";
            CHECK(t.type == (table ? Type::q6_k : type.type));
            if (table) continue;
            std::vector<float> x(static_cast<size_t>(t.elements()));
            info(t.type).decode(t.data.data(), x.data(), x.size());
            double squares = 0;
            for (const float v : x) squares += double{v} * v;
            const double size = std::sqrt(squares / static_cast<double>(x.size()) * shape.n_embd);
            CHECK(size == doctest::Approx(1).epsilon(0.01));
        }
    }
    CHECK(only_read > 0);
}
