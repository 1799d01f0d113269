// A tile of a prompt's queries in bfloat16.
//
// Everything is computed transposed: scores = keys x queries, mixed = values x weights. So a vector holds
// sixteen queries, their maxima and sums are vectors that no step adds across lanes, and what the
// softmax leaves is the right operand of the second product as it stands. A strip is sixteen rows
// (queries times the heads of a group); keys and values are packed once for all strips of the item.
#pragma once

#include "attention_call.h"

#if defined(__AVX512BF16__)

constexpr int kStrip = 16;  // rows
constexpr int kHalf = 32;   // keys: a strip that sees no more of a block computes no more
constexpr float kToPowersOfTwo = 1.44269504f;  // exp(x) = 2^(x * this)

struct Strip {
    Floats largest, total;  // of scores in powers of two
    Ints first_visible, end_visible;
    int first_key, end_key;  // from the first that any row sees to the last
};

// 2^x to within 5e-5 of the result, for x <= 0; 2^-125 below that; NaN stays NaN.
static inline Floats power_of_two(Floats x) {
    const Floats magic = splat(12582912.0f);
    x = (Floats)_mm512_max_ps((__m512)splat(-125.0f), (__m512)x);
    const Floats shifted = x + magic;
    const Floats r = x - (shifted - magic);
    Floats p = splat(9.61812911e-3f);
    p = p * r + splat(5.55041087e-2f);
    p = p * r + splat(2.40226507e-1f);
    p = p * r + splat(6.93147181e-1f);
    p = p * r + splat(1.0f);
    return (Floats)((Ints)p + ((Ints)shifted << 23));
}

// The 16 x 16 numbers out (+)= left x right, where `left` is [steps][16] by a stride and `right` is [steps][16].
template <bool kAdd>
static inline void multiply_square(
    const uint32_t* left, int left_stride, const uint32_t* right, int steps, float* out) {
    Floats sums[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) sums[r] = kAdd ? load(out + r * kStrip) : splat(0.0f);
    for (int step = 0; step < steps; step++, left += left_stride, right += kStrip) {
        const Words columns = load_words(right);
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++) sums[r] = Bf16Dot::add(sums[r], left[r], columns);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) store(out + r * kStrip, sums[r]);
}

// Products of a strip by vectors. `halves` of 32 keys are what the strip needs of a block.
struct ByVectors {
    static constexpr int kKeyMultiple = 2;  // elements that a row of keys is filled up to a multiple of

    // Keys by pairs of elements: [key columns / 2][64].
    static inline void pack_keys(
        const Bf16* const* keys, int count, int key_size, int, uint32_t* packed) {
        pack_transposed<Bf16Dot>(keys, count, key_size, kKeys, packed);
    }

    // Values by pairs of keys, as they come: [32][value columns].
    static inline const uint32_t* pack_values(const uint32_t* pairs, int, uint32_t*) { return pairs; }

    // scores [keys][16] = keys x queries [key columns / 2][16].
    static inline void multiply_keys(
        const uint32_t* keys, int key_columns, const uint32_t* queries, int halves, float* scores) {
        for (int key = 0; key < halves * kHalf; key += 16)
            multiply_square<false>(keys + key, kKeys, queries, key_columns / 2, scores + key * kStrip);
    }

    // mixed [value columns][16] += values, transposed, x weights [pairs of keys][16].
    static inline void multiply_values(
        const uint32_t* values, int value_columns, const uint32_t* weights, int halves, float* mixed) {
        for (int column = 0; column < value_columns; column += 16)
            multiply_square<true>(
                values + column, value_columns, weights, halves * kHalf / 2, mixed + column * kStrip);
    }
};

// Scores as they come become powers of two, bounded by the soft-cap and -infinity where a row doesn't see the key.
static inline void finish_scores(const AttentionCall& call, const Strip& strip, int first, int num_keys, float* scores) {
    for (int key = 0; key < num_keys; key++) {
        Floats s = load(scores + key * kStrip) * splat(call.scaling);
        if (call.softcap > 0) s = splat(call.softcap) * tanh_of(s / splat(call.softcap));
        const Ints at = Ints{} + (first + key);
        s = at < strip.end_visible ? s * splat(kToPowersOfTwo) : splat(-kInfinity);
        store(scores + key * kStrip, at < strip.first_visible ? splat(-kInfinity) : s);
    }
}

// Scores [keys][16], times `factor`, become weights, two keys to a word: [keys / 2][16]. Returns by what all before fades.
static inline Floats soften_strip(
    Strip& strip, float factor, int num_keys, const float* scores, uint32_t* weights) {
    alignas(64) static const uint16_t kPairs[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                    8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i pairs = _mm512_load_si512(kPairs);
    Floats largest[4];
    for (int i = 0; i < 4; i++) largest[i] = load(scores + i * kStrip);
    for (int key = 4; key < num_keys; key += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            largest[i] = (Floats)_mm512_max_ps((__m512)load(scores + (key + i) * kStrip), (__m512)largest[i]);
    const Floats left = largest[0] > largest[1] ? largest[0] : largest[1];
    const Floats right = largest[2] > largest[3] ? largest[2] : largest[3];
    const Floats here = (left > right ? left : right) * splat(factor), before = strip.largest;
    const Floats now = here > before ? here : before;
    const Floats shift = now == splat(-kInfinity) ? splat(0.0f) : now;
    Floats totals[2] = {splat(0.0f), splat(0.0f)};
#pragma GCC unroll 4
    for (int key = 0; key < num_keys; key += 2) {
        const Floats even = power_of_two(load(scores + key * kStrip) * splat(factor) - shift);
        const Floats odd = power_of_two(load(scores + (key + 1) * kStrip) * splat(factor) - shift);
        totals[0] += even;
        totals[1] += odd;
        const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
        _mm512_storeu_si512(weights + key / 2 * kStrip, _mm512_permutexvar_epi16(pairs, both));
    }
    const Floats faded = before == splat(-kInfinity) ? splat(0.0f) : power_of_two(before - shift);
    strip.largest = now;
    strip.total = strip.total * faded + totals[0] + totals[1];
    return faded;
}

// Values by pairs of keys, [32][value columns], zeros beyond the last key.
static inline void pair_values(
    const Bf16* const* values, int count, int value_size, int value_columns, uint32_t* pairs) {
    pack_rows<Bf16Dot>(values, count, value_size, value_columns, pairs);
    const int filled = (count + 1) / 2;
    std::memset(pairs + filled * value_columns, 0, (kKeys / 2 - filled) * value_columns * sizeof(uint32_t));
}

// Queries of a strip by pairs of elements, [key columns / 2][16], and what each of its rows sees.
static inline Strip begin_strip(
    const AttentionCall& call, const Item& item, int kv_head, int first_row, int key_columns, uint32_t* queries) {
    const int group = call.num_heads / call.num_kv_heads, rest = item.num_queries * group - first_row;
    const int num_rows = rest < kStrip ? rest : kStrip;
    const Bf16* rows[kStrip];
    Strip strip{splat(-kInfinity), splat(0.0f), {}, {}, 0, 0};
    for (int i = 0; i < kStrip; i++) {
        const int row = first_row + (i < num_rows ? i : num_rows - 1);
        rows[i] = static_cast<const Bf16*>(call.query) + (kv_head * group + row % group) * call.query_head_stride +
                  (item.query + row / group) * call.query_token_stride;
        const int position = item.position + row / group;
        strip.first_visible[i] = first_key(call, position);
        strip.end_visible[i] = position + 1;
    }
    strip.first_key = strip.first_visible[0];
    strip.end_key = strip.end_visible[kStrip - 1];
    pack_transposed<Bf16Dot>(rows, num_rows, call.key_size, kStrip, queries);
    const int filled = (call.key_size + 1) / 2;
    std::memset(queries + filled * kStrip, 0, (key_columns / 2 - filled) * kStrip * sizeof(uint32_t));
    return strip;
}

static inline void finish_strip(
    const AttentionCall& call, const Item& item, int kv_head, int first_row, int value_columns, const Strip& strip,
    const float* mixed, float* rows) {
    const int group = call.num_heads / call.num_kv_heads, num_rows = item.num_queries * group;
    for (int column = 0; column < value_columns; column += 16) {
        __m512i tile[16];
        for (int i = 0; i < 16; i++) tile[i] = _mm512_loadu_si512(mixed + (column + i) * kStrip);
        transpose_16x16(tile);
        for (int i = 0; i < 16; i++) _mm512_storeu_si512(rows + i * value_columns + column, tile[i]);
    }
    const Floats largest = strip.largest / splat(kToPowersOfTwo);
    for (int i = 0; i < kStrip && first_row + i < num_rows; i++)
        write_output<Bf16>(
            call, item.query + (first_row + i) / group, kv_head * group + (first_row + i) % group,
            rows + i * value_columns, largest[i], strip.total[i]);
}

// A thread's memory for one item.
struct StripMemory {
    int key_columns, value_columns;
    size_t query_words, mixed_floats;  // of a strip
    Strip* strips;
    uint32_t *queries, *keys, *pairs, *values, *weights;
    float *mixed, *scores, *rows;
    StripMemory(Scratch& scratch, const AttentionCall& call, int key_multiple, int num_strips)
        : key_columns(round_up(call.key_size, key_multiple)),
          value_columns(round_up(call.value_size, 16)),
          query_words(size_t(key_columns) / 2 * kStrip),
          mixed_floats(size_t(value_columns) * kStrip) {
        const size_t key_words = size_t(key_columns) / 2 * kKeys, value_words = size_t(value_columns) * kKeys / 2;
        scratch.need(
            num_strips * (sizeof(Strip) + 4 * (query_words + mixed_floats)) +
            4 * (key_words + 2 * value_words + kKeys / 2 * kStrip + kKeys * kStrip + mixed_floats) + 64 * 16);
        strips = scratch.take<Strip>(num_strips);
        queries = scratch.take<uint32_t>(num_strips * query_words);
        mixed = scratch.take<float>(num_strips * mixed_floats);
        keys = scratch.take<uint32_t>(key_words);
        pairs = scratch.take<uint32_t>(value_words);
        values = scratch.take<uint32_t>(value_words);
        weights = scratch.take<uint32_t>(kKeys / 2 * kStrip);
        scores = scratch.take<float>(kKeys * kStrip);
        rows = scratch.take<float>(mixed_floats);
    }
};

// One strip against a block of keys, from `first` on, packed as `Products` wants them.
template <class Products>
static inline void attend_block(
    const AttentionCall& call, const StripMemory& memory, int index, int first, const uint32_t* values) {
    Strip& strip = memory.strips[index];
    const int next = first + kKeys;
    if (strip.end_key <= first || strip.first_key >= next) return;
    const int halves = strip.end_key <= first + kHalf ? 1 : kKeys / kHalf, num_keys = halves * kHalf;
    Products::multiply_keys(
        memory.keys, memory.key_columns, memory.queries + index * memory.query_words, halves, memory.scores);
    float factor = call.scaling * kToPowersOfTwo;
    const bool all_visible = strip.end_visible[0] >= next && strip.first_visible[kStrip - 1] <= first;
    if (!all_visible || call.softcap > 0 || call.scaling < 0) {
        finish_scores(call, strip, first, num_keys, memory.scores);
        factor = 1.0f;
    }
    const Floats faded = soften_strip(strip, factor, num_keys, memory.scores, memory.weights);
    float* mixed = memory.mixed + index * memory.mixed_floats;
    if (_mm512_cmp_ps_mask((__m512)faded, (__m512)splat(1.0f), _CMP_NEQ_UQ))
        for (int column = 0; column < memory.value_columns; column++)
            store(mixed + column * kStrip, load(mixed + column * kStrip) * faded);
    Products::multiply_values(values, memory.value_columns, memory.weights, halves, mixed);
}

template <class Products>
static void run_by_strips(const AttentionCall& call, const Item& item, int kv_head, Scratch& scratch) {
    const int num_rows = item.num_queries * (call.num_heads / call.num_kv_heads);
    const int num_strips = (num_rows + kStrip - 1) / kStrip;
    const StripMemory memory(scratch, call, Products::kKeyMultiple, num_strips);
    for (int i = 0; i < num_strips; i++)
        memory.strips[i] = begin_strip(
            call, item, kv_head, i * kStrip, memory.key_columns, memory.queries + i * memory.query_words);
    std::memset(memory.mixed, 0, sizeof(float) * num_strips * memory.mixed_floats);

    const Bf16 *keys[2][kKeys], *values[2][kKeys];
    int count = item.end_key - item.first_key < kKeys ? item.end_key - item.first_key : kKeys;
    find_rows(call, item, kv_head, item.first_key, count, keys[0], values[0]);
    int side = 0;
    for (int first = item.first_key; first < item.end_key; first += kKeys, side ^= 1) {
        const int next = first + kKeys;
        const int next_count = item.end_key - next < kKeys ? item.end_key - next : kKeys;
        const Ahead<Bf16> ahead{keys[side ^ 1], values[side ^ 1], next_count, call.key_size, call.value_size};
        if (next_count > 0) find_rows(call, item, kv_head, next, next_count, keys[side ^ 1], values[side ^ 1]);
        Products::pack_keys(keys[side], count, call.key_size, memory.key_columns, memory.keys);
        pair_values(values[side], count, call.value_size, memory.value_columns, memory.pairs);
        const uint32_t* block_values = Products::pack_values(memory.pairs, memory.value_columns, memory.values);
        for (int i = 0; i < num_strips; i++) {
            ahead.part(i, num_strips);
            attend_block<Products>(call, memory, i, first, block_values);
        }
        count = next_count;
    }
    for (int i = 0; i < num_strips; i++)
        finish_strip(
            call, item, kv_head, i * kStrip, memory.value_columns, memory.strips[i],
            memory.mixed + i * memory.mixed_floats, memory.rows);
}

#endif
