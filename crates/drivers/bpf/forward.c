// SPDX-License-Identifier: Apache-2.0
// The fast path: packets whose way the graph has decided already leave by the device that it named, without being handed to the router.
// All others go to the sockets, as without these programs. This file has the program in the driver hook, for AF_XDP; ingress.h those
// for packet sockets.

#include "fast_path.h"
#include "ingress.h"

enum { XDP_REDIRECT = 4 };

static long (*const redirect)(void *map, u64 key, u64 flags) = (void *)51;
static long (*const adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;
static u64 (*const length_of)(struct xdp_md *ctx) = (void *)188;

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

/* Counts a packet, writes the header of its frame and sends it. */
ALWAYS int leave(struct xdp_md *ctx, struct way *way, u32 own, u32 frame, int is6)
{
	u8 *data = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
	u32 number = way->path >> 48;
	if (data + 14 > end)
		return XDP_DROP;
	*(u16 *)data = way->path;
	*(u32 *)(data + 2) = way->path >> 16;
	*(u32 *)(data + 6) = way->mac_mtu4;
	*(u16 *)(data + 10) = way->mac_mtu4 >> 32;
	count(way->path, way->entry, own, is6, 1, frame, way->length);
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
	struct way way;
	if (type == SWAP16(0x0800) && flags & ACCEPTS4) {
		u32 ttl = data[22];
		if (!way4(&way, in, round, own, data + 14, frame) || !(way.mtu6_device & TAKES) || way.length > way.mac_mtu4 >> 48)
			goto graph;
		if (flags & UNFINISHED && finish(ctx, 34, way.length - 20, way.protocol, way.addresses))
			goto graph;
		if (trim(ctx, frame, way.length))
			goto graph;
		data = (u8 *)(long)ctx->data;
		end = (u8 *)(long)ctx->data_end;
		if (data + 34 > end)
			goto graph;
		/* RFC 1624: one hop less, so the checksum is one more in the same byte. */
		u32 check = *(u16 *)(data + 24) + SWAP16(0x0100);
		*(u16 *)(data + 24) = check + (check >> 16);
		data[22] = ttl - 1;
		return leave(ctx, &way, own, frame, 0);
	}
	if (type == SWAP16(0x86dd) && flags & ACCEPTS6 && data + 14 + 40 <= end) {
		u32 hops = data[21];
		if (!way6(&way, in, round, own, data + 14, frame) || !(way.mtu6_device & TAKES) || way.length > (way.mtu6_device & 0xffff))
			goto graph;
		if (flags & UNFINISHED && finish(ctx, 54, way.length - 40, way.protocol, way.addresses))
			goto graph;
		if (trim(ctx, frame, way.length))
			goto graph;
		data = (u8 *)(long)ctx->data;
		end = (u8 *)(long)ctx->data_end;
		if (data + 54 > end)
			goto graph;
		data[21] = hops - 1;
		return leave(ctx, &way, own, frame, 1);
	}
graph:
	if (queue >= QUEUES)
		return XDP_PASS;
	return redirect(&sockets, own * QUEUES + queue, XDP_PASS);
}
