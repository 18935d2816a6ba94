// SPDX-License-Identifier: Apache-2.0
// The tester's engine in the kernel: one program that makes frames, one that accounts for those that come.
//
//   transmit  is run by BPF_PROG_TEST_RUN with live frames: each run is a frame, or XDP_DROP while none is due. The kernel
//             uses the same pages again and again and restores nothing but their length, so every header byte, the
//             signature and all checksums are written each time.
//   receive   is attached to the device: frames with a signature of this trial end here; all others go on to the kernel.
//
// Layouts are those of src/xdp_engine/layout.rs. Values of varying fields, signatures and accounts are those of the tester's
// other engines, bit by bit. No headers of the system are used, so that nothing but clang is needed.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SECTION(name) __attribute__((section(name), used))
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) __typeof__(type) *name
#define ALWAYS static inline __attribute__((always_inline))

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
enum { XDP_DROP = 1, XDP_PASS = 2 };
enum { MAP_ARRAY = 2 };

static void *(*const lookup)(void *map, const void *key) = (void *)1;
static u64 (*const now_ns)(void) = (void *)5;
static u32 (*const processor)(void) = (void *)8;
static s64 (*const redirect)(u32 device, u64 flags) = (void *)23;
static s64 (*const adjust_tail)(struct xdp_md *, int delta) = (void *)65;

#define STREAMS 16
#define TEMPLATES 32
#define FIELDS 8
#define ORDER 64
#define HEAD 128
#define SIGNATURE 18
#define FIRST 0xffffff00u
#define WINDOW (1 << 16)
#define WORDS (WINDOW / 64)
#define CELLS (27 * 1024)
/* Times of departure have 24 bits of fractions of a nanosecond: no error adds up to a microsecond in a trial. */
#define FRACTION 24

enum { COUNT, DOWN, RANDOM };

struct field {
	u32 at, kind, keep, shift, in_ip, in_l4, value, first, last, step;
	u64 random, span;
};

struct template {
	u32 len, ip, l4, odd;
	u8 head[HEAD];
};

struct stream {
	u64 gap, next, done, total, bytes;
	u64 error_sum, error_max;
	u32 number, sequence, fields, turns, turn, ip_at, l4_at, l4_udp, is_signed, padding;
	u8 order[ORDER];
	struct field field[FIELDS];
};

struct lane {
	u64 start, end, refused;
	u32 streams, device, tag, paced, over, overhead;
};

struct histogram {
	u64 cells[CELLS];
};

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

struct {
	UINT(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct lane);
	UINT(max_entries, 1);
} lanes SECTION(".maps");

struct {
	UINT(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct stream);
	UINT(max_entries, STREAMS);
} streams SECTION(".maps");

struct {
	UINT(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct template);
	UINT(max_entries, TEMPLATES);
} templates SECTION(".maps");

struct {
	UINT(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct histogram);
	UINT(max_entries, 1);
} errors SECTION(".maps");

struct {
	UINT(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct inbox);
	UINT(max_entries, 1);
} inboxes SECTION(".maps");

struct {
	UINT(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct flow);
	UINT(max_entries, STREAMS);
} flows SECTION(".maps");

struct {
	UINT(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct histogram);
	UINT(max_entries, STREAMS);
} latencies SECTION(".maps");

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

ALWAYS u32 words(u64 value)
{
	u64 halves = (value >> 32) + (value & 0xffffffff);
	return (u32)(halves >> 16) + (u32)(halves & 0xffff);
}

ALWAYS u32 fold(u32 sum)
{
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum;
}

ALWAYS u16 check_of(u32 tag, u32 stream, u32 sequence, u64 time)
{
	u64 low = (u64)tag << 48 | (u64)stream << 32 | sequence;
	u64 mixed = (time ^ 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
	mixed = ((mixed ^ (mixed >> 32)) + low) * 0xff51afd7ed558ccdull;
	return ((mixed ^ (mixed >> 32)) * 0xc4ceb9fe1a85ec53ull) >> 48;
}

/*
 * Functions that are not static are verified once, by themselves, and not again for every state that their callers may be in:
 * without them the verifier gives up.
 */

/* The stream that is due first, of `n`; STREAMS where all have sent what they were to send. */
__attribute__((noinline)) u32 earliest(u32 n)
{
	u32 found = STREAMS;
	u64 due = ~0ull;
	for (u32 i = 0; i < STREAMS; i++) {
		if (i >= n)
			break;
		/* The counter itself, were it in memory, would be anything to the verifier. */
		u32 key = i;
		struct stream *one = lookup(&streams, &key);
		if (!one)
			break;
		if (one->done < one->total && one->next < due) {
			due = one->next;
			found = i;
		}
	}
	return found;
}

/* The next value of a stream's field. */
__attribute__((noinline)) u32 draw(u32 number, u32 field)
{
	struct stream *stream = lookup(&streams, &number);
	if (!stream || field >= FIELDS)
		return 0;
	struct field *f = &stream->field[field];
	u32 value = f->value;
	if (f->kind == COUNT) {
		f->value = f->last - value >= f->step ? value + f->step : f->first;
		return value;
	}
	if (f->kind == DOWN) {
		f->value = value - f->last >= f->step ? value - f->step : f->first;
		return value;
	}
	u64 z = f->random += 0x9e3779b97f4a7c15ull;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	z ^= z >> 31;
	/* The upper half of the product with a span of at most 2^32. */
	return f->first + (u32)(((z >> 32) * f->span + ((z & 0xffffffff) * f->span >> 32)) >> 32);
}

/* Copies the first `bytes` of a template, a constant. */
#define COPY(bytes)                                                      \
	do {                                                             \
		_Pragma("unroll") for (int i = 0; i < (bytes) / 4; i++)  \
			((u32 *)packet)[i] = ((u32 *)template->head)[i]; \
	} while (0)

SECTION("xdp")
int transmit(struct xdp_md *ctx)
{
	u32 zero = 0;
	struct lane *lane = lookup(&lanes, &zero);
	if (!lane)
		return XDP_DROP;
	u64 now = now_ns();
	if (now < lane->start || lane->over)
		return XDP_DROP;
	if (now >= lane->end) {
		lane->over = 1;
		return XDP_DROP;
	}
	u32 number = earliest(lane->streams);
	if (number >= STREAMS) {
		lane->over = 1;
		return XDP_DROP;
	}
	struct stream *stream = lookup(&streams, &number);
	if (!stream)
		return XDP_DROP;
	u64 due = stream->next;
	u64 elapsed = (now - lane->start) << FRACTION;
	if (lane->paced && due > elapsed)
		return XDP_DROP;

	u32 turn = stream->turn & (ORDER - 1);
	u32 which = stream->order[turn];
	struct template *template = lookup(&templates, &which);
	if (!template)
		return XDP_DROP;
	int shorter = (int)template->len - (int)(ctx->data_end - ctx->data);
	if (shorter && adjust_tail(ctx, shorter)) {
		lane->refused++;
		return XDP_DROP;
	}
	u8 *packet = (u8 *)(long)ctx->data;
	u8 *end = (u8 *)(long)ctx->data_end;
	/* All headers, whatever they are: frames that are shorter have shorter ones. */
	if (packet + HEAD <= end)
		COPY(HEAD);
	else if (packet + 80 <= end)
		COPY(80);
	else if (packet + 60 <= end)
		COPY(60);
	else
		return XDP_DROP;

	u32 ip = template->ip, l4 = template->l4;
	for (u32 i = 0; i < FIELDS; i++) {
		if (i >= stream->fields)
			break;
		struct field *f = &stream->field[i];
		/* Every field is a part of a word of four bytes, of which the rest is kept. */
		u32 at = f->at & (HEAD - 1);
		u32 value = draw(number, i) << (f->shift & 31);
		if (packet + at + 4 > end)
			return XDP_DROP;
		u32 *word = (u32 *)(packet + at);
		*word = __builtin_bswap32((__builtin_bswap32(*word) & f->keep) | value);
		u32 sum = (value >> 16) + (value & 0xffff);
		ip += sum & f->in_ip;
		l4 += sum & f->in_l4;
	}
	if (stream->ip_at) {
		u32 at = stream->ip_at & (HEAD - 1);
		if (packet + at + 2 > end)
			return XDP_DROP;
		*(u16 *)(packet + at) = __builtin_bswap16(~fold(ip));
	}
	if (stream->is_signed) {
		u32 at = template->len - SIGNATURE;
		u32 sequence = stream->sequence++;
		u64 first = 0xa9ull << 56 | (u64)lane->tag << 48 |
			    (u64)check_of(lane->tag, stream->number, sequence, now) << 32 | (u64)stream->number << 16 |
			    sequence >> 16;
		if (at > 4000 || packet + at + SIGNATURE > end)
			return XDP_DROP;
		u8 *to = packet + at;
		*(u64 *)to = __builtin_bswap64(first);
		*(u16 *)(to + 8) = __builtin_bswap16(sequence);
		*(u64 *)(to + 10) = __builtin_bswap64(now);
		u32 sum = fold(words(first) + words(now) + (sequence & 0xffff));
		if (template->odd)
			sum = __builtin_bswap16(sum);
		l4 += sum;
	}
	if (stream->l4_at) {
		u32 at = stream->l4_at & (HEAD - 1);
		u16 field = ~fold(l4);
		if (!field && stream->l4_udp)
			field = 0xffff;
		if (packet + at + 2 > end)
			return XDP_DROP;
		*(u16 *)(packet + at) = __builtin_bswap16(field);
	}

	stream->turn = turn + 1 >= stream->turns ? 0 : turn + 1;
	stream->done++;
	stream->bytes += template->len + lane->overhead;
	stream->next = due + stream->gap;
	if (lane->paced) {
		u64 late = (elapsed - due) >> FRACTION;
		stream->error_sum += late;
		if (late > stream->error_max)
			stream->error_max = late;
		struct histogram *histogram = lookup(&errors, &zero);
		if (histogram)
			record(histogram, late);
	}
	return redirect(lane->device, 0);
}

/* What is skipped has not arrived, whatever the bits of a window before say. Returns nothing of use: the verifier wants a value. */
__attribute__((noinline)) int skip(u32 index, u64 from, u64 to)
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
