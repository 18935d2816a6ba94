// SPDX-License-Identifier: Apache-2.0
// The fast path of packet sockets, for frames with a socket buffer: super-frames stay whole, and checksums may be unfinished.
//
//   device ── packet socket: choose ─┬─ decided ── nothing for the router ──► ingress hook: hand_on ──► device of the port
//                                    └─ all else ── router
//
// The kernel asks the socket's filter before it runs the hook, so the filter decides, and the hook does as it says. What it has decided
// lies in a note of the processor: between the two no other frame comes on that processor. The hook knows the note's frame by device,
// length and addresses.

enum { TCX_NEXT = -1, TC_SHOT = 2 };
/* The verdict of a filter: all bytes. */
#define WHOLE 0xffffffff
#define RECOMPUTE_CHECKSUM 1

struct sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex, ifindex,
		tc_index, cb[5], hash, tc_classid, data, data_end, napi_id, family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4],
		remote_port, local_port, data_meta;
	u64 flow_keys, tstamp;
	u32 wire_len, gso_segs;
	u64 sk;
	u32 gso_size;
};

static long (*const store_bytes)(struct sk_buff *skb, u32 offset, const void *from, u32 length, u64 flags) = (void *)9;
static long (*const send_by)(u32 device, u64 flags) = (void *)23;
static long (*const load_bytes)(const void *skb, u32 offset, void *to, u32 length) = (void *)26;
static long (*const change_tail)(struct sk_buff *skb, u32 length, u64 flags) = (void *)38;
/* To the other end of a veth, without a queue in between. */
static long (*const send_to_peer)(u32 device, u64 flags) = (void *)155;

/* A frame that the router does not get. */
struct note {
	/* Its device (0: none) and its bytes. */
	u32 device, length;
	/* Where it leaves, and what is counted: packets, bytes of frames, bytes of packets. */
	u64 path;
	u32 entry, own, out, direct, is6, packets, frame_bytes, bytes;
	/* Bytes that belong to it, without padding. */
	u32 trimmed;
	/* Both addresses. */
	u32 addresses[8];
	/* Its first bytes as they leave: Ethernet, and the IP header up to the hop limit. */
	u16 header[14];
};
MAP(notes, MAP_PERCPU_ARRAY, u32, struct note, 1);

/* IP and transport headers of each segment of a super-frame; 0: it is none that could be counted. */
ALWAYS u32 headers_of(struct sk_buff *skb, u32 l3, u32 protocol)
{
	u8 words;
	if (protocol == 17)
		return l3 + 8;
	if (protocol != 6 || load_bytes(skb, 14 + l3 + 12, &words, 1))
		return 0;
	return l3 + (words >> 4) * 4;
}

SECTION("socket")
u32 choose(struct sk_buff *skb)
{
	u32 zero = 0, device = skb->ifindex, index = device & (INPUTS - 1), frame = skb->len;
	struct note *note = lookup(&notes, &zero);
	struct input *in = lookup(&inputs, &index);
	struct control *control = lookup(&controls, &zero);
	if (!note)
		return WHOLE;
	note->device = 0;
	if (!in || !control || in->device != device || !control->on || skb->vlan_present)
		return WHOLE;
	/* The IP header begins at a whole word. */
	u16 words[28] __attribute__((aligned(8)));
	u8 *ip = (u8 *)(words + 8);
	u32 own = in->port, flags = in->flags, round = control->round;
	if (own >= PORTS || load_bytes(skb, 0, words + 1, 34))
		return WHOLE;
	u64 mac = words[1] | (u32)words[2] << 16 | (u64)words[3] << 32;
	if (mac != in->mac)
		return WHOLE;
	struct way way;
	u32 is6 = words[7] == SWAP16(0x86dd), l3 = is6 ? 40 : 20, mtu;
	if (is6) {
		if (!(flags & ACCEPTS6) || load_bytes(skb, 34, words + 18, 20) || !way6(&way, in, round, own, ip, frame))
			return WHOLE;
		mtu = way.mtu6_device & 0xffff;
	} else {
		if (words[7] != SWAP16(0x0800) || !(flags & ACCEPTS4) || !way4(&way, in, round, own, ip, frame))
			return WHOLE;
		mtu = way.mac_mtu4 >> 48;
	}
	u32 out = way.mtu6_device >> 32, size = skb->gso_size, packets = 1, more = 0, largest = way.length;
	if (size) {
		u32 headers = headers_of(skb, l3, way.protocol);
		if (headers < l3 + 8 || way.length <= headers || frame != way.length + 14)
			return WHOLE;
		packets = (way.length - headers + size - 1) / size;
		more = (packets - 1) * headers;
		largest = headers + size;
	}
	if (!out || largest > mtu)
		return WHOLE;
	note->length = frame;
	note->trimmed = way.length + 14;
	note->path = way.path;
	note->entry = way.entry;
	note->own = own;
	note->out = out;
	note->direct = way.mtu6_device & DIRECT;
	note->is6 = is6;
	note->packets = packets;
	note->frame_bytes = frame + more + 14 * (packets - 1);
	note->bytes = way.length + more;
	note->header[0] = way.path;
	note->header[1] = way.path >> 16;
	note->header[2] = way.path >> 32;
	note->header[3] = way.mac_mtu4;
	note->header[4] = way.mac_mtu4 >> 16;
	note->header[5] = way.mac_mtu4 >> 32;
	for (u32 i = 6; i < 13; i++)
		note->header[i] = words[i + 1];
	if (is6) {
		note->header[10] -= SWAP16(0x0001);
		for (u32 i = 0; i < 8; i++)
			note->addresses[i] = *(u32 *)(ip + 8 + 4 * i);
	} else {
		note->header[11] -= SWAP16(0x0100);
		/* RFC 1624: one hop less, so the checksum is one more in the same byte. */
		u32 check = words[13] + SWAP16(0x0100);
		note->header[12] = check + (check >> 16);
		note->addresses[0] = *(u32 *)(ip + 12);
		note->addresses[1] = *(u32 *)(ip + 16);
	}
	note->device = device;
	return 0;
}

SECTION("classifier")
int hand_on(struct sk_buff *skb)
{
	u32 zero = 0, addresses[8];
	struct note *note = lookup(&notes, &zero);
	if (!note || !note->device || note->device != skb->ifindex || note->length != skb->len)
		return TCX_NEXT;
	note->device = 0;
	u32 differs = 0;
	if (note->is6) {
		if (load_bytes(skb, 22, addresses, 32))
			return TCX_NEXT;
		for (u32 i = 0; i < 8; i++)
			differs |= addresses[i] ^ note->addresses[i];
	} else {
		if (load_bytes(skb, 26, addresses, 8))
			return TCX_NEXT;
		differs = (addresses[0] ^ note->addresses[0]) | (addresses[1] ^ note->addresses[1]);
	}
	if (differs)
		return TCX_NEXT;
	if (store_bytes(skb, 0, note->header, 14, 0) ||
	    store_bytes(skb, 14, note->header + 7, note->is6 ? 8 : 12, RECOMPUTE_CHECKSUM))
		return TC_SHOT;
	/* Padding that cannot be cut goes along. */
	if (note->length > note->trimmed)
		change_tail(skb, note->trimmed, 0);
	count(note->path, note->entry, note->own, note->is6, note->packets, note->frame_bytes, note->bytes);
	return note->direct ? send_to_peer(note->out, 0) : send_by(note->out, 0);
}
