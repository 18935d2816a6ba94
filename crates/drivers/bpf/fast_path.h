// SPDX-License-Identifier: Apache-2.0
// The fast path's maps, and how a packet's way is found in them: the same for all its programs. Layouts are those of
// src/fast_path/layout.rs.

#include "common.h"

enum { MAP_HASH = 1, MAP_PERCPU_ARRAY = 6, MAP_DEVMAP = 14, MAP_XSKMAP = 17, MAP_QUEUE = 22 };
enum { MMAPABLE = 1 << 10 };

static long (*const push)(void *map, const void *value, u64 flags) = (void *)87;

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

enum { ACCEPTS4 = 1, ACCEPTS6 = 2, UNFINISHED = 4 };
/* The device of a port takes frames from programs in the driver hook; frames with a socket buffer go straight to its other end. */
#define TAKES (1 << 16)
#define DIRECT (1 << 17)

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
	/* The largest IPv6 packet, TAKES and DIRECT, and the index of the device in the upper half. */
	u64 mtu6_device;
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

/* A packet whose way is decided. */
struct way {
	/* The neighbour's MAC address, and the port in the upper 16 bits. */
	u64 path;
	/* The two words of the port. */
	u64 mac_mtu4, mtu6_device;
	/* The sum of the words of both addresses. */
	u64 addresses;
	/* The load-balance, bytes of the IP packet, the protocol after its header. */
	u32 entry, length, protocol;
};

/* Where a decision leads, for packets that came in by port `own`; 0: to the graph. */
ALWAYS int follow(struct way *way, struct decision *decision, u32 round, u32 own)
{
	if (decision->used != round)
		decision->used = round;
	u32 index = way->entry = decision->path;
	u64 *path = lookup(&paths, &index);
	if (!path)
		return 0;
	way->path = *(volatile u64 *)path;
	u32 number = way->path >> 48;
	struct port *out = lookup(&ports, &number);
	if (!number || number == own || !out)
		return 0;
	way->mtu6_device = *(volatile u64 *)&out->mtu6_device;
	way->mac_mtu4 = *(volatile u64 *)&out->mac_mtu4;
	return 1;
}

/* The way of the IPv4 packet whose header begins at `ip`, in a frame of so many bytes; 0: to the graph. */
ALWAYS int way4(struct way *way, struct input *in, u32 round, u32 own, const u8 *ip, u32 frame)
{
	u32 length = SWAP16(*(u16 *)(ip + 2)), source = *(u32 *)(ip + 12), destination = *(u32 *)(ip + 16);
	u32 first = source & 0xff;
	u64 sum = (u64)*(u32 *)ip + *(u32 *)(ip + 4) + *(u32 *)(ip + 8) + source + destination;
	if (ip[0] != 0x45 || length < 20 || length + 14 > frame || *(u16 *)(ip + 6) & SWAP16(0x3fff) || ip[8] < 2 || !first ||
	    first == 127 || first >= 224 || fold(sum) != 0xffff)
		return 0;
	way->length = length;
	way->protocol = ip[9];
	way->addresses = (u64)source + destination;
	struct key4 key = { in->fib4, destination };
	struct decision *decision = lookup(&decisions4, &key);
	if (!decision) {
		struct question question = { key.fib, 4, { destination, 0, 0, 0 } };
		if (may_ask(round))
			push(&questions, &question, 0);
		return 0;
	}
	return follow(way, decision, round, own);
}

/* The same for IPv6. */
ALWAYS int way6(struct way *way, struct input *in, u32 round, u32 own, const u8 *ip, u32 frame)
{
	u32 length = SWAP16(*(u16 *)(ip + 4)) + 40, next = ip[6], source = *(u32 *)(ip + 8);
	if (ip[0] >> 4 != 6 || length + 14 > frame || !next || ip[7] < 2 || !source || (source & 0xff) == 0xff ||
	    (source & 0xc0ff) == 0x80fe)
		return 0;
	struct key6 key = { in->fib6, { *(u32 *)(ip + 24), *(u32 *)(ip + 28), *(u32 *)(ip + 32), *(u32 *)(ip + 36) } };
	way->length = length;
	way->protocol = next;
	way->addresses = (u64)source + *(u32 *)(ip + 12) + *(u32 *)(ip + 16) + *(u32 *)(ip + 20) + key.address[0] + key.address[1] +
			 key.address[2] + key.address[3];
	struct decision *decision = lookup(&decisions6, &key);
	if (!decision) {
		struct question question = { key.fib, 6, { key.address[0], key.address[1], key.address[2], key.address[3] } };
		if (may_ask(round))
			push(&questions, &question, 0);
		return 0;
	}
	return follow(way, decision, round, own);
}

/* Counts what leaves: packets, bytes of frames that came in, bytes of IP packets. */
ALWAYS void count(u64 path, u32 entry, u32 own, int is6, u32 packets, u32 received_bytes, u32 bytes)
{
	u32 number = path >> 48;
	struct received *in = lookup(&received, &own);
	if (in) {
		if (is6)
			in->packets6 += packets;
		else
			in->packets4 += packets;
		in->bytes += received_bytes;
	}
	struct traffic *by_path = lookup(&used, &entry);
	if (by_path) {
		by_path->packets += packets;
		by_path->bytes += bytes;
	}
	struct traffic *by_port = lookup(&sent, &number);
	if (by_port) {
		by_port->packets += packets;
		by_port->bytes += bytes + 14 * packets;
	}
}
