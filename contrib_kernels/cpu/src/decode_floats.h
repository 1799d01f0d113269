// The arithmetic of a decode in float32: element by element as rows lie in the cache, nothing is moved about.
#pragma once

#include "attention_call.h"

// Eight sums of the elements of a vector each, or as many as there are lanes, as one vector.
static inline Floats sums_of(const Floats (&vectors)[kLanes]) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    __m256 pairs[4], fours[2];
    for (int i = 0; i < 4; i++) pairs[i] = _mm256_hadd_ps((__m256)vectors[2 * i], (__m256)vectors[2 * i + 1]);
    for (int i = 0; i < 2; i++) fours[i] = _mm256_hadd_ps(pairs[2 * i], pairs[2 * i + 1]);
    const __m256 low = _mm256_permute2f128_ps(fours[0], fours[1], 0x20);
    return (Floats)_mm256_add_ps(low, _mm256_permute2f128_ps(fours[0], fours[1], 0x31));
#else
    Floats sums;
    for (int i = 0; i < kLanes; i++) sums[i] = sum_of(vectors[i]);
    return sums;
#endif
}

struct DecodeInFloats {
    typedef float Element;
    typedef FloatDot Dot;
    static constexpr int kColumns = 4 * kLanes;  // sizes are rounded up to this
    static constexpr int kRowsAtOnce = 3;  // of so many columns each, as many sums as there are registers for

    // scores [rows][64] of queries [rows][stride]; absent keys up to the next vector are the last one again.
    template <int kRows>
    static inline void score_keys(
        const float* const* keys, int count, int size, const uint32_t* queries, int stride, const float* const* next,
        float* scores) {
        for (int first = 0; first < count; first += kLanes) {
            Floats sums[kRows][kLanes];
            for (int key = 0; key < kLanes; key++) {
                const float* from = keys[first + key];
                Floats products[kRows];
                for (int row = 0; row < kRows; row++) products[row] = splat(0.0f);
                for (int i = 0; i < size; i += kLanes) {
                    const Floats part = load_some(from + i, size - i);
#pragma GCC unroll 4
                    for (int row = 0; row < kRows; row++)
                        products[row] += load(reinterpret_cast<const float*>(queries) + row * stride + i) * part;
                }
                prefetch_row(next[first + key], size);
                for (int row = 0; row < kRows; row++) sums[row][key] = products[row];
            }
            for (int row = 0; row < kRows; row++) store(scores + row * kKeys + first, sums_of(sums[row]));
        }
    }

    // mixed [rows][columns] += weights [rows][64] x values.
    template <int kRows>
    static inline void mix_values(
        const float* const* values, int count, int size, const uint32_t* weights, const float* const* next, int columns,
        float* mixed) {
        for (int i = 0; i < size; i += kColumns) {
            if (size - i >= kColumns)
                mix_columns<kRows>(
                    values, count, i, [](const float* from, int) { return load(from); }, weights, columns, mixed);
            else
                mix_columns<kRows>(
                    values, count, i, [&](const float* from, int v) { return load_some(from, size - i - v * kLanes); },
                    weights, columns, mixed);
        }
        for (int key = 0; key < count; key++) prefetch_row(next[key], size);
    }

    template <int kRows, class Load>
    static inline void mix_columns(
        const float* const* values, int count, int first, Load load_value, const uint32_t* weights, int columns,
        float* mixed) {
        constexpr int kVectors = kColumns / kLanes;
        Floats sums[kRows][kVectors];
        for (int row = 0; row < kRows; row++)
            for (int v = 0; v < kVectors; v++) sums[row][v] = load(mixed + row * columns + first + v * kLanes);
        for (int key = 0; key < count; key++) {
            Floats value[kVectors];
            for (int v = 0; v < kVectors; v++) value[v] = load_value(values[key] + first + v * kLanes, v);
#pragma GCC unroll 4
            for (int row = 0; row < kRows; row++)
#pragma GCC unroll 4
                for (int v = 0; v < kVectors; v++)
                    sums[row][v] = FloatDot::add(sums[row][v], weights[row * kKeys + key], (Words)value[v]);
        }
        for (int row = 0; row < kRows; row++)
            for (int v = 0; v < kVectors; v++) store(mixed + row * columns + first + v * kLanes, sums[row][v]);
    }
};
