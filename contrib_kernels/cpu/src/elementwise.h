// What happens to every token alone between the products: norms, gates, rotation and the write to the cache.
#pragma once

#include "simd.h"

constexpr int64_t kSerialElements = 16384;  // below, waking the other threads takes longer than the work

// What comes a little later: rows lie in a cache far off, and the processor by itself asks for too few lines at a time.
constexpr int kLaterBytes = 2048;

template <class Element>
static inline void fetch_later(const Element* from) {
    __builtin_prefetch(reinterpret_cast<const char*>(from) + kLaterBytes);
}
template <class Element>
static inline void fetch_later_to_write(Element* to) {
    __builtin_prefetch(reinterpret_cast<const char*>(to) + kLaterBytes, 1);
}

// body(i, count) for every vector of a row; the count is a constant but for the rest that fills no whole vector.
template <class Body>
static inline void each_vector(int width, Body body) {
    int i = 0;
    for (; i + kLanes <= width; i += kLanes) body(i, kLanes);
    if (i < width) body(i, width - i);
}

static inline float inverse_size(Floats squares, int width, float epsilon) {
    return 1.0f / std::sqrt(sum_of(squares) / float(width) + epsilon);
}

template <class Element>
static inline float inverse_size(const Element* row, int width, float epsilon) {
    Floats squares = splat(0.0f);
    each_vector(width, [&](int i, int count) {
        const Floats x = load_some(row + i, count);
        squares += x * x;
    });
    return inverse_size(squares, width, epsilon);
}

template <class Input, class Element>
static inline void scale_row(const Input* from, float factor, const float* weight, Element* to, int width) {
    each_vector(width, [&](int i, int count) {
        store_some(to + i, load_some(from + i, count) * splat(factor) * load_some(weight + i, count), count);
    });
}

// normed = norm(states) * weight; where there is a residual, states are added to it and the sum is normed.
template <class Element>
static void rms_norm(
    const Element* states, float* residual, const float* weight, Element* normed, int64_t rows, int width,
    float epsilon) {
#pragma omp parallel for if (rows > 1 && rows * width > kSerialElements)
    for (int64_t row = 0; row < rows; row++) {
        const Element* from = states + row * width;
        Element* to = normed + row * width;
        if (!residual) {
            scale_row(from, inverse_size(from, width, epsilon), weight, to, width);
            continue;
        }
        float* sums = residual + row * width;
        Floats squares = splat(0.0f);
        each_vector(width, [&](int i, int count) {
            fetch_later(from + i), fetch_later(sums + i);
            const Floats sum = load_some(from + i, count) + load_some(sums + i, count);
            store_some(sums + i, sum, count);
            squares += sum * sum;
        });
        scale_row(sums, inverse_size(squares, width, epsilon), weight, to, width);
    }
}

enum Activation { kSilu = 0, kGeluTanh = 1, kGelu = 2 };

// 1 / x to within 2e-7 of it; a division of vectors takes as long as all the rest of an exponential.
static inline Floats reciprocal(Floats x) {
#if defined(__AVX512F__)
    const Floats near = (Floats)_mm512_rcp14_ps((__m512)x);
    return near * (splat(2.0f) - x * near);
#else
    return splat(1.0f) / x;
#endif
}

static inline Floats activate(Floats x, int activation) {
    if (activation == kSilu) return x * reciprocal(splat(1.0f) + exp_of(-x));
    if (activation == kGeluTanh)
        return splat(0.5f) * x *
               (splat(1.0f) + tanh_of(splat(0.79788456f) * (x + splat(0.044715f) * x * x * x)));
    return splat(0.5f) * x * (splat(1.0f) + erf_of(x * splat(0.70710678f)));
}

template <int kActivation, class Element>
static void gate_by(const Element* joint, Element* out, int64_t rows, int width) {
    constexpr int kPiece = 512;
    const int64_t pieces = (width + kPiece - 1) / kPiece;
#pragma omp parallel for if (rows * width > kSerialElements)
    for (int64_t task = 0; task < rows * pieces; task++) {
        const int64_t row = task / pieces;
        const int first = int(task % pieces) * kPiece;
        const Element *left = joint + row * 2 * width + first, *right = left + width;
        Element* to = out + row * width + first;
        each_vector(first + kPiece < width ? kPiece : width - first, [&](int i, int count) {
            fetch_later(left + i), fetch_later(right + i), fetch_later_to_write(to + i);
            store_some(
                to + i, activate(load_some(left + i, count), kActivation) * load_some(right + i, count), count);
        });
    }
}

// out [rows][width] = activation(left half) * right half of joint [rows][2 * width].
template <class Element>
static void gate(const Element* joint, Element* out, int64_t rows, int width, int activation) {
    if (activation == kSilu) return gate_by<kSilu>(joint, out, rows, width);
    if (activation == kGeluTanh) return gate_by<kGeluTanh>(joint, out, rows, width);
    return gate_by<kGelu>(joint, out, rows, width);
}

struct RotateCall {
    void* joint;  // [tokens][(heads + 2 * kv heads) * size], tokens by a stride: queries, keys, values
    int64_t joint_stride;
    const void *cosines, *sines;  // [tokens][rotary size], tokens by a stride
    int64_t angle_stride;
    const float *query_norm, *key_norm;  // weights or null
    void *keys, *values;  // the cache, by head and slot
    int64_t key_head_stride, value_head_stride;
    const int64_t* slots;
    int64_t num_tokens;
    int32_t num_heads, num_kv_heads, size, rotary_size, norm_spans_heads, is_bf16;
    float epsilon;
};

// One head's vector, rotated by halves and rounded once. `to` may be where it comes from.
template <class Input, class Element>
static inline void rotate_head(
    const Input* from, const Element* cosines, const Element* sines, int size, int rotary_size, Element* to) {
    const int half = rotary_size / 2;
    each_vector(half, [&](int i, int count) {
        const Floats low = load_some(from + i, count), high = load_some(from + half + i, count);
        store_some(to + i, low * load_some(cosines + i, count) - high * load_some(sines + i, count), count);
        store_some(
            to + half + i,
            high * load_some(cosines + half + i, count) + low * load_some(sines + half + i, count), count);
    });
    each_vector(size - rotary_size, [&](int i, int count) {
        store_some(to + rotary_size + i, load_some(from + rotary_size + i, count), count);
    });
}

// Every head of a token's queries or keys: normed where there is a weight, and rotated to where `place` says.
template <class Element, class Place>
static inline void rotate_heads(
    const RotateCall& call, const Element* from, int num_heads, const float* weight, const Element* cosines,
    const Element* sines, Place place) {
    const int size = call.size;
    const bool spans = call.norm_spans_heads;
    float factor = weight && spans ? inverse_size(from, num_heads * size, call.epsilon) : 1.0f;
    for (int head = 0; head < num_heads; head++, from += size) {
        if (!weight) {
            rotate_head(from, cosines, sines, size, call.rotary_size, place(head));
            continue;
        }
        float scaled[1024];
        if (!spans) factor = inverse_size(from, size, call.epsilon);
        scale_row(from, factor, spans ? weight + head * size : weight, scaled, size);
        rotate_head(scaled, cosines, sines, size, call.rotary_size, place(head));
    }
}

template <class Element>
static void rotate_and_write(const RotateCall& call) {
    const int size = call.size;
    const int width = call.num_heads * size, kv_width = call.num_kv_heads * size;
#pragma omp parallel for if (call.num_tokens > 1 && call.num_tokens * (width + 2 * kv_width) > kSerialElements)
    for (int64_t token = 0; token < call.num_tokens; token++) {
        Element* queries = static_cast<Element*>(call.joint) + token * call.joint_stride;
        const Element *keys = queries + width, *values = keys + kv_width;
        const Element* cosines = static_cast<const Element*>(call.cosines) + token * call.angle_stride;
        const Element* sines = static_cast<const Element*>(call.sines) + token * call.angle_stride;
        const int64_t slot = call.slots[token];
        rotate_heads(
            call, queries, call.num_heads, call.query_norm, cosines, sines,
            [&](int head) { return queries + head * size; });
        rotate_heads(call, keys, call.num_kv_heads, call.key_norm, cosines, sines, [&](int head) {
            return static_cast<Element*>(call.keys) + head * call.key_head_stride + slot * size;
        });
        for (int head = 0; head < call.num_kv_heads; head++)
            std::memcpy(
                static_cast<Element*>(call.values) + head * call.value_head_stride + slot * size, values + head * size,
                size * sizeof(Element));
    }
}

// [heads][tokens][size] of anything, by strides in bytes, to the slots of a cache [heads][slots][size].
static void write_slots(
    const char* from, int64_t head_stride, int64_t token_stride, char* cache, int64_t cache_head_stride,
    const int64_t* slots, int64_t num_heads, int64_t num_tokens, int64_t bytes) {
#pragma omp parallel for if (num_heads * num_tokens * bytes > 4 * kSerialElements)
    for (int64_t task = 0; task < num_heads * num_tokens; task++) {
        const int64_t token = task / num_heads, head = task % num_heads;
        std::memcpy(
            cache + head * cache_head_stride + slots[token] * bytes,
            from + head * head_stride + token * token_stride, bytes);
    }
}
