// Rows of activations as eight-bit numbers, each row with a scale of its own, and what int8 products make of them.
#pragma once

#include <vector>

#include "few_rows.h"

constexpr int kZeroPoint = 128;
constexpr float kLargest = 127.0f;

typedef uint8_t UnsignedBytesAt __attribute__((vector_size(kLanes), aligned(1), may_alias));

// One row, times its factors where there are any, as bytes around the zero point; returns the scale, which is no number where the row holds one that isn't.
template <class Element>
static inline float quantize_row(const Element* row, const float* factors, int size, uint8_t* bytes) {
    const auto part = [&](int i) {
        const Floats x = load_some(row + i, size - i);
        return factors ? x * load_some(factors + i, size - i) : x;
    };
    Floats largest = splat(0.0f), strange = splat(0.0f);
    for (int i = 0; i < size; i += kLanes) {
        const Floats x = part(i), magnitude = x < splat(0.0f) ? -x : x;
        largest = magnitude > largest ? magnitude : largest;
        strange += x - x;  // NaN for infinities and NaN, else 0
    }
    const float most = max_of(largest);
    const float scale = most / kLargest + sum_of(strange);
    const float inverse = scale > 0 && most / kLargest >= std::numeric_limits<float>::min() ? kLargest / most : 0.0f;
    const Floats magic = splat(12582912.0f);  // 1.5 * 2^23: adding it leaves the rounded integer in the low bits
    int i = 0;
    for (; i < size; i += kLanes) {
        const Floats shifted = part(i) * splat(inverse) + magic;
        const Ints whole = (Ints)shifted - (Ints)magic + kZeroPoint;
        if (size - i >= kLanes) {
            *reinterpret_cast<UnsignedBytesAt*>(bytes + i) = __builtin_convertvector(whole, UnsignedBytesAt);
        } else {
            for (int j = 0; i + j < size; j++) bytes[i + j] = uint8_t(whole[j]);
        }
    }
    return scale;
}

template <class Element>
static void quantize_rows(
    const Element* states, const float* factors, uint8_t* bytes, float* scales, int64_t rows, int size) {
#pragma omp parallel for schedule(static) if (rows * size > 16384)
    for (int64_t r = 0; r < rows; r++) scales[r] = quantize_row(states + r * size, factors, size, bytes + r * size);
}

// Every row of products times its scale, plus the bias.
template <class Element, class Offset>
static void rescale_rows(Element* products, const float* scales, const Offset* bias, int64_t rows, int outputs) {
#pragma omp parallel for schedule(static) if (rows * outputs > 16384)
    for (int64_t r = 0; r < rows; r++) {
        Element* row = products + r * outputs;
        for (int i = 0; i < outputs; i += kLanes) {
            const int count = outputs - i;
            const Floats scaled = load_some(row + i, count) * splat(scales[r]);
            store_some(row + i, bias ? scaled + load_some(bias + i, count) : scaled, count);
        }
    }
}

#if defined(__AVX512VNNI__)
struct Int8Dot {
    typedef Ints Sum;
    static constexpr int kPerWord = 4;
    static inline Ints add(Ints sum, uint32_t left, Words right) {
        return (Ints)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(int(left)), (__m512i)right);
    }
};

// What the weights of a layer are beside their packed bytes: factors of its inputs, scales, and what the zero point adds.
struct Int8Weight {
    const float* factors;
    const void* packed;
    const float* scales;
    const int32_t* offsets;  // kZeroPoint times the sum of each output's weights
};

template <class Element, class Output>
static void few_rows_int8(
    const Element* states, Int8Weight weight, const Element* bias, Output* out, int rows, int inputs, int outputs,
    Packing packing) {
    const int steps = (inputs + 3) / 4;
    std::vector<uint32_t> storage(size_t(rows) * steps);
    const uint32_t* words[kMaxFewRows];
    float scales[kMaxFewRows];
    for (int r = 0; r < rows; r++) {
        words[r] = storage.data() + size_t(r) * steps;
        scales[r] = quantize_row(
            states + size_t(r) * inputs, weight.factors, inputs, reinterpret_cast<uint8_t*>(storage.data() + size_t(r) * steps));
    }
    few_rows<Int8Dot>(
        rows, words, steps, static_cast<const uint32_t*>(weight.packed), out, outputs, packing,
        [&](Ints sums, int row, int first, int count) {
            Ints offsets = {};
            std::memcpy(&offsets, weight.offsets + first, 4 * std::min(count, kLanes));
            const Floats products = __builtin_convertvector(sums - offsets, Floats);
            const Floats scaled = products * load_some(weight.scales + first, count) * splat(scales[row]);
            return bias ? scaled + load_some(bias + first, count) : scaled;
        });
}
#endif
