// SPDX-License-Identifier: Apache-2.0
// What the program that makes frames knows, and the values of varying fields. A field is a part of a header that is written at once,
// of 2, 4, 6 or 8 bytes; an IPv6 address of which both halves vary is two fields, each with a generator of its own in the same state,
// which draws the whole address and gives its half.

#define STREAMS 16
/* A thread may send both ways. */
#define DIRECTIONS 2
#define FIELDS 10
#define HEAD 128
#define ROWS 128
#define DUES 512
/* Bytes of a frame behind HEAD, at most. */
#define BODY 3280
/* Times of departure have 24 bits of fractions of a nanosecond: no error adds up to a microsecond in a trial. */
#define FRACTION 24
/* Map flag BPF_F_RDONLY_PROG: programs do not write. */
#define READ_ONLY 0x80

/* How a field gets its next value; WIDE: from values of 128 bits. */
enum { COUNT, DOWN, RANDOM, LIST, PICK, ZIPF, COUNT_WIDE, DOWN_WIDE, RANDOM_WIDE, RANDOM_MASKED };
/* How a stream's departures follow one another. */
enum { EVEN, UNPACED, BURSTS, FED };

struct field {
	u32 at, bytes, kind, high, in_ip, in_l4, rows, fixed;
	u64 every, span;
	u64 first, first_high, last, last_high, step, step_high;
};

struct stream {
	u64 total, gap, period, burst;
	u32 kind, number, fields, is_signed;
	u32 templates, choices, order, turns;
	u32 ip_at, l4_at, l4_udp, device;
	u32 feed, feed_mask, errors, padding;
	struct field field[FIELDS];
};

/* What a thread is to send; does not change. */
struct setup {
	u32 streams, tag, overhead, share, bodies, padding;
	struct stream stream[STREAMS];
};

/* How far a field is. */
struct place {
	u64 value, value_high, left, random;
};

/* How far a stream is. */
struct progress {
	u64 next, done, bytes, begin, in_burst, sizes;
	u32 sequence, turn;
	struct place field[FIELDS];
};

struct state {
	u64 refused, now;
	u32 share, over;
	struct progress stream[STREAMS];
};

/* What the tester says while frames are sent: when, and how many departures of each stream it has written to `feeds`. */
struct control {
	u64 start, end, fed[STREAMS];
};

struct template {
	u32 len, ip, l4, odd;
	u8 head[HEAD];
};

/* A value of a list, and of a prefix its part of a column and whose the rest is. */
struct row {
	u64 low, high;
	u32 own, other, host, padding;
};

struct rows {
	struct row row[ROWS];
};

struct body {
	u8 byte[BODY];
};

struct dues {
	u64 due[DUES];
};

struct {
	UINT(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct setup);
	UINT(max_entries, 1);
	UINT(map_flags, READ_ONLY);
} setups SECTION(".maps");

/* Those of 1 entry that may need more get it when they are made. */
ARRAY(states, struct state, 1);
ARRAY(controls, struct control, 1);
ARRAY(errors, struct histogram, DIRECTIONS);
ARRAY(templates, struct template, 1);
ARRAY(bodies, struct body, 1);
ARRAY(orders, u32, 1);
ARRAY(lists, struct rows, 1);
ARRAY(feeds, struct dues, 1);

/* SplitMix64. */
ALWAYS u64 random(u64 *state)
{
	u64 z = *state += 0x9e3779b97f4a7c15ull;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* The upper half of the product. */
ALWAYS u64 upper(u64 a, u64 b)
{
	u64 low = (a & 0xffffffff) * (b & 0xffffffff);
	u64 one = (a >> 32) * (b & 0xffffffff) + (low >> 32);
	if (!(b >> 32))
		return one >> 32;
	u64 other = (a & 0xffffffff) * (b >> 32) + (one & 0xffffffff);
	return (a >> 32) * (b >> 32) + (one >> 32) + (other >> 32);
}

ALWAYS struct row *row_of(struct field *f, u64 at)
{
	u32 n = f->rows + at, key = n / ROWS;
	struct rows *rows = lookup(&lists, &key);
	return rows ? &rows->row[n % ROWS] : 0;
}

ALWAYS u128 both(u64 high, u64 low)
{
	return (u128)high << 64 | low;
}

ALWAYS u64 half(struct field *f, u128 value)
{
	return f->high ? (u64)(value >> 64) : (u64)value;
}

/* An address of a prefix: popular ones more often, hosts evenly within it. */
ALWAYS u64 popular(struct field *f, struct place *p)
{
	u64 z = random(&p->random);
	u64 column = upper(z, f->span);
	struct row *row = row_of(f, column);
	if (!row)
		return 0;
	if ((u32)(z * f->span >> 32) >= row->own) {
		row = row_of(f, row->other);
		if (!row)
			return 0;
	}
	u64 low = row->low, high = row->high;
	u32 host = row->host;
	if (host > 64) {
		high |= random(&p->random) >> ((128 - host) & 63);
		low |= random(&p->random);
	} else if (host) {
		low |= random(&p->random) >> ((64 - host) & 63);
	}
	return f->high ? high : low;
}

ALWAYS u64 next_value(struct field *f, struct place *p)
{
	u32 kind = f->kind;
	if (kind == RANDOM)
		return f->first + upper(random(&p->random), f->span) * f->step;
	if (kind == COUNT || kind == DOWN || kind == COUNT_WIDE || kind == DOWN_WIDE) {
		u64 low = p->value, high = p->value_high, is = f->high ? high : low;
		if (f->every > 1) {
			if (p->left > 1) {
				p->left--;
				return is;
			}
			p->left = f->every;
		}
		if (kind == COUNT) {
			p->value = f->last - low >= f->step ? low + f->step : f->first;
		} else if (kind == DOWN) {
			p->value = low - f->last >= f->step ? low - f->step : f->first;
		} else {
			u128 now = both(high, low), last = both(f->last_high, f->last), step = both(f->step_high, f->step);
			u128 left = kind == COUNT_WIDE ? last - now : now - last;
			u128 next = left < step ? both(f->first_high, f->first) : kind == COUNT_WIDE ? now + step : now - step;
			p->value = next;
			p->value_high = next >> 64;
		}
		return is;
	}
	if (kind == LIST || kind == PICK) {
		u64 at = p->value;
		if (kind == PICK)
			at = upper(random(&p->random), f->span);
		else
			p->value = at + 1 >= f->span ? 0 : at + 1;
		struct row *row = row_of(f, at);
		return !row ? 0 : f->high ? row->high : row->low;
	}
	if (kind == ZIPF)
		return popular(f, p);
	u64 drawn = random(&p->random);
	u128 value = both(f->first_high, f->first);
	if (kind == RANDOM_WIDE) {
		u64 n = upper(drawn, f->span);
		return half(f, value + both(upper(n, f->step) + n * f->step_high, n * f->step));
	}
	/* As many values as a power of two, given by its mask. */
	return half(f, value + (both(drawn, random(&p->random)) & both(f->last_high, f->last)));
}
