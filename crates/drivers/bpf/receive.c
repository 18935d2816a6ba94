// SPDX-License-Identifier: Apache-2.0
// The part of the tester's engine in the kernel that accounts for frames: it is attached to the device, frames with a signature of
// this trial end here, and all others go on to the kernel. Accounts are those of the tester's other engines, bit by bit.

#include "common.h"

static u32 (*const processor)(void) = (void *)8;

#define FLOWS 64
#define FIRST 0xffffff00u
#define WINDOW (1 << 16)
#define WORDS (WINDOW / 64)

struct inbox {
	u32 on, tag, base, flows, core, padding;
	/* Frames that another processor than `core` has taken. */
	u64 elsewhere;
};

struct flow {
	u64 next, end;
	u64 received, duplicated, reordered, late, impossible;
	u64 min, max, sum, last, jitter16;
	u64 seen[WORDS];
};

ARRAY(inboxes, struct inbox, 1);
ARRAY(flows, struct flow, FLOWS);
ARRAY(latencies, struct histogram, FLOWS);

/* What is skipped has not arrived, whatever the bits of a window before say. Returns nothing of use: the verifier wants a value. */
APART int skip(u32 index, u64 from, u64 to)
{
	struct flow *flow = lookup(&flows, &index);
	if (!flow)
		return 0;
	if (to - from >= WINDOW) {
		for (u32 i = 0; i < WORDS; i++)
			/* volatile: the compiler would call memset, which there is none. */
			*(volatile u64 *)&flow->seen[i] = 0;
		return 0;
	}
	u64 *first = &flow->seen[(from >> 6) & (WORDS - 1)], *last = &flow->seen[(to >> 6) & (WORDS - 1)];
	u64 below = (1ull << (from & 63)) - 1, above = ~0ull << (to & 63);
	u32 full = (to >> 6) - (from >> 6);
	if (!full) {
		*first &= below | above;
		return 0;
	}
	*first &= below;
	for (u32 i = 1; i < WORDS; i++) {
		if (i >= full)
			break;
		flow->seen[((from >> 6) + i) & (WORDS - 1)] = 0;
	}
	*last &= above;
	return 0;
}

/* Notes a frame's number; 1 where it is the first with it. */
ALWAYS int arrive(struct flow *flow, u32 index, u32 sequence)
{
	u64 next = flow->next;
	s64 distance = (int)(sequence - (FIRST + (u32)next));
	u64 number = next + distance;
	if ((s64)number < 0 || number >= flow->end) {
		flow->impossible++;
		return 0;
	}
	u64 bit = 1ull << (number & 63);
	u64 *word = &flow->seen[(number >> 6) & (WORDS - 1)];
	if (distance >= 0) {
		if (distance)
			skip(index, next, number);
		*word |= bit;
		flow->next = number + 1;
		flow->received++;
		return 1;
	}
	if (next - number > WINDOW) {
		flow->late++;
		return 0;
	}
	if (*word & bit) {
		flow->duplicated++;
		return 0;
	}
	*word |= bit;
	flow->received++;
	flow->reordered++;
	return 1;
}

SECTION("xdp")
int receive(struct xdp_md *ctx)
{
	u32 zero = 0;
	struct inbox *inbox = lookup(&inboxes, &zero);
	if (!inbox || !inbox->on)
		return XDP_PASS;
	u8 *packet = (u8 *)(long)ctx->data;
	u8 *end = (u8 *)(long)ctx->data_end;
	u32 at = (u32)(ctx->data_end - ctx->data) - SIGNATURE;
	/* The compiler would count back from the end, which the verifier does not follow. */
	asm volatile("" : "+r"(at));
	if (at > 4000 || packet + at + SIGNATURE > end)
		return XDP_PASS;
	u8 *from = packet + at;
	u64 head = __builtin_bswap64(*(u64 *)from);
	u32 low = __builtin_bswap16(*(u16 *)(from + 8));
	u64 time = __builtin_bswap64(*(u64 *)(from + 10));
	u32 tag = (head >> 48) & 0xff, number = (head >> 16) & 0xffff;
	u32 sequence = (u32)((head & 0xffff) << 16) | low;
	u32 index = number - inbox->base;
	if (head >> 56 != 0xa9 || tag != inbox->tag || index >= inbox->flows)
		return XDP_PASS;
	if (check_of(tag, number, sequence, time) != ((head >> 32) & 0xffff))
		return XDP_PASS;
	struct flow *flow = lookup(&flows, &index);
	if (!flow)
		return XDP_PASS;
	if (processor() != inbox->core)
		inbox->elsewhere++;
	if (!arrive(flow, index, sequence))
		return XDP_DROP;
	u64 now = now_ns();
	u64 latency = now > time ? now - time : 0;
	if (latency < flow->min)
		flow->min = latency;
	if (latency > flow->max)
		flow->max = latency;
	flow->sum += latency;
	if (flow->received > 1) {
		/* RFC 3550, A.8: sixteen times the jitter, rounded. */
		u64 change = latency > flow->last ? latency - flow->last : flow->last - latency;
		flow->jitter16 += change - ((flow->jitter16 + 8) >> 4);
	}
	flow->last = latency;
	struct histogram *histogram = lookup(&latencies, &index);
	if (histogram)
		record(histogram, latency);
	return XDP_DROP;
}
