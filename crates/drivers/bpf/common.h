// SPDX-License-Identifier: Apache-2.0
// What the programs for the kernel share: both of the tester's engine, and the fast path. No headers of the system are used, so that
// nothing but clang is needed. The engine's layouts are those of src/xdp_engine/layout.rs.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;
typedef unsigned __int128 u128;

#define SECTION(name) __attribute__((section(name), used))
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) __typeof__(type) *name
#define ALWAYS static inline __attribute__((always_inline))
/*
 * Functions that are not static are verified once, by themselves, and not again for every state that their callers may be in:
 * without them the verifier gives up.
 */
#define APART __attribute__((noinline))

#define ARRAY(name, entry, entries)               \
	struct {                                  \
		UINT(type, MAP_ARRAY);            \
		TYPE(key, u32);                   \
		TYPE(value, entry);               \
		UINT(max_entries, entries);       \
	} name SECTION(".maps")

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
enum { XDP_DROP = 1, XDP_PASS = 2 };
enum { MAP_ARRAY = 2 };

static void *(*const lookup)(void *map, const void *key) = (void *)1;
static u64 (*const now_ns)(void) = (void *)5;

#define SIGNATURE 18
#define CELLS (27 * 1024)

struct histogram {
	u64 cells[CELLS];
};

char terms[] SECTION("license") = "Apache-2.0";

/* Cells of three significant digits, as HDR histograms have them: 2048 of 1 ns, then 1024 for each doubling. */
ALWAYS void record(struct histogram *histogram, u64 value)
{
	u64 left = value;
	u32 shift = 0;
	if (value >> 36)
		value = left = (1ull << 36) - 1;
	if (left >= 1ull << 27) { shift += 16; left >>= 16; }
	if (left >= 1ull << 19) { shift += 8; left >>= 8; }
	if (left >= 1ull << 15) { shift += 4; left >>= 4; }
	if (left >= 1ull << 13) { shift += 2; left >>= 2; }
	if (left >= 1ull << 12) { shift += 1; left >>= 1; }
	if (left >= 1ull << 11) { shift += 1; left >>= 1; }
	u64 cell = ((u64)shift << 10) + left;
	if (cell < CELLS)
		histogram->cells[cell]++;
}

ALWAYS u16 check_of(u32 tag, u32 stream, u32 sequence, u64 time)
{
	u64 low = (u64)tag << 48 | (u64)stream << 32 | sequence;
	u64 mixed = (time ^ 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
	mixed = ((mixed ^ (mixed >> 32)) + low) * 0xff51afd7ed558ccdull;
	return ((mixed ^ (mixed >> 32)) * 0xc4ceb9fe1a85ec53ull) >> 48;
}
