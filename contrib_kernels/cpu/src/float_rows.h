// A linear layer of float32 rows, any number of them, with weights that are widened in registers.
//
// A weight is packed as [blocks of outputs][inputs][outputs of the block], a block being two vectors, so that a
// thread reads its share from front to back, and 16 bits a weight, or 8, are all that memory has to bring. A
// vector of a step of inputs is widened once and multiplied with as many rows as there are registers to add up in:
// the products keep both multipliers of a core busy meanwhile. Rows are taken in pieces that stay in the second cache
// while all outputs go by.
#pragma once

#include <algorithm>

#include "linear.h"

constexpr int kFloatBlock = 2 * kLanes;

// Each: two vectors of weights from one step of a block, and the bytes of such a step.
struct FloatWeights {
    static constexpr int kStepBytes = 4 * kFloatBlock;
    static inline void widen(const char* from, Floats& first, Floats& second) {
        first = load(reinterpret_cast<const float*>(from));
        second = load(reinterpret_cast<const float*>(from) + kLanes);
    }
};
struct Bf16Weights {
    static constexpr int kStepBytes = 2 * kFloatBlock;
    static inline void widen(const char* from, Floats& first, Floats& second) {
        const Words pairs = load_words(reinterpret_cast<const uint32_t*>(from));  // a word of each: cheaper than apart
        first = (Floats)(pairs << 16), second = (Floats)(pairs & 0xffff0000u);
    }
};
struct Int8Weights {
    static constexpr int kStepBytes = kFloatBlock;
    static inline void widen(const char* from, Floats& first, Floats& second) {
        first = load(reinterpret_cast<const int8_t*>(from));
        second = load(reinterpret_cast<const int8_t*>(from) + kLanes);
    }
};

// kRows rows by kBlocks neighbouring blocks from output `first` on; `block_bytes` apart, or 0 where there is but one.
template <class Weights, int kRows, int kBlocks>
static void float_tile(
    const LinearLayer& linear, const float* states, const char* block, size_t block_bytes, float* out, int first) {
    constexpr int kVectors = 2 * kBlocks;
    constexpr int kAheadBytes = kRows <= 2 ? 1024 : 8192;  // as measured: one or two rows leave no time to be far ahead
    const int inputs = linear.inputs, outputs = linear.outputs;
    Floats sums[kRows][kVectors];
    for (int r = 0; r < kRows; r++)
        for (int v = 0; v < kVectors; v++) sums[r][v] = Floats{};
    for (int k = 0; k < inputs; k++) {
        Floats weights[kVectors];
#pragma GCC unroll 2
        for (int b = 0; b < kBlocks; b++) {
            const char* step = block + b * block_bytes + size_t(k) * Weights::kStepBytes;
            __builtin_prefetch(step + kAheadBytes);
            Weights::widen(step, weights[2 * b], weights[2 * b + 1]);
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; r++) {
            const Floats state = splat(states[size_t(r) * inputs + k]);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; v++) sums[r][v] += state * weights[v];
        }
    }
    const float* bias = static_cast<const float*>(linear.bias);
    for (int v = 0; v < kVectors && first + v * kLanes < outputs; v++) {
        const int at = first + v * kLanes, count = outputs - at;
        const Floats scales = linear.scales ? load_some(linear.scales + at, count) : splat(1.0f);
        const Floats added = bias ? load_some(bias + at, count) : splat(0.0f);
        for (int r = 0; r < kRows; r++)
            store_some(out + size_t(r) * outputs + at, sums[r][v] * scales + added, count);
    }
}

// The same for a number of rows that is known only now, of at most kRows.
template <class Weights, int kRows>
static inline void float_tile(
    int rows, const LinearLayer& linear, const float* states, const char* block, float* out, int first) {
    if (rows == kRows) return float_tile<Weights, kRows, 1>(linear, states, block, 0, out, first);
    if constexpr (kRows > 1) float_tile<Weights, kRows - 1>(rows, linear, states, block, out, first);
}

constexpr int kFloatTileRows = kLanes == 16 ? 12 : 6;  // as many as there are registers for
constexpr int kPieceBytes = 256 * 1024;
constexpr int kShares = 24;

// How many of so many tasks a thread takes at once. Threads take more as they get done: all wait for the last one, and
// a core may be taken from a thread at any time, by the server's other processes or by another tenant of the machine.
static inline int share_of(int tasks) { return std::max(1, tasks / kShares); }

// One or two rows: of one block there are too few sums to hide how long each addition takes.
template <class Weights, int kRows>
static void float_few_rows(const LinearLayer& linear, const float* states, float* out) {
    const int blocks = (linear.outputs + kFloatBlock - 1) / kFloatBlock;
    const size_t block_bytes = size_t(linear.inputs) * Weights::kStepBytes;
    const int pairs = (blocks + 1) / 2;
#pragma omp parallel for schedule(dynamic, share_of(pairs)) if (int64_t(linear.inputs) * linear.outputs > 4096)
    for (int pair = 0; pair < pairs; pair++) {
        const char* block = static_cast<const char*>(linear.weight) + 2 * pair * block_bytes;
        float_tile<Weights, kRows, 2>(
            linear, states, block, 2 * pair + 1 < blocks ? block_bytes : 0, out, 2 * pair * kFloatBlock);
    }
}

template <class Weights>
static void float_rows(const LinearLayer& linear, const float* states, float* out, int64_t rows) {
    if (rows == 1) return float_few_rows<Weights, 1>(linear, states, out);
    if (rows == 2) return float_few_rows<Weights, 2>(linear, states, out);
    const int blocks = (linear.outputs + kFloatBlock - 1) / kFloatBlock;
    const size_t block_bytes = size_t(linear.inputs) * Weights::kStepBytes;
    const int64_t most = std::max(1, kPieceBytes / (4 * linear.inputs * kFloatTileRows)) * kFloatTileRows;
    for (int64_t start = 0; start < rows; start += most) {
        const int count = int(std::min(most, rows - start));
        const int tiles = (count + kFloatTileRows - 1) / kFloatTileRows;
#pragma omp parallel for schedule(dynamic, share_of(blocks)) if (int64_t(linear.inputs) * linear.outputs > 4096)
        for (int b = 0; b < blocks; b++) {
            const char* block = static_cast<const char*>(linear.weight) + b * block_bytes;
            for (int tile = 0; tile < tiles; tile++) {  // of about as many rows each
                const int row = tile * count / tiles, next = (tile + 1) * count / tiles;
                float_tile<Weights, kFloatTileRows>(
                    next - row, linear, states + (start + row) * linear.inputs, block,
                    out + (start + row) * linear.outputs, b * kFloatBlock);
            }
        }
    }
}

static void float_rows(const LinearLayer& linear, const float* states, float* out, int64_t rows) {
    if (linear.format == kBf16) return float_rows<Bf16Weights>(linear, states, out, rows);
    if (linear.format == kInt8) return float_rows<Int8Weights>(linear, states, out, rows);
    float_rows<FloatWeights>(linear, states, out, rows);
}
