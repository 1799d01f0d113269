// A linear layer for one to eight rows, straight from the weight as oneDNN packs it: weights are held once.
//
// The packed weight is [blocks of outputs][words of inputs][outputs of the block], where a word is two
// bfloat16 or four int8 and oneDNN chooses the size of the blocks, a multiple of 16, by the processor. So a
// vector holds a word of inputs for 16 outputs, 16 sums run side by side without ever being added across
// lanes, and a thread reads its share of the weight from front to back, once for all rows. With so few rows
// that reading is all the time there is.
#pragma once

#include <algorithm>

#include "dot.h"

#if defined(__AVX512F__)

constexpr int kAheadBytes = 4096;

// How a weight is packed, in elements: outputs of a block, and inputs with the padding that each has.
struct Packing {
    int block_outputs;
    int padded_inputs;
};

// Sums of kVectors vectors of outputs for all rows; each vector has words of its own, `stride` apart.
template <class Dot, int kRows, int kVectors>
static inline void few_rows_part(
    const uint32_t* const (&columns)[kVectors], size_t stride, const uint32_t* const* states, int steps,
    typename Dot::Sum (&sums)[kRows][kVectors]) {
    for (int r = 0; r < kRows; r++)
        for (int v = 0; v < kVectors; v++) sums[r][v] = typename Dot::Sum{};
    for (int step = 0; step < steps; step++) {
        Words words[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) {
            const uint32_t* line = columns[v] + step * stride;
            _mm_prefetch(reinterpret_cast<const char*>(line) + kAheadBytes, _MM_HINT_T0);
            words[v] = load_words(line);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; v++) sums[r][v] = Dot::add(sums[r][v], states[r][step], words[v]);
    }
}

// `states` are kRows rows of `steps` words; finish(sums, row, first output, count) makes floats of a vector of sums.
template <class Dot, int kRows, class Output, class Finish>
static void few_rows(
    const uint32_t* const* states, int steps, const uint32_t* weight, Output* out, int outputs, Packing packing,
    const Finish& finish) {
    constexpr int kVectors = kRows <= 6 ? 4 : 3;  // as many sums as there are registers for
    const int vectors = (outputs + kLanes - 1) / kLanes, parts = (vectors + kVectors - 1) / kVectors;
    const int block_vectors = packing.block_outputs / kLanes;
    const size_t stride = packing.block_outputs, block_words = stride * (packing.padded_inputs / Dot::kPerWord);
#pragma omp parallel for schedule(static) if (int64_t(steps) * outputs > 4096)
    for (int part = 0; part < parts; part++) {
        const uint32_t* columns[kVectors];
        for (int v = 0; v < kVectors; v++) {
            const int vector = std::min(part * kVectors + v, vectors - 1);  // beyond the last: it again, for nothing
            columns[v] = weight + vector / block_vectors * block_words + vector % block_vectors * kLanes;
        }
        typename Dot::Sum sums[kRows][kVectors];
        few_rows_part<Dot, kRows, kVectors>(columns, stride, states, steps, sums);
        for (int v = 0; v < kVectors; v++) {
            const int first = (part * kVectors + v) * kLanes, count = outputs - first;
            if (count <= 0) break;
            for (int r = 0; r < kRows; r++)
                store_some(out + size_t(r) * outputs + first, finish(sums[r][v], r, first, count), count);
        }
    }
}

// The same for a number of rows that is known only now; more than eight are none of its business.
template <class Dot, class Output, class Finish>
static void few_rows(
    int rows, const uint32_t* const* states, int steps, const uint32_t* weight, Output* out, int outputs,
    Packing packing, const Finish& finish) {
    switch (rows) {
#define ROWS(n)                                                                                     \
    case n:                                                                                         \
        return few_rows<Dot, n>(states, steps, weight, out, outputs, packing, finish);
        ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8)
#undef ROWS
    }
}

constexpr int kMaxFewRows = 8;

#if defined(__AVX512BF16__)
template <class Output>
static void few_rows_bf16(
    const Bf16* states, const void* weight, const Bf16* bias, Output* out, int rows, int inputs, int outputs,
    Packing packing) {
    const uint32_t* words[kMaxFewRows];
    for (int r = 0; r < rows; r++) words[r] = reinterpret_cast<const uint32_t*>(states + size_t(r) * inputs);
    few_rows<Bf16Dot>(
        rows, words, inputs / 2, static_cast<const uint32_t*>(weight), out, outputs, packing,
        [bias](Floats sums, int, int first, int count) { return bias ? sums + load_some(bias + first, count) : sums; });
}
#endif

#endif
