// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause
// A router in the kernel's earliest hook: routes and neighbours are the kernel's own, the frame never becomes a socket buffer.
//
//   frame ─► whole IPv4 or IPv6 header, TTL > 1? ─► bpf_fib_lookup ─► TTL, checksum, link addresses ─► out of the other device
//                        │ no                            │ no route, no neighbour yet, too long
//                        └────────────► on to the kernel ◄┘  which answers ARP, ND and ICMP, and forwards what is left over
//
// What it does to a packet is what RFC 1812, 5.2 and RFC 8200 ask of a router's fast path; whatever needs more is the kernel's.
// Frames to other stations are not told apart: the ports of a test lead to this router only. No headers of the system are
// used, so that nothing but clang is needed. The licence below is what the kernel demands before it lets bpf_fib_lookup be called.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long s64;

#define SECTION(name) __attribute__((section(name), used))
#define ALWAYS static inline __attribute__((always_inline))
#define BIG(x) __builtin_bswap16(x)
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "written for little-endian machines"
#endif

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
enum { XDP_PASS = 2 };
enum { INET = 2, INET6 = 10 };
enum { IPV4 = BIG(0x0800), IPV6 = BIG(0x86dd) };

struct ethernet {
	u8 to[6], from[6];
	u16 type;
};
struct ipv4 {
	u8 version_length, tos;
	u16 length, id, fragment;
	u8 ttl, protocol;
	u16 checksum;
	u32 from, to;
};
struct ipv6 {
	u32 class_flow;
	u16 length;
	u8 next, hop_limit;
	u32 from[4], to[4];
};
// The kernel's struct bpf_fib_lookup.
struct route {
	u8 family, protocol;
	u16 sport, dport, length;
	u32 device; // asked with the one that it came in by, answered with the one that it leaves by
	u32 class_flow;
	u32 from[4], to[4];
	u16 vlan[2];
	u8 smac[6], dmac[6];
};
_Static_assert(sizeof(struct route) == 64, "layout of struct bpf_fib_lookup");

static s64 (*const redirect)(u32 device, unsigned long long flags) = (void *)23;
static s64 (*const fib_lookup)(struct xdp_md *, struct route *, int size, u32 flags) = (void *)69;

// Whether a header of 20 bytes adds up.
ALWAYS int adds_up(const struct ipv4 *ip)
{
	const u16 *words = (const u16 *)ip;
	u32 sum = 0;

#pragma clang loop unroll(full)
	for (int i = 0; i < 10; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

// Asks the kernel's tables; writes the link addresses. Returns the device that the frame leaves by, or 0.
ALWAYS u32 routed(struct xdp_md *ctx, struct ethernet *eth, struct route *route)
{
	route->device = ctx->ingress_ifindex;
	if (fib_lookup(ctx, route, sizeof(*route), 0))
		return 0;
	__builtin_memcpy(eth->to, route->dmac, 6);
	__builtin_memcpy(eth->from, route->smac, 6);
	return route->device;
}

ALWAYS u32 forward4(struct xdp_md *ctx, struct ethernet *eth, const u8 *end)
{
	struct ipv4 *ip = (void *)(eth + 1);
	struct route route = {.family = INET};
	u32 device, sum;

	if ((const u8 *)(ip + 1) > end)
		return 0;
	// Options, what is cut short, and what ends here.
	if (ip->version_length != 0x45 || ip->ttl <= 1 || BIG(ip->length) < sizeof(*ip) || !adds_up(ip))
		return 0;
	if (BIG(ip->length) > end - (const u8 *)ip)
		return 0;
	route.protocol = ip->protocol;
	route.length = BIG(ip->length);
	route.class_flow = ip->tos;
	route.from[0] = ip->from;
	route.to[0] = ip->to;
	device = routed(ctx, eth, &route);
	if (!device)
		return 0;
	ip->ttl--;
	// RFC 1141: one less in the upper half of a word is 0x0100 more in the sum's complement.
	sum = ip->checksum + (u32)BIG(0x0100);
	ip->checksum = sum + (sum >= 0xffff);
	return device;
}

ALWAYS u32 forward6(struct xdp_md *ctx, struct ethernet *eth, const u8 *end)
{
	struct ipv6 *ip = (void *)(eth + 1);
	struct route route = {.family = INET6};
	u32 device;

	if ((const u8 *)(ip + 1) > end)
		return 0;
	// Hop-by-hop options are every router's to read.
	if ((*(u8 *)ip >> 4) != 6 || ip->hop_limit <= 1 || ip->next == 0)
		return 0;
	if (BIG(ip->length) > end - (const u8 *)(ip + 1))
		return 0;
	route.protocol = ip->next;
	route.length = BIG(ip->length) + sizeof(*ip);
	route.class_flow = ip->class_flow & 0xffffff0f; // the kernel wants it without the version
	__builtin_memcpy(route.from, ip->from, 16);
	__builtin_memcpy(route.to, ip->to, 16);
	device = routed(ctx, eth, &route);
	if (device)
		ip->hop_limit--;
	return device;
}

SECTION("xdp") int forward(struct xdp_md *ctx)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	const u8 *end = (void *)(long)ctx->data_end;
	u32 device = 0;

	// What is for several stations is never forwarded here.
	if ((const u8 *)(eth + 1) > end || (eth->to[0] & 1))
		return XDP_PASS;
	if (eth->type == IPV4)
		device = forward4(ctx, eth, end);
	else if (eth->type == IPV6)
		device = forward6(ctx, eth, end);
	return device ? redirect(device, 0) : XDP_PASS;
}

SECTION("license") const char terms[] = "Dual BSD/GPL";
