// SPDX-License-Identifier: Apache-2.0
// The part of the tester's engine in the kernel that makes frames. BPF_PROG_TEST_RUN runs it with live frames: each run is a frame, or
// XDP_DROP while none is due. The kernel uses the same pages again and again and restores nothing but their length, so every header
// byte, the signature and all checksums are written each time.
//
// What a thread is to send stands in `setups`, which is frozen before the program is loaded: to the verifier its numbers are
// constants, and it takes out whatever they rule out. A trial of one stream with one field has a program of just that. Values of
// fields, departures and signatures are those of the tester's other engines, bit by bit.

#include "common.h"
#include "values.h"

static s64 (*const redirect)(u32 device, u64 flags) = (void *)23;
static s64 (*const adjust_tail)(struct xdp_md *, int delta) = (void *)65;
static s64 (*const store_bytes)(struct xdp_md *, u32 at, const void *from, u32 bytes) = (void *)190;

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

/* When a stream's next frame is due; never while nobody has said so. */
ALWAYS u64 due_of(struct control *control, struct stream *s, struct progress *p, u32 number)
{
	if (s->kind != FED)
		return p->next;
	u64 n = p->done;
	if (n >= control->fed[number & (STREAMS - 1)])
		return ~0ull;
	u32 at = s->feed + ((n / DUES) & s->feed_mask);
	struct dues *dues = lookup(&feeds, &at);
	return dues ? dues->due[n % DUES] << FRACTION : ~0ull;
}

enum { NONE = STREAMS, OVER };

/*
 * The stream whose turn it is, of the first `most`: NONE where no frame is due, OVER where none will be. Streams without a rate fill
 * what others leave.
 */
ALWAYS u32 choose_of(struct setup *setup, struct state *state, struct control *control, u64 elapsed, u32 most)
{
	u32 found = OVER, filler = NONE;
	u64 first = ~0ull, place = ~0ull;
	for (u32 i = 0; i < most; i++) {
		if (i >= setup->streams)
			break;
		struct stream *s = &setup->stream[i];
		struct progress *p = &state->stream[i];
		if (p->done >= s->total)
			continue;
		if (found == OVER)
			found = NONE;
		u64 due = due_of(control, s, p, i);
		if (s->kind == UNPACED) {
			if (due < place) {
				place = due;
				filler = i;
			}
		} else if (due <= elapsed && due < first) {
			first = due;
			found = i;
		}
	}
	return found == NONE ? filler : found;
}

APART u32 choose(u64 elapsed)
{
	u32 zero = 0;
	struct setup *setup = lookup(&setups, &zero);
	struct state *state = lookup(&states, &zero);
	struct control *control = lookup(&controls, &zero);
	if (!setup || !state || !control)
		return OVER;
	return choose_of(setup, state, control, elapsed, STREAMS);
}

/* The next value of a stream's field. */
APART u64 draw(u32 number, u32 field)
{
	u32 zero = 0;
	struct setup *setup = lookup(&setups, &zero);
	struct state *state = lookup(&states, &zero);
	if (!setup || !state || number >= STREAMS || field >= FIELDS)
		return 0;
	return next_value(&setup->stream[number].field[field], &state->stream[number].field[field]);
}

/* Copies a template's bytes, all of them where the frame has a signature in its last ones; 0 where the frame is too short. */
ALWAYS int copy(u8 *packet, u8 *end, struct template *template)
{
	u64 *to = (u64 *)packet, *from = (u64 *)template->head;
	if (packet + 60 > end)
		return 0;
#pragma unroll
	for (u32 i = 0; i < 7; i++)
		to[i] = from[i];
	*(u32 *)(to + 7) = *(u32 *)(from + 7);
#pragma unroll
	for (u32 i = 7; i < HEAD / 8; i++) {
		if ((u8 *)(to + i + 1) > end)
			break;
		to[i] = from[i];
	}
	return 1;
}

/* The last bytes of short frames without a signature. */
ALWAYS void copy_rest(u8 *packet, u8 *end, struct template *template)
{
	for (u32 i = 0; i < 8; i++) {
		u32 at = ((template->len & (HEAD - 1)) & ~7u) + i;
		if (at >= template->len || packet + at + 1 > end)
			break;
		packet[at] = template->head[at & (HEAD - 1)];
	}
}

/* Makes the next frame of a stream. `known`, a constant: its number is one, so all that it is to send is known to the verifier. */
ALWAYS int make(struct xdp_md *ctx, struct setup *setup, struct state *state, u32 number, int known, u64 now, u64 elapsed, u64 due)
{
	struct stream *s = &setup->stream[number];
	struct progress *p = &state->stream[number];
	u32 which = s->templates;
	if (s->choices) {
		which += upper(random(&p->sizes), s->choices);
	} else if (s->turns > 1) {
		u32 at = s->order + p->turn;
		u32 *place = lookup(&orders, &at);
		if (!place)
			return XDP_DROP;
		which += *place;
		p->turn = p->turn + 1 >= s->turns ? 0 : p->turn + 1;
	}
	struct template *template = lookup(&templates, &which);
	if (!template)
		return XDP_DROP;
	u32 len = template->len;
	int shorter = (int)len - (int)(ctx->data_end - ctx->data);
	if (shorter && adjust_tail(ctx, shorter)) {
		state->refused++;
		return XDP_DROP;
	}
	/* Behind the first bytes a page is as the frame before has left it: with another payload, or a signature in the middle. */
	if (setup->bodies && len > HEAD) {
		u32 rest = len - HEAD;
		struct body *body = lookup(&bodies, &number);
		if (body && rest <= BODY)
			store_bytes(ctx, HEAD, body->byte, rest);
	}
	u8 *packet = (u8 *)(long)ctx->data;
	u8 *end = (u8 *)(long)ctx->data_end;
	if (!copy(packet, end, template))
		return XDP_DROP;
	if (!s->is_signed && len < HEAD)
		copy_rest(packet, end, template);

	u32 ip = template->ip, l4 = template->l4;
#pragma unroll
	for (u32 i = 0; i < FIELDS; i++) {
		struct field *f = &s->field[i];
		if (i >= s->fields)
			break;
		u64 value = known ? next_value(f, &p->field[i]) : draw(number, i);
		value |= f->fixed;
		u32 at = f->at & (HEAD - 1), bytes = f->bytes;
		u8 *to = packet + at;
		if (to + 8 <= end) {
			if (bytes == 2) {
				*(u16 *)to = __builtin_bswap16(value);
			} else if (bytes == 4) {
				*(u32 *)to = __builtin_bswap32(value);
			} else if (bytes == 6) {
				*(u16 *)to = __builtin_bswap16(value >> 32);
				*(u32 *)(to + 2) = __builtin_bswap32(value);
			} else {
				*(u64 *)to = __builtin_bswap64(value);
			}
		} else if (to + 2 <= end && bytes == 2) {
			*(u16 *)to = __builtin_bswap16(value);
		} else {
			return XDP_DROP;
		}
		u32 sum = bytes == 2 ? (u32)value : words(value);
		ip += sum & f->in_ip;
		l4 += fold(sum) & f->in_l4;
	}
	if (s->ip_at) {
		u32 at = s->ip_at & (HEAD - 1);
		if (packet + at + 2 > end)
			return XDP_DROP;
		*(u16 *)(packet + at) = __builtin_bswap16(~fold(ip));
	}
	if (s->is_signed) {
		u32 at = len - SIGNATURE;
		u32 sequence = p->sequence++;
		u64 first = 0xa9ull << 56 | (u64)setup->tag << 48 |
			    (u64)check_of(setup->tag, s->number, sequence, now) << 32 | (u64)s->number << 16 | sequence >> 16;
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
	if (s->l4_at) {
		u32 at = s->l4_at & (HEAD - 1);
		u16 field = ~fold(l4);
		if (!field && s->l4_udp)
			field = 0xffff;
		if (packet + at + 2 > end)
			return XDP_DROP;
		*(u16 *)(packet + at) = __builtin_bswap16(field);
	}

	p->done++;
	p->bytes += len + setup->overhead;
	if (s->kind == BURSTS && ++p->in_burst >= s->burst) {
		p->in_burst = 0;
		p->next = p->begin += s->period;
	} else if (s->kind != FED && (s->kind != UNPACED || setup->streams != 1)) {
		p->next += s->gap;
	}
	if (s->kind != UNPACED) {
		u32 direction = s->errors & (DIRECTIONS - 1);
		struct histogram *histogram = lookup(&errors, &direction);
		if (histogram)
			record(histogram, (elapsed - due) >> FRACTION);
	}
	return redirect(s->device, 0);
}

SECTION("xdp")
int transmit(struct xdp_md *ctx)
{
	u32 zero = 0;
	struct setup *setup = lookup(&setups, &zero);
	struct state *state = lookup(&states, &zero);
	struct control *control = lookup(&controls, &zero);
	if (!setup || !state || !control || state->over)
		return XDP_DROP;
	/* A few frames that follow one another share a reading of the clock. */
	u64 now = state->now;
	if (setup->share && state->share) {
		state->share--;
	} else {
		now = now_ns();
		if (setup->share) {
			state->share = setup->share;
			state->now = now;
		}
	}
	if (now < control->start) {
		state->share = 0;
		return XDP_DROP;
	}
	if (now >= control->end) {
		state->over = 1;
		return XDP_DROP;
	}
	u64 elapsed = (now - control->start) << FRACTION;
	if (setup->streams == 1) {
		struct progress *p = &state->stream[0];
		if (p->done >= setup->stream[0].total) {
			state->over = 1;
			return XDP_DROP;
		}
		u64 due = 0;
		if (setup->stream[0].kind != UNPACED) {
			due = due_of(control, &setup->stream[0], p, 0);
			if (due > elapsed) {
				state->share = 0;
				return XDP_DROP;
			}
		}
		return make(ctx, setup, state, 0, 1, now, elapsed, due);
	}
	u32 number = setup->streams == 2 ? choose_of(setup, state, control, elapsed, 2) : choose(elapsed);
	if (number >= STREAMS) {
		state->over = number == OVER;
		state->share = 0;
		return XDP_DROP;
	}
	/* Two streams, as of a thread that sends both ways. */
	if (setup->streams == 2) {
		if (number)
			return make(ctx, setup, state, 1, 1, now, elapsed, due_of(control, &setup->stream[1], &state->stream[1], 1));
		return make(ctx, setup, state, 0, 1, now, elapsed, due_of(control, &setup->stream[0], &state->stream[0], 0));
	}
	u64 due = due_of(control, &setup->stream[number], &state->stream[number], number);
	return make(ctx, setup, state, number, 0, now, elapsed, due);
}
