// What happens to every token alone between the products: norms, gates, rotation and the write to the cache.
#pragma once

#include "simd.h"

constexpr int64_t kSerialElements = 16384;  // below, waking the other threads takes longer than the work

template <class Element>
static inline float inverse_size(const Element* row, int width, float epsilon) {
    Floats squares = splat(0.0f);
    for (int i = 0; i < width; i += kLanes) {
        const Floats x = load_some(row + i, width - i);
        squares += x * x;
    }
    return 1.0f / std::sqrt(sum_of(squares) / float(width) + epsilon);
}

template <class Input, class Element>
static inline void norm_row(const Input* from, const float* weight, Element* normed, int width, float epsilon) {
    const Floats factor = splat(inverse_size(from, width, epsilon));
    for (int i = 0; i < width; i += kLanes)
        store_some(
            normed + i, load_some(from + i, width - i) * factor * load_some(weight + i, width - i), width - i);
}

// normed = norm(states + residual) * weight; where there is a residual, the sum goes to `sums`, not rounded.
template <class Element>
static void rms_norm(
    const Element* states, const float* residual, const float* weight, Element* normed, float* sums, int64_t rows,
    int width, float epsilon) {
#pragma omp parallel for if (rows > 1 && rows * width > kSerialElements)
    for (int64_t row = 0; row < rows; row++) {
        const int64_t start = row * width;
        if (!residual) {
            norm_row(states + start, weight, normed + start, width, epsilon);
            continue;
        }
        for (int i = 0; i < width; i += kLanes)
            store_some(
                sums + start + i, load_some(states + start + i, width - i) + load_some(residual + start + i, width - i),
                width - i);
        norm_row(sums + start, weight, normed + start, width, epsilon);
    }
}

enum Activation { kSilu = 0, kGeluTanh = 1, kGelu = 2 };

static inline Floats activate(Floats x, int activation) {
    if (activation == kSilu) return x / (splat(1.0f) + exp_of(-x));
    if (activation == kGeluTanh)
        return splat(0.5f) * x *
               (splat(1.0f) + tanh_of(splat(0.79788456f) * (x + splat(0.044715f) * x * x * x)));
    return splat(0.5f) * x * (splat(1.0f) + erf_of(x * splat(0.70710678f)));
}

// out [rows][width] = activation(left half) * right half of joint [rows][2 * width].
template <class Element>
static void gate(const Element* joint, Element* out, int64_t rows, int width, int activation) {
    constexpr int kPiece = 512;
    const int64_t pieces = (width + kPiece - 1) / kPiece;
#pragma omp parallel for if (rows * width > kSerialElements)
    for (int64_t task = 0; task < rows * pieces; task++) {
        const int64_t row = task / pieces;
        const int first = int(task % pieces) * kPiece, end = first + kPiece < width ? first + kPiece : width;
        const Element *left = joint + row * 2 * width, *right = left + width;
        for (int i = first; i < end; i += kLanes)
            store_some(
                out + row * width + i,
                activate(load_some(left + i, end - i), activation) * load_some(right + i, end - i), end - i);
    }
}

struct RotateCall {
    const void* joint;  // [tokens][(heads + 2 * kv heads) * size], tokens by a stride: queries, keys, values
    int64_t joint_stride;
    const void *cosines, *sines;  // [tokens][rotary size], tokens by a stride
    int64_t angle_stride;
    const float *query_norm, *key_norm;  // weights or null
    void *query, *keys, *values;  // [tokens][heads][size]; the cache, by head and slot
    int64_t key_head_stride, value_head_stride;
    const int64_t* slots;
    int64_t num_tokens;
    int32_t num_heads, num_kv_heads, size, rotary_size, norm_spans_heads, is_bf16;
    float epsilon;
};

// One head's vector: scaled by its norm, rotated by halves, rounded once.
template <class Element>
static inline void rotate_head(
    const Element* from, const float* weight, float factor, const Element* cosines, const Element* sines, int size,
    int rotary_size, Element* to) {
    float x[1024];
    for (int i = 0; i < size; i += kLanes) {
        Floats value = load_some(from + i, size - i);
        if (weight) value = value * splat(factor) * load_some(weight + i, size - i);
        store_some(x + i, value, size - i);
    }
    const int half = rotary_size / 2;
    for (int i = 0; i < half; i += kLanes) {
        const int count = half - i;
        const Floats low = load_some(x + i, count), high = load_some(x + half + i, count);
        store_some(
            to + i, low * load_some(cosines + i, count) - high * load_some(sines + i, count), count);
        store_some(
            to + half + i,
            high * load_some(cosines + half + i, count) + low * load_some(sines + half + i, count), count);
    }
    for (int i = rotary_size; i < size; i++) from_float(x[i], to + i);
}

template <class Element>
static void rotate_and_write(const RotateCall& call) {
    const int size = call.size;
    const int width = call.num_heads * size, kv_width = call.num_kv_heads * size;
#pragma omp parallel for if (call.num_tokens > 1 && call.num_tokens * (width + 2 * kv_width) > kSerialElements)
    for (int64_t token = 0; token < call.num_tokens; token++) {
        const Element* queries = static_cast<const Element*>(call.joint) + token * call.joint_stride;
        const Element *keys = queries + width, *values = keys + kv_width;
        const Element* cosines = static_cast<const Element*>(call.cosines) + token * call.angle_stride;
        const Element* sines = static_cast<const Element*>(call.sines) + token * call.angle_stride;
        const int64_t slot = call.slots[token];
        const bool spans = call.norm_spans_heads;
        float factor = call.query_norm && spans ? inverse_size(queries, width, call.epsilon) : 1.0f;
        for (int head = 0; head < call.num_heads; head++) {
            const Element* from = queries + head * size;
            if (call.query_norm && !spans) factor = inverse_size(from, size, call.epsilon);
            rotate_head(
                from, call.query_norm ? call.query_norm + (spans ? head * size : 0) : nullptr, factor, cosines, sines,
                size, call.rotary_size, static_cast<Element*>(call.query) + token * width + head * size);
        }
        factor = call.key_norm && spans ? inverse_size(keys, kv_width, call.epsilon) : 1.0f;
        for (int head = 0; head < call.num_kv_heads; head++) {
            const Element* from = keys + head * size;
            if (call.key_norm && !spans) factor = inverse_size(from, size, call.epsilon);
            rotate_head(
                from, call.key_norm ? call.key_norm + (spans ? head * size : 0) : nullptr, factor, cosines, sines,
                size, call.rotary_size,
                static_cast<Element*>(call.keys) + head * call.key_head_stride + slot * size);
            std::memcpy(
                static_cast<Element*>(call.values) + head * call.value_head_stride + slot * size, values + head * size,
                size * sizeof(Element));
        }
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
