// The arithmetic of a decode in bfloat16: sixteen keys at a time become columns, two elements a word.
#pragma once

#include "attention_call.h"

#if defined(__AVX512BF16__)

static inline __m512i load_elements(const Bf16* from, int count) {
    if (count >= 32) return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi16((1u << count) - 1, from);
}

struct DecodeInBf16 {
    typedef Bf16 Element;
    typedef Bf16Dot Dot;
    static constexpr int kColumns = 32;  // sizes are rounded up to this
    static constexpr int kRowsAtOnce = 4;

    // scores [rows][64] of queries [rows][stride]; absent keys up to the next sixteen are the last one again.
    template <int kRows>
    static inline void score_keys(
        const Bf16* const* keys, int count, int size, const uint32_t* queries, int stride, const Bf16* const* next,
        float* scores) {
        for (int first = 0; first < count; first += 16) {
            Floats sums[kRows];
            for (int row = 0; row < kRows; row++) sums[row] = splat(0.0f);
            for (int i = 0; i < size; i += 32) {
                __m512i tile[16];
#pragma GCC unroll 16
                for (int key = 0; key < 16; key++) {
                    tile[key] = load_elements(keys[first + key] + i, size - i);
                    __builtin_prefetch(next[first + key] + i, 0, 2);
                }
                transpose_16x16(tile);
                const uint32_t* pairs[kRows];
                for (int row = 0; row < kRows; row++) pairs[row] = queries + row * stride + i / 2;
#pragma GCC unroll 16
                for (int step = 0; step < 16; step++)
#pragma GCC unroll 4
                    for (int row = 0; row < kRows; row++)
                        sums[row] = Bf16Dot::add(sums[row], pairs[row][step], (Words)tile[step]);
            }
            for (int row = 0; row < kRows; row++) store(scores + row * kKeys + first, sums[row]);
        }
    }

    // mixed [rows][columns] += weights [rows][64] x values; an odd last key is there twice, with no weight.
    template <int kRows>
    static inline void mix_values(
        const Bf16* const* values, int count, int size, const uint32_t* weights, const Bf16* const* next, int columns,
        float* mixed) {
        alignas(64) static const uint16_t kFirst[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                        8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
        const __m512i low = _mm512_load_si512(kFirst), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
        for (int i = 0; i < columns; i += 32) {
            Floats sums[kRows][2];
            for (int row = 0; row < kRows; row++)
                for (int v = 0; v < 2; v++) sums[row][v] = load(mixed + row * columns + i + v * kLanes);
            for (int pair = 0; pair < (count + 1) / 2; pair++) {
                const __m512i even = load_elements(values[2 * pair] + i, size - i);
                const __m512i odd = load_elements(values[2 * pair + 1] + i, size - i);
                __builtin_prefetch(next[2 * pair] + i, 0, 2);
                __builtin_prefetch(next[2 * pair + 1] + i, 0, 2);
                const Words words[2] = {
                    (Words)_mm512_permutex2var_epi16(even, low, odd), (Words)_mm512_permutex2var_epi16(even, high, odd)};
#pragma GCC unroll 4
                for (int row = 0; row < kRows; row++)
#pragma GCC unroll 2
                    for (int v = 0; v < 2; v++)
                        sums[row][v] = Bf16Dot::add(sums[row][v], weights[row * (kKeys / 2) + pair], words[v]);
            }
            for (int row = 0; row < kRows; row++)
                for (int v = 0; v < 2; v++) store(mixed + row * columns + i + v * kLanes, sums[row][v]);
        }
    }
};

#endif
