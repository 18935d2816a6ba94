// SPDX-License-Identifier: Apache-2.0
// The fast path in the driver hook: packets whose way the graph has decided already leave by the device that it named, without being
// handed to the router. All others go to the sockets, as without this program. Layouts are those of src/fast_path/layout.rs.

#include "common.h"

enum { XDP_REDIRECT = 4 };
enum { MAP_HASH = 1, MAP_PERCPU_ARRAY = 6, MAP_DEVMAP = 14, MAP_XSKMAP = 17, MAP_QUEUE = 22 };
enum { MMAPABLE = 1 << 10 };

static long (*const push)(void *map, const void *value, u64 flags) = (void *)87;
static long (*const redirect)(void *map, u64 key, u64 flags) = (void *)51;
static long (*const adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;
static u64 (*const length_of)(struct xdp_md *ctx) = (void *)188;

#define SHARED_ARRAY(name, entry, entries)         \
	struct {                                   \
		UINT(type, MAP_ARRAY);             \
		TYPE(key, u32);                    \
		TYPE(value, entry);                \
		UINT(max_entries, entries);        \
		UINT(map_flags, MMAPABLE);         \
	} name SECTION(".maps")
#define MAP(name, kind, key_type, entry, entries)  \
	struct {                                   \
		UINT(type, kind);                  \
		TYPE(key, key_type);               \
		TYPE(value, entry);                \
		UINT(max_entries, entries);        \
	} name SECTION(".maps")

/* Devices by the low bits of their index. */
#define INPUTS 1024
/* Devices that packets leave by, and devices with sockets; number 0 is none. */
#define PORTS 256
#define QUEUES 64
#define PATHS 65536
#define DESTINATIONS 65536
/* Destinations that one processor may ask for in a round. */
#define ASKED_MAX 256
#define MAC 0xffffffffffffull

enum { ACCEPTS4 = 1, ACCEPTS6 = 2, UNFINISHED = 4 };

struct control {
	/* 0: everything goes to the graph. */
	u32 on;
	/* Counts up; destinations are asked for a few times in each round, and note the last one in which they were used. */
	u32 round;
};
struct input {
	u32 device, flags;
	u64 mac;
	u32 fib4, fib6;
	/* The number of the device among the ports. */
	u32 port, padding;
};
struct port {
	/* The source address of frames, and the largest IPv4 packet in the upper 16 bits. */
	u64 mac_mtu4;
	u64 mtu6;
};
struct key4 {
	u32 fib, address;
};
struct key6 {
	u32 fib, address[4];
};
struct decision {
	u32 path, used;
};
struct question {
	u32 fib, version, address[4];
};
struct asked {
	u32 round, count;
};
struct received {
	u64 packets4, packets6, bytes;
};
struct traffic {
	u64 packets, bytes;
};

SHARED_ARRAY(controls, struct control, 1);
SHARED_ARRAY(inputs, struct input, INPUTS);
SHARED_ARRAY(ports, struct port, PORTS);
/* By load-balance: the neighbour's MAC address, and in the upper 16 bits the port; port 0: the graph knows. */
SHARED_ARRAY(paths, u64, PATHS);
MAP(decisions4, MAP_HASH, struct key4, struct decision, DESTINATIONS);
MAP(decisions6, MAP_HASH, struct key6, struct decision, DESTINATIONS);
MAP(received, MAP_PERCPU_ARRAY, u32, struct received, PORTS);
MAP(sent, MAP_PERCPU_ARRAY, u32, struct traffic, PORTS);
MAP(used, MAP_PERCPU_ARRAY, u32, struct traffic, PATHS);
MAP(asked, MAP_PERCPU_ARRAY, u32, struct asked, 1);
MAP(sockets, MAP_XSKMAP, u32, u32, PORTS * QUEUES);
MAP(devices, MAP_DEVMAP, u32, u64, PORTS);
struct {
	UINT(type, MAP_QUEUE);
	TYPE(value, struct question);
	UINT(max_entries, 4096);
} questions SECTION(".maps");

#define SWAP16(x) ((u16)__builtin_bswap16(x))

ALWAYS u32 fold(u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Sum of the words of a part of a frame in one piece, not folded; more than 16 bits where the part is not all there. */
APART u64 sum_of(struct xdp_md *ctx, u32 from, u32 length)
{
	/* volatile: the compiler would compute with the end, which the verifier does not allow. */
	volatile u32 *end = &ctx->data_end;
	u64 sum = 0;
	if (from > 128 || length > 4096)
		return ~0ull;
	u8 *at = (u8 *)(long)ctx->data + from;
	for (u32 i = 0; i < 4096 / 32; i++) {
		if (length < 32)
			break;
		if (at + 32 > (u8 *)(long)*end)
			return ~0ull;
		for (u32 word = 0; word < 8; word++)
			sum += *(u32 *)(at + 4 * word);
		at += 32;
		length -= 32;
	}
	for (u32 i = 0; i < 16; i++) {
		if (length < 2)
			break;
		if (at + 2 > (u8 *)(long)*end)
			return ~0ull;
		sum += *(u16 *)at;
		at += 2;
		length -= 2;
	}
	if (length) {
		if (at + 1 > (u8 *)(long)*end)
			return ~0ull;
		sum += *at;
	}
	return sum;
}

/*
 * A kernel at the other end of a veth leaves the checksum of TCP and UDP unfinished: it holds the sum of the pseudo-header. 0 where that
 * is not so, or has been put right; the graph does what cannot be done here.
 */
ALWAYS int finish(struct xdp_md *ctx, u32 at, u32 length, u32 protocol, u64 addresses)
{
	u32 field = at + (protocol == 6 ? 16 : 6);
	if (protocol != 6 && protocol != 17)
		return 0;
	u8 *data = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
	if (field > 128 || data + field + 2 > end)
		return 1;
	u32 pseudo = fold(addresses + SWAP16(protocol) + SWAP16(length));
	if (*(u16 *)(data + field) != pseudo)
		return 0;
	u64 sum = sum_of(ctx, at, length);
	if (sum == ~0ull)
		return 1;
	u32 check = ~fold(sum) & 0xffff;
	if (!check && protocol == 17)
		check = 0xffff;
	data = (u8 *)(long)ctx->data;
	end = (u8 *)(long)ctx->data_end;
	if (data + field + 2 > end)
		return 1;
	*(u16 *)(data + field) = check;
	return 0;
}

/* Says that this processor may ask once more in this round. */
ALWAYS int may_ask(u32 round)
{
	u32 zero = 0;
	struct asked *mine = lookup(&asked, &zero);
	if (!mine)
		return 0;
	if (mine->round != round) {
		mine->round = round;
		mine->count = 0;
	}
	return mine->count++ < ASKED_MAX;
}

/* The way of a packet of so many bytes, without its frame's header; 0: to the graph. */
ALWAYS u64 way(struct decision *decision, u32 round, u32 own)
{
	if (decision->used != round)
		decision->used = round;
	u32 index = decision->path;
	u64 *path = lookup(&paths, &index);
	if (!path)
		return 0;
	u64 found = *(volatile u64 *)path;
	return found >> 48 == own ? 0 : found;
}

/* Counts a packet, writes the header of its frame and sends it. */
ALWAYS int leave(struct xdp_md *ctx, u64 path, struct port *out, u32 index, u32 own, u32 received_bytes, u32 length, int is6)
{
	u8 *data = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
	u32 number = path >> 48;
	if (data + 14 > end)
		return XDP_DROP;
	u64 source = *(volatile u64 *)&out->mac_mtu4;
	*(u16 *)data = path;
	*(u32 *)(data + 2) = path >> 16;
	*(u32 *)(data + 6) = source;
	*(u16 *)(data + 10) = source >> 32;
	struct received *in = lookup(&received, &own);
	if (in) {
		if (is6)
			in->packets6++;
		else
			in->packets4++;
		in->bytes += received_bytes;
	}
	struct traffic *by_path = lookup(&used, &index);
	if (by_path) {
		by_path->packets++;
		by_path->bytes += length;
	}
	struct traffic *by_port = lookup(&sent, &number);
	if (by_port) {
		by_port->packets++;
		by_port->bytes += length + 14;
	}
	return redirect(&devices, number, XDP_DROP);
}

/* Cuts what follows the packet in its frame; the pointers of before are void then. */
ALWAYS int trim(struct xdp_md *ctx, u32 frame, u32 length)
{
	if (frame == length + 14)
		return 0;
	return adjust_tail(ctx, (int)(length + 14) - (int)frame) != 0;
}

SECTION("xdp.frags")
int forward(struct xdp_md *ctx)
{
	u32 zero = 0, device = ctx->ingress_ifindex, index = device & (INPUTS - 1);
	struct input *in = lookup(&inputs, &index);
	struct control *control = lookup(&controls, &zero);
	if (!in || !control || in->device != device)
		return XDP_PASS;
	u32 own = in->port, flags = in->flags, queue = ctx->rx_queue_index;
	u8 *data = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
	if (own >= PORTS)
		return XDP_PASS;
	if (!control->on || !(flags & (ACCEPTS4 | ACCEPTS6)) || data + 14 + 20 > end)
		goto graph;
	u32 round = control->round, frame = length_of(ctx);
	u64 mac = (u64)*(u32 *)data | (u64)*(u16 *)(data + 4) << 32;
	if (mac != in->mac)
		goto graph;
	u16 type = *(u16 *)(data + 12);
	if (type == SWAP16(0x0800) && flags & ACCEPTS4) {
		u8 *ip = data + 14;
		u32 length = SWAP16(*(u16 *)(ip + 2)), source = *(u32 *)(ip + 12), destination = *(u32 *)(ip + 16);
		u32 first = source & 0xff, ttl = ip[8], protocol = ip[9];
		u64 sum = (u64)*(u32 *)ip + *(u32 *)(ip + 4) + *(u32 *)(ip + 8) + source + destination;
		if (ip[0] != 0x45 || length < 20 || length + 14 > frame || *(u16 *)(ip + 6) & SWAP16(0x3fff) || ttl < 2 ||
		    !first || first == 127 || first >= 224 || fold(sum) != 0xffff)
			goto graph;
		struct key4 key = { in->fib4, destination };
		struct decision *decision = lookup(&decisions4, &key);
		if (!decision) {
			struct question question = { key.fib, 4, { destination, 0, 0, 0 } };
			if (may_ask(round))
				push(&questions, &question, 0);
			goto graph;
		}
		u64 path = way(decision, round, own);
		u32 number = path >> 48, entry = decision->path;
		struct port *out = lookup(&ports, &number);
		if (!number || !out || length > *(volatile u64 *)&out->mac_mtu4 >> 48)
			goto graph;
		if (flags & UNFINISHED && finish(ctx, 34, length - 20, protocol, (u64)source + destination))
			goto graph;
		if (trim(ctx, frame, length))
			goto graph;
		data = (u8 *)(long)ctx->data;
		end = (u8 *)(long)ctx->data_end;
		if (data + 34 > end)
			goto graph;
		/* RFC 1624: one hop less, so the checksum is one more in the same byte. */
		u32 check = *(u16 *)(data + 24) + SWAP16(0x0100);
		*(u16 *)(data + 24) = check + (check >> 16);
		data[22] = ttl - 1;
		return leave(ctx, path, out, entry, own, frame, length, 0);
	}
	if (type == SWAP16(0x86dd) && flags & ACCEPTS6 && data + 14 + 40 <= end) {
		u8 *ip = data + 14;
		u32 length = SWAP16(*(u16 *)(ip + 4)) + 40, next = ip[6], hops = ip[7], source = *(u32 *)(ip + 8);
		if (ip[0] >> 4 != 6 || length + 14 > frame || !next || hops < 2 || !source || (source & 0xff) == 0xff ||
		    (source & 0xc0ff) == 0x80fe)
			goto graph;
		struct key6 key = { in->fib6,
				    { *(u32 *)(ip + 24), *(u32 *)(ip + 28), *(u32 *)(ip + 32), *(u32 *)(ip + 36) } };
		struct decision *decision = lookup(&decisions6, &key);
		if (!decision) {
			struct question question = {
				key.fib, 6, { key.address[0], key.address[1], key.address[2], key.address[3] }
			};
			if (may_ask(round))
				push(&questions, &question, 0);
			goto graph;
		}
		u64 path = way(decision, round, own);
		u32 number = path >> 48, entry = decision->path;
		struct port *out = lookup(&ports, &number);
		if (!number || !out || length > (*(volatile u64 *)&out->mtu6 & 0xffff))
			goto graph;
		u64 addresses = (u64)source + *(u32 *)(ip + 12) + *(u32 *)(ip + 16) + *(u32 *)(ip + 20) + key.address[0] +
				key.address[1] + key.address[2] + key.address[3];
		if (flags & UNFINISHED && finish(ctx, 54, length - 40, next, addresses))
			goto graph;
		if (trim(ctx, frame, length))
			goto graph;
		data = (u8 *)(long)ctx->data;
		end = (u8 *)(long)ctx->data_end;
		if (data + 54 > end)
			goto graph;
		data[21] = hops - 1;
		return leave(ctx, path, out, entry, own, frame, length, 1);
	}
graph:
	if (queue >= QUEUES)
		return XDP_PASS;
	return redirect(&sockets, own * QUEUES + queue, XDP_PASS);
}
