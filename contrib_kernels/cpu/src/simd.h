// Vectors of floats as wide as the build allows, loads and stores of both formats, and exponentials.
//
// Vector types of the compiler do all arithmetic, so that one text serves every instruction set;
// intrinsics appear only where a set has an instruction of its own for the purpose.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

struct Bf16 {
    uint16_t bits;
};

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef float FloatsAt __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef uint32_t WordsAt __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef int8_t BytesAt __attribute__((vector_size(kLanes), aligned(1), may_alias));
typedef uint16_t HalvesAt __attribute__((vector_size(2 * kLanes), aligned(2), may_alias));

constexpr float kInfinity = std::numeric_limits<float>::infinity();

static inline Floats splat(float value) { return value - Floats{}; }  // x - 0 is x, which x + 0 isn't for -0: no operation is left
static inline Words load_words(const uint32_t* from) { return *reinterpret_cast<const WordsAt*>(from); }
static inline void store_words(uint32_t* to, Words value) { *reinterpret_cast<WordsAt*>(to) = value; }
static inline Words load_halves(const Bf16* from) {
#if defined(__AVX512F__)
    return (Words)_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));  // as one; GCC converts in four
#else
    return __builtin_convertvector(*reinterpret_cast<const HalvesAt*>(from), Words);
#endif
}

static inline Floats load(const int8_t* from) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
    return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadu_si64(from)));
#else
    return __builtin_convertvector(*reinterpret_cast<const BytesAt*>(from), Floats);
#endif
}
static inline Floats load(const float* from) { return *reinterpret_cast<const FloatsAt*>(from); }
static inline Floats load(const Bf16* from) { return (Floats)(load_halves(from) << 16); }
static inline void store(float* to, Floats value) { *reinterpret_cast<FloatsAt*>(to) = value; }
static inline void store(Bf16* to, Floats value) {
#if defined(__AVX512BF16__)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh((__m512)value));
#else
    const Words bits = (Words)value;
    const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const Words finite_or_nan = value == value ? rounded : (Words{} + 0x7fc0);
    *reinterpret_cast<HalvesAt*>(to) = __builtin_convertvector(finite_or_nan, HalvesAt);
#endif
}

static inline float to_float(float value) { return value; }
static inline float to_float(Bf16 value) {
    const uint32_t bits = uint32_t(value.bits) << 16;
    float result;
    std::memcpy(&result, &bits, 4);
    return result;
}
static inline void from_float(float value, float* to) { *to = value; }
static inline void from_float(float value, Bf16* to) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    to->bits = value == value ? uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) : uint16_t(0x7fc0);
}

// The first `count` elements as a vector, zeros beyond: ends of rows that fill no whole vector.
template <class Element>
static inline Floats load_some(const Element* from, int count) {
    if (count >= kLanes) return load(from);
    float padded[kLanes] = {};
    for (int i = 0; i < count; i++) padded[i] = to_float(from[i]);
    return load(padded);
}
template <class Element>
static inline void store_some(Element* to, Floats value, int count) {
    if (count >= kLanes) return store(to, value);
    for (int i = 0; i < count; i++) from_float(value[i], to + i);
}

static inline float sum_of(Floats value) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)value);
#endif
    float total = 0;
    for (int i = 0; i < kLanes; i++) total += value[i];
    return total;
}
static inline float max_of(Floats value) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)value);
#endif
    float largest = value[0];
    for (int i = 1; i < kLanes; i++) largest = value[i] > largest ? value[i] : largest;
    return largest;
}

// exp to within 2e-7 of the result; 0 below -87.3, at most exp(88); NaN stays NaN.
static inline Floats exp_of(Floats x) {
    const Floats magic = splat(12582912.0f);  // 1.5 * 2^23: adding it leaves the rounded integer in the low bits
    const Floats bounded = x > splat(88.0f) ? splat(88.0f) : x;
    const Floats shifted = bounded * splat(1.44269504f) + magic;
    const Floats whole = shifted - magic;
    const Ints exponent = (Ints)shifted - (Ints)magic;
    const Floats r = (bounded - whole * splat(0.693359375f)) + whole * splat(2.12194440e-4f);
    Floats p = splat(1.9875691500e-4f);
    p = p * r + splat(1.3981999507e-3f);
    p = p * r + splat(8.3334519073e-3f);
    p = p * r + splat(4.1665795894e-2f);
    p = p * r + splat(1.6666665459e-1f);
    p = p * r + splat(5.0000001201e-1f);
    p = p * r * r + r + splat(1.0f);
    const Floats result = p * (Floats)((exponent + 127) << 23);
    return x < splat(-87.3f) ? splat(0.0f) : result;
}

static inline Floats tanh_of(Floats x) { return splat(1.0f) - splat(2.0f) / (exp_of(x + x) + splat(1.0f)); }

static inline Floats erf_of(Floats x) {  // Abramowitz and Stegun 7.1.26, to within 1.5e-7
    const Floats size = x < splat(0.0f) ? -x : x;
    const Floats t = splat(1.0f) / (splat(1.0f) + splat(0.3275911f) * size);
    Floats p = splat(1.061405429f);
    p = p * t + splat(-1.453152027f);
    p = p * t + splat(1.421413741f);
    p = p * t + splat(-0.284496736f);
    p = p * t + splat(0.254829592f);
    const Floats result = splat(1.0f) - p * t * exp_of(-(size * size));
    return x < splat(0.0f) ? -result : result;
}
