// A linear layer for one to eight rows, straight from the weight as oneDNN packs it: weights are held once.
//
// The packed weight is [blocks of 64 outputs][pairs of inputs][64 outputs][2]. So a vector holds a pair
// of inputs for 16 outputs, 16 sums run side by side without ever being added across lanes, and a
// thread reads its share of the weight from front to back, once for all rows. With so few rows that
// reading is all the time there is.
#pragma once

#include "dot.h"

#if defined(__AVX512BF16__)

constexpr int kOutputs = 64;
constexpr int kAheadBytes = 4096;

// Sums of kVectors vectors of outputs for all rows: as many as there are registers for.
template <int kRows, int kVectors>
static inline void few_rows_part(
    const uint32_t* weight, const uint32_t* const* states, int pairs, Floats (&sums)[kRows][kVectors]) {
    for (int r = 0; r < kRows; r++)
        for (int v = 0; v < kVectors; v++) sums[r][v] = splat(0.0f);
    for (int pair = 0; pair < pairs; pair++) {
        const uint32_t* line = weight + size_t(pair) * kOutputs;
        Words columns[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) {
            _mm_prefetch(reinterpret_cast<const char*>(line + v * kLanes) + kAheadBytes, _MM_HINT_T0);
            columns[v] = load_words(line + v * kLanes);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; v++) sums[r][v] = Bf16Dot::add(sums[r][v], states[r][pair], columns[v]);
    }
}

template <int kRows, class Output>
static void few_rows(
    const Bf16* states, const uint32_t* weight, const Bf16* bias, Output* out, int inputs, int outputs) {
    constexpr int kVectors = kRows <= 4 ? 4 : 2;  // with two, the second part finds its lines in the cache
    const int pairs = inputs / 2, blocks = (outputs + kOutputs - 1) / kOutputs;
    const uint32_t* rows[kRows];
    for (int r = 0; r < kRows; r++) rows[r] = reinterpret_cast<const uint32_t*>(states + size_t(r) * inputs);
#pragma omp parallel for schedule(static) if (int64_t(inputs) * outputs > 8192)
    for (int block = 0; block < blocks; block++) {
        for (int part = 0; part < 4; part += kVectors) {
            Floats sums[kRows][kVectors];
            few_rows_part<kRows, kVectors>(
                weight + size_t(block) * pairs * kOutputs + part * kLanes, rows, pairs, sums);
            for (int v = 0; v < kVectors; v++) {
                const int first = block * kOutputs + (part + v) * kLanes, count = outputs - first;
                if (count <= 0) break;
                const Floats offset = bias ? load_some(bias + first, count) : splat(0.0f);
                for (int r = 0; r < kRows; r++)
                    store_some(out + size_t(r) * outputs + first, sums[r][v] + offset, count);
            }
        }
    }
}

#endif
